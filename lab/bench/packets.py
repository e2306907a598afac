"""What a packet costs the processor: frames through AF_PACKET, and the CPU time of everything they set off.

A sender's thread is bound to one processor. What the kernel does for its packets runs in that thread (the qdisc, the
driver, and softirqs when they are enabled again) or, when softirqs pile up, in `ksoftirqd` of the same processor: both
are counted. Wall time is not, so that other programs of the machine disturb little.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

from measuring.mmsg import BatchSender

T = TypeVar("T")
FRAME_BYTES = 100
BATCH = 256
_ETHER_TYPE = {4: 0x0800, 6: 0x86DD}
_HEADERS = {4: 20, 6: 40}
# A unicast address of nobody: a receiving host takes the frame through its ingress hook and then drops it.
_NOBODY = bytes.fromhex("020000000099")


def udp_frame(source: str, destination: str, source_port: int, destination_port: int) -> bytes:
    """An Ethernet frame of 100 bytes with a UDP datagram whose SCION header says "UDP data"."""
    family = ip_address(source).version
    length = FRAME_BYTES - 14 - _HEADERS[family]
    udp = struct.pack("!HHHH", source_port, destination_port, length, 0) + bytes([0, 0, 0, 0, 17])
    addresses = ip_address(source).packed + ip_address(destination).packed
    if family == 4:
        header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, socket.IPPROTO_UDP, 0)
    else:
        header = struct.pack("!IHBB", 6 << 28, length, socket.IPPROTO_UDP, 64)
    ethernet = _NOBODY + bytes(6) + struct.pack("!H", _ETHER_TYPE[family])
    return (ethernet + header + addresses + udp).ljust(FRAME_BYTES, b"\0")


class Load:
    """Frames ready to be sent again and again, `slots` of them in one order; the kernel is given batches of 256."""

    def __init__(self, frames: Sequence[bytes], *, slots: int = 4096, seed: int = 1) -> None:
        """Each frame equally often (as far as `slots` allows), in random order."""
        chosen = [index % len(frames) for index in range(slots)]
        random.Random(seed).shuffle(chosen)
        self.batches: list[BatchSender] = []
        for start in range(0, slots, BATCH):
            batch = BatchSender(bytes(FRAME_BYTES), BATCH)
            for place, frame in enumerate(chosen[start : start + BATCH]):
                batch.views[place][:] = frames[frame]
            self.batches.append(batch)

    def send(self, sock: socket.socket, packets: int) -> int:
        """At least so many packets, in whole batches; returns how many. Raises `OSError` when the socket refuses."""
        sent = 0
        while sent < packets:
            for batch in self.batches:
                taken = batch.send(sock, BATCH)
                if taken != BATCH:
                    raise OSError(f"the socket took {taken} of {BATCH} packets")
                sent += taken
                if sent >= packets:
                    break
        return sent


def open_socket(dev: str) -> socket.socket:
    """A raw socket that sends on this device, through its qdisc, and receives nothing; to be opened in the namespace.

    Without a protocol of its own: the kernel reads each frame's from its header.
    """
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((dev, 0))
    return sock


def bound(function: Callable[[], T]) -> T:
    """Call it in a thread of its own, and return what it returns: a thread that was bound to a processor stays so, and
    hands that on to every process that it starts."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(function).result()


class CpuMeter:
    """CPU time of the calling thread and of `ksoftirqd` on its processor, in ns. Only below `bound`."""

    def __init__(self) -> None:
        """Binds the calling thread to one processor (the last one, where interrupts are rare)."""
        cpu = max(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpu})
        self._softirq = _ksoftirqd(cpu)

    def read_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID) + self._softirq_ns()

    def _softirq_ns(self) -> int:
        if self._softirq is None:
            return 0
        return int(self._softirq.read_text(encoding="ascii").split()[0])


def _ksoftirqd(cpu: int) -> Path | None:
    """Its statistics (first field: ns on the processor); None where they are hidden, as in some containers."""
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text(encoding="ascii", errors="replace").strip() == f"ksoftirqd/{cpu}":
                found = comm.with_name("schedstat")
                return found if found.exists() else None
        except OSError:  # a process that ended meanwhile
            continue
    return None


def cost_ns(meter: CpuMeter, sock: socket.socket, load: Load, packets: int) -> float:
    """ns of CPU time per packet."""
    before = meter.read_ns()
    sent = load.send(sock, packets)
    return (meter.read_ns() - before) / sent
