"""libbpf through ctypes: loads an object file; programs and maps by descriptor or by name in a BPF file system.

Debian's libbpf1 is installed wherever `tc` is. Only what the limiter needs is declared here.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from ap_agent.common.errors import AgentError, NotPermittedError, ProgramError

OLDEST_KERNEL: Final = (5, 12)
_BPF_FS_MAGIC: Final = 0xCAFE4A11
_BPF_ROOT: Final = Path("/sys/fs/bpf")
_BATCH_ENTRIES: Final = 16_384
_BPF_NOEXIST: Final = 1
BPF_TCX_INGRESS, BPF_TCX_EGRESS = 46, 47


_Pointer, _Text, _Int, _U32 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint32
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "bpf_object__open_file": (_Pointer, [_Text, _Pointer]),
    "bpf_object__load": (_Int, [_Pointer]),
    "bpf_object__close": (None, [_Pointer]),
    "bpf_object__find_program_by_name": (_Pointer, [_Pointer, _Text]),
    "bpf_object__find_map_by_name": (_Pointer, [_Pointer, _Text]),
    "bpf_program__fd": (_Int, [_Pointer]),
    "bpf_map__fd": (_Int, [_Pointer]),
    "bpf_map__set_pin_path": (_Int, [_Pointer, _Text]),
    "bpf_map_update_elem": (_Int, [_Int, _Text, _Text, ctypes.c_uint64]),
    "bpf_map_delete_elem": (_Int, [_Int, _Text]),
    "bpf_map_get_next_key": (_Int, [_Int, _Text, _Text]),
    "bpf_map_lookup_batch": (_Int, [_Int, _Text, _Text, _Text, _Text, _Pointer, _Pointer]),
    "bpf_obj_pin": (_Int, [_Int, _Text]),
    "bpf_obj_get": (_Int, [_Text]),
    "bpf_obj_get_info_by_fd": (_Int, [_Int, _Text, _Pointer]),
    "bpf_prog_query": (_Int, [_Int, _Int, _U32, _Pointer, _Pointer, _Pointer]),
    "libbpf_set_print": (_Pointer, [_Pointer]),
}


@cache
def _library() -> ctypes.CDLL:
    """Raises `ProgramError`."""
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as exc:
        raise ProgramError(f"libbpf cannot be loaded ({exc}). Install the package libbpf1.") from exc
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.libbpf_set_print(None)  # its messages are in the error that we raise
    return library


def _failure(what: str) -> AgentError:
    number = ctypes.get_errno()
    refused = f"The kernel rejects {what} ({os.strerror(number)})."
    if number == errno.EPERM:
        message = f"{refused} Give the limiter CAP_BPF and CAP_NET_ADMIN, and allow bpf(2) in its system call filter."
        return NotPermittedError(message, code="no_bpf_right")
    if number in (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.E2BIG):
        return ProgramError(f"{refused} Free some memory, or raise the limits of the limiter's unit.")
    release = platform.release()
    if tuple(int(one) for one in release.split("-")[0].split(".")[:2]) < OLDEST_KERNEL:
        remedy = f"This is Linux {release}, the limiter needs 5.12."
        return ProgramError(f"{refused} {remedy}", code="kernel_too_old")
    return ProgramError(f"{refused} The limiter needs CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF.")


def load(path: Path, pins: Mapping[str, Path], programs: Iterable[str], maps: Iterable[str]) -> dict[str, int]:
    """Descriptors of the programs and maps of an object file, which are in the kernel while these, or something else,
    hold them. Maps in `pins` are reused if pinned, otherwise pinned. Raises `ProgramError`, `NotPermittedError`."""
    library = _library()
    loaded = library.bpf_object__open_file(os.fsencode(path), None)
    if not loaded:
        raise ProgramError(f"{path} is not a BPF object file ({os.strerror(ctypes.get_errno())}). Install it again.")

    def part(kind: str, name: str) -> Any:
        found = getattr(library, f"bpf_object__find_{kind}_by_name")(loaded, name.encode())
        if not found:
            raise ProgramError(f"The object file has no {kind} {name}. Install the package again.")
        return found

    try:
        for name, where in pins.items():
            library.bpf_map__set_pin_path(part("map", name), os.fsencode(where))
        if library.bpf_object__load(loaded) < 0:
            raise _failure("the limiter's program")
        found = {name: os.dup(library.bpf_program__fd(part("program", name))) for name in programs}
        return found | {name: os.dup(library.bpf_map__fd(part("map", name))) for name in maps}
    finally:
        library.bpf_object__close(loaded)


class HashMap:
    """Keys and values of fixed sizes. Each call is a system call, and replaces a value atomically."""

    def __init__(self, fd: int, *, key_bytes: int, value_bytes: int) -> None:
        self._fd, self._key_bytes, self._value_bytes = fd, key_bytes, value_bytes
        self._library = _library()
        self._last: tuple[bytes, bytes, dict[bytes, int]] = b"", b"", {}

    def put(self, key: bytes, value: bytes, *, is_kept: bool = False) -> None:
        """`is_kept`: unless the key has a value. Raises `ProgramError`, also when the map is full."""
        flags = _BPF_NOEXIST if is_kept else 0
        done = self._library.bpf_map_update_elem(self._fd, key, value, flags)
        if done < 0 and not (is_kept and ctypes.get_errno() == errno.EEXIST):
            raise _failure("to add a map entry")

    def delete(self, key: bytes) -> None:
        """A missing key is ignored."""
        if self._library.bpf_map_delete_elem(self._fd, key) < 0 and ctypes.get_errno() != errno.ENOENT:
            raise _failure("to delete a map entry")

    def numbers(self) -> dict[bytes, int]:
        """All entries of a map with 32-bit values, in one system call (Linux 5.6)."""
        size = self._key_bytes
        keys = ctypes.create_string_buffer(_BATCH_ENTRIES * size)
        values = ctypes.create_string_buffer(_BATCH_ENTRIES * self._value_bytes)
        count, token = _U32(_BATCH_ENTRIES), ctypes.create_string_buffer(4)
        done = self._library.bpf_map_lookup_batch(self._fd, None, token, keys, values, ctypes.byref(count), None)
        if done < 0 and ctypes.get_errno() != errno.ENOENT:  # meaning that these are all
            raise _failure("to read a map")
        packed, found = keys.raw[: count.value * size], values.raw[: count.value * self._value_bytes]
        if self._last[:2] != (packed, found):
            numbers = zip(
                struct.iter_unpack(f"={size}s", packed), struct.unpack(f"={count.value}I", found), strict=True
            )
            self._last = packed, found, {key: number for (key,), number in numbers}
        return dict(self._last[2])

    def keys(self) -> set[bytes]:
        found: set[bytes] = set()
        key = ctypes.create_string_buffer(self._key_bytes)
        previous: bytes | None = None
        while self._library.bpf_map_get_next_key(self._fd, previous, key) == 0 and key.raw not in found:
            previous = key.raw
            found.add(previous)
        return found

    def close(self) -> None:
        os.close(self._fd)


def pin(fd: int, path: Path) -> None:
    """Pin a program or a map in a BPF file system. Raises `ProgramError`, `NotPermittedError`."""
    if _library().bpf_obj_pin(fd, os.fsencode(path)) < 0:
        raise _failure(f"the name {path}")


def pinned(paths: Mapping[str, Path]) -> dict[str, int] | None:
    """Descriptors of pinned objects; None if one of them is missing. Raises `NotPermittedError`."""
    found: dict[str, int] = {}
    for name, path in paths.items():
        fd = _library().bpf_obj_get(os.fsencode(path))
        if fd < 0:
            number = ctypes.get_errno()
            for one in found.values():
                os.close(one)
            if number in (errno.EPERM, errno.EACCES):
                message = f"{path} may not be opened. Run as the limiter's user, with CAP_BPF."
                raise NotPermittedError(message, code="no_bpf_right")
            return None
        found[name] = fd
    return found


def _info(fd: int) -> bytes:
    """The used part of `struct bpf_prog_info` or `bpf_map_info`."""
    info, size = ctypes.create_string_buffer(64), _U32(64)
    if _library().bpf_obj_get_info_by_fd(fd, info, ctypes.byref(size)) < 0:
        raise _failure("to describe a pinned object")
    return info.raw


def program_id(fd: int) -> int:
    return int(struct.unpack_from("=I", _info(fd), 4)[0])


def map_sizes(fd: int) -> tuple[int, int]:
    """(Bytes of a value, number of entries)."""
    value_bytes, entries = struct.unpack_from("=II", _info(fd), 12)
    return value_bytes, entries


def attached(ifindex: int, kind: int) -> int:
    """Number of attached tcx programs (`BPF_TCX_INGRESS`, `BPF_TCX_EGRESS`); 0 without tcx (before 6.6), or without
    access."""
    flags, count = _U32(0), _U32(0)
    done = _library().bpf_prog_query(ifindex, kind, 0, ctypes.byref(flags), None, ctypes.byref(count))
    return count.value if done == 0 else 0


def mapped(fd: int, size_bytes: int) -> mmap.mmap:
    """The values of an array map as shared memory. Raises `ProgramError`."""
    pages = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        return mmap.mmap(fd, pages, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError as exc:
        raise ProgramError(f"The memory of a map cannot be shared ({exc.strerror}).") from exc
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """For pins: in a BPF file system, which is mounted at /sys/fs/bpf if it is missing there (as iproute2 does: a shell
    of `ip netns exec` or a container has none), or at the folder elsewhere. Raises `ProgramError`."""
    if _BPF_ROOT in folder.parents and _BPF_ROOT.is_dir() and not folder.exists():
        _mount_unless_there(_BPF_ROOT)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise ProgramError(f"{folder} cannot be made ({exc.strerror}). {_MOUNT_REMEDY}") from exc
    _mount_unless_there(folder)


def _mount_unless_there(folder: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    status = ctypes.create_string_buffer(256)
    libc.statfs(os.fsencode(folder), status)
    if struct.unpack_from("@L", status)[0] == _BPF_FS_MAGIC:
        return
    if libc.mount(b"bpf", os.fsencode(folder), b"bpf", ctypes.c_ulong(0), None) < 0:
        problem = os.strerror(ctypes.get_errno())
        raise ProgramError(f"{folder} is in no BPF file system, and none can be mounted ({problem}). {_MOUNT_REMEDY}")


_MOUNT_REMEDY = "Mount one as root (mount -t bpf bpf /sys/fs/bpf), or set maps_dir to a folder of one."
