"""Sums over a time, and the times that they are kept over. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

SLOT: Final = timedelta(minutes=5)
DAY: Final = timedelta(days=1)
TEN_SECONDS: Final = timedelta(seconds=10)
AT_LIMIT_PERCENT: Final = 95  # a link is at its limit from this share of it on
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class Interval(NamedTuple):
    """What a sample found since the one before it. `covered_ms` is 0 where that is no rate: after a gap, or at the
    first sample of a segment."""

    ends_at: datetime
    covered_ms: int
    bytes: int
    packets: int
    drops: int
    limit_kbit: int
    backlog_bytes: int

    @property
    def is_at_limit(self) -> bool:
        """At least 95 % of the limit; a blocked link is at its limit while it drops."""
        if self.limit_kbit == 0:
            return self.drops > 0
        return self.bytes * 8 * 100 >= self.limit_kbit * self.covered_ms * AT_LIMIT_PERCENT  # bit/ms are kbit/s

    @property
    def kbit(self) -> int | None:
        return self.bytes * 8 // self.covered_ms if self.covered_ms else None

    def bucket(self, step: timedelta) -> datetime:
        """Where it counts: in the bucket that has its middle, so a few milliseconds of jitter move nothing; without a
        rate, in that of the sample which found it."""
        back = self.covered_ms // 2 or 1
        return floor(self.ends_at - back * _MS, step)


def floor(moment: datetime, step: timedelta) -> datetime:
    """The beginning of the bucket that has this moment; buckets begin at multiples of `step` since 1970 (UTC)."""
    return moment - (moment - _EPOCH) % step


@dataclass
class Totals:
    """One direction over a time. `limit_kbit` is None while nothing was added."""

    bytes: int = 0
    packets: int = 0
    drops: int = 0
    rated_bytes: int = 0
    covered_ms: int = 0
    at_limit_ms: int = 0
    limit_kbit: int | None = None
    backlog_bytes: int = 0

    def add(self, interval: Interval) -> None:
        self.merge(
            Totals(
                bytes=interval.bytes,
                packets=interval.packets,
                drops=interval.drops,
                rated_bytes=interval.bytes if interval.covered_ms else 0,
                covered_ms=interval.covered_ms,
                at_limit_ms=interval.covered_ms if interval.is_at_limit else 0,
                limit_kbit=interval.limit_kbit,
                backlog_bytes=interval.backlog_bytes,
            )
        )

    def merge(self, other: Totals) -> None:
        """The same whichever comes first, but for the rounding of the limit's mean."""
        self.limit_kbit = _mean_limit(self, other)
        self.bytes += other.bytes
        self.packets += other.packets
        self.drops += other.drops
        self.rated_bytes += other.rated_bytes
        self.covered_ms += other.covered_ms
        self.at_limit_ms += other.at_limit_ms
        self.backlog_bytes = max(self.backlog_bytes, other.backlog_bytes)

    @property
    def is_known(self) -> bool:
        return self.limit_kbit is not None


def _mean_limit(one: Totals, other: Totals) -> int | None:
    """By the time that each covers; where neither covers any, each counts as much."""
    if one.limit_kbit is None or other.limit_kbit is None:
        return other.limit_kbit if one.limit_kbit is None else one.limit_kbit
    if one.limit_kbit == other.limit_kbit:
        return one.limit_kbit
    weights = (one.covered_ms, other.covered_ms) if one.covered_ms or other.covered_ms else (1, 1)
    return round((one.limit_kbit * weights[0] + other.limit_kbit * weights[1]) / sum(weights))


def total(intervals: Iterable[Interval]) -> Totals:
    found = Totals()
    for interval in intervals:
        found.add(interval)
    return found
