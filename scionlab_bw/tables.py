"""What the commands print: documents of the service as text or JSON. Its text is cleaned (`terminal`)."""

from __future__ import annotations

import json
import sys
import textwrap
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from scionlab_bw.units import format_bandwidth, format_bytes, format_number, format_seconds
from terminal import clean, columns, table

STATES = ("failed", "no_report", "waiting", "delivered", "observed", "clamped", "blocked", "enforced", "inactive")


def state(status: dict[str, Any]) -> str:
    """The state's code from the service, with spaces."""
    return str(status["state"]).replace("_", " ")


def print_json(found: Any, *, indent: int | None = 2) -> None:
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8" if sys.stdout else False
    print(json.dumps(found, indent=indent, ensure_ascii=not is_utf8), flush=True)


def show(arguments: Namespace, found: Any, text: str) -> int:
    """A document of the service: as JSON, or as this text."""
    if arguments.json:
        print_json(found)
    else:
        print(text)
    return 0


def say(arguments: Namespace, found: Any, text: str) -> int:
    """The same, with foreign text."""
    return show(arguments, found, clean(text))


def tell(arguments: Namespace, text: str) -> None:
    """What happens meanwhile; nothing with --json."""
    if not arguments.json:
        print(clean(text), flush=True)


def facts(rows: Sequence[tuple[str, Any]]) -> str:
    """A line for each, wrapped to the terminal."""
    width = max(len(name) for name, _ in rows) + 2
    room = max(20, (columns() or sys.maxsize) - width)
    wrapped = ((name, textwrap.wrap(clean(value), room) or [""]) for name, value in rows)
    indent = "\n" + " " * width
    return "\n".join(f"{name.ljust(width)}{indent.join(lines)}".rstrip() for name, lines in wrapped)


def moment(text: str | None) -> str:
    return "-" if text is None else f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def limits(found: dict[str, Any] | None) -> str:
    """`500 kbit/s`, or both directions if they differ."""
    if found is None:
        return "-"
    to_user, from_user = found["to_user_kbit"], found["from_user_kbit"]
    if to_user == from_user:
        return format_bandwidth(to_user) + (" (blocked)" if to_user == 0 else "")
    return f"{format_bandwidth(to_user)} to the user AS, {format_bandwidth(from_user)} from it"


def described(link: dict[str, Any], now: datetime) -> str:
    status = link["status"]
    label = f" ({link['as_label']})" if link["as_label"] else ""
    rows: list[tuple[str, Any]] = [
        ("Link", f"{link['id']}: {link['isd_as']}{label} at {link['attachment_point']}"),
        ("Address", f"{link['public_ip']} port {link['public_port']}" + (", over the VPN" if link["use_vpn"] else "")),
        ("Requested", limits(status["requested"])),
        ("Maximum", format_bandwidth(status["maximum_kbit"])),
    ]
    running = status["running"]
    if running is not None:
        left = datetime.fromisoformat(running["ends_at"]) - now
        until = f"until {moment(running['ends_at'])}, {format_seconds(max(0.0, left.total_seconds()))} left"
        rows.append(("Now", f"{limits(status['wanted'])}: {running['kind']} {until}"))
    rows += [
        ("Next" if index == 0 else "Then", f"{one['kind']} from {moment(one['begins_at'])}")
        for index, one in enumerate(status["upcoming"])
    ]
    known = status["last_known"]
    is_observed = status["stage"] == "observed"
    kernel = "Kernel has" if status["stage"] != "silent" else "Last known"
    read = f", reported {moment(status['read_at'])}" if status.get("read_at") else ""
    rows += [
        (kernel, ("no limit" if is_observed else limits(known)) + read),
        ("State", f"{state(status)} since {moment(status['since'])}"),
        ("", status["text"]),
    ]
    return facts(rows)


def used(found: dict[str, Any]) -> str:
    """Usage of a Link, one line per step."""
    rows = [
        (moment(point["begins_at"]), *_cells(point["to_user"]), *_cells(point["from_user"]))
        for point in found["points"]
        if point["to_user"] is not None or point["from_user"] is not None
    ]
    gaps = len(found["points"]) - len(rows)
    headers = ["START", "TO USER", "LIMIT", "BYTES", "DROPS", "FROM USER", "LIMIT", "BYTES", "DROPS"]
    text = table(headers, rows, right=headers[1:]) if rows else "No data for this period."
    note = f"\n\nSteps of {format_seconds(found['step_s'])}; rates and limits in kbit/s." if rows else ""
    return text + note + (f" No data for {gaps} more steps." if gaps and rows else "")


def _cells(one: dict[str, Any] | None) -> tuple[str, str, str, str]:
    if one is None:
        return "-", "-", "-", "-"
    return (
        format_number(one["kbit"]),
        format_number(one["limit_kbit"]),
        format_bytes(one["bytes"]),
        format_number(one["drops"]),
    )


def path(found: dict[str, Any], number: int) -> str:
    """The links of a path in the direction of travel, and the sentence on the limits."""
    rows = [
        (
            f"{one['from_isd_as']}#{one['from_interface_id']}",
            f"{one['to_isd_as']}#{one['to_interface_id']}",
            format_number(one["limit_kbit"]),
            format_number(one["enforced_kbit"]),
            state(one) if one["state"] else one["kind"].replace("_", " "),
            "-" if one["used"] is None else format_number(one["used"]["kbit"]),
            "-" if one["to_rtt_ms"] is None else f"{one['to_rtt_ms']:.2f}",
            "narrowest" if one["is_narrowest"] else "",
        )
        for one in found["links"]
    ]
    headers = ["FROM", "TO", "LIMIT", "ENFORCED", "STATE", "USED", "RTT", ""]
    title = f"Path {number}: {clean(found['hops'][0])} to {clean(found['hops'][-1])}"
    return f"{title}\n{table(headers, rows, right=('LIMIT', 'ENFORCED', 'USED', 'RTT'))}\n{clean(found['text'])}"
