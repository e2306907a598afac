"""An attachment point with two users, each a namespace of its own; the witness is `tc`, `ip` and what sockets get.

u1 ── eth0  ap  eth1 ── u2        192.0.2.0/24, 2001:db8:1::/64        198.51.100.0/24, 2001:db8:2::/64
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.outcome import Outcome
from ap_agent.dataplane.program import Key
from ap_agent.dataplane.wanted import LimitedLink, Wanted
from ap_agent.document.state import ClosedSegment
from measuring.iproute import run_command
from measuring.netns import Lab, Namespace
from tests.support.namespaces import a_lab

AP1, AP2, U1, U2 = "192.0.2.1", "198.51.100.1", "192.0.2.11", "198.51.100.11"
AP_PORT, USER_PORT = 51_001, 50_001
SO_RCVBUFFORCE = 33  # asm-generic/socket.h
BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP = 3, 6  # linux/bpf.h


def link(
    number: int, to_user_kbit: int, from_user_kbit: int | None = None, ip: str = U1, port: int = USER_PORT
) -> LimitedLink:
    both = (to_user_kbit, to_user_kbit if from_user_kbit is None else from_user_kbit)
    return LimitedLink(number, (Key(ip_address(ip), port),), *both)


def wanted(*links: LimitedLink, unmatched_kbit: int | None = None, interfaces: tuple[str, ...] = ()) -> Wanted:
    return Wanted({one.interface_id: one for one in links}, unmatched_kbit, interfaces)


@contextlib.contextmanager
def bpf_file_system(folder: Path) -> Iterator[Path]:
    """One of its own, made in `folder`, which processes of the test see too."""
    folder.mkdir()
    run_command(["mount", "-t", "bpf", "bpf", str(folder)])
    try:
        yield folder
    finally:
        run_command(["umount", "--lazy", str(folder)])


def load_program(kind: int, *instructions: tuple[int, int, int, int]) -> int:
    """Somebody else's; each instruction is code, registers, offset and constant. Its descriptor."""
    code = b"".join(struct.pack("=BBhi", *one) for one in instructions)
    libbpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
    fd = int(libbpf.bpf_prog_load(kind, b"foreign", b"GPL", code, ctypes.c_size_t(len(instructions)), None))
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return fd


@dataclass
class Host:
    """The attachment point, with its users."""

    lab: Lab
    ap: Namespace
    u1: Namespace
    u2: Namespace

    def tc(self, *arguments: str, check: bool = True) -> str:
        return run_command(["tc", "-n", self.ap.name, *arguments], check=check)

    def devices(self) -> list[str]:
        return [line.split()[0].partition("@")[0] for line in self.ap.ip("-br", "link").splitlines()]

    def snapshot(self) -> list[str]:
        """Everything that we could have left, as tc and ip print it, without numbers that the kernel picks."""
        shown = [f"down: {line.split()[0]}" for line in self.ap.ip("-br", "link").splitlines() if ",UP" not in line]
        for name in self.devices():
            shown += [f"device {name}", *self.tc("qdisc", "show", "dev", name).splitlines()]
            shown += self.tc("class", "show", "dev", name).splitlines()
            for hook in ("ingress", "egress"):
                text = self.tc("filter", "show", "dev", name, hook, check=False)
                shown += [f"{name} {hook} {one.strip()}" for one in text.splitlines() if one.strip()]
        return sorted(
            re.sub(r"( direct_packets_stat \d+| id \d+|index \d+ ref \d+ bind \d+)", "", one) for one in shown
        )


@dataclass
class EngineBed(Host):
    maps_dir: Path
    closed: list[ClosedSegment] = field(default_factory=list)
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.engine = self.new_engine()

    def new_engine(self) -> Engine:
        return self.ap.call(lambda: Engine(self.maps_dir, on_closed=self.closed.extend))

    def restart(self) -> None:
        self.engine.close()
        self.engine = self.new_engine()

    def enforce(self, what: Wanted, *, is_settled: bool = False) -> Outcome:
        return self.ap.call(lambda: self.engine.enforce(what, is_settled=is_settled))

    def plan(self, what: Wanted) -> Outcome:
        return self.ap.call(lambda: self.engine.plan(what))

    def reset(self) -> Outcome:
        return self.ap.call(self.engine.reset)

    def received_kbit(
        self, *, to_user: bool, kbit: int = 4000, seconds: float = 0.5, user: str = U1, port: int = USER_PORT
    ) -> float:
        """What arrives of `kbit` that are offered, UDP payloads of 972 B (1000 B with their headers).

        A bucket of two frames and a packet at the edge are 50 kbit/s of half a second. Measured again where this
        machine stood still meanwhile: what it did not send cannot arrive.
        """
        host, ours = (self.u1, AP1) if user == U1 else (self.u2, AP2)
        here, there = (self.ap, (ours, AP_PORT)), (host, (user, port))
        found = 0.0
        for _ in range(6):
            found, lost_s = flow(*here, *there, kbit, seconds) if to_user else flow(*there, *here, kbit, seconds)
            if lost_s < min(0.1, seconds / 12):  # a queue holds 100 ms and more; a share of what is judged
                break
        return found


def flow(
    sender: Namespace, source: tuple[str, int], receiver: Namespace, sink: tuple[str, int], kbit: int, seconds: float
) -> tuple[float, float]:
    """kbit/s that arrived, and how long the machine did not let us work [s]."""
    at_sink = receiver.call(lambda: bound(sink))
    at_source = sender.call(lambda: bound(source))
    with at_sink, at_source:
        sent, start, got, lost_s = 0, time.monotonic(), 0, 0.0
        before = start
        while (now := time.monotonic()) < start + seconds:
            lost_s += max(0.0, now - before - 0.02)
            before = now
            while sent * 8000 < kbit * 1000 * (now - start):
                with contextlib.suppress(OSError):  # refused at the hook
                    at_source.sendto(bytes(972), sink)
                sent += 1
            got += drained(at_sink)
            time.sleep(0.002)
        return got * 8 / seconds, lost_s + max(0.0, now - before - 0.02)


def drained(sink: socket.socket) -> int:
    got = 0
    with contextlib.suppress(BlockingIOError):
        while sink.recv(2000):
            got += 1
    return got


def bound(address: tuple[str, int]) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
    sock.bind(address)
    sock.setblocking(False)
    return sock


@contextlib.contextmanager
def attachment_point(prefix: str) -> Iterator[Host]:
    """Raises `LabError`. Two at once need a prefix each."""
    with a_lab(prefix) as lab:
        ap, u1, u2 = (lab.namespace(name) for name in ("ap", "u1", "u2"))
        lab.veth(ap.nic("eth0", f"{AP1}/24", "2001:db8:1::1/64"), u1.nic("eth0", f"{U1}/24", "2001:db8:1::11/64"))
        lab.veth(ap.nic("eth1", f"{AP2}/24", "2001:db8:2::1/64"), u2.nic("eth0", f"{U2}/24", "2001:db8:2::11/64"))
        yield Host(lab, ap, u1, u2)


@contextlib.contextmanager
def engine_bed() -> Iterator[EngineBed]:
    """Raises `LabError`."""
    with attachment_point("slbwe") as host, tempfile.TemporaryDirectory(prefix="slbwe-") as folder:
        maps_dir = Path(folder) / "maps"
        bed = EngineBed(host.lab, host.ap, host.u1, host.u2, maps_dir)
        try:
            yield bed
        finally:
            bed.engine.close()
            run_command(["umount", str(maps_dir)], check=False)
