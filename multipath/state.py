"""State of a download: sets of bytes as half-open spans, and each path's state, rate, and range size."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from operator import itemgetter

Span = tuple[int, int]  # first byte, and the one after the last
Owned = tuple[int, int, int]  # the same, and the path that delivered the bytes
START, END = itemgetter(0), itemgetter(1)


class Spans:
    """Disjoint spans in order. Adjacent spans of one owner are merged."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.total = 0
        self._spans: list[Owned] = []
        for start, end in spans:
            self.add(start, end)

    def __iter__(self) -> Iterator[Owned]:
        return iter(self._spans)

    def within(self, start: int, end: int) -> list[Owned]:
        """Intersection with `[start, end)`."""
        found = self._spans[bisect_right(self._spans, start, key=END) : bisect_left(self._spans, end, key=START)]
        return [(max(s, start), min(e, end), owner) for s, e, owner in found if start < end]

    def gaps(self, start: int, end: int) -> list[Span]:
        """Missing parts of `[start, end)`."""
        inside = self.within(start, end)
        edges = zip([start, *(e for _, e, _ in inside)], [*(s for s, _, _ in inside), end], strict=True)
        return [(low, high) for low, high in edges if low < high]

    def add(self, start: int, end: int, owner: int = 0) -> list[Span]:
        """Add the missing parts of `[start, end)` and return them; others keep their owner."""
        new = self.gaps(start, end)
        touched = slice(bisect_left(self._spans, start, key=END), bisect_right(self._spans, end, key=START))
        merged: list[Owned] = []
        for s, e, whose in sorted([*self._spans[touched], *((s, e, owner) for s, e in new)]):
            if merged and merged[-1][1:] == (s, whose):
                merged[-1] = (merged[-1][0], e, whose)
            else:
                merged.append((s, e, whose))
        self._spans[touched] = merged
        self.total += sum(e - s for s, e in new)
        return new

    def cut(self, start: int, end: int) -> int:
        """Remove `[start, end)`; return how many bytes of it were in the set."""
        removed = sum(e - s for s, e, _ in self.within(start, end))
        touched = slice(bisect_right(self._spans, start, key=END), bisect_left(self._spans, end, key=START))
        rests = [((s, min(e, start), owner), (max(s, end), e, owner)) for s, e, owner in self._spans[touched]]
        if start < end:
            self._spans[touched] = [one for pair in rests for one in pair if one[0] < one[1]]
        self.total -= removed
        return removed


RANGE_S = 1.0  # duration of a range on its path: small enough to share, large against its headers
MIN_RANGE, TAIL_RANGE, MAX_RANGE = 48 << 10, 4 << 10, 8 << 20  # bytes
FIRST_RATE_S = 0.1
GROWTH = 4  # growth from one range to the next: first rates are those of TCP's slow start
MIN_UNDER_WAY, MAX_UNDER_WAY = 2, 6
MAX_FAILURES, MAX_BACKOFF_S = 5, 30.0
MAX_WRONG = 2  # pieces


class State(Enum):
    OPENING = "opening"
    SPARE = "spare"
    ACTIVE = "active"
    RESTING = "resting"
    OUT = "out"


@dataclass(frozen=True)
class Facts:
    """What a response says about the file."""

    url: str
    size: int
    etag: str | None = None
    modified: str | None = None
    ranged: bool = True

    @property
    def is_identified(self) -> bool:
        """Whether another response can be recognised as one of the same bytes."""
        return bool(self.etag or self.modified)

    def has_other_content(self, other: Facts) -> bool | None:
        """None: there is no validator in common, so that it is unknown."""
        if self.etag and other.etag:
            return self.etag != other.etag
        if self.modified and other.modified:
            return self.modified != other.modified
        return None


@dataclass
class PathState:
    state: State = State.OPENING
    reason: str = ""  # why it is excluded, or its last failure
    facts: Facts | None = None
    ranged: bool = False  # otherwise one response has all bytes, and the path is used alone
    handshake_s: float = 0.0
    rate: float = 0.0  # bytes/s, smoothed
    received: int = 0  # bytes
    wrong: int = 0
    rests: int = 0
    failures: int = 0  # since the last byte
    retry_at_s: float = 0.0
    back_at_s: float = 0.0  # from a rest
    slot_from: int | None = None  # `received` at the start of the slot; None: it was not working then
    last_range: int = MIN_RANGE // GROWTH  # bytes
    _mark: tuple[float, int] = (0.0, 0)

    @property
    def is_usable(self) -> bool:
        return self.state is not State.OUT and self.failures < MAX_FAILURES

    @property
    def is_at_work(self) -> bool:
        return self.state is State.ACTIVE and self.is_usable

    @property
    def under_way(self) -> int:
        """Number of concurrent ranges that hides the delay between a request and its first byte."""
        if not self.ranged or self.failures:
            return 1
        return min(MAX_UNDER_WAY, max(MIN_UNDER_WAY, 1 + math.ceil(self.handshake_s / (RANGE_S / 2))))

    def range_bytes(self, left_s: float, share: int) -> int:
        """Size of the next range; smaller if all paths need only `left_s` for the rest, so that they end together.
        Without a known rate at most a `share`."""
        self.last_range = int(max(MIN_RANGE, min(self.rate * RANGE_S, GROWTH * self.last_range, MAX_RANGE)))
        most = self.rate * left_s / self.under_way if self.rate else share
        return max(TAIL_RANGE, int(min(self.last_range, most)))

    def measure(self, now: float, *, begins: bool = False) -> None:
        """Sample the rate, at most each `RANGE_S`. `begins`: the path was idle until now."""
        passed, brought = now - self._mark[0], self.received - self._mark[1]
        if begins and passed > 2 * RANGE_S:
            self._mark = (now, self.received)
        elif not begins and passed >= (RANGE_S if self.rate else FIRST_RATE_S):
            self.rate = (self.rate + brought / passed) / (2 if self.rate else 1)
            self._mark = (now, self.received)

    def fail(self, reason: str, now: float) -> None:
        self.failures, self.reason = self.failures + 1, reason
        self.retry_at_s = now + min(MAX_BACKOFF_S, 0.25 * 2**self.failures)
