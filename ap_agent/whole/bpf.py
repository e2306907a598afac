"""bpf(2) through ctypes: maps, one program, and what the kernel says about it. Nothing here knows what it is for.

No library: what we need are five commands of one system call, with the layouts of linux/bpf.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import struct
import sys
from dataclasses import dataclass

from ap_agent.common.errors import AgentError

_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}  # __NR_bpf of each machine
_MAP_CREATE, _MAP_UPDATE, _MAP_DELETE, _PROG_LOAD, _OBJ_GET_INFO = 0, 2, 3, 5, 15
_HASH, _ARRAY = 1, 2
_MMAPABLE = 1 << 10  # of an array: user space reads and writes its values in memory (Linux 5.5)
_SCHED_CLS = 3
_LOG_BYTES = 1 << 20
_LOG_LINES = 3  # the verifier tells all that it did; what it refuses is at the end
_PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)


class BpfUnavailableError(AgentError):
    """This process or kernel cannot have the program: the operator decides. Limits do not depend on it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


def call(command: int, attributes: bytearray | bytes) -> tuple[int, bytearray]:
    """bpf(2): (its result, the attributes as the kernel left them). Raises `OSError`."""
    # A process of 32 bits has other numbers, while its kernel calls the machine as it is.
    number = _SYSCALL.get(platform.machine()) if sys.maxsize > 1 << 32 else None
    if number is None:
        raise OSError(errno.ENOSYS, f"the number of bpf(2) on {platform.machine()} is not known")
    passed = bytearray(attributes)
    buffer = (ctypes.c_char * len(passed)).from_buffer(passed)
    result = _libc.syscall(
        ctypes.c_long(number), ctypes.c_int(command), ctypes.byref(buffer), ctypes.c_uint(len(passed))
    )
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result), passed


def pointer(data: bytearray) -> int:
    """Its address; `data` must live, and keep its length, as long as the kernel uses it."""
    return ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))


def _unavailable(what: str, failure: OSError) -> BpfUnavailableError:
    if failure.errno in (errno.EPERM, errno.EACCES):
        return BpfUnavailableError(
            f"The kernel refuses {what} ({failure.strerror})",
            "give the agent CAP_BPF beside CAP_NET_ADMIN, and let its system call filter pass bpf(2)",
        )
    if failure.errno in (errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        return BpfUnavailableError(f"There is no room for {what} ({failure.strerror})", "it is tried again")
    return BpfUnavailableError(
        f"The kernel cannot do {what} ({failure.strerror})",
        "this needs Linux 5.12 with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF; leave whole_datagrams off otherwise",
    )


def _create_map(kind: int, name: str, sizes: tuple[int, int, int], flags: int) -> int:
    """`sizes`: of a key, of a value, and how many entries."""
    attributes = struct.pack("=IIIII8x16s", kind, *sizes, flags, name.encode()[:15])  # no inner map, NUMA node 0
    try:
        return call(_MAP_CREATE, attributes)[0]
    except OSError as exc:
        raise _unavailable("a BPF map", exc) from exc


class HashMap:
    """Keys and values of fixed sizes; each call is one system call, and replaces a value as a whole."""

    def __init__(self, name: str, *, key_bytes: int, value_bytes: int, entries: int) -> None:
        """Raises `BpfUnavailableError`."""
        self._key, self._value = bytearray(key_bytes), bytearray(value_bytes)
        self.fd = _create_map(_HASH, name, (key_bytes, value_bytes, entries), 0)

    def put(self, key: bytes, value: bytes) -> None:
        """Raises `OSError` (E2BIG when the map is full)."""
        self._key[:], self._value[:] = key, value
        call(_MAP_UPDATE, struct.pack("=I4xQQQ", self.fd, pointer(self._key), pointer(self._value), 0))

    def delete(self, key: bytes) -> None:
        """A key that is not there is fine."""
        self._key[:] = key
        with contextlib.suppress(FileNotFoundError):
            call(_MAP_DELETE, struct.pack("=I4xQ", self.fd, pointer(self._key)))

    def close(self) -> None:
        os.close(self.fd)


class ArrayMap:
    """Values of a fixed size, which program and process share as memory."""

    def __init__(self, name: str, *, value_bytes: int, entries: int) -> None:
        """`value_bytes` a multiple of 8. Raises `BpfUnavailableError`."""
        self.value_bytes = value_bytes
        self.fd = _create_map(_ARRAY, name, (4, value_bytes, entries), _MMAPABLE)
        size = -(-value_bytes * entries // _PAGE) * _PAGE
        try:
            self._memory = mmap.mmap(self.fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as exc:
            os.close(self.fd)
            raise _unavailable("memory that is shared with a BPF map", exc) from exc
        self._words = memoryview(self._memory).cast("Q")

    def read(self, index: int, offset: int) -> int:
        """The 8 bytes at this offset of a value."""
        return self._words[(index * self.value_bytes + offset) // 8]

    def write(self, index: int, offset: int, number: int) -> None:
        """8 bytes at once: the program sees the old or the new ones."""
        self._words[(index * self.value_bytes + offset) // 8] = number

    def clear(self, index: int) -> None:
        """All of a value 0."""
        for offset in range(0, self.value_bytes, 8):
            self.write(index, offset, 0)

    def close(self) -> None:
        self._words.release()
        self._memory.close()
        os.close(self.fd)


@dataclass(frozen=True)
class Program:
    """A loaded classifier. `id` and `tag` are what `tc filter show` prints of it."""

    fd: int
    id: int
    tag: str

    def close(self) -> None:
        os.close(self.fd)


def load_program(name: str, instructions: bytes) -> Program:
    """A classifier of traffic control. Raises `BpfUnavailableError`, with the verifier's last words where it is the one
    who refuses: an old kernel, or our bug."""
    try:
        fd = _load(name, instructions, None)
    except OSError as exc:
        log = _verifier_log(name, instructions) if exc.errno in {errno.EINVAL, errno.EACCES} else ""
        if log:
            raise BpfUnavailableError(
                f"The verifier of this kernel refuses the program {name}: {last_words(log)}",
                "it needs Linux 5.12; on a newer one report these words as a bug and leave whole_datagrams off",
            ) from exc
        raise _unavailable("a BPF program", exc) from exc
    info = bytearray(64)
    try:
        call(_OBJ_GET_INFO, struct.pack("=IIQ", fd, len(info), pointer(info)))
    except OSError as exc:
        os.close(fd)
        raise _unavailable("the number of a BPF program", exc) from exc
    _kind, identity, tag = struct.unpack_from("=II8s", info)
    return Program(fd, identity, tag.hex())


def _verifier_log(name: str, instructions: bytes) -> str:
    log = bytearray(_LOG_BYTES)
    with contextlib.suppress(OSError):
        os.close(_load(name, instructions, log))
    return log.partition(b"\0")[0].decode(errors="replace")


def last_words(log: str) -> str:
    """The instruction at which the verifier stopped and why, without what it counted; one line."""
    lines = [line for line in log.splitlines() if line and not line.startswith(("processed ", "verification time"))]
    return " | ".join(lines[-_LOG_LINES:])


def _load(name: str, instructions: bytes, log: bytearray | None) -> int:
    code, licence = bytearray(instructions), bytearray(b"Apache-2.0\0")  # no helper that we call asks for the GPL
    log_fields = (1, len(log), pointer(log)) if log is not None else (0, 0, 0)
    attributes = struct.pack(
        "=IIQQIIQII16sII",
        _SCHED_CLS,
        len(code) // 8,
        pointer(code),
        pointer(licence),
        *log_fields,
        0,  # version of the kernel: of no meaning for classifiers
        0,
        name.encode()[:15],
        0,
        0,
    )
    return call(_PROG_LOAD, attributes)[0]
