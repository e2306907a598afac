"""Plots of a test that sends: each second of both directions, with the test's share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from scionlab.enforcement.directions import DIRECTIONS, DirectionName
from scionlab.linktests.pages.step_plot import StepPlot, step_plots
from scionlab.linktests.pages.tcp_plot import TcpPlot, tcp_plots
from scionlab.linktests.pages.watch import slots_of_test
from scionlab.linktests.sending_verdict import SendingSide, SendingVerdict
from scionlab.linktests.test_status import TestStatus
from scionlab.web.pages.plots import Slot, UsagePlot, scale_of, ticks, usage_plot
from station.plan import LOADING, TCP, frame_bytes, segments_bytes

_NAMES: Final = {"to_user": "To your AS", "from_user": "From your AS"}


@dataclass(frozen=True)
class SendingDirection:
    """`plot` is everything that passed, `own` the test's share on the same scale; `steps`: its phases, if they differ;
    `tcp`: its connections."""

    key: DirectionName
    name: str
    plot: UsagePlot
    own: str
    side: SendingSide
    steps: StepPlot | None
    tcp: TcpPlot | None


@dataclass(frozen=True)
class SendingPanel:
    """`rows`: both directions of each second, each with the test's rate."""

    directions: list[SendingDirection]
    rows: list[tuple[tuple[Slot, float], tuple[Slot, float]]]
    ticks: list[datetime]


def sending_panel(status: TestStatus) -> SendingPanel | None:
    """None without measurements, and for a test without load."""
    verdict, result, test = status.verdict, status.result, status.test
    if not isinstance(verdict, SendingVerdict) or result is None or not any(side.steps for side in verdict.sides):
        return None
    slots = {name: slots_of_test(test, result, name) for name in DIRECTIONS}
    own = {name: _own_kbit(status, name, slots[name]) for name in DIRECTIONS}
    top = scale_of(list(slots.values()))
    tcp = {one.key: one for one in tcp_plots(verdict)}
    steps = step_plots(verdict, test.begins_at)
    directions = []
    for side in verdict.sides:
        of_test = [
            _with_rate(slot, kbit) for slot, kbit in zip(slots[side.direction], own[side.direction], strict=True)
        ]
        plot = usage_plot(slots[side.direction], top_kbit=top)
        drawn = usage_plot(of_test, top_kbit=top).used
        key = side.direction
        directions.append(SendingDirection(key, _NAMES[key], plot, drawn, side, steps.get(key), tcp.get(key)))
    to_user, from_user = (zip(slots[name], own[name], strict=True) for name in DIRECTIONS)
    moments = ticks(test.begins_at, test.ends_at, 4)
    return SendingPanel(directions, list(zip(to_user, from_user, strict=True)), moments)


def _own_kbit(status: TestStatus, direction: DirectionName, slots: Sequence[Slot]) -> list[float]:
    """What the receiver counted, at most what passed. If the user's end has not reported, or is contradicted, what the
    attachment point sent."""
    result, user = status.result, status.user_report
    ap = {} if result is None or result.report is None else {one["number"]: one for one in result.report["phases"]}
    by_user = {} if user is None else {one["number"]: one for one in user["phases"]}
    bytes_of = [0.0] * len(slots)
    began_ms = round(status.test.begins_at.timestamp() * 1000)
    user_end = status.test.link.interface_b
    version, is_vpn = 6 if ":" in user_end.public_ip else 4, user_end.vpn_client_id is not None
    for planned in status.test.phases or ():
        of_ap = ap.get(planned["number"])
        if of_ap is None or planned["kind"] not in LOADING or planned["direction"] != direction:
            continue
        frame = frame_bytes(planned["payload_bytes"], version, is_vpn=is_vpn)
        offset_s = (of_ap["begins_at_ms"] - began_ms) / 1000  # rows are whole seconds since then
        for row, (packets, payload) in enumerate(_received(direction, of_ap, by_user.get(planned["number"]))):
            is_tcp = planned["kind"] == TCP
            counted = segments_bytes(payload, version, is_vpn=is_vpn) if is_tcp else packets * frame
            _spread(bytes_of, offset_s + row, counted)
    return [min(count * 8 / 1000, slot.kbit or 0.0) for count, slot in zip(bytes_of, slots, strict=True)]


def _received(direction: DirectionName, ap: dict[str, Any], user: dict[str, Any] | None) -> list[list[int]]:
    if direction == "to_user" and user is None:
        return [row[:2] for row in ap["seconds"]]
    end = ap if direction == "from_user" or user is None else user
    return [row[2:] for row in end["seconds"]]


def _spread(bytes_of: list[float], at_s: float, count: float) -> None:
    first = int(at_s)
    later = at_s - first
    for second, part in ((first, 1 - later), (first + 1, later)):
        if 0 <= second < len(bytes_of):
            bytes_of[second] += count * part


def _with_rate(slot: Slot, kbit: float) -> Slot:
    return replace(slot, kbit=None if slot.kbit is None else kbit)
