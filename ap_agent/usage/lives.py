"""From the kernel's counters to segments: which life of a class a number belongs to. Pure but for the random suffix.

A segment's counters never go backwards and begin at 0. Its name is the class's birthmark (`reading`), so that an agent
that was killed, or that lost its memory, goes on with the same one. A class that was made by hand may have the same
mark in two lives: counters that went backwards, or a farewell in between, then give it another name.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import NamedTuple

from ap_agent.usage.reading import Counted, Farewell, Key

_WRAP = 2**32  # the kernel counts drops in 32 bits
_WRAPS_ABOVE = _WRAP // 4 * 3
_PATIENCE = 2


class Row(NamedTuple):
    """One direction of a link at one time, as it is kept and sent; counters are those of the segment.

    `drops` is at least what the two leaves say: a leaf class that was made anew alone does not end the segment, and
    what was refused in front of them (whole datagrams) is added, as far as processes counted it while they ran.
    """

    segment: str
    rate_kbit: int
    bytes: int
    packets: int
    drops: int
    backlog_bytes: int
    heartbeat_drops: int
    data_drops: int


@dataclass
class _Leaf:
    """What a leaf class dropped, over all its lives within one segment."""

    before: int = 0  # in lives that are over
    now: int = 0
    guessed: int = 0  # of `before`, what was taken for a life's end before the kernel told

    def count(self, drops: int | None) -> None:
        self.guessed = 0
        if drops is None:  # it is not there at the moment; what it dropped stays
            return
        if drops < self.now:
            if self.now > _WRAPS_ABOVE and drops < _WRAP - _WRAPS_ABOVE:
                self.before += _WRAP
            else:
                self.before += self.now
                self.guessed = self.now
        self.now = drops

    def end(self, drops: int) -> None:
        """The kernel's last word. It may come after the next life was seen."""
        if self.guessed:
            self.before += drops - self.guessed
        else:
            self.before, self.now = self.before + drops, 0
        self.guessed = 0

    @property
    def total(self) -> int:
        return self.before + self.now


class _Life:
    """One life of an inner class."""

    def __init__(self, segment: str, mark: int, version: str | None) -> None:
        self.segment, self.mark, self.version = segment, mark, version
        self.bytes = self.packets = self.rate_kbit = self.refused = 0
        self.heartbeats, self.data = _Leaf(), _Leaf()
        self.is_over = False
        self.age = 0  # whole samples since another class was seen in its place

    @classmethod
    def of(cls, row: Row, version: str | None) -> _Life:
        life = cls(row.segment, int(row.segment.partition("-")[0], 16), version)
        life.bytes, life.packets, life.rate_kbit = row.bytes, row.packets, row.rate_kbit
        life.heartbeats.now, life.data.now = row.heartbeat_drops, row.data_drops
        life.data.before = row.drops - row.heartbeat_drops - row.data_drops  # what was refused is in it
        return life

    def is_continued_by(self, one: Counted) -> bool:
        return not self.is_over and self.mark == one.mark and one.bytes >= self.bytes and one.packets >= self.packets

    def row(self, backlog_bytes: int = 0) -> Row:
        return Row(
            self.segment,
            self.rate_kbit,
            self.bytes,
            self.packets,
            self.heartbeats.total + self.data.total + self.refused,
            backlog_bytes,
            self.heartbeats.now,
            self.data.now,
        )


class Lives:
    """All that are known: of each direction the present one, and the one before it until the kernel said its farewell.

    Not here: which interface a link is on; whoever calls decides what is counted for it.
    """

    def __init__(self) -> None:
        self._now: dict[Key, _Life] = {}
        self._before: dict[Key, _Life] = {}
        self._strays: dict[Key, int] = {}  # drops of leaves whose inner class was never counted
        self._refused: dict[Key, int] = {}  # of each direction, since this process began

    def remember(self, rows: dict[Key, Row], version: str | None) -> None:
        """What was counted last by an agent before this one."""
        self._now.update({key: _Life.of(row, version) for key, row in rows.items()})

    def count(self, key: Key, one: Counted, version: str | None) -> Row:
        """A class was read."""
        life = self._now.get(key)
        if life is None or not life.is_continued_by(one):
            life = self._begin(key, one.mark, version)
            self._strays.pop(key, None)
        life.version = version
        life.bytes, life.packets = one.bytes, one.packets
        life.rate_kbit = one.rate_bytes_s * 8 // 1000
        life.heartbeats.count(one.heartbeat_drops)
        life.data.count(one.data_drops)
        # These are no counters of the class: they go on when it is made anew, and begin again with each process.
        life.refused += one.refused - self._refused.get(key, 0)
        self._refused[key] = one.refused
        return life.row(one.backlog_bytes)

    def _begin(self, key: Key, mark: int, version: str | None) -> _Life:
        segment = f"{mark:08x}"
        former = self._now.get(key)
        if former is not None:
            if former.mark == mark:
                segment += f"-{secrets.token_hex(4)}"
            if not former.is_over:
                self._before[key] = former
        life = self._now[key] = _Life(segment, mark, version)
        return life

    def end(self, one: Farewell, version: str | None) -> tuple[Row, str | None] | None:
        """The kernel's last word on a class. Returns the last row of the segment that ends with it, and the version of
        the configuration that it was counted under; None where no segment ends."""
        if one.part != "inner":
            self._end_leaf(one)
            return None
        life = self._of(one, version)
        if one.bytes < life.bytes or one.packets < life.packets:
            return None  # another class's with the same mark
        life.bytes, life.packets, life.is_over = one.bytes, one.packets, True
        life.rate_kbit = one.rate_bytes_s * 8 // 1000
        self._before.pop(one.key, None)
        return life.row(), life.version

    def _end_leaf(self, one: Farewell) -> None:
        """Leaves go first, and do not name their inner class's mark: the class before goes before."""
        life = self._before.get(one.key) or self._now.get(one.key)
        if life is None or life.is_over:
            self._strays[one.key] = self._strays.get(one.key, 0) + one.drops
        else:
            (life.heartbeats if one.part == "heartbeat" else life.data).end(one.drops)

    def _of(self, one: Farewell, version: str | None) -> _Life:
        known = [life for life in (self._before.get(one.key), self._now.get(one.key)) if life is not None]
        for life in known:
            if life.mark == one.mark and not life.is_over:
                return life
        segment = f"{one.mark:08x}"
        if any(life.mark == one.mark for life in known):
            segment += f"-{secrets.token_hex(4)}"
        brief = _Life(segment, one.mark, version)  # it lived for less than an interval
        brief.data.before = self._strays.pop(one.key, 0)
        return brief

    def tick(self) -> None:
        """A whole sample was taken. Whoever did not say farewell by the second one after it was replaced never will."""
        for key in [key for key, life in self._before.items() if life.age >= _PATIENCE]:
            del self._before[key]
        for life in self._before.values():
            life.age += 1
