"""Who is admitted how: the limits in the program's maps, kept by difference, and what was kept out.

One `Admission` per direction owns a program with its maps. Whoever attaches the program gives the kernel a reference of
its own: the filter keeps working when this process ends, and a fresh process puts a program of its own in its place.
"""

from __future__ import annotations

import errno
import struct
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing

from ap_agent.desired import rates_of
from ap_agent.model import Direction
from ap_agent.whole.bpf import ArrayMap, BpfUnavailableError, HashMap, load_program
from ap_agent.whole.entry import Entry, Refused
from ap_agent.whole.layout import (
    HAS_LOCAL,
    IS_ANY,
    LIMITS_V4,
    LIMITS_V6,
    QUEUES,
    SHIFT,
    SLOTS,
    SLOWER_SHIFT,
    Limit,
    Queue,
    Slots,
)
from ap_agent.whole.program import Maps, build
from bandwidth_config import IPAddress

__all__ = ["Admission", "BpfUnavailableError", "Direction", "Entry", "Refused"]

CAPACITY = 4096  # addresses: at least one link each, and a link's interface id is at most 4094
NS_PER_S, NS_PER_MS = 1_000_000_000, 1_000_000
SLOWER_THAN_HTB = 1 << SLOWER_SHIFT
_LIMIT = struct.Struct("=QQQQ4s4sII16sQ")
assert _LIMIT.size == Limit.BYTES  # noqa: S101 -- two descriptions of one layout


def multiplier(bytes_per_s: int, *, slower_by: int = 0) -> int:
    """ns per byte with `SHIFT` binary places, rounded up; with `slower_by` = n the n-th part more."""
    scaled = NS_PER_S << SHIFT
    if slower_by:
        scaled += scaled // slower_by
    return -(-scaled // bytes_per_s)


class _Loaded:
    """A program with its maps, all in the kernel or none."""

    def __init__(self, direction: Direction, capacity: int) -> None:
        with ExitStack() as opened:
            self.limits = {
                version: opened.enter_context(
                    closing(HashMap(name, key_bytes=key_bytes, value_bytes=Limit.BYTES, entries=capacity))
                )
                for version, name, key_bytes in ((4, LIMITS_V4, 4), (6, LIMITS_V6, 16))
            }
            self.queues, self.slots = (
                opened.enter_context(closing(ArrayMap(name, value_bytes=value_bytes, entries=capacity)))
                for name, value_bytes in ((QUEUES, Queue.BYTES), (SLOTS, Slots.BYTES))
            )
            maps = Maps(self.limits[4].fd, self.limits[6].fd, self.queues.fd, self.slots.fd)
            self.program = load_program(f"slbw_{direction}", build(direction, maps))
            opened.callback(self.program.close)
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()


class Admission:
    """The program of one direction with its maps. Not for two threads at once."""

    def __init__(self, direction: Direction, capacity: int = CAPACITY) -> None:
        """Load it; nothing is attached and nobody has an entry. Raises `BpfUnavailableError`."""
        self.direction = direction
        self._kernel: _Loaded | None = _Loaded(direction, capacity)
        self._entries: dict[IPAddress, Entry] = {}
        self._places: dict[IPAddress, int] = {}  # the number of each address' queue
        self._free = list(range(capacity - 1, -1, -1))

    @property
    def program_fd(self) -> int:
        """What a filter is made with. Raises `ValueError` after `close`."""
        return self._loaded.program.fd

    @property
    def program_id(self) -> int:
        """The kernel's number of the program, as `tc filter show` prints it."""
        return self._loaded.program.id

    @property
    def tag(self) -> str:
        """A hash of its instructions, 16 hexadecimal digits, as `tc filter show` prints it."""
        return self._loaded.program.tag

    def set(self, entries: Mapping[IPAddress, Entry]) -> int:
        """Make the maps hold exactly these entries; returns how many were written or removed.

        An entry of 0 kbit/s is left out: the closed leaf behind drops, and counts. What an address has in its queue
        stays when its limit changes, as bytes: they last longer at a lower rate. Raises `OSError` when the kernel
        refuses a write (ENOSPC: more addresses than `capacity`).
        """
        wanted = (
            {address: entry for address, entry in entries.items() if entry.kbit > 0}
            if _has_closed(entries)
            else entries
        )
        changed = [(address, entry) for address, entry in wanted.items() if self._is_new(address, entry)]
        gone = self._missing_in(wanted, added=sum(address not in self._entries for address, _ in changed))
        for address in gone:
            self._remove(address)
        for address, entry in changed:
            self._put(address, entry)
        return len(gone) + len(changed)

    def put(self, address: IPAddress, entry: Entry) -> bool:
        """The same for one address alone, whatever others there are; returns whether something was written."""
        if entry.kbit == 0:
            is_known = address in self._entries
            if is_known:
                self._remove(address)
            return is_known
        is_new = self._is_new(address, entry)
        if is_new:
            self._put(address, entry)
        return is_new

    def _is_new(self, address: IPAddress, entry: Entry) -> bool:
        before = self._entries.get(address)
        return before is not entry and before != entry  # of 4000 entries nearly all are the very same objects

    def _missing_in(self, wanted: Mapping[IPAddress, Entry], *, added: int) -> list[IPAddress]:
        """Counting says whether there are any: looking up thousands of addresses costs milliseconds."""
        if len(self._entries) + added == len(wanted):
            return []
        return [address for address in self._entries if address not in wanted]

    def refused(self) -> dict[IPAddress, Refused]:
        """Of each address with an entry. Any thread may ask."""
        queues = self._loaded.queues
        return {
            address: Refused(queues.read(place, Queue.REFUSED_PACKETS), queues.read(place, Queue.REFUSED_BYTES))
            for address, place in list(self._places.items())
        }

    def close(self) -> None:
        """Give up our references; a filter has its own. Can be called twice."""
        self._entries.clear()
        self._places.clear()
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    @property
    def _loaded(self) -> _Loaded:
        if self._kernel is None:
            raise ValueError("this admission is closed; make another one")
        return self._kernel

    def _put(self, address: IPAddress, entry: Entry) -> None:
        before = self._entries.get(address)
        place = self._places.get(address)
        if place is None:
            if not self._free:
                raise OSError(errno.ENOSPC, f"there is no place for {address} beside {len(self._places)} addresses")
            place = self._free.pop()
            self._loaded.queues.clear(place)
            self._loaded.slots.clear(place)
            self._places[address] = place
        self._loaded.limits[address.version].put(address.packed, pack_limit(entry, place, self.direction))
        self._entries[address] = entry
        if before is not None and before.kbit != entry.kbit:
            self._stretch_queue(place, before, entry)

    def _stretch_queue(self, place: int, before: Entry, now: Entry) -> None:
        """A queue is kept as the time it takes to drain: what the leaf has, at the new rate.

        Not the virtual queue itself: after a lasting overload it is longer than the leaf by up to the room, and at a
        lower rate would refuse everything long after the leaf is empty. The program may charge a packet between our
        reading and our writing, which then is not counted. That is one packet more in a leaf that has place for many.
        """
        queues, now_ns = self._loaded.queues, time.monotonic_ns()
        left_ns = queues.read(place, Queue.LEAF_EMPTY_AT_NS) - now_ns
        if left_ns > 2 * before.depth_bytes * 8 * NS_PER_MS // before.kbit:
            # No leaf is so long: our clock is not the program's (time_namespaces(7)), and what we wrote would block
            # the link for as long as the two differ.
            return
        empty_at_ns = now_ns + left_ns * before.kbit // now.kbit if left_ns > 0 else 0
        for offset in (Queue.LEAF_EMPTY_AT_NS, Queue.EMPTY_AT_NS):
            queues.write(place, offset, empty_at_ns)

    def _remove(self, address: IPAddress) -> None:
        self._loaded.limits[address.version].delete(address.packed)
        del self._entries[address]
        self._free.append(self._places.pop(address))


def _has_closed(entries: Mapping[IPAddress, Entry]) -> bool:
    return any(entry.kbit == 0 for entry in entries.values())


def pack_limit(entry: Entry, place: int, direction: Direction) -> bytes:
    """What the program reads of an entry above 0 kbit/s (`program.Limit`)."""
    rates = rates_of(entry.kbit)
    local_ip = None if entry.is_any else entry.local_ip  # without a port only the remote address counts
    per_byte = multiplier(rates.limit, slower_by=SLOWER_THAN_HTB)
    ports, mask = _ports(entry, direction)
    return _LIMIT.pack(
        per_byte,
        entry.room_bytes * per_byte >> SHIFT,
        entry.depth_bytes * per_byte >> SHIFT,
        multiplier(rates.heartbeat),
        mask,
        ports,
        place,
        (IS_ANY if entry.is_any else 0) | (HAS_LOCAL if local_ip is not None else 0),
        b"" if local_ip is None else local_ip.packed,
        (entry.room_bytes if entry.own_room_bytes is None else entry.own_room_bytes) * per_byte >> SHIFT,
    )


def _ports(entry: Entry, direction: Direction) -> tuple[bytes, bytes]:
    """Source and destination port as in the packet, and a mask of those that count."""
    remote, local = (
        (struct.pack("!H", port or 0), b"\0\0" if port is None else b"\xff\xff")
        for port in (entry.remote_port, entry.local_port)
    )
    first, second = (local, remote) if direction == "to_user" else (remote, local)
    return first[0] + second[0], first[1] + second[1]
