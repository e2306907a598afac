"""Terminal output. Control characters in the service's text are removed."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any

from scionlab_bw.units import format_bandwidth, format_bytes, format_number, format_seconds

STATES = ("failed", "no_report", "waiting", "delivered", "observed", "clamped", "blocked", "enforced", "inactive")


def state(status: dict[str, Any]) -> str:
    """The state's code from the service, with spaces."""
    found = str(status.get("state") or status["stage"])  # an older service has only the stage
    return found.replace("_", " ")


def clean(value: Any) -> str:
    """One line, printable."""
    text = "-" if value is None else str(value)
    return "".join(one if one.isprintable() else " " for one in text.replace("\N{NO-BREAK SPACE}", " "))


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


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[int] = ()) -> str:
    """Columns as wide as their content; `right` are numeric. On a terminal the widest of the others are wrapped so that
    the table fits."""
    cells = [list(headers), *([clean(one) for one in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(headers))]
    least = [
        max(
            map(
                len,
                [
                    "",
                    *headers[index].split(),
                    *(part for row in cells[1:] for part in _parts(row[index], index in right)),
                ],
            )
        )
        for index in range(len(headers))
    ]
    too_wide = sum(widths) + 2 * (len(widths) - 1) - (columns() or sys.maxsize)
    while too_wide > 0:
        slack, index = max((widths[one] - least[one], one) for one in range(len(widths)))
        if slack == 0:
            break
        cut = min(slack, too_wide, max(1, slack // 2))
        widths[index], too_wide = widths[index] - cut, too_wide - cut
    lines = []
    for row in cells:
        wrapped = [textwrap.wrap(one, max(1, width)) for one, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*wrapped, fillvalue=""):
            padded = [
                one.rjust(width) if index in right else one.ljust(width)
                for index, (one, width) in enumerate(zip(parts, widths, strict=True))
            ]
            lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _parts(cell: str, is_number: bool) -> list[str]:
    """What is not wrapped."""
    return [cell] if is_number else cell.split()


def columns() -> int | None:
    """Of the terminal; None if the output goes elsewhere."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return None


def facts(rows: Sequence[tuple[str, Any]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {clean(value)}".rstrip() for name, value in rows)


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
    known = status.get("last_known", status["enforced"])  # an older service has only the second
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
    text = table(headers, rows, right=range(1, 9)) if rows else "No data for this period."
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
    return f"{title}\n{table(headers, rows, right=(2, 3, 5, 6))}\n{clean(found['text'])}"
