"""A sample of the sequences over a veth pair, from two processors at once: sockets say what arrived.

user  u0 ───────── n0  ap       the limiter's engine at n0, or nothing: the same frames without a limiter
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.program import Key
from ap_agent.dataplane.wanted import LimitedLink, Wanted
from ap_agent.document.state import Direction
from lab.frames import grow, shape
from lab.frames.judge import BEATS_BYTES, BLOCKED, BYTES_PER_S, DATAGRAM_BYTES, LIMITED, ROOM_BYTES, link_of
from lab.frames.replay import LINKS, PORTS, WHOLE
from measuring.iproute import run_command
from measuring.netns import Lab, Namespace

SO_RCVBUFFORCE, UDP_NO_CHECK6_RX = 33, 102  # asm-generic/socket.h, linux/udp.h
LEAF_BYTES = 4_000  # HTB's burst
ETHERNET_IPV4_UDP, ETHERNET_IPV6_UDP = 42, 62
LEAST_SHARE = 0.995  # of bystanders: fuzzed fragments of their address fill its bucket and its slots
END_S = 2.0  # of silence
USERS = (shape.USER4, shape.USER6, shape.OTHER4, shape.OTHER6, shape.WHOLE4, shape.WHOLE6)
USER_PORTS = (*PORTS, grow.FREE)


@dataclass
class Came:
    """`arrived`: by link, 0 nobody's; bytes with the headers of one frame. `counted`: bytes that passed, by link."""

    arrived: Counter[int] = field(default_factory=Counter)
    bystanders: int = 0
    counted: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0

    def broken(self, without: Came) -> list[str]:
        """What is wrong, beside the same frames without a limiter; nothing, if all is well."""
        words = []
        most = ROOM_BYTES + BEATS_BYTES + LEAF_BYTES + DATAGRAM_BYTES + BYTES_PER_S * self.seconds
        if self.arrived[BLOCKED] or self.arrived[WHOLE]:
            words.append(f"{self.arrived[BLOCKED] + self.arrived[WHOLE]} B of blocked links arrived")
        for what, number in (("arrived", self.arrived[LIMITED]), ("are counted", self.counted[LIMITED])):
            if number > most:
                words.append(f"{number} B of the limited link {what} in {self.seconds:.1f} s, at most {most:.0f} may")
        for link in LINKS:
            if self.arrived[link] > self.counted[link]:
                words.append(f"link {link}: {self.arrived[link]} B arrived, {self.counted[link]} are counted")
        if self.bystanders < LEAST_SHARE * without.bystanders:
            words.append(f"{self.bystanders} datagrams of bystanders arrived, {without.bystanders} without a limiter")
        return words


def links() -> Wanted:
    found = {}
    for link, (kbit, is_observed) in LINKS.items():
        ends = (shape.WHOLE4, shape.WHOLE6) if link == WHOLE else (shape.USER4, shape.USER6)
        port = next((one for one, number in PORTS.items() if number == link), None)
        keys = tuple(Key(ip_address(one), port) for one in ends)
        found[link] = LimitedLink(link, keys, kbit, kbit, is_observed=is_observed)
    return Wanted(found)


@contextlib.contextmanager
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    """User and attachment point. Raises `LabError`."""
    with Lab("slbwf") as lab:
        ap, user = lab.namespace("ap"), lab.namespace("user")
        nics = [host.nic(dev, *map(_with_prefix, addresses)) for host, dev, _, addresses in _ends(user, ap)]
        lab.veth(*nics)
        for host, dev, mac, _ in _ends(user, ap):
            host.ip("link", "set", dev, "address", mac.hex(":"))
            host.sysctl({"net.ipv4.ipfrag_max_dist": 0, "net.ipv4.ipfrag_time": 60, "net.ipv6.ip6frag_time": 60})
            host.sysctl({"net.ipv4.ipfrag_high_thresh": 1 << 28, "net.ipv6.ip6frag_high_thresh": 1 << 28})
        yield user, ap


def _ends(user: Namespace, ap: Namespace) -> tuple[tuple[Namespace, str, bytes, tuple[bytes, ...]], ...]:
    return (user, "u0", shape.MAC_USER, USERS), (ap, "n0", shape.MAC_AP, (shape.AP4, shape.AP6))


def _with_prefix(address: bytes) -> str:
    return f"{ip_address(address)}/{24 if len(address) == 4 else 64}"


def send(frames: int, seed: int, *, from_user: bool, is_limited: bool) -> Came:
    """About so many frames, half of them from each processor. Raises `LabError`, `AgentError`."""
    with pair() as (user, ap), tempfile.TemporaryDirectory(prefix="slbwf-") as folder, contextlib.ExitStack() as stack:
        maps_dir = Path(folder) / "maps"
        engine = ap.call(lambda: Engine(maps_dir))
        stack.callback(run_command, ["umount", str(maps_dir)], check=False)
        stack.callback(engine.close)
        if is_limited and not ap.call(lambda: engine.enforce(links())).is_ok:
            raise RuntimeError("the links are not enforced")
        sockets = stack.enter_context(listening(ap if from_user else user, at_ap=from_user))
        came = _received(user if from_user else ap, sockets, frames, seed, from_user)
        if is_limited:
            way: Direction = "from_user" if from_user else "to_user"
            came.counted = {link: engine.counters()[link, way][1].passed_bytes for link in LINKS}
        return came


def _received(sender: Namespace, sockets: list[socket.socket], frames: int, seed: int, from_user: bool) -> Came:
    came, began = Came(), time.monotonic()
    arguments = ["u0" if from_user else "n0", str(seed), str(int(from_user)), str(frames // 2)]
    senders = [sender.python("lab.frames.wire", *arguments, str(number)) for number in (0, 1)]
    last = began
    while any(one.poll() is None for one in senders) or time.monotonic() < last + END_S:
        for link, size, is_bystander in taken(sockets, from_user=from_user):
            came.arrived[link] += size
            came.bystanders += is_bystander
            last = time.monotonic()
        time.sleep(0.02)
    came.seconds = last - began
    for one in senders:
        if one.returncode:
            raise subprocess.CalledProcessError(one.returncode, one.args, stderr=one.communicate()[1])
    return came


@contextlib.contextmanager
def listening(host: Namespace, *, at_ap: bool) -> Iterator[list[socket.socket]]:
    addresses, ports = ((shape.AP4, shape.AP6), (shape.AP_PORT,)) if at_ap else (USERS, USER_PORTS)
    ends = [(str(ip_address(one)), port) for one in addresses for port in ports]
    with contextlib.ExitStack() as stack:
        yield host.call(lambda: [stack.enter_context(_socket(*one)) for one in ends])


def _socket(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
    if ":" in address:
        sock.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)
    sock.bind((address, port))
    sock.setblocking(False)
    return sock


def taken(sockets: list[socket.socket], *, from_user: bool) -> list[tuple[int, int, bool]]:
    """Link (0: nobody's), bytes with the headers of one frame, and whether it is a bystander's, of each datagram."""
    found = []
    for sock in sockets:
        here = sock.getsockname()
        with contextlib.suppress(BlockingIOError):
            while True:
                data, there = sock.recvfrom(65_535)
                remote, port = (there if from_user else here)[:2]
                head = ETHERNET_IPV6_UDP if ":" in remote else ETHERNET_IPV4_UDP
                link = link_of(ip_address(remote).packed, port)
                found.append((link, len(data) + head, data.startswith(b"bystander")))
    return found


def _send(dev: str, seed: int, from_user: bool, frames: int, processor: int) -> None:
    """The program that sends: every second sequence of this direction, from this processor."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[processor % len(allowed)]})
    number, sent = processor, 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((dev, 0))
        while sent < frames:
            one = grow.sequence(seed, number)
            number += 2
            if one.from_user != from_user:
                continue
            for frame in one.frames:
                with contextlib.suppress(OSError):  # ENOBUFS: refused at the egress hook
                    sock.send(frame.encoded()[0])
                sent += 1


if __name__ == "__main__":
    _dev, _seed, _from_user, _frames, _processor = sys.argv[1:]
    _send(_dev, int(_seed), _from_user == "1", int(_frames), int(_processor))
