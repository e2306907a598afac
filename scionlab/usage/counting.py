"""From absolute counters to the increments of each sample: every byte is counted once, and no rate is made up.

A counter is known up to where it was counted last (`Known`). Late, repeated or reordered samples are compared with that
alone, so the sum of a segment's intervals is its highest counter, in any order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import le, sub
from typing import Final

from scionlab.enforcement.counters import KEPT, Kept, counts_of
from scionlab.usage.batch import Sample
from scionlab.usage.totals import Interval

LONGEST_INTERVAL_MS: Final = 30_000  # between two samples, for a rate (docs/api.md)


class Known(Kept, gc=False, kw_only=True):
    """How far a segment is counted: the counters of the newest counted sample."""

    at_ms: int


_NOTHING: Final = (0,) * len(KEPT)


@dataclass(frozen=True)
class Counted:
    """`restarts`: how often a counter went backwards without a new segment."""

    intervals: list[Interval]
    known: Known | None
    restarts: int


def count(samples: Iterable[Sample], known: Known | None) -> Counted:
    """Count the increments of these samples of one segment.

    The first sample of a segment counts from 0: the agent created the class. A sample that is neither above nor after
    what is known was counted already. One below it *and* after it is a restarted counter: it counts from 0.

    Drops alone do not indicate a restart: they are the leaf classes', and a restarted agent reports fewer of them while
    the class, and so its bytes, go on. Repeated drops are not counted again. The same holds for every other counter but
    bytes and packets.
    """
    intervals: list[Interval] = []
    restarts = 0
    for sample in samples:
        now, was = counts_of(sample), _NOTHING if known is None else counts_of(known)
        if known is not None and (sample.bytes < known.bytes or sample.packets < known.packets):
            if sample.at_ms <= known.at_ms:
                continue
            restarts += 1
            known, was = None, _NOTHING
        elif known is not None and sample.at_ms <= known.at_ms and all(map(le, now, was)):
            continue  # of an idle link: no bytes, but its time would be covered twice
        intervals.append(
            Interval(
                *map(max, map(sub, now, was), _NOTHING),
                ends_at_ms=sample.at_ms,
                covered_ms=0 if known is None else _covered_ms(sample.at_ms - known.at_ms),
                limit_kbit=sample.limit_kbit,
                backlog_bytes=sample.backlog_bytes,
            )
        )
        known = Known(*now, at_ms=sample.at_ms)
    return Counted(intervals, known, restarts)


def _covered_ms(elapsed_ms: int) -> int:
    """The time with a known rate: none across a gap, or if the agent's clock was set back."""
    return elapsed_ms if 0 < elapsed_ms <= LONGEST_INTERVAL_MS else 0
