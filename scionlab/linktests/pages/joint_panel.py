"""Plots of a joint test: the Links of a direction stacked, and each one below its limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scionlab.enforcement.directions import NAMES
from scionlab.linktests.joint_report import JointSide, JointStatus, Load, Second, Sum
from scionlab.web.pages.plots import Slot, UsagePlot, scale_of, ticks, usage_plot


@dataclass(frozen=True)
class LinkRow:
    """One Link in one direction: its own plot, and its area in the stack. `alone` and `load` are None without such a
    part, `number` counts from 1."""

    number: int
    key: str
    name: str
    plot: UsagePlot
    stacked: str
    alone: Sum | None
    load: Load | None


@dataclass(frozen=True)
class JointDirection:
    """`rows` in drawing order: each covers the lower part of the one before."""

    side: JointSide
    name: str
    total: UsagePlot
    rows: list[LinkRow]

    @property
    def by_link(self) -> list[LinkRow]:
        return sorted(self.rows, key=lambda one: one.number)


@dataclass(frozen=True)
class JointPanel:
    directions: list[JointDirection]
    ticks: list[datetime]


def joint_panel(status: JointStatus) -> JointPanel | None:
    """None without measurements."""
    directions = [_direction(status, side) for side in status.sides]
    if all(one.total.is_empty for one in directions):
        return None
    joint = status.joint
    return JointPanel(directions, ticks(joint.begins_at, joint.ends_at, 4))


def _direction(status: JointStatus, side: JointSide) -> JointDirection:
    series = status.series(side.direction)
    slots = {link_id: _slots(status.joint.begins_at, seconds) for link_id, seconds in series.items()}
    sums = [_stack(status.joint.begins_at, list(series.values())[:count]) for count in range(1, len(series) + 1)]
    top = scale_of(sums[-1:])
    alone = {one.link_id: one.sum for one in side.alone}
    loads = {one.link_id: one for one in side.loads}
    where = {one.test.link_id: one.test.link.interface_a.AS.isd_as for one in status.parts}
    rows = [
        LinkRow(
            number=number,
            key=f"{side.direction}-{link_id}",
            name=f"Link {link_id} to {where[link_id]}",
            plot=usage_plot(slots[link_id], top_kbit=top),
            stacked=usage_plot(sums[number - 1], top_kbit=top).used,
            alone=alone.get(link_id),
            load=loads.get(link_id),
        )
        for number, link_id in enumerate(series, 1)
    ]
    total = usage_plot(sums[-1] if sums else [], top_kbit=top)
    return JointDirection(side, NAMES[side.direction], total, rows[::-1])


def _slots(begins_at: datetime, seconds: Sequence[Second]) -> list[Slot]:
    return [
        Slot(begins_at + timedelta(seconds=number), one.kbit, one.limit_kbit, 0, one.dropped_bytes, 0.0, 1.0)
        for number, one in enumerate(seconds)
    ]


def _stack(begins_at: datetime, series: Sequence[Sequence[Second]]) -> list[Slot]:
    """Sums of the Links under test in each second; a gap if none."""
    return _slots(begins_at, [_added(row) for row in zip(*series, strict=True)])


def _added(row: Sequence[Second]) -> Second:
    known = [one for one in row if one.kbit is not None]
    limits = [one.limit_kbit for one in known if one.limit_kbit is not None]
    if not known:
        return Second(None, None, 0)
    rate = sum(one.kbit or 0.0 for one in known)
    return Second(rate, sum(limits) if limits else None, sum(one.dropped_bytes for one in known))
