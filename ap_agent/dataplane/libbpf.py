"""libbpf through ctypes: a compiled object file is loaded, its programs and maps have file descriptors.

Debian's libbpf1 is there wherever `tc` is. Only what the limiter needs is declared here.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ap_agent.common.errors import AgentError


class ProgramError(AgentError):
    """The kernel, or this process' rights, cannot have the program: the operator decides."""


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "bpf_object__open_file": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_void_p]),
    "bpf_object__load": (ctypes.c_int, [ctypes.c_void_p]),
    "bpf_object__close": (None, [ctypes.c_void_p]),
    "bpf_object__find_program_by_name": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]),
    "bpf_object__find_map_fd_by_name": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]),
    "bpf_program__fd": (ctypes.c_int, [ctypes.c_void_p]),
    "bpf_map_update_elem": (ctypes.c_int, [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64]),
    "bpf_map_delete_elem": (ctypes.c_int, [ctypes.c_int, ctypes.c_char_p]),
    "bpf_map_get_next_key": (ctypes.c_int, [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p]),
    "bpf_map_lookup_elem": (ctypes.c_int, [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p]),
    "bpf_obj_pin": (ctypes.c_int, [ctypes.c_int, ctypes.c_char_p]),
    "libbpf_set_print": (ctypes.c_void_p, [ctypes.c_void_p]),
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
    library.libbpf_set_print(None)  # what it would print is in the error that we raise
    return library


def _failure(what: str) -> ProgramError:
    number = ctypes.get_errno()
    if number in (errno.EPERM, errno.EACCES):
        remedy = "Give the limiter CAP_BPF and CAP_NET_ADMIN, and let its system call filter pass bpf(2)."
    elif number in (errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        remedy = "Free some memory, or raise the limits of the limiter's unit."
    else:
        remedy = "The limiter needs Linux 5.12 with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF."
    return ProgramError(f"The kernel refuses {what} ({os.strerror(number)}). {remedy}")


class LoadedObject:
    """An object file whose programs and maps are in the kernel as long as this lives, or something else holds them."""

    def __init__(self, path: Path) -> None:
        """Raises `ProgramError`."""
        self._library = _library()
        self._object = self._library.bpf_object__open_file(os.fsencode(path), None)
        if not self._object:
            raise ProgramError(f"{path} is no BPF object file ({os.strerror(ctypes.get_errno())}). Install it again.")
        if self._library.bpf_object__load(self._object) < 0:
            failure = _failure("the limiter's program")
            self.close()
            raise failure

    def program_fd(self, name: str) -> int:
        program = self._library.bpf_object__find_program_by_name(self._object, name.encode())
        if not program:
            raise ProgramError(f"The object file has no program {name}. Install the package again.")
        return int(self._library.bpf_program__fd(program))

    def map_fd(self, name: str) -> int:
        found = int(self._library.bpf_object__find_map_fd_by_name(self._object, name.encode()))
        if found < 0:
            raise ProgramError(f"The object file has no map {name}. Install the package again.")
        return found

    def close(self) -> None:
        if self._object:
            self._library.bpf_object__close(self._object)
            self._object = None


class HashMap:
    """Keys and values of fixed sizes. Each call is one system call, and replaces a value as a whole."""

    def __init__(self, fd: int, *, key_bytes: int, value_bytes: int) -> None:
        self._fd, self._key_bytes, self._value_bytes = fd, key_bytes, value_bytes
        self._library = _library()

    def put(self, key: bytes, value: bytes) -> None:
        """Raises `ProgramError`, also when the map is full."""
        if self._library.bpf_map_update_elem(self._fd, key, value, 0) < 0:
            raise _failure("an entry of a map")

    def delete(self, key: bytes) -> None:
        """A key that is not there is fine."""
        if self._library.bpf_map_delete_elem(self._fd, key) < 0 and ctypes.get_errno() != errno.ENOENT:
            raise _failure("to delete an entry of a map")

    def entries(self) -> Mapping[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        previous: bytes | None = None
        key = ctypes.create_string_buffer(self._key_bytes)
        value = ctypes.create_string_buffer(self._value_bytes)
        while self._library.bpf_map_get_next_key(self._fd, previous, key) == 0:
            if self._library.bpf_map_lookup_elem(self._fd, key.raw, value) == 0:
                found[key.raw] = value.raw
            previous = key.raw
        return found


def pin(fd: int, path: Path) -> None:
    """Keep a program or a map under a name in a BPF file system. Raises `ProgramError`."""
    if _library().bpf_obj_pin(fd, os.fsencode(path)) < 0:
        raise _failure(f"the name {path}")


def mapped(fd: int, size_bytes: int) -> mmap.mmap:
    """The values of an array map, which program and process share as memory. Raises `ProgramError`."""
    pages = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        return mmap.mmap(fd, pages, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError as exc:
        raise ProgramError(f"The memory of a map cannot be shared ({exc.strerror}).") from exc
