"""The limiter's program in the kernel, with what it is told: links by their keys, and a lane for each direction.

Layouts are those of limiter.bpf.c. A lane's first half is written here, its second half by the program. Programs and
maps have names in a folder, so that they outlive this process with every counter.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final, NamedTuple

from ap_agent.dataplane.libbpf import HashMap, LoadedObject, ProgramError, make_folder, mapped, pin, pinned, program_id
from ap_agent.document.state import Counters

SOURCE: Final = Path(__file__).with_name("limiter.bpf.c")
OBJECT: Final = Path(__file__).with_name("limiter.bpf.o")

OWN_MAJOR: Final = 0x51B0
FROM_USER_BIT: Final = 0x1000
FULL: Final = 65_536
BLOCKED, OBSERVED = 1, 2
WITH_REMOTE_PORT, WITH_LOCAL_ADDRESS, WITH_LOCAL_PORT = 1, 2, 4
MOST_LANES: Final = 16_384
LEAF_RESERVE_BYTES: Final = 140_000  # above the room: two of the largest datagrams

_COST_SHIFT = 20
_LANE = struct.Struct("=QQQQQIIQ")  # what is written here
_LANE_BYTES, _LANE_WORDS = 128, 16
_SEGMENT_AT, _SEGMENT_WORD = 56, 7
_COUNTERS = struct.Struct("=6Q")
_COUNTERS_AT = 80
_SEGMENT_AND_COUNTERS = struct.Struct("=48xQQ16x6Q")
_ADDRESS = struct.Struct("=16sI")
_KEY = struct.Struct("=16sI16s2s2s")
_FRAGMENTS_BYTES = 8 + 64 * 24
_UNMATCHED_AT, _KNOWN_AT, _KNOWN_BYTES = 8, 16, 8192
_PROGRAMS: Final = ("to_user", "from_user", "admitted")
_MAPS: Final = {name: name for name in ("addresses", "links", "fragments", "lanes")} | {".bss": "settings"}

Address = IPv4Address | IPv6Address


class MissingError(Exception):
    """Nothing has the names that were asked for."""


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
        class_id = OWN_MAJOR << 16 | self.class_minor
        if self.rate_kbit == 0 or self.is_blocked:
            return _LANE.pack(0, 0, 0, 0, 0, class_id, self._flags | BLOCKED, 0)
        room = room_bytes(self.rate_kbit)
        # The virtual queue drains by 1/1000 slower than HTB, so that HTB's own never grows beyond it.
        per_byte = 8_008_000 / self.rate_kbit
        return _LANE.pack(
            round(per_byte * (1 << _COST_SHIFT)),
            round(room * per_byte),
            round(room / 5 * per_byte),
            round((room + LEAF_RESERVE_BYTES) * per_byte),
            round(max(200_000_000, 1000 * per_byte)),
            class_id,
            self._flags,
            self.rate_kbit,
        )

    @property
    def _flags(self) -> int:
        return OBSERVED if self.is_observed else 0


_CLOSED: Final = _LANE.pack(0, 0, 0, 0, 0, 0, BLOCKED, 0)  # for what is under way; a key does not lead there


def rate_of(packed_lane: bytes) -> int:
    """kbit/s, 0 blocked."""
    return int(_LANE.unpack(packed_lane)[-1])


def room_bytes(rate_kbit: int) -> int:
    """Of the virtual queue: a burst of ten frames from an idle control service fits (LIMITER.md)."""
    return 13_500 if rate_kbit < 100 else max(20_000, rate_kbit * 125 // 10)


def words(address: Address) -> bytes:
    """16 bytes, IPv4 as ::ffff:a.b.c.d."""
    return address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed


def _port(port: int | None) -> bytes:
    return struct.pack("!H", port or 0)


def known_bit(packed_address: bytes) -> int:
    """`is_known` of limiter.bpf.c."""
    a, b, c, d = struct.unpack_from("=4I", packed_address)
    folded = d ^ (c << 7 | c >> 25) ^ (b << 14 | b >> 18) ^ (a << 21 | a >> 11)
    return int((folded & 0xFFFFFFFF) * 0x9E3779B1 & 0xFFFFFFFF) >> 16


class Lanes:
    """The lanes' memory, which the program shares. No method is a system call."""

    def __init__(self, fd: int) -> None:
        self._memory = mapped(fd, _LANE_BYTES * MOST_LANES)
        self._words = memoryview(self._memory).cast("Q")

    def used(self) -> dict[int, bytes]:
        """What is written of each lane that has a segment."""
        memory = self._memory
        return {
            number: memory[number * _LANE_BYTES : number * _LANE_BYTES + _SEGMENT_AT]
            for number, segment in enumerate(self._words[_SEGMENT_WORD::_LANE_WORDS].tolist())
            if segment
        }

    def packed(self, number: int) -> bytes:
        at = number * _LANE_BYTES
        return self._memory[at : at + _SEGMENT_AT]

    def is_blocked(self, number: int) -> bool:
        """A lane in use that lets nothing through."""
        at = number * _LANE_WORDS
        return bool(self._words[at + _SEGMENT_WORD] and self._words[at + 5] >> 32 & BLOCKED)

    def take(self, number: int, packed: bytes) -> None:
        """Into use, with counters at 0 and a segment of its own, which comes last: whoever is killed before begins
        again."""
        at = number * _LANE_BYTES
        self._memory[at + _SEGMENT_AT : at + _LANE_BYTES] = bytes(_LANE_BYTES - _SEGMENT_AT)
        self.put(number, packed)
        self._words[number * _LANE_WORDS + _SEGMENT_WORD] = int.from_bytes(os.urandom(8), "little") or 1

    def put(self, number: int, packed: bytes) -> None:
        """The program reads it with its next packet; counters go on."""
        at = number * _LANE_BYTES
        self._memory[at : at + _SEGMENT_AT] = packed

    def forget(self, number: int) -> None:
        """The counters are nobody's from now on."""
        self._words[number * _LANE_WORDS + _SEGMENT_WORD] = 0
        self.put(number, _CLOSED)

    def counters(self, number: int) -> tuple[int, int, Counters]:
        """(rate in kbit/s, segment, counters)."""
        at = number * _LANE_BYTES
        rate, segment = struct.unpack_from("=QQ", self._memory, at + _SEGMENT_AT - 8)
        return rate, segment, Counters._make(_COUNTERS.unpack_from(self._memory, at + _COUNTERS_AT))

    def all_counters(self, lanes: int) -> list[tuple[int, ...]]:
        """(rate in kbit/s, segment, six counters) of each of the first so many lanes; segment 0: nobody's."""
        return list(_SEGMENT_AND_COUNTERS.iter_unpack(self._memory[: lanes * _LANE_BYTES]))

    def close(self) -> None:
        self._words.release()
        self._memory.close()


class Program:
    """The program and its maps, by the names that they have in `folder`; they are made where they are not there.

    `ids`: by which filters name the programs. `folder` None: nothing has a name, all of it ends with this object.
    """

    def __init__(self, folder: Path | None, object_file: Path = OBJECT, *, may_make: bool = True) -> None:
        """Raises `ProgramError`, `NotPermittedError`; without `may_make`, which changes nothing, `MissingError` too."""
        self.folder = folder
        try:
            self._version = hashlib.sha256(object_file.read_bytes()).hexdigest()[:12]
        except OSError as exc:
            raise ProgramError(f"{object_file} cannot be read ({exc.strerror}). Install the package again.") from exc
        fds = self._load(object_file) if folder is None else self._opened(folder)
        if fds is None and folder is not None:
            fds = self._made(folder, object_file) if may_make else self._opened(folder, _MAPS)
        if fds is None:
            raise MissingError
        self.fds = {name: fds[name] for name in _PROGRAMS if name in fds}
        self.ids = {name: program_id(fd) for name, fd in self.fds.items()}
        self.addresses = HashMap(fds["addresses"], key_bytes=20, value_bytes=4)
        self.links = HashMap(fds["links"], key_bytes=40, value_bytes=4)
        self.fragments = HashMap(fds["fragments"], key_bytes=20, value_bytes=_FRAGMENTS_BYTES)
        self.lanes = Lanes(fds["lanes"])
        self._settings = mapped(fds[".bss"], _KNOWN_AT + _KNOWN_BYTES)
        if may_make:
            self._begin()

    def _begin(self) -> None:
        if self._settings[0:8] == bytes(8):  # new
            self.set_factors(1.0, 1.0)
            self._settings[12:16] = os.urandom(4)
        self._complete_addresses()

    # --- loading ---

    @staticmethod
    def is_there(folder: Path) -> bool:
        """Whether maps have names in `folder`, of whichever version of the program; or may have, and we may not see."""
        return (
            not os.access(folder.parent, os.X_OK)
            or (folder.is_dir() and not os.access(folder, os.X_OK))
            or (folder / "lanes").exists()
        )

    def _names(self, folder: Path) -> dict[str, Path]:
        programs = {name: folder / f"{name}-{self._version}" for name in _PROGRAMS}
        return programs | {name: folder / own for name, own in _MAPS.items()}

    def _opened(self, folder: Path, only: Collection[str] = (*_PROGRAMS, *_MAPS)) -> dict[str, int] | None:
        names = {name: path for name, path in self._names(folder).items() if name in only}
        found = pinned(names.values())
        return None if found is None else dict(zip(names, found, strict=True))

    def _made(self, folder: Path, object_file: Path) -> dict[str, int]:
        make_folder(folder)
        names = self._names(folder)
        fds = self._load(object_file, {name: names[name] for name in _MAPS})
        for name in _PROGRAMS:
            names[name].unlink(missing_ok=True)
            pin(fds[name], names[name])
        return fds

    def _load(self, object_file: Path, pins: dict[str, Path] | None = None) -> dict[str, int]:
        loaded = LoadedObject(object_file, pins or {})
        try:
            return {name: loaded.program_fd(name) for name in _PROGRAMS} | {name: loaded.map_fd(name) for name in _MAPS}
        finally:
            loaded.close()

    def forget_older(self) -> None:
        """Other versions of the program lose their names: no filter has them any more."""
        if self.folder is not None:
            for path in self.folder.iterdir():
                if "-" in path.name and not path.name.endswith(self._version):
                    path.unlink(missing_ok=True)

    @staticmethod
    def remove_names(folder: Path) -> None:
        """Of everything; the kernel frees what no filter and no process has."""
        if folder.is_dir():
            for path in folder.iterdir():
                if "." not in path.name:  # the kernel's own have a dot
                    path.unlink(missing_ok=True)

    # --- what it is told ---

    def put_address(self, address: bytes, kinds: int, *, is_new: bool) -> None:
        """Which kinds of keys it has (bits). Raises `ProgramError`."""
        if is_new:
            self.fragments.put(address, bytes(_FRAGMENTS_BYTES))
        bit = known_bit(address)
        self._settings[_KNOWN_AT + (bit >> 3)] |= 1 << (bit & 7)
        self.addresses.put(address, struct.pack("=I", kinds))

    def remove_address(self, address: bytes) -> None:
        self.addresses.delete(address)
        self.fragments.delete(address)

    def put_link(self, key: bytes, lane: int) -> None:
        """Packets of this key belong to `lane` to the user, the next one from the user. Raises `ProgramError`."""
        self.links.put(key, struct.pack("=I", lane))

    def _complete_addresses(self) -> None:
        """Who was killed between the two entries of an address left one of them."""
        addresses, fragments = self.addresses.numbers().keys(), self.fragments.keys()
        for address in fragments - addresses:
            self.fragments.delete(address)
        for address in addresses - fragments:
            self.fragments.put(address, bytes(_FRAGMENTS_BYTES))

    def is_known(self, address: bytes) -> bool:
        bit = known_bit(address)
        return bool(self._settings[_KNOWN_AT + (bit >> 3)] >> (bit & 7) & 1)

    def set_known(self, addresses: dict[bytes, int]) -> None:
        """Forget that others once had a link: their packets cost nothing again."""
        known = bytearray(_KNOWN_BYTES)
        for address in addresses:
            bit = known_bit(address)
            known[bit >> 3] |= 1 << (bit & 7)
        if self._settings[_KNOWN_AT : _KNOWN_AT + _KNOWN_BYTES] != known:
            self._settings[_KNOWN_AT : _KNOWN_AT + _KNOWN_BYTES] = bytes(known)

    def set_factors(self, to_user: float, from_user: float) -> None:
        """Multiply every charge, 1.0 for no cap of the attachment point."""
        self._settings[0:8] = struct.pack("=II", round(to_user * FULL), round(from_user * FULL))

    @property
    def unmatched(self) -> int | None:
        """The lane to the users of everything that no link has; None: it is not limited."""
        found = int(struct.unpack_from("=I", self._settings, _UNMATCHED_AT)[0])
        return found - 1 if found else None

    @unmatched.setter
    def unmatched(self, lane: int | None) -> None:
        self._settings[_UNMATCHED_AT : _UNMATCHED_AT + 4] = struct.pack("=I", 0 if lane is None else lane + 1)

    def close(self) -> None:
        """What has a name, or sits in a filter, stays."""
        self.lanes.close()
        self._settings.close()
        for one in (self.addresses, self.links, self.fragments):
            one.close()
        for fd in self.fds.values():
            os.close(fd)
