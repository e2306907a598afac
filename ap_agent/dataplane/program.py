"""The limiter's program in the kernel and its data: links by key, and a lane for each direction.

Layouts are those of limiter.bpf.c. Programs and maps are pinned in a folder, so that they outlive this process with
every counter.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Collection, Mapping
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final, NamedTuple

from ap_agent.common.errors import ProgramError
from ap_agent.dataplane.lanes import Lanes
from ap_agent.dataplane.libbpf import HashMap, load, make_folder, mapped, pin, pinned, program_id

SOURCE: Final = Path(__file__).with_name("limiter.bpf.c")
OBJECT: Final = Path(__file__).with_name("limiter.bpf.o")

FROM_USER_BIT: Final = 0x1000
FULL: Final = 65_536
WITH_REMOTE_PORT, WITH_LOCAL_ADDRESS, WITH_LOCAL_PORT = 1, 2, 4

MOST_LANES: Final = 16_384
LAYOUT: Final = "6"  # of the maps; increment it when their meaning changes

_ADDRESS_BYTES = 20  # a key begins with it
_KEY = struct.Struct("=16sI16s2s2s")
_FRAGMENTS_BYTES = 8 + 2 * (16 + 48 * 20)
_UNMATCHED_AT, _KNOWN_AT, _KNOWN_BYTES, _IFB_AT, _KINDS_AT, _SETTINGS_BYTES = 8, 16, 8192, 8208, 8212, 8213
_PROGRAMS: Final = ("to_user", "from_user", "admitted")
_MAPS: Final = {name: name for name in ("links", "fragments", "lanes")} | {".bss": "settings"}

Address = IPv4Address | IPv6Address


class Key(NamedTuple):
    """Matches the packets of a link. None: any. `ifindex` only with a link-local remote address."""

    remote: Address
    remote_port: int | None = None
    local: Address | None = None
    local_port: int | None = None
    ifindex: int = 0

    def packed(self) -> bytes:
        local = bytes(16) if self.local is None else words(self.local)
        return _KEY.pack(words(self.remote), self.ifindex, local, _port(self.remote_port), _port(self.local_port))


def words(address: Address) -> bytes:
    """16 bytes, IPv4 as ::ffff:a.b.c.d."""
    return address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed


def _kind(packed_key: bytes) -> int:
    """The fields besides the remote address, as bits."""
    _, _, local, remote_port, local_port = _KEY.unpack(packed_key)
    found = WITH_REMOTE_PORT if any(remote_port) else 0
    return found | (WITH_LOCAL_ADDRESS if any(local) else 0) | (WITH_LOCAL_PORT if any(local_port) else 0)


def _port(port: int | None) -> bytes:
    return struct.pack("!H", port or 0)


def known_bit(packed_key: bytes) -> int:
    """`is_known` of limiter.bpf.c."""
    a, b, c, d = struct.unpack_from("=4I", packed_key)
    folded = d ^ (c << 7 | c >> 25) ^ (b << 14 | b >> 18) ^ (a << 21 | a >> 11)
    return int((folded & 0xFFFFFFFF) * 0x9E3779B1 & 0xFFFFFFFF) >> 16


class Program:
    """The program and its maps. `ids`: program ids, as in filters. `is_whole`: the programs exist, too. Pins are
    `lanes-3` for a map of layout 3, `to_user-<hash of the object file>` for a program: another version of the program
    continues with maps of the same layout, and creates new ones otherwise."""

    def __init__(self, fds: Mapping[str, int], folder: Path | None = None, version: str = "") -> None:
        """Takes over the descriptors. Raises `ProgramError`."""
        self._folder, self._version = folder, version
        self._names: dict[Path, int] = {}  # descriptors of pinned objects, to restore removed pins
        self.fds = {name: fds[name] for name in _PROGRAMS if name in fds}
        self.ids = {name: program_id(fd) for name, fd in self.fds.items()}
        self.is_whole = bool(self.fds)
        self.links = HashMap(fds["links"], key_bytes=40, value_bytes=4)
        self.fragments = HashMap(fds["fragments"], key_bytes=20, value_bytes=_FRAGMENTS_BYTES)
        self.lanes = Lanes(fds["lanes"])
        self._settings = mapped(fds[".bss"], _SETTINGS_BYTES)
        self._has_forgotten_keys = True
        if self.is_whole and self._settings[0:8] == bytes(8):  # new
            self.set_factors(1.0, 1.0)
            self._settings[12:16] = os.urandom(4)

    # --- loading ---

    @classmethod
    def opened(cls, folder: Path, object_file: Path, *, may_make: bool) -> Program | None:
        """By its pins in `folder`. Without `may_make` nothing is changed: the result may have only maps, or be None.
        Raises `ProgramError`, `NotPermittedError`."""
        try:
            version = hashlib.sha256(object_file.read_bytes()).hexdigest()[:12]
        except OSError as exc:
            raise ProgramError(f"{object_file} cannot be read ({exc.strerror}). Install the package again.") from exc
        if not may_make and not _may_be_there(folder):
            return None
        maps = {name: folder / f"{own}-{LAYOUT}" for name, own in _MAPS.items()}
        programs = {name: folder / f"{name}-{version}" for name in _PROGRAMS}
        fds = pinned(maps | programs)
        if fds is None and may_make:
            make_folder(folder)
            fds = _load(object_file, maps)
            for name, path in programs.items():
                path.unlink(missing_ok=True)
                pin(fds[name], path)
        if fds is None:
            fds = pinned(maps)
        if fds is None:
            return None
        names = {path: os.dup(fds[name]) for name, path in (maps | programs).items() if name in fds}
        found = cls(fds, folder, version)
        found._names = names
        return found

    def finish(self, keys: Collection[bytes], keep: Callable[..., None] | None) -> None:
        """Finish a pass with links of these keys: addresses without links are released; if this program is in use
        (`keep`), other versions are unpinned, and lanes of another layout end: `keep` gets them. Restores removed pins:
        without them the next start would count from 0. Raises `ProgramError`."""
        if self._has_forgotten_keys:
            self._forget_all_but(keys)
        if keep is None or self._folder is None:
            return
        for path, fd in self._names.items():
            if not path.exists():
                pin(fd, path)
        for path in self._folder.iterdir():
            name, _, version = path.name.partition("-")
            if version in ("", LAYOUT, self._version):
                continue
            if name == "lanes" and (found := pinned({name: path})) is not None:
                lanes = Lanes(found[name])
                keep(lanes.ended(lanes.used()))
                lanes.close()
            path.unlink(missing_ok=True)

    @staticmethod
    def remove_names(folder: Path) -> None:
        """Unpin everything; the kernel frees what no filter and no process holds."""
        if folder.is_dir():
            for path in folder.iterdir():
                if "." not in path.name:  # the kernel's own have a dot
                    path.unlink(missing_ok=True)

    # --- links and lanes ---

    def put_link(self, key: bytes, lane: int) -> None:
        """Assign packets of this key to `lane` to the user, and the next lane from the user. Raises `ProgramError`."""
        self.fragments.put(key[:_ADDRESS_BYTES], bytes(_FRAGMENTS_BYTES), is_kept=True)
        self._settings[_KINDS_AT] |= 1 << _kind(key)
        bit = known_bit(key)
        self._settings[_KNOWN_AT + (bit >> 3)] |= 1 << (bit & 7)
        self.links.put(key, struct.pack("=I", lane))  # last: a kill before it repeats the operation

    def remove_link(self, key: bytes) -> None:
        """Remove a link; its address stays known until the pass is finished."""
        self.links.delete(key)
        self._has_forgotten_keys = True

    def _forget_all_but(self, keys: Collection[bytes]) -> None:
        known, kinds = bytearray(_KNOWN_BYTES), 0
        for key in keys:
            bit = known_bit(key)
            known[bit >> 3] |= 1 << (bit & 7)
            kinds |= 1 << _kind(key)
        self._settings[_KNOWN_AT : _KNOWN_AT + _KNOWN_BYTES] = bytes(known)
        self._settings[_KINDS_AT] = kinds
        for address in self.fragments.keys().difference(key[:_ADDRESS_BYTES] for key in keys):
            self.fragments.delete(address)
        self._has_forgotten_keys = False

    def set_factors(self, to_user: float, from_user: float) -> None:
        """Multiply every charge; 1.0: no cap of the attachment point."""
        self._settings[0:8] = struct.pack("=II", round(to_user * FULL), round(from_user * FULL))

    @property
    def unmatched(self) -> int | None:
        """The lane of unmatched traffic to the users; None: not limited."""
        found = int(struct.unpack_from("=I", self._settings, _UNMATCHED_AT)[0])
        return found - 1 if found else None

    @unmatched.setter
    def unmatched(self, lane: int | None) -> None:
        self._settings[_UNMATCHED_AT : _UNMATCHED_AT + 4] = struct.pack("=I", 0 if lane is None else lane + 1)

    @property
    def ifb(self) -> int:
        """Number of the IFB to the users: packets that return from it were admitted."""
        return int(struct.unpack_from("=I", self._settings, _IFB_AT)[0])

    @ifb.setter
    def ifb(self, ifindex: int) -> None:
        self._settings[_IFB_AT : _IFB_AT + 4] = struct.pack("=I", ifindex)

    def close(self) -> None:
        """Pinned and attached objects stay."""
        self.lanes.close()
        self._settings.close()
        for one in (self.links, self.fragments):
            one.close()
        for fd in (*self.fds.values(), *self._names.values()):
            os.close(fd)


def _load(object_file: Path, pins: Mapping[str, Path]) -> dict[str, int]:
    return load(object_file, pins, _PROGRAMS, _MAPS)


def _may_be_there(folder: Path) -> bool:
    """Whether pins exist, or we have no access."""
    try:
        return any(folder.iterdir())
    except PermissionError:
        return True
    except OSError:
        return False
