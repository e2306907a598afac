"""From absolute counters to the increments of each sample: every byte is counted once, and no rate is made up.

A counter is known up to where it was counted last (`Known`). Late, repeated or reordered samples are compared with that
alone, so the sum of a segment's intervals is its highest counter, in any order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from scionlab.usage.batch import Sample
from scionlab.usage.totals import Interval

LONGEST_INTERVAL_MS: Final = 30_000  # between two samples, for a rate (docs/api.md)


class Known(NamedTuple):
    """How far a segment is counted: the counters of the newest counted sample."""

    at_ms: int
    bytes: int
    packets: int
    drops: int


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
    the class, and so its bytes, go on. Repeated drops are not counted again.
    """
    intervals: list[Interval] = []
    restarts = 0
    for sample in samples:
        if known is None:
            before = (0, 0, 0)
        elif sample.bytes >= known.bytes and sample.packets >= known.packets:
            is_old = sample.at_ms <= known.at_ms and sample[2:4] == known[1:3] and sample.drops <= known.drops
            if is_old:
                continue  # of an idle link: no bytes, but its time would be covered twice
            before = (known.bytes, known.packets, min(known.drops, sample.drops))
        elif sample.at_ms > known.at_ms:
            restarts += 1
            known, before = None, (0, 0, 0)
        else:
            continue
        intervals.append(
            Interval(
                sample.at_ms,
                0 if known is None else _covered_ms(sample.at_ms - known.at_ms),
                sample.bytes - before[0],
                sample.packets - before[1],
                sample.drops - before[2],
                sample.limit_kbit,
                sample.backlog_bytes,
            )
        )
        known = Known(sample.at_ms, sample.bytes, sample.packets, sample.drops)
    return Counted(intervals, known, restarts)


def _covered_ms(elapsed_ms: int) -> int:
    """The time with a known rate: none across a gap, or if the agent's clock was set back."""
    return elapsed_ms if 0 < elapsed_ms <= LONGEST_INTERVAL_MS else 0
