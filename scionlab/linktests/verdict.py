"""Verdict of a watch from its samples: intervals of each direction, and one sentence. Pure.

An interval lies between two adjacent samples of one counter lifetime. A limit may change at any moment between them: if
the samples differ, the higher limit is the upper bound of what may pass. Intervals longer than `LONGEST_MS` count in
the sums, but their seconds are unknown and not part of a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, NamedTuple

from bandwidth_config import format_number
from contract.link_rules import AT_LIMIT_PERCENT
from scionlab.enforcement.directions import DIRECTIONS, WORDS, DirectionName

LONGEST_MS: Final = 1500
IDLE_BELOW_PERCENT: Final = 5  # of the limit; below, too little was sent to tell
FULL_FROM_PERCENT: Final = 50  # of the measured seconds; from here on it is "Yes"

Code = Literal["full", "at_times", "free", "idle", "not_enforced", "no_result"]
# The strongest verdict of both directions counts.
_ORDER: Final[tuple[Code, ...]] = ("full", "at_times", "free", "idle", "not_enforced", "no_result")
_SIDE: Final = {"to_user": 3, "from_user": 4}  # position in a sample
_OFFERED: Final = {"to_user": "what was sent to your AS", "from_user": "what you offered"}


LostPackets = Annotated[int, "Part of passed: dropped by the queue behind the limit."]


class Interval(NamedTuple):
    """One direction between two samples; `limit_kbit` and `next_limit_kbit` are those of the samples. On an observed
    link (`in_force` false) packets above the limit passed and count both as passed and as dropped. `lost_packets` are
    part of passed: dropped by the queue behind the limit."""

    begins_at_ms: int
    took_ms: int
    in_force: bool
    limit_kbit: int
    next_limit_kbit: int
    passed_bytes: int
    passed_packets: int
    dropped_bytes: int
    dropped_packets: int
    lost_packets: LostPackets

    @property
    def ends_at_ms(self) -> int:
        return self.begins_at_ms + self.took_ms

    @property
    def highest_kbit(self) -> int:
        return max(self.limit_kbit, self.next_limit_kbit)

    @property
    def is_stepped(self) -> bool:
        """Whether the limit changed, at an unknown moment."""
        return self.limit_kbit != self.next_limit_kbit

    @property
    def kbit(self) -> float:
        return self.passed_bytes * 8 / self.took_ms  # bit/ms are kbit/s

    @property
    def is_second(self) -> bool:
        return self.took_ms <= LONGEST_MS

    @property
    def used_percent(self) -> float:
        """Of the higher limit."""
        return 100 * self.kbit / self.highest_kbit if self.highest_kbit else 0.0

    @property
    def is_full(self) -> bool:
        is_dropping = self.dropped_packets + self.lost_packets > 0
        return is_dropping or (self.highest_kbit > 0 and self.used_percent >= AT_LIMIT_PERCENT)

    @property
    def offered_bytes(self) -> int:
        return self.passed_bytes + (self.dropped_bytes if self.in_force else 0)


def intervals_of(samples: Sequence[Sequence[Any]], direction: DirectionName) -> list[Interval]:
    """Make intervals from rows of `TestResult.samples`; none between two counter lifetimes."""
    found = []
    at = _SIDE[direction]
    for earlier, later in pairwise(samples):
        before, after = earlier[at], later[at]
        lost = max(0, after[6] - before[6])  # HTB's drops restart with a class
        counted = [*(now - then for then, now in zip(before[2:6], after[2:6], strict=True)), lost]
        took_ms = later[1] - earlier[1]
        if before[0] == after[0] and took_ms > 0 and min(counted) >= 0:
            found.append(Interval(earlier[0], took_ms, bool(earlier[2] and later[2]), before[1], after[1], *counted))
    return found


@dataclass(frozen=True)
class Side:
    """One direction. Seconds are whole intervals; percentages are None without a divisor."""

    direction: DirectionName
    code: Code
    measured_s: Annotated[int, "Seconds in which the limit was enforced and counted."]
    full_s: Annotated[int, "Of these: packets were dropped, or 95 % of the limit was used."]
    peak_percent: Annotated[float | None, "Of the limit, in the highest second."]
    dropped_percent: Annotated[float | None, "Of the bytes that were offered."]
    passed_bytes: int
    passed_packets: int
    dropped_bytes: int
    dropped_packets: int
    lost_packets: LostPackets


@dataclass(frozen=True)
class Verdict:
    code: Code
    text: str
    to_user: Side
    from_user: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.to_user, self.from_user


def side_of(direction: DirectionName, intervals: Sequence[Interval]) -> Side:
    judged = [one for one in intervals if one.is_second and one.in_force]
    full_s = sum(one.is_full for one in judged)
    in_force = [one for one in intervals if one.in_force]
    offered, dropped = sum(one.offered_bytes for one in in_force), sum(one.dropped_bytes for one in in_force)
    peak = max((one.used_percent for one in judged), default=None)
    return Side(
        direction=direction,
        code=_code(len(judged), full_s, peak, has_any=bool(intervals)),
        measured_s=len(judged),
        full_s=full_s,
        peak_percent=peak,
        dropped_percent=100 * dropped / offered if offered else None,
        passed_bytes=sum(one.passed_bytes for one in intervals),
        passed_packets=sum(one.passed_packets for one in intervals),
        dropped_bytes=sum(one.dropped_bytes for one in intervals),
        dropped_packets=sum(one.dropped_packets for one in intervals),
        lost_packets=sum(one.lost_packets for one in intervals),
    )


def _code(measured_s: int, full_s: int, peak: float | None, *, has_any: bool) -> Code:
    if not measured_s or peak is None:
        return "not_enforced" if has_any else "no_result"
    if full_s:
        return "full" if full_s * 100 >= measured_s * FULL_FROM_PERCENT else "at_times"
    return "free" if peak >= IDLE_BELOW_PERCENT else "idle"


def verdict_of(samples: Sequence[Sequence[Any]]) -> Verdict:
    """The worse direction: full for longer, otherwise used more."""
    to_user, from_user = (side_of(one, intervals_of(samples, one)) for one in DIRECTIONS)
    told = min(
        (to_user, from_user),
        key=lambda one: (_ORDER.index(one.code), -one.full_s, -(one.dropped_percent or 0), -(one.peak_percent or 0)),
    )
    return Verdict(told.code, _sentence(told), to_user, from_user)


def _sentence(side: Side) -> str:
    match side.code:
        case "full" | "at_times":
            opening = "Yes: for" if side.code == "full" else "At times: for"
            lost = (
                f" Packets lost in the queue behind it: {format_number(side.lost_packets)}."
                if side.lost_packets
                else ""
            )
            return (
                f"{opening} {side.full_s} of {side.measured_s} s this link was full {WORDS[side.direction]}; "
                f"{percent(side.dropped_percent or 0)} of {_OFFERED[side.direction]} was dropped.{lost}"
            )
        case "free":
            return f"No: at most {percent(side.peak_percent or 0)} of the limit was used; the bottleneck is elsewhere."
        case "idle":
            return (
                f"Not enough was sent to tell: at most {percent(side.peak_percent or 0)} of the limit was used. Watch "
                "again while your application sends."
            )
        case "not_enforced":
            return "No verdict: the limit of this link was not enforced at that time."
        case _:
            return "No verdict: nothing was measured."


def percent(value: float) -> str:
    """`12 %`; above 0 is never rounded to 0, nor below 100 to 100."""
    shown = "< 1" if 0 < value < 0.5 else "> 99" if 99.5 <= value < 100 else format_number(round(value))
    return f"{shown}\N{NO-BREAK SPACE}%"
