"""Lanes of the limiter's program: one for each direction of a link, in shared memory.

Layouts are those of limiter.bpf.c. User space writes a lane's first half, the program its second half.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ap_agent.dataplane.libbpf import map_sizes, mapped
from ap_agent.document.state import Counters

OWN_MAJOR: Final = 0x51B0
BLOCKED, OBSERVED = 1, 2
LARGEST_BYTES: Final = 70_000  # a datagram with the headers of all its fragments
LEAF_RESERVE_BYTES: Final = 2 * LARGEST_BYTES  # above the room

_COST_SHIFT = 20
_LANE = struct.Struct("=QQQQQIIQ")  # written here
_LANES_AT_ONCE = 8
_SEGMENT_AT = 56
_EMPTY_AT = 64
_SEGMENT_AND_COUNTERS = struct.Struct(f"=56xQ16x{len(Counters._fields)}Q")
_QUEUED_UNTIL_AT = _SEGMENT_AND_COUNTERS.size
_GUARD_NS = 100_000_000
_FLAGS_AND_SEGMENT = struct.Struct("=44xI8xQ")


@dataclass(frozen=True)
class Lane:
    """One direction of a link. Times in ns at the limit's own rate: of `room`, `early` and heartbeats in bytes.
    `class_minor`: of the HTB class that paces admitted packets."""

    rate_kbit: int
    class_minor: int
    is_observed: bool = False

    def packed(self) -> bytes:
        class_id, flags = OWN_MAJOR << 16 | self.class_minor, OBSERVED if self.is_observed else 0
        if self.rate_kbit == 0:
            return _LANE.pack(0, 0, 0, 0, 0, class_id, flags | BLOCKED, 0)
        room = room_bytes(self.rate_kbit)
        # The virtual queue drains 1/1000 slower than HTB, so that HTB's own never grows beyond it.
        per_byte = 8_008_000 / self.rate_kbit
        return _LANE.pack(
            round(per_byte * (1 << _COST_SHIFT)),
            round(room * per_byte),
            round(early_bytes(self.rate_kbit) * per_byte),
            round(LARGEST_BYTES * per_byte),
            round(max(200_000_000, 1000 * per_byte)),
            class_id,
            flags,
            self.rate_kbit,
        )


_CLOSED: Final = _LANE.pack(0, 0, 0, 0, 0, 0, BLOCKED, 0)  # for packets in transit; no key leads there


def rate_of(packed_lane: bytes) -> int:
    """kbit/s, 0 blocked."""
    return int(_LANE.unpack(packed_lane)[-1])


def room_bytes(rate_kbit: int) -> int:
    """Size of the virtual queue: a burst of ten frames from an idle control service fits (LIMITER.md)."""
    return 14_000 if rate_kbit < 100 else max(20_000, rate_kbit * 125 // 10)


def early_bytes(rate_kbit: int) -> int:
    """From here on a few packets are dropped early, so that TCP flows share: above a burst of ten frames, which passes
    whole (44 of 1200 packets of such bursts were dropped with a fifth of the room, none with this; `./dev bench
    fairness`)."""
    room = room_bytes(rate_kbit)
    return min(room, max(room // 5, 15_200))


class Lanes:
    """The lanes' shared memory. No method makes a system call."""

    def __init__(self, fd: int) -> None:
        """Of any layout: all have rate, segment and counters in the same place. Raises `ProgramError`."""
        self._size, count = map_sizes(fd)
        self._memory = mapped(fd, self._size * count)
        self._pieces: list[bytes] = [b""] * (count // _LANES_AT_ONCE)
        self._used: dict[int, bytes] = {}
        self._counted: dict[int, tuple[int, Counters]] = {}

    def _refresh(self) -> None:
        memory, size = self._memory[:], self._size * _LANES_AT_ONCE
        for at, last in enumerate(self._pieces):
            piece = memory[at * size : (at + 1) * size]
            if piece == last:
                continue
            self._pieces[at] = piece
            for place in range(_LANES_AT_ONCE):
                number, start = at * _LANES_AT_ONCE + place, place * self._size
                segment, *counters = _SEGMENT_AND_COUNTERS.unpack_from(piece, start)
                if segment:
                    self._used[number] = piece[start : start + _SEGMENT_AT]
                    self._counted[number] = segment, Counters._make(counters)
                elif number in self._used:
                    del self._used[number], self._counted[number]

    def used(self) -> dict[int, bytes]:
        """Written part of each lane that has a segment."""
        self._refresh()
        return dict(self._used)

    def counted(self) -> dict[int, tuple[int, Counters]]:
        """(Segment, counters) of each lane that has a segment."""
        self._refresh()
        return self._counted

    def counted_of(self, numbers: Iterable[int]) -> dict[int, tuple[int, Counters]]:
        """As `counted`, for these lanes only."""
        found = {}
        for number in numbers:
            segment, *counters = _SEGMENT_AND_COUNTERS.unpack_from(self._memory, number * self._size)
            if segment:
                found[number] = segment, Counters._make(counters)
        return found

    def ended(self, numbers: Collection[int]) -> list[tuple[int, int, int, Counters]]:
        """(Lane, rate in kbit/s, segment, counters) of those of them that have a segment."""
        self._refresh()
        return [(one, rate_of(self._used[one]), *self._counted[one]) for one in numbers if one in self._used]

    def packed(self, number: int) -> bytes:
        at = number * self._size
        return self._memory[at : at + _SEGMENT_AT]

    def is_blocked(self, number: int) -> bool:
        """A lane in use that passes nothing."""
        flags, segment = _FLAGS_AND_SEGMENT.unpack_from(self._memory, number * self._size)
        return bool(segment and flags & BLOCKED)

    def take(self, number: int, packed: bytes) -> None:
        """Allocate with counters at 0 and a new segment, which is written last: a kill before it restarts the
        allocation. HTB may still have packets of the class."""
        at = number * self._size
        self._memory[at + _SEGMENT_AT : at + self._size] = bytes(self._size - _SEGMENT_AT)
        self._write(number, packed)
        if kbit := rate_of(packed):
            wait_ns = (room_bytes(kbit) + LEAF_RESERVE_BYTES) * 8_008_000 // kbit + _GUARD_NS
            struct.pack_into("=Q", self._memory, at + _QUEUED_UNTIL_AT, time.monotonic_ns() + wait_ns)
        self._set_segment(number, int.from_bytes(os.urandom(8), "little") or 1)

    def put(self, number: int, packed: bytes) -> None:
        """The program reads it with its next packet; counters continue."""
        was_kbit = rate_of(self.packed(number))
        self._write(number, packed)
        if (kbit := rate_of(packed)) and kbit != was_kbit:
            self._convert_times(number, was_kbit, kbit)

    def _convert_times(self, number: int, was_kbit: int, kbit: int) -> None:
        """What waits takes as much longer as the limit is lower, and until then nothing is admitted, which HTB had no
        room for. Nothing waits in a lane that was blocked. A charge between a read and its write is lost, at most a
        room, for which the leaf has its reserve."""
        now_ns = time.monotonic_ns()
        for at, guard_ns in ((_EMPTY_AT, 0), (_QUEUED_UNTIL_AT, _GUARD_NS)):
            (known_ns,) = struct.unpack_from("=Q", self._memory, number * self._size + at)
            if known_ns > now_ns:
                until_ns = now_ns + (known_ns - now_ns) * was_kbit // kbit + guard_ns
                struct.pack_into("=Q", self._memory, number * self._size + at, until_ns)

    def _write(self, number: int, packed: bytes) -> None:
        at = number * self._size
        self._memory[at : at + _SEGMENT_AT] = packed

    def forget(self, number: int) -> None:
        """Release its counters."""
        self._set_segment(number, 0)
        self._write(number, _CLOSED)

    def _set_segment(self, number: int, segment: int) -> None:
        struct.pack_into("=Q", self._memory, number * self._size + _SEGMENT_AT, segment)

    def close(self) -> None:
        self._memory.close()
