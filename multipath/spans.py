"""Sets of bytes of a file as half-open spans."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter

Span = tuple[int, int]  # first byte, and the one after the last
Owned = tuple[int, int, int]  # the same, and the path that the bytes came over
START, END = itemgetter(0), itemgetter(1)


class Spans:
    """Disjoint spans in order. Neighbours of one owner are one span."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.total = 0
        self._spans: list[Owned] = []
        for start, end in spans:
            self.add(start, end)

    def __iter__(self) -> Iterator[Owned]:
        return iter(self._spans)

    def within(self, start: int, end: int) -> list[Owned]:
        """What of `[start, end)` is in the set."""
        found = self._spans[bisect_right(self._spans, start, key=END) : bisect_left(self._spans, end, key=START)]
        return [(max(s, start), min(e, end), owner) for s, e, owner in found if start < end]

    def gaps(self, start: int, end: int) -> list[Span]:
        """What of `[start, end)` is not in the set."""
        inside = self.within(start, end)
        edges = zip([start, *(e for _, e, _ in inside)], [*(s for s, _, _ in inside), end], strict=True)
        return [(low, high) for low, high in edges if low < high]

    def add(self, start: int, end: int, owner: int = 0) -> list[Span]:
        """Add what is missing of `[start, end)` and return it; the rest keeps its owner."""
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
        """Remove `[start, end)`; returns how many bytes of it were in the set."""
        removed = sum(e - s for s, e, _ in self.within(start, end))
        touched = slice(bisect_right(self._spans, start, key=END), bisect_left(self._spans, end, key=START))
        rests = [((s, min(e, start), owner), (max(s, end), e, owner)) for s, e, owner in self._spans[touched]]
        if start < end:
            self._spans[touched] = [one for pair in rests for one in pair if one[0] < one[1]]
        self.total -= removed
        return removed
