"""Plots of a watch or a test: each second of both directions. Of a test that sends: also its share, its phases side by
side, and the connections of TCP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from bandwidth_config import format_kbit, format_number
from scionlab.enforcement.directions import DIRECTIONS, NAMES, DirectionName
from scionlab.linktests.models import LinkTest, TestResult
from scionlab.linktests.sending_steps import Step
from scionlab.linktests.sending_verdict import SendingSide, SendingVerdict
from scionlab.linktests.tcp_found import Moment, TcpFound
from scionlab.linktests.test_status import TestStatus
from scionlab.linktests.verdict import Side, intervals_of
from scionlab.web.pages.plots import HEADROOM, HEIGHT, WIDTH, Slot, UsagePlot, scale_of, ticks, usage_plot
from station.plan import LOADING, TCP, frame_bytes, segments_bytes


@dataclass(frozen=True)
class StepPlot:
    """`by`: how the phases differ, `names`: the value of each. Red marks: a second without a complete packet."""

    key: DirectionName
    by: str
    words: str
    plot: UsagePlot
    names: list[str]


def step_plots(verdict: SendingVerdict, begins_at: datetime) -> dict[DirectionName, StepPlot]:
    """By direction, on one scale; none for tools with one phase per direction."""
    slots = {side.direction: [_slot_of_step(one, begins_at) for one in side.steps] for side in verdict.sides}
    top = scale_of(list(slots.values()))
    return {
        side.direction: _step_plot(side.direction, side.steps, usage_plot(slots[side.direction], top_kbit=top))
        for side in verdict.sides
        if len(side.steps) > 1
    }


def _slot_of_step(step: Step, begins_at: datetime) -> Slot:
    """A phase as a slot of the plot; its width is not a time."""
    limit = max(step.limits_kbit, default=None)
    arrived = None if step.is_contradicted else step.received_kbit
    return Slot(begins_at, arrived, limit, bytes=0, drops=step.silent_s or 0, at_limit_s=0.0, covered_s=1.0)


def _step_plot(key: DirectionName, steps: tuple[Step, ...], plot: UsagePlot) -> StepPlot:
    is_by_size = len({one.payload_bytes for one in steps}) > 1
    names = [
        f"{format_number(one.payload_bytes)} bytes" if is_by_size else format_kbit(one.planned_kbit) for one in steps
    ]
    silent = [f"{one.silent_s} s at {name}" for one, name in zip(steps, names, strict=True) if one.silent_s]
    words = f"No complete packet arrived for {', '.join(silent)}." if silent else "Packets arrived in every second."
    if any(one.silent_s is None for one in steps):
        words = "The rate of arrival is not known for every phase."
    by = "the size of packets (payload)" if is_by_size else "the rate that was sent"
    return StepPlot(key, by, words, plot, names)


@dataclass(frozen=True)
class TcpPlot:
    """One direction; `lines` are SVG paths, one per connection; `rows` are its number and a moment."""

    key: DirectionName
    found: TcpFound
    top_kbit: float
    lines: list[str]

    @property
    def rows(self) -> list[tuple[int, Moment]]:
        return [(number, one) for number, moments in enumerate(self.found.connections, start=1) for one in moments]


def tcp_plots(verdict: SendingVerdict) -> list[TcpPlot]:
    """Both directions on one scale; none for other tools, or without a connection."""
    found = {side.direction: step.tcp for side in verdict.sides for step in side.steps if step.tcp is not None}
    several = [moments for one in found.values() for moments in one.connections]
    top = HEADROOM * max((one.kbit for moments in several for one in moments), default=1.0) or 1.0
    return [
        TcpPlot(name, one, top, [_line(moments, one.took_ms, top) for moments in one.connections])
        for name, one in found.items()
    ]


def _line(moments: Sequence[Moment], took_ms: int, top_kbit: float) -> str:
    """In steps: a rate is that since the previous moment."""
    path = ""
    for one in moments:
        y = f"{HEIGHT - HEIGHT * one.kbit / top_kbit:.1f}"
        path += f"{'V' if path else 'M0 '}{y}H{WIDTH * one.until_ms / took_ms:.1f}"
    return path


@dataclass(frozen=True)
class PanelDirection:
    """`plot` is everything that passed, with a slot per second. Of a test that sends, `own` is its share on the same
    scale; `steps`: its phases, if they differ; `tcp`: its connections."""

    key: DirectionName
    plot: UsagePlot
    side: Side | SendingSide
    own: str
    steps: StepPlot | None
    tcp: TcpPlot | None

    @property
    def name(self) -> str:
        return NAMES[self.key]


@dataclass(frozen=True)
class Panel:
    """`rows`: both directions of each second, each with the test's rate."""

    directions: list[PanelDirection]
    rows: list[tuple[tuple[Slot, float], tuple[Slot, float]]]
    ticks: list[datetime]


def panel_of(status: TestStatus) -> Panel | None:
    """None without measurements, and for a test without load."""
    verdict, result, test = status.verdict, status.result, status.test
    if verdict is None or result is None:
        return None
    slots = {name: _slots(test, result, name) for name in DIRECTIONS}
    own = {name: [0.0] * len(rows) for name, rows in slots.items()}
    steps: Mapping[DirectionName, StepPlot] = {}
    tcp: Mapping[DirectionName, TcpPlot] = {}
    if isinstance(verdict, SendingVerdict):
        if not any(side.steps for side in verdict.sides):
            return None
        own = {name: _own_kbit(status, name, rows) for name, rows in slots.items()}
        steps, tcp = step_plots(verdict, test.begins_at), {one.key: one for one in tcp_plots(verdict)}
    top = scale_of(list(slots.values()))
    directions = []
    for side in verdict.sides:
        key = side.direction
        both = zip(slots[key], own[key], strict=True)
        of_test = [slot if slot.kbit is None else replace(slot, kbit=kbit) for slot, kbit in both]
        plot, drawn = (usage_plot(one, top_kbit=top) for one in (slots[key], of_test))
        directions.append(PanelDirection(key, plot, side, drawn.used, steps.get(key), tcp.get(key)))
    to_user, from_user = (zip(slots[name], own[name], strict=True) for name in DIRECTIONS)
    return Panel(directions, list(zip(to_user, from_user, strict=True)), ticks(test.begins_at, test.ends_at, 4))


def _slots(test: LinkTest, result: TestResult, direction: DirectionName) -> list[Slot]:
    """One slot per second of the test; a gap if not measured, or nothing was limited then."""
    began_ms = round(test.begins_at.timestamp() * 1000)
    by_second = {
        (one.begins_at_ms - began_ms) // 1000: one for one in intervals_of(result.samples, direction) if one.is_second
    }
    slots = []
    for second in range(test.duration_s):
        one = by_second.get(second)
        begins_at = test.begins_at + timedelta(seconds=second)
        if one is None:
            slots.append(Slot(begins_at, None, None, 0, 0, 0, 0))
            continue
        covered_s = one.took_ms / 1000
        full_s = covered_s if one.in_force and one.is_full else 0.0
        dropped = one.lost_packets + (one.dropped_packets if one.in_force else 0)
        slots.append(Slot(begins_at, one.kbit, one.limit_kbit, one.passed_bytes, dropped, full_s, covered_s))
    return slots


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
