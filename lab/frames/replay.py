"""Runs frames through the limiter's program with BPF_PROG_TEST_RUN: no device, no queue, ten thousands in a second.

The program is loaded and its links are made by the product's own API; what is judged by are numbers of `judge`.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ap_agent.dataplane.lanes import Lane
from ap_agent.dataplane.libbpf import mapped
from ap_agent.dataplane.program import OBJECT, Key, Program, _load
from ap_agent.document.state import Counters
from lab.frames import grow, shape
from lab.frames.shape import Frame

_PROG_TEST_RUN = 10
_SYSTEM_CALL = {"x86_64": 321, "aarch64": 280}[platform.machine()]
_ATTRIBUTES_BYTES = 80
_SHORTEST = 54
MARKS = slice(8216, 8216 + (8 << 18))  # in the program's settings
_NO_MARKS = bytes(8 << 18)
_DROPPED = 2  # TC_ACT_SHOT
LIMIT_KBIT, NEIGHBOUR_KBIT = 500, 100_000
LINKS = {  # interface id -> kbit/s, is observed
    7: (LIMIT_KBIT, False),
    8: (0, False),
    9: (LIMIT_KBIT, True),
    10: (NEIGHBOUR_KBIT, False),
    11: (0, False),
}
PORTS = {grow.LIMITED: 7, grow.BLOCKED: 8, grow.OBSERVED: 9, grow.NEIGHBOUR: 10}
WHOLE = 11  # the link of an address, whatever the port


@dataclass(frozen=True)
class Result:
    """`passed` of each frame, copies behind one another; `counted` by interface id: what its counters rose by."""

    frames: list[bytes]
    is_bystander: list[bool]
    passed: list[bool]
    counted: dict[int, Counters]
    other_way: int  # packets that links counted in the other direction
    seconds: float


class Runner:
    """One thread's call, prepared once."""

    def __init__(self) -> None:
        self._data = (ctypes.c_char * 2048)()
        self._view = memoryview(self._data).cast("B")
        self._attributes = (ctypes.c_uint32 * (_ATTRIBUTES_BYTES // 4))()
        ctypes.c_uint64.from_buffer(self._attributes, 16).value = ctypes.addressof(self._data)
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._arguments = (
            ctypes.c_long(_SYSTEM_CALL),
            ctypes.c_int(_PROG_TEST_RUN),
            ctypes.byref(self._attributes),
            ctypes.c_uint(_ATTRIBUTES_BYTES),
        )

    def run(self, program: int, frame: bytes | bytearray, repeat: int = 1) -> bool:
        """Whether it passed (of several: the last one)."""
        size = len(frame)
        self._view[:size] = frame
        self._view[:6] = bytes(6)  # of lo, so that the frame is for this host
        attributes = self._attributes
        attributes[0], attributes[2], attributes[3], attributes[8] = program, size, 0, repeat  # 3: Linux wrote it
        if self._call(*self._arguments) < 0:
            if ctypes.get_errno() == errno.EINVAL and size < _SHORTEST:
                return False  # Linux takes no test of an IP packet without its header
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"frame of {size} bytes")
        return attributes[1] != _DROPPED


class Replay:
    def __init__(self, program: Program, settings: mmap.mmap) -> None:
        self._program, self._settings = program, settings
        self._runs = Runner(), Runner()
        self._keys = {
            Key(ip_address(address), port).packed(): 2 * link
            for address in (shape.USER4, shape.USER6)
            for port, link in PORTS.items()
        } | {Key(ip_address(address)).packed(): 2 * WHOLE for address in (shape.WHOLE4, shape.WHOLE6)}
        self._lanes = {
            2 * link + way: Lane(kbit, link | 0x1000 * way, is_observed=is_observed).packed()
            for link, (kbit, is_observed) in LINKS.items()
            for way in (0, 1)
        }
        for lane, packed in self._lanes.items():
            program.lanes.take(lane, packed)

    def reset(self) -> None:
        """Empty queues, counters at 0, no fragment remembered."""
        program = self._program
        for key in self._keys:
            program.remove_link(key)
        program.finish((), None)
        self._settings[MARKS] = _NO_MARKS  # buckets begin anew, which bound them
        for lane, packed in self._lanes.items():
            program.lanes.forget(lane)
            program.lanes.take(lane, packed)
        for key, lane in self._keys.items():
            program.put_link(key, lane)

    def fill_marks(self) -> None:
        """Of datagrams that no frame has; until `reset`, and for a minute."""
        tick = time.monotonic_ns() >> 32 & 0xFFFF
        self._settings[MARKS] = struct.pack("=HHI", 1, tick, 0xFFFFFFFF) * (len(_NO_MARKS) // 8)

    def age_marks(self, ticks: int) -> None:
        """As if so many times 4.3 s had passed."""
        for at in range(MARKS.start, MARKS.stop, 8):
            if self._settings[at + 2 : at + 8] != bytes(6):
                tick = struct.unpack_from("=H", self._settings, at + 2)[0]
                struct.pack_into("=H", self._settings, at + 2, tick - ticks & 0xFFFF)

    def program_fd(self, *, from_user: bool) -> int:
        return self._program.fds["from_user" if from_user else "to_user"]

    def run(self, frames: Sequence[Frame], *, from_user: bool) -> Result:
        """In this order, from one processor."""
        found: list[bytes] = []
        bystanders: list[bool] = []
        for one in frames:
            copies = list(_copies(one))
            found += copies
            bystanders += [one.is_bystander] * len(copies)
        program, run = self.program_fd(from_user=from_user), self._runs[0].run
        began = time.monotonic()
        passed = [run(program, one) for one in found]
        seconds = time.monotonic() - began
        counted = self.counted()
        other = sum(one[1 - from_user].passed_packets + one[1 - from_user].refused_packets for one in counted.values())
        return Result(
            found, bystanders, passed, {link: one[from_user] for link, one in counted.items()}, other, seconds
        )

    def counted(self) -> dict[int, tuple[Counters, Counters]]:
        """By interface id: to and from the user."""
        found = self._program.lanes.counted_of(self._lanes)
        return {link: (found[2 * link][1], found[2 * link + 1][1]) for link in LINKS}

    def passed_bytes(self, link: int, *, from_user: bool) -> int:
        return self.counted()[link][from_user].passed_bytes

    def burst(self, frame: bytes, number: int, *, from_user: bool) -> None:
        """The same frame so often in the kernel."""
        self._runs[0].run(self.program_fd(from_user=from_user), frame, number)

    def both(self, frames: Sequence[bytes], repeat: int, *, from_user: bool) -> float:
        """Each frame so often from each of two processors at once; how long it took [s]."""
        program, ready = self.program_fd(from_user=from_user), threading.Barrier(2)

        def work(number: int) -> None:
            for frame in frames:
                ready.wait(20)
                self._runs[number].run(program, frame, repeat)

        return on_two_processors(work)


def on_two_processors(work: Callable[[int], object]) -> float:
    """The work of 0 and 1 at the same time; how long it took [s]."""
    allowed = sorted(os.sched_getaffinity(0))

    def at(number: int) -> None:
        os.sched_setaffinity(0, {allowed[number % len(allowed)]})  # of this thread
        work(number)

    threads = [threading.Thread(target=at, args=(number,)) for number in (0, 1)]
    began = time.monotonic()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return time.monotonic() - began


def _copies(frame: Frame) -> Iterator[bytes]:
    encoded, identified = frame.encoded()
    yield bytes(encoded)
    size = 2 if frame.family == 4 else 4
    if not identified or identified > len(encoded):
        return
    for _ in range(1, frame.copies):
        place = slice(identified - size, identified)
        value = int.from_bytes(encoded[place], "big") + 1 & 0x7FFF
        encoded[place] = value.to_bytes(size, "big")
        if size == 2 and "ipv4.checksum" not in frame.changes:
            shape.mend_checksum(encoded, identified - 6)
        yield bytes(encoded)


@contextmanager
def replay(object_file: Path = OBJECT) -> Iterator[Replay]:
    """Raises `ProgramError`, `NotPermittedError`."""
    fds = _load(object_file, {})
    settings = mapped(os.dup(fds[".bss"]), MARKS.stop)
    program = Program(fds)
    try:
        yield Replay(program, settings)
    finally:
        program.close()
