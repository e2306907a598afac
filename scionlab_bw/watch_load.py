"""`watch-load`: watch a Link during traffic, with a line per second, then the verdict."""

from __future__ import annotations

from argparse import Namespace
from datetime import datetime
from typing import Any

from scionlab_bw import links, tables
from scionlab_bw.client import Service
from scionlab_bw.reserve import reserve, until_over
from scionlab_bw.units import format_number, format_seconds, parse_duration

YES = {"full", "at_times"}


def watch_load(service: Service, arguments: Namespace) -> int:
    """0: this Link was full, at least at times. 1: it was not, or no verdict. Cancelled if interrupted."""
    link = links.find(service, arguments.link).content
    body: dict[str, Any] = {"duration_s": parse_duration(arguments.duration)}
    made = reserve(service, f"links/{link['id']}/tests/", body, arguments)
    length = format_seconds(body["duration_s"])
    tables.tell(arguments, f"Watch {made['id']} for {length} from {tables.moment(made['begins_at'])} on.")
    try:
        found = _follow(service, made, arguments)
    except KeyboardInterrupt:
        service.delete(f"tests/{made['id']}/")
        raise
    tables.say(arguments, found, found["text"])
    verdict = found["verdict"]
    return 0 if found["state"] == "finished" and verdict is not None and verdict["code"] in YES else 1


def _follow(service: Service, made: dict[str, Any], arguments: Namespace) -> dict[str, Any]:
    """Until it ends, with a line for each second and each obstacle."""
    shown, obstacle = 0, ""

    def tell(found: dict[str, Any]) -> None:
        nonlocal shown, obstacle
        for point in found["points"][shown:]:
            tables.tell(arguments, _line(point))
        shown = max(shown, len(found["points"]))
        if found["state"] == "scheduled" and found["text"] != obstacle:
            obstacle = found["text"]
            tables.tell(arguments, obstacle)

    return until_over(service, f"tests/{made['id']}/", tell)


def _line(point: dict[str, Any]) -> str:
    at = datetime.fromisoformat(point["begins_at"]).astimezone()
    sides = "; ".join(
        f"{name} {_side(point[key], point['took_s'])}" for key, name in (("to_user", "to"), ("from_user", "from"))
    )
    return f"{at:%H:%M:%S}  {sides}" + ("" if point["in_force"] else " (not enforced)")


def _side(counted: dict[str, int] | None, took_s: float) -> str:
    """`480 of 500 kbit/s, 3 dropped`."""
    if counted is None:
        return "-"
    kbit = round(counted["passed_bytes"] * 8 / took_s / 1000)
    used = f"{format_number(kbit)} of {format_number(counted['limit_kbit'])} kbit/s"
    dropped = counted["dropped_packets"] + counted["lost_packets"]
    return f"{used}, {format_number(dropped)} dropped" if dropped else used
