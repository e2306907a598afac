"""A stored row of samples: JSON, because it is written and read at the speed of C, made small by what repeats.

    [to_user, from_user], each null or
    [n, first offset, offsets between, covered, bytes, packets, drops, limit, backlog]

Times are milliseconds after the row's `begins_at`. Of a list whose values are all alike only the one value is written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any, Final

from scionlab.usage.totals import Interval

_MS: Final = timedelta(milliseconds=1)
LONGEST_ROW: Final = timedelta(minutes=10)

Row = tuple[datetime, str]


def pack(to_user: Sequence[Interval], from_user: Sequence[Interval]) -> list[Row]:
    """Rows of (begins_at, packed), each at most 10 minutes long. Intervals ascend in time, but for a clock set back."""
    rows = []
    rest = (list(to_user), list(from_user))
    while rest[0] or rest[1]:
        begins_at = min(interval.ends_at for part in rest for interval in part)
        ends_at = begins_at + LONGEST_ROW
        now = [[one for one in part if one.ends_at <= ends_at] for part in rest]
        rest = tuple([one for one in part if one.ends_at > ends_at] for part in rest)  # type: ignore[assignment]  # two
        rows.append((begins_at, json.dumps([_pack(part, begins_at) for part in now], separators=(",", ":"))))
    return rows


def unpack(begins_at: datetime, packed: str) -> tuple[list[Interval], list[Interval]]:
    """The intervals of both directions, as they were packed."""
    to_user, from_user = json.loads(packed)
    return _unpack(begins_at, to_user), _unpack(begins_at, from_user)


def _pack(intervals: list[Interval], begins_at: datetime) -> list[Any] | None:
    if not intervals:
        return None
    offsets = [(one.ends_at - begins_at) // _MS for one in intervals]
    steps = [after - before for before, after in pairwise(offsets)]
    columns = zip(*(one[1:] for one in intervals), strict=True)
    return [len(intervals), offsets[0], _short(steps), *(_short(column) for column in columns)]


def _short(values: Sequence[int]) -> int | list[int]:
    return values[0] if values and values.count(values[0]) == len(values) else list(values)


def _unpack(begins_at: datetime, packed: list[Any] | None) -> list[Interval]:
    if packed is None:
        return []
    n, first, steps, *columns = packed
    offsets = accumulate(_long(steps, n - 1), initial=first)
    times = [begins_at + offset * _MS for offset in offsets]
    return [Interval(*row) for row in zip(times, *(_long(column, n) for column in columns), strict=True)]


def _long(values: int | list[int], n: int) -> list[int]:
    return values if isinstance(values, list) else [values] * n
