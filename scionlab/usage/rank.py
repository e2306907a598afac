"""A running 95th percentile without storing all values. Pure.

Only the sorted values around the percentile are kept, and the numbers of values below and above them. A value moves the
percentile by at most one place, so a window of 64 lasts for hours; once the percentile leaves the window, the caller
makes a new one.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise
from typing import Final

from scionlab.usage.compact import numbers_pack

HALF: Final = 32  # values kept on each side
MOST: Final = 128  # then the window is trimmed to both halves


class OutsideError(LookupError):
    """The percentile is a value that is not kept."""


def place_of(count: int) -> int:
    """Rank of the percentile among `count` sorted values, from 0: the smallest that 95 % of them do not exceed."""
    return (count * 95 + 99) // 100 - 1


@dataclass
class Window:
    """`values` ascend; they are all values between `below` smaller ones and `above` larger ones."""

    below: int = 0
    above: int = 0
    values: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, values: Iterable[int]) -> Window:
        found = cls(values=sorted(values))
        found.trim(most=0)
        return found

    @property
    def count(self) -> int:
        return self.below + len(self.values) + self.above

    def add(self, value: int) -> None:
        if self.below and value < self.values[0]:
            self.below += 1
        elif self.above and value > self.values[-1]:
            self.above += 1
        else:
            insort(self.values, value)

    def percentile(self) -> int | None:
        """None without values. Raises `OutsideError`."""
        if not self.count:
            return None
        place = place_of(self.count) - self.below
        if not 0 <= place < len(self.values):
            raise OutsideError
        return self.values[place]

    def with_more(self, values: Sequence[int]) -> Window:
        """A copy with these values added."""
        more = Window(self.below, self.above, [*self.values])
        for value in values:
            more.add(value)
        return more

    def trim(self, *, most: int | None = None) -> None:
        """Drop values far from the percentile if there are more than `most`. Raises `OutsideError`."""
        if len(self.values) > (MOST if most is None else most):
            self.percentile()
            place = place_of(self.count) - self.below
            first, last = max(0, place - HALF), place + HALF + 1
            self.below += first
            self.above += max(0, len(self.values) - last)
            self.values = self.values[first:last]

    def pack(self) -> bytes:
        """Starts with its number of values, so that windows can be concatenated."""
        steps = [after - before for before, after in pairwise([0, *self.values])]
        return numbers_pack([len(self.values), self.below, self.above, *steps])


def window_unpack(numbers: Iterator[int]) -> Window:
    """Consumes its part of `numbers_unpack`."""
    count, below, above = next(numbers), next(numbers), next(numbers)
    return Window(below, above, list(accumulate(islice(numbers, count))))
