"""Other people's BPF programs at the hooks of a device; and a second look at the map of the limiter's program.

All of it works in the network namespace of the calling thread (`Namespace.call`). Needs root and Linux 6.6 for tcx.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import socket
import struct
from typing import Final

from measuring.iproute import LabError

# linux/bpf.h
_PROG_LOAD, _OBJ_PIN, _OBJ_GET, _PROG_ATTACH = 5, 6, 7, 8
_SCHED_CLS: Final = 3
TCX_INGRESS = 46
_NR_BPF = {"x86_64": 321, "aarch64": 280}
_MOVE, _STORE, _EXIT, _WORD = 0xB7, 0x63, 0x95, struct.Struct("=BBhi")
_PRIORITY_AT = 32  # in struct __sk_buff
PASS, NEXT = 0, -1  # verdicts: the packet goes on without other programs, or with them


def set_priority(priority: int, verdict: int) -> bytes:
    """The instructions of a program that gives every packet this priority."""
    return b"".join(
        (
            _WORD.pack(_MOVE, 2, 0, priority),  # r2 = priority
            _WORD.pack(_STORE, 2 << 4 | 1, _PRIORITY_AT, 0),  # skb->priority = r2
            answer(verdict),
        )
    )


def answer(verdict: int) -> bytes:
    """The instructions of a program that only has this verdict."""
    return _WORD.pack(_MOVE, 0, 0, verdict) + _WORD.pack(_EXIT, 0, 0, 0)


def load(instructions: bytes) -> int:
    """The descriptor of the program. Raises `LabError`."""
    code = ctypes.create_string_buffer(instructions, len(instructions))
    name = ctypes.create_string_buffer(b"GPL")
    count = len(instructions) // _WORD.size
    attributes = struct.pack("=IIQQ", _SCHED_CLS, count, ctypes.addressof(code), ctypes.addressof(name)) + bytes(96)
    return _bpf(_PROG_LOAD, attributes)


def pin(program: int, path: str) -> None:
    """Raises `LabError`."""
    text = ctypes.create_string_buffer(path.encode())
    _bpf(_OBJ_PIN, struct.pack("=QII", ctypes.addressof(text), program, 0))


def attach(program: int, device: str, hook: int) -> None:
    """By tcx, in front of everything that tc has there; until the device goes. Raises `LabError`."""
    _bpf(_PROG_ATTACH, struct.pack("=IIIIIIQ", socket.if_nametoindex(device), program, hook, 0, 0, 0, 0))


LANES, _LANE_BYTES = 8192, 136  # of two lanes for each interface id (limiter.bpf.c)
_LANE = struct.Struct("=56xQ16x4Q24x")  # segment; passed bytes and packets, refused bytes and packets


def lanes(path: str) -> dict[int, tuple[int, int, int, int, int]]:
    """What the limiter's program counted, from the map's own memory: segment, passed bytes and packets, refused bytes
    and packets of each lane in use. `path`: the map's name. Raises `LabError`."""
    text = ctypes.create_string_buffer(path.encode())
    descriptor = _bpf(_OBJ_GET, struct.pack("=QII", ctypes.addressof(text), 0, 0))
    try:
        with mmap.mmap(descriptor, LANES * _LANE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
            found = {number: _LANE.unpack_from(memory, number * _LANE_BYTES) for number in range(LANES)}
    finally:
        os.close(descriptor)
    return {number: one for number, one in found.items() if one[0]}


def _bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    libc = ctypes.CDLL(None, use_errno=True)
    number = ctypes.c_long(_NR_BPF[platform.machine()])
    found = int(libc.syscall(number, ctypes.c_int(command), buffer, ctypes.c_uint(len(attributes))))
    if found < 0:
        raise LabError(f"bpf command {command} is refused: {os.strerror(ctypes.get_errno())}")
    return found
