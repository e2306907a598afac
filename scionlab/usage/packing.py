"""Packing of a row of samples: JSON, which is fast, made small by omitting repetition.

    [version, to_user, from_user], each null or [n, first offset, offsets, covered, limit, backlog, *counters of `Kept`]

Times are milliseconds after the start of the row. A list of equal values is stored as one value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, Final

from scionlab.enforcement.counters import KEPT, VERSION, kept_in
from scionlab.usage.totals import Interval

LONGEST_ROW_MS: Final = 600_000
_values_of = attrgetter("ends_at_ms", "covered_ms", "limit_kbit", "backlog_bytes", *KEPT)

Row = tuple[int, str]


def pack(to_user: Sequence[Interval], from_user: Sequence[Interval]) -> list[Row]:
    """Return rows of (begins_at_ms, packed), each at most 10 minutes long. Intervals ascend in time, unless a clock was
    set back."""
    rows = []
    rest = (to_user, from_user)
    while rest[0] or rest[1]:
        begins_at_ms = min(interval.ends_at_ms for part in rest for interval in part)
        last_ms = begins_at_ms + LONGEST_ROW_MS
        now = [[one for one in part if one.ends_at_ms <= last_ms] for part in rest]
        rest = (
            [one for one in rest[0] if one.ends_at_ms > last_ms],
            [one for one in rest[1] if one.ends_at_ms > last_ms],
        )
        rows.append(
            (begins_at_ms, json.dumps([VERSION, *(_pack(part, begins_at_ms) for part in now)], separators=(",", ":")))
        )
    return rows


def unpack(begins_at_ms: int, packed: str) -> tuple[list[Interval], list[Interval]]:
    """The intervals of both directions. A row of an earlier version lacks the newer counters: they are 0. Raises
    `ValueError`."""
    version, to_user, from_user = json.loads(packed)
    kept_in(version)
    return _unpack(begins_at_ms, to_user), _unpack(begins_at_ms, from_user)


def _pack(intervals: list[Interval], begins_at_ms: int) -> list[Any] | None:
    if not intervals:
        return None
    times, *columns = zip(*map(_values_of, intervals), strict=True)
    steps = [after - before for before, after in pairwise(times)]
    return [len(intervals), times[0] - begins_at_ms, _short(steps), *map(_short, columns)]


def _short(values: Sequence[int]) -> int | Sequence[int]:
    return values[0] if values and values.count(values[0]) == len(values) else values


def _unpack(begins_at_ms: int, packed: list[Any] | None) -> list[Interval]:
    if packed is None:
        return []
    n, first, steps, *columns = packed
    times = accumulate(_long(steps, n - 1), initial=begins_at_ms + first)
    return [
        Interval(*counts, ends_at_ms=ends_at_ms, covered_ms=covered_ms, limit_kbit=limit_kbit, backlog_bytes=backlog)
        for ends_at_ms, covered_ms, limit_kbit, backlog, *counts in zip(
            times, *(_long(column, n) for column in columns), strict=True
        )
    ]


def _long(values: int | list[int], n: int) -> list[int]:
    return values if isinstance(values, list) else [values] * n
