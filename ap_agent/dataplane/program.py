"""The limiter's program in the kernel, with what it is told: links by their keys, and a lane for each direction.

Layouts are those of limiter.bpf.c. A lane's first half is written here, its second half by the program.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final, NamedTuple

from ap_agent.dataplane.libbpf import HashMap, LoadedObject, mapped

SOURCE: Final = Path(__file__).with_name("limiter.bpf.c")

OWN_MAJOR: Final = 0x51B0
FROM_USER_BIT: Final = 0x1000
FULL: Final = 65_536
BLOCKED, OBSERVED = 1, 2
WITH_REMOTE_PORT, WITH_LOCAL_ADDRESS, WITH_LOCAL_PORT = 1, 2, 4
MOST_LANES: Final = 16_384

_COST_SHIFT = 20
_LANE = struct.Struct("=QQQQQII16x")  # what is written here
_LANE_BYTES = 128
_COUNTERS = struct.Struct("=6Q")
_COUNTERS_AT = 80
_ADDRESS = struct.Struct("=16sI")
_KEY = struct.Struct("=16sI16s2s2s")
_FRAGMENTS_BYTES = 8 + 64 * 24
_KNOWN_AT, _KNOWN_WORDS = 16, 1024

Address = IPv4Address | IPv6Address


class Key(NamedTuple):
    """Which packets a link has. None: any. `ifindex` only with a link-local remote address."""

    remote: Address
    remote_port: int | None = None
    local: Address | None = None
    local_port: int | None = None
    ifindex: int = 0

    @property
    def kind(self) -> int:
        found = 0 if self.remote_port is None else WITH_REMOTE_PORT
        found |= 0 if self.local is None else WITH_LOCAL_ADDRESS
        return found | (0 if self.local_port is None else WITH_LOCAL_PORT)

    @property
    def address(self) -> bytes:
        return _ADDRESS.pack(words(self.remote), self.ifindex)

    def packed(self) -> bytes:
        local = bytes(16) if self.local is None else words(self.local)
        return _KEY.pack(words(self.remote), self.ifindex, local, _port(self.remote_port), _port(self.local_port))


@dataclass(frozen=True)
class Lane:
    """One direction of a link. Times in ns are the limit's own: of `room`, `early` and heartbeats in bytes at its rate.

    `class_minor`: of the HTB class that paces what is admitted.
    """

    rate_kbit: int
    class_minor: int
    is_blocked: bool = False
    is_observed: bool = False

    def packed(self) -> bytes:
        if self.rate_kbit == 0 or self.is_blocked:
            return _LANE.pack(0, 0, 0, 0, 0, OWN_MAJOR << 16 | self.class_minor, self._flags | BLOCKED)
        room = room_bytes(self.rate_kbit)
        # The virtual queue drains by 1/1000 slower than HTB, so that HTB's own never grows beyond it.
        per_byte = 8_008_000 / self.rate_kbit
        return _LANE.pack(
            round(per_byte * (1 << _COST_SHIFT)),
            round(room * per_byte),
            round(room / 5 * per_byte),
            round((room + 140_000) * per_byte),
            round(max(200_000_000, 1000 * per_byte)),
            OWN_MAJOR << 16 | self.class_minor,
            self._flags,
        )

    @property
    def _flags(self) -> int:
        return OBSERVED if self.is_observed else 0


class Counters(NamedTuple):
    """Since the program was loaded. `passed` includes heartbeats; `refused` under observation passed all the same."""

    passed_bytes: int
    passed_packets: int
    refused_bytes: int
    refused_packets: int
    heartbeat_bytes: int
    heartbeat_packets: int


def room_bytes(rate_kbit: int) -> int:
    """Of the virtual queue: a burst of ten frames from an idle control service fits (LIMITER.md)."""
    return 13_500 if rate_kbit < 100 else max(20_000, rate_kbit * 125 // 10)


def words(address: Address) -> bytes:
    """16 bytes, IPv4 as ::ffff:a.b.c.d."""
    return address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed


def _port(port: int | None) -> bytes:
    return struct.pack("!H", port or 0)


def known_bit(address: Address) -> int:
    """`bit_of` of limiter.bpf.c."""
    word = struct.unpack("=4I", words(address))
    folded = 0
    for value, turn in zip(word, (21, 14, 7, 0), strict=True):
        folded ^= value << turn & 0xFFFFFFFF | value >> (32 - turn) % 32 if turn else value
    return (folded * 0x9E3779B1 & 0xFFFFFFFF) >> 16


class Program:
    """The program and its maps. They live as long as this object, or a filter, holds them."""

    def __init__(self, path: Path) -> None:
        """`path`: the object that clang made of `SOURCE`. Raises `ProgramError`."""
        self._object = LoadedObject(path)
        self.fds = {name: self._object.program_fd(name) for name in ("to_user", "from_user", "admitted")}
        self._addresses = HashMap(self._object.map_fd("addresses"), key_bytes=20, value_bytes=4)
        self._links = HashMap(self._object.map_fd("links"), key_bytes=40, value_bytes=4)
        self._fragments = HashMap(self._object.map_fd("fragments"), key_bytes=20, value_bytes=_FRAGMENTS_BYTES)
        self._lanes = mapped(self._object.map_fd("lanes"), _LANE_BYTES * MOST_LANES)
        self._settings = mapped(self._object.map_fd(".bss"), _KNOWN_AT + 8 * _KNOWN_WORDS)
        self._settings[0:16] = struct.pack("=IIII", FULL, FULL, 0, int.from_bytes(os.urandom(4), "little"))
        self._lane_of: dict[Key, int] = {}
        self._kinds: dict[bytes, list[int]] = {}

    def put_lane(self, number: int, lane: Lane) -> None:
        """An even number is to the user, the next one from the user. The program reads it with its next packet."""
        at = number * _LANE_BYTES
        self._lanes[at : at + _LANE.size] = lane.packed()

    def counters(self, number: int) -> Counters:
        return Counters(*_COUNTERS.unpack_from(self._lanes, number * _LANE_BYTES + _COUNTERS_AT))

    def put_link(self, key: Key, number: int) -> None:
        """Packets of `key` belong to the lanes `number` and `number + 1`, which are there. Raises `ProgramError`."""
        kinds = self._kinds.setdefault(key.address, [0] * 8)
        if key not in self._lane_of:
            kinds[key.kind] += 1
        self._lane_of[key] = number
        self._links.put(key.packed(), struct.pack("=I", number))
        if sum(kinds) == 1:
            self._fragments.put(key.address, bytes(_FRAGMENTS_BYTES))
        self._put_kinds(key.address)
        bit = known_bit(key.remote)
        at = _KNOWN_AT + (bit >> 6) * 8
        known = struct.unpack_from("=Q", self._settings, at)[0] | 1 << (bit & 63)
        struct.pack_into("=Q", self._settings, at, known)

    def remove_link(self, key: Key) -> None:
        """Its packets are nobody's from now on. The bit that made its address known stays, and costs a look-up."""
        if self._lane_of.pop(key, None) is None:
            return
        kinds = self._kinds[key.address]
        kinds[key.kind] -= 1
        self._links.delete(key.packed())
        self._put_kinds(key.address)

    def _put_kinds(self, address: bytes) -> None:
        kinds = self._kinds[address]
        bits = sum(1 << kind for kind, count in enumerate(kinds) if count)
        if bits:
            self._addresses.put(address, struct.pack("=I", bits))
        else:
            self._addresses.delete(address)
            self._fragments.delete(address)
            del self._kinds[address]

    def set_factor(self, to_user: float, from_user: float) -> None:
        """Multiply every charge, 1.0 for no cap of the attachment point."""
        self._settings[0:8] = struct.pack("=II", round(to_user * FULL), round(from_user * FULL))

    def set_unmatched(self, number: int | None) -> None:
        """The lanes of everything that no link has; None: it is not limited."""
        self._settings[8:12] = struct.pack("=I", 0 if number is None else number + 1)

    def close(self) -> None:
        self._lanes.close()
        self._settings.close()
        self._object.close()
