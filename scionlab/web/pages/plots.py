"""Plots as geometry for SVG: usage against the limit, and the course of a timed limit.

The box has 1000 x 100 units with y downwards, and is stretched to the page's width; labels are HTML text beside it, so
they keep their size. Lines are steps, because rates are means and limits hold for a time: no interpolation, and gaps
where nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from bandwidth_config import Limits, LinkStep
from contract.link_rules import AT_LIMIT_PERCENT

WIDTH, HEIGHT = 1000, 100
HEADROOM = 1.08  # headroom above the highest line
MOST_MARKS = 3  # above 0
EDGE, ABOVE_PX, BELOW_PX = 14, -3, 12  # a line of text is 12 px high, a plot 112
LIMIT_IN_VIEW = 20  # a limit this many times above the usage would flatten it: it is mentioned instead


class Measured(Protocol):
    """One direction of a Link for a period, as in `scionlab.usage.series`."""

    @property
    def bytes(self) -> int: ...
    @property
    def drops(self) -> int: ...
    @property
    def covered_s(self) -> float: ...
    @property
    def limit_kbit(self) -> int | None: ...
    @property
    def at_limit_s(self) -> float: ...
    @property
    def kbit(self) -> float | None:
        """Mean over the covered time; None if never covered."""


@dataclass(frozen=True)
class Slot:
    """Part of the period shown. `kbit` None: unknown."""

    begins_at: datetime
    kbit: float | None
    limit_kbit: int | None
    bytes: int
    drops: int
    at_limit_s: float
    covered_s: float

    @property
    def is_measured(self) -> bool:
        """Of usage: there are figures, perhaps without a rate."""
        return self.limit_kbit is not None


def slots_of(
    points: Iterable[tuple[datetime, Measured | None]], *, begins_at: datetime, ends_at: datetime, count: int
) -> list[Slot]:
    """Points by start time -> `count` slots of equal length. Sums are kept, rates are means weighted by covered time;
    the limit of a slot is its maximum, so that usage does not seem to exceed it."""
    length = (ends_at - begins_at) / count
    parts: list[list[Measured]] = [[] for _ in range(count)]
    for at, measured in points:
        if measured is not None and begins_at <= at < ends_at:
            parts[min(count - 1, int((at - begins_at) / length))].append(measured)
    return [_slot(begins_at + number * length, part) for number, part in enumerate(parts)]


def _slot(begins_at: datetime, part: Sequence[Measured]) -> Slot:
    covered_s = sum(one.covered_s for one in part)
    rated = [(one.kbit, one.covered_s) for one in part if one.kbit is not None and one.covered_s > 0]
    limits = [one.limit_kbit for one in part if one.limit_kbit is not None]
    return Slot(
        begins_at=begins_at,
        kbit=sum(kbit * seconds for kbit, seconds in rated) / covered_s if rated else None,
        limit_kbit=max(limits, default=None),
        bytes=sum(one.bytes for one in part),
        drops=sum(one.drops for one in part),
        at_limit_s=sum(one.at_limit_s for one in part),
        covered_s=covered_s,
    )


class Mark(NamedTuple):
    """A label beside the plot, at its height [% from the upper edge]."""

    kbit: int
    y: str

    @property
    def above(self) -> int:
        """Position of text above the height [px], inside the plot."""
        return ABOVE_PX if float(self.y) > EDGE else BELOW_PX

    @property
    def below(self) -> int:
        """Position of text below the height, inside the plot."""
        return BELOW_PX if float(self.y) < HEIGHT - EDGE else ABOVE_PX


@dataclass(frozen=True)
class UsagePlot:
    """SVG paths for one direction; empty if absent. `top_kbit` is the value at the upper edge, `limit_mark` the label
    of the limit's line, None if not drawn. `values` are the rates of all slots [kbit/s], for the pointer."""

    used: str
    at_limit: str
    limit: str
    gaps: str
    drops: str
    top_kbit: float
    is_limit_above: bool
    limit_mark: Mark | None
    values: str
    begins_at: datetime | None
    slot_s: float

    @property
    def marks(self) -> list[Mark]:
        """0 and round values."""
        return [_mark(kbit, self.top_kbit) for kbit in round_values(self.top_kbit)]

    @property
    def lines(self) -> str:
        """Horizontal lines at the marks above 0."""
        return "".join(f"M0 {mark.y}H{WIDTH}" for mark in self.marks[1:])

    @property
    def is_empty(self) -> bool:
        return not self.used


def usage_plot(slots: Sequence[Slot], *, top_kbit: float | None = None) -> UsagePlot:
    """`top_kbit`: common scale of two plots to be compared."""
    top = top_kbit if top_kbit is not None else scale_of([slots])
    wide = WIDTH / max(1, len(slots))
    runs = _runs([slot.kbit for slot in slots])
    full = [slot.kbit if slot.kbit is not None and _is_at_limit(slot) else None for slot in slots]
    limits = [slot.limit_kbit if slot.kbit is not None else None for slot in slots]
    known = [limit for limit in limits if limit is not None]
    drawn = [(start, values) for start, values in _runs(limits) if max(values) <= top]
    return UsagePlot(
        used="".join(_area(start, values, wide, top) for start, values in runs),
        at_limit="".join(_area(start, values, wide, top) for start, values in _runs(full)),
        limit="".join(_line(start, values, wide, top) for start, values in drawn),
        gaps=_gaps([slot.kbit for slot in slots], wide),
        drops="".join(
            f"M{_x(number * wide)} 0h{_x(wide)}v4h-{_x(wide)}z" for number, slot in enumerate(slots) if slot.drops
        ),
        top_kbit=top,
        is_limit_above=max(known, default=0) > top,
        limit_mark=_mark(round(drawn[-1][1][-1]), top) if drawn else None,
        values=",".join("" if slot.kbit is None else str(round(slot.kbit)) for slot in slots),
        begins_at=slots[0].begins_at if slots else None,
        slot_s=(slots[1].begins_at - slots[0].begins_at).total_seconds() if len(slots) > 1 else 0.0,
    )


def round_values(top_kbit: float) -> list[int]:
    """0 and the multiples of 1, 2 or 5 times a power of ten up to `top_kbit`: as many as fit."""
    power = 1
    while True:
        for step in (power, 2 * power, 5 * power):
            if top_kbit < step * (MOST_MARKS + 1):
                return list(range(0, int(top_kbit) + 1, step))
        power *= 10


def _mark(kbit: int, top: float) -> Mark:
    return Mark(kbit, _y(kbit, top))


def scale_of(directions: Sequence[Sequence[Slot]]) -> float:
    """Value of the upper edge, above all usage and, if possible, the limit."""
    slots = [slot for direction in directions for slot in direction if slot.kbit is not None]
    used = max((slot.kbit or 0 for slot in slots), default=0)
    limit = max((slot.limit_kbit or 0 for slot in slots), default=0)
    highest = limit if used * LIMIT_IN_VIEW >= limit else used
    return max(highest, used, 1) * HEADROOM


def _is_at_limit(slot: Slot) -> bool:
    """At the limit for all of the known time, with the tolerance of a full link."""
    return slot.covered_s > 0 and slot.at_limit_s * 100 >= slot.covered_s * AT_LIMIT_PERCENT


# --- the course of a timed limit ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProfilePlot:
    """Both directions of a timed limit with some time before and after, when the Link's own limits apply. `from_user`
    is empty if it is the same line."""

    to_user: str
    from_user: str
    begin_x: str
    end_x: str
    now_x: str
    top_kbit: float


def profile_plot(
    steps: Sequence[LinkStep], duration_s: int, *, standing: Limits, elapsed_s: float | None = None
) -> ProfilePlot:
    """`elapsed_s`: since its start, None before."""
    margin = WIDTH * 0.08
    inner = WIDTH - 2 * margin
    edges = [margin + inner * step.offset_s / duration_s for step in steps]
    top = max([*standing, *(one for step in steps for one in step.limits), 1]) * HEADROOM
    courses = []
    for direction in (0, 1):
        path = f"M0 {_y(standing[direction], top)}"
        for x, step in zip(edges, steps, strict=True):
            path += f"H{_x(x)}V{_y(step.limits[direction], top)}"
        courses.append(f"{path}H{_x(margin + inner)}V{_y(standing[direction], top)}H{WIDTH}")
    now = "" if elapsed_s is None else _x(margin + inner * min(1.0, max(0.0, elapsed_s / duration_s)))
    is_same = standing.is_symmetric and all(step.limits.is_symmetric for step in steps)
    return ProfilePlot(courses[0], "" if is_same else courses[1], _x(margin), _x(margin + inner), now, top)


# --- geometry ---------------------------------------------------------------------------------------------------


def _runs(values: Sequence[float | None]) -> list[tuple[int, list[float]]]:
    runs: list[tuple[int, list[float]]] = []
    last = -2
    for number, value in enumerate(values):
        if value is None:
            continue
        if number != last + 1:
            runs.append((number, []))
        runs[-1][1].append(value)
        last = number
    return runs


def _gaps(values: Sequence[float | None], wide: float) -> str:
    holes: list[float | None] = [1.0 if value is None else None for value in values]
    return "".join(
        f"M{_x(start * wide)} 0h{_x(len(hole) * wide)}v{HEIGHT}h-{_x(len(hole) * wide)}z"
        for start, hole in _runs(holes)
    )


def _area(start: int, values: Sequence[float], wide: float, top: float) -> str:
    return f"M{_x(start * wide)} {HEIGHT}{_steps(start, values, wide, top)}V{HEIGHT}z"


def _line(start: int, values: Sequence[float], wide: float, top: float) -> str:
    first = _y(values[0], top)
    return f"M{_x(start * wide)} {first}" + _steps(start, values, wide, top).removeprefix(f"V{first}")


def _steps(start: int, values: Sequence[float], wide: float, top: float) -> str:
    """One move for each change of value: equal adjacent values add nothing."""
    path, before = "", None
    for number, value in enumerate(values):
        y = _y(value, top)
        if y != before:
            path += (f"H{_x((start + number) * wide)}" if before is not None else "") + f"V{y}"
            before = y
    return f"{path}H{_x((start + len(values)) * wide)}"


def _x(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _y(value: float, top: float) -> str:
    return _x(max(0.0, HEIGHT - HEIGHT * value / top))


def ticks(begins_at: datetime, ends_at: datetime, count: int) -> list[datetime]:
    """`count` equidistant moments from the first to the last."""
    length: timedelta = (ends_at - begins_at) / (count - 1)
    return [begins_at + number * length for number in range(count)]
