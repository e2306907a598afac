"""Sums over time, and their periods. Pure.

Moments in this package are integer milliseconds since 1970 (UTC): 5 minutes of 4000 links have half a million of them,
and integers are several times as fast as datetimes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from contract.link_rules import AT_LIMIT_PERCENT
from scionlab.enforcement.counters import KEPT, Kept

TEN_SECONDS_MS: Final = 10_000
SLOT_MS: Final = 300_000
DAY_MS: Final = 86_400_000
LATE: Final = timedelta(days=4)  # batches of a month may arrive for 3 days after its end (ingest.BEHIND)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def to_ms(moment: datetime) -> int:
    return (moment - _EPOCH) // _MS


def of_ms(moment_ms: int) -> datetime:
    return _EPOCH + moment_ms * _MS


def month_begin(year: int, month: int) -> datetime:
    return datetime(year, month, 1, tzinfo=UTC)


def month_of(at: datetime) -> datetime:
    return month_begin(at.year, at.month)


def next_month(begins_at: datetime) -> datetime:
    return month_begin(begins_at.year + begins_at.month // 12, begins_at.month % 12 + 1)


class Interval(Kept, gc=False, kw_only=True):
    """Increment of a sample since the previous one. `covered_ms` is 0 without a rate: after a gap, or at the first
    sample of a segment."""

    ends_at_ms: int
    covered_ms: int
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

    def bucket(self, step_ms: int) -> int:
        """The bucket that contains its middle, so that jitter does not matter; without a rate, that of the sample.
        Buckets begin at multiples of `step_ms` since 1970."""
        middle = self.ends_at_ms - (self.covered_ms // 2 or 1)
        return middle - middle % step_ms


class Totals(Kept, gc=False, kw_only=True):
    """One direction over a time. `limit_kbit` is None while nothing was added."""

    rated_bytes: int = 0
    covered_ms: int = 0
    at_limit_ms: int = 0
    limit_kbit: int | None = None
    backlog_bytes: int = 0

    def add(self, interval: Interval) -> None:
        covered_ms = interval.covered_ms
        if interval.limit_kbit != self.limit_kbit:
            self._meet(interval.limit_kbit, covered_ms)
        self._count(interval)
        self.covered_ms += covered_ms
        if covered_ms:
            self.rated_bytes += interval.bytes
            self.at_limit_ms += covered_ms if interval.is_at_limit else 0
        self.backlog_bytes = max(self.backlog_bytes, interval.backlog_bytes)

    def merge(self, other: Totals) -> None:
        """Commutative, except for rounding of the mean limit."""
        self._meet(other.limit_kbit, other.covered_ms)
        self._count(other)
        self.rated_bytes += other.rated_bytes
        self.covered_ms += other.covered_ms
        self.at_limit_ms += other.at_limit_ms
        self.backlog_bytes = max(self.backlog_bytes, other.backlog_bytes)

    def _count(self, more: Kept) -> None:
        for name in KEPT:
            setattr(self, name, getattr(self, name) + getattr(more, name))

    def _meet(self, limit_kbit: int | None, covered_ms: int) -> None:
        """Mean weighted by covered time; equal weights if neither is covered."""
        mine = self.limit_kbit
        if mine == limit_kbit or limit_kbit is None:
            return
        if mine is None:
            self.limit_kbit = limit_kbit
            return
        weights = (self.covered_ms, covered_ms) if self.covered_ms or covered_ms else (1, 1)
        self.limit_kbit = round((mine * weights[0] + limit_kbit * weights[1]) / sum(weights))
