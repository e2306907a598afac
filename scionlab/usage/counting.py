"""From the kernel's absolute counters to what each sample found: every byte once, and never a rate that was none.

A counter is known up to where it was counted last (`Known`). Whatever comes late, twice or out of order is compared
with that alone, so the sum of all intervals of a segment is its highest counter, in any order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from scionlab.usage.batch import Sample
from scionlab.usage.totals import Interval

LONGEST_INTERVAL: Final = timedelta(seconds=30)  # between two samples that a rate is computed from (docs/api.md)
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Known:
    """How far a segment is counted: its counters at the newest sample that counted."""

    at: datetime
    bytes: int
    packets: int
    drops: int


@dataclass(frozen=True)
class Counted:
    """`restarts` is how often a counter went backwards without a new segment."""

    intervals: list[Interval]
    known: Known | None
    restarts: int


def count(samples: Iterable[Sample], known: Known | None) -> Counted:
    """What these samples of one segment add to what is known of it.

    The first ever sample of a segment counts from 0: the class was made by the agent. A sample below what is known and
    not after it was counted already. One below it *and* after it is a counter that began anew: it counts from 0.
    """
    intervals: list[Interval] = []
    restarts = 0
    for sample in samples:
        if known is None:
            before = (0, 0, 0)
        elif sample.bytes >= known.bytes and sample.packets >= known.packets and sample.drops >= known.drops:
            before = (known.bytes, known.packets, known.drops)
        elif sample.at > known.at:
            restarts += 1
            known, before = None, (0, 0, 0)
        else:
            continue
        intervals.append(
            Interval(
                ends_at=sample.at,
                covered_ms=0 if known is None else _covered_ms(sample.at - known.at),
                bytes=sample.bytes - before[0],
                packets=sample.packets - before[1],
                drops=sample.drops - before[2],
                limit_kbit=sample.limit_kbit,
                backlog_bytes=sample.backlog_bytes,
            )
        )
        known = Known(sample.at, sample.bytes, sample.packets, sample.drops)
    return Counted(intervals, known, restarts)


def _covered_ms(elapsed: timedelta) -> int:
    """The time that a rate is known for: none across a gap, nor where the agent's clock was set back."""
    return elapsed // _MS if timedelta(0) < elapsed <= LONGEST_INTERVAL else 0
