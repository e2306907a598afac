"""From the kernel's absolute counters to what each sample found: every byte once, and never a rate that was none.

A counter is known up to where it was counted last (`Known`). Whatever comes late, twice or out of order is compared
with that alone, so the sum of all intervals of a segment is its highest counter, in any order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from scionlab.usage.batch import Sample
from scionlab.usage.totals import Interval

LONGEST_INTERVAL_MS: Final = 30_000  # between two samples that a rate is computed from (docs/api.md)


class Known(NamedTuple):
    """How far a segment is counted: its counters at the newest sample that counted."""

    at_ms: int
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

    The first ever sample of a segment counts from 0: the class was made by the agent. A sample that is not above what
    is known and not after it was counted already. One below it *and* after it is a counter that began anew: it counts
    from 0.

    Drops alone never say so: they are the leaf classes', and an agent that lost its memory tells fewer of them than
    before while the class, and so its bytes, go on. Those that are told again are not counted again.
    """
    intervals: list[Interval] = []
    restarts = 0
    for sample in samples:
        if known is None:
            before = (0, 0, 0)
        elif sample.bytes >= known.bytes and sample.packets >= known.packets:
            is_old = sample.at_ms <= known.at_ms and sample[2:4] == known[1:3] and sample.drops <= known.drops
            if is_old:
                continue  # of an idle link: its bytes would be none, but its time would be covered twice
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
    """The time that a rate is known for: none across a gap, nor where the agent's clock was set back."""
    return elapsed_ms if 0 < elapsed_ms <= LONGEST_INTERVAL_MS else 0
