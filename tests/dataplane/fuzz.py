"""Frames grown from real ones, through both hooks; sockets witness what leaked.

    python -m tests.dataplane.fuzz [FRAMES] [SEED]

A link at 0 gets nothing, a limited one at most its limit, and other ports of the same addresses lose nothing: between
the frames whole datagrams of a port without a link are sent, and each must arrive.
"""

from __future__ import annotations

import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from ap_agent.dataplane.lanes import room_bytes
from ap_agent.dataplane.program import Key
from tests.dataplane.bed import AP, AP6, AP_PORT, USER, USER6, Bed, bed
from tests.dataplane.frames import (
    DESTINATION,
    HOP,
    OUTER_TAG,
    ROUTING,
    TAG,
    checksum,
    datagram,
    pieces,
    scion,
)

LIMITED, BLOCKED, FREE = 50_001, 50_002, 50_099
LIMIT_KBIT = 500
MAX_EXTENSIONS = 20
UDP_NO_CHECK6_RX = 102  # linux/udp.h: what a mutation did to a checksum must not hide a leak
BATCH = 500


@dataclass
class Found:
    """What the sockets received, by the port of the user, and what was sent."""

    frames: int = 0
    probes: int = 0
    arrived: Counter[int] = field(default_factory=Counter)
    arrived_bytes: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def most_limited_bytes(self) -> float:
        """Of both links at the limit, with what each may send at once. Payload, so headers are to our disadvantage."""
        return 2 * (room_bytes(LIMIT_KBIT) + 70_000 + LIMIT_KBIT * 125 * self.seconds)


def grown(rng: random.Random, *, from_user: bool) -> Iterator[bytes]:
    """The frames of one datagram of one of the ports, in one of all forms, perhaps damaged."""
    family, port = rng.choice((4, 6)), rng.choice((LIMITED, BLOCKED, BLOCKED, FREE))
    ends = ((USER, port), (AP, AP_PORT)) if family == 4 else ((USER6, port), (AP6, AP_PORT))
    source, destination = ends if from_user else ends[::-1]
    whole = datagram(
        scion(rng.choice((17, 203)), rng.choice((5, 64, 700, 1400))),
        source=source,
        destination=destination,
        from_user=from_user,
        identification=rng.getrandbits(rng.choice((4, 15))),  # a probe has higher ones
        tags=[(rng.choice((TAG, OUTER_TAG)), rng.choice((0, 0xE000))) for _ in range(rng.choice((0, 0, 1, 2, 3)))],
        options=bytes([1]) * rng.choice((0, 0, 4, 40)) if family == 4 else b"",
        extensions=rng.choices((HOP, DESTINATION, ROUTING, DESTINATION), k=rng.choice((0, 0, 1, 3, MAX_EXTENSIONS)))
        if family == 6
        else (),
        is_atomic=family == 6 and rng.random() < 0.3,
    )[0]
    packets = [whole]
    if rng.random() < 0.5:
        packets = list(pieces(whole, rng.choice((8, 16, 64, 512))))[:40]
        if rng.random() < 0.3:  # overlaps
            packets += [replace(one, offset=max(0, one.offset - 8)) for one in rng.sample(packets, 1)]
        rng.shuffle(packets) if rng.random() < 0.5 else None
    for one in packets:
        frame = one.frame
        yield damaged(rng, frame) if rng.random() < 0.5 else frame


def damaged(rng: random.Random, frame: bytes) -> bytes:
    """A few bytes of the headers changed, or the end cut off; IPv4's checksum made right again more often than not."""
    changed = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 4))):
        changed[rng.randrange(12, min(len(changed), 110))] = rng.getrandbits(8)
    if rng.random() < 0.1:
        del changed[rng.randrange(14, len(changed)) :]
    at = changed.find(b"\x08\x00", 12, 24) + 2
    if at > 1 and len(changed) >= at + 20 and rng.random() < 0.8:
        size = max(20, (changed[at] & 15) * 4)
        if len(changed) >= at + size:
            changed[at + 10 : at + 12] = b"\0\0"
            changed[at + 10 : at + 12] = struct.pack("!H", checksum(bytes(changed[at : at + size])))
    return bytes(changed)


def probe(number: int, *, from_user: bool) -> list[bytes]:
    """A datagram that nobody limits, one in three of them in fragments; `number` is in its payload."""
    family = 4 + number % 2 * 2
    ends = ((USER, FREE), (AP, AP_PORT)) if family == 4 else ((USER6, FREE), (AP6, AP_PORT))
    source, destination = ends if from_user else ends[::-1]
    payload = b"probe" + struct.pack("!I", number) + bytes(200)
    piece = 104 if number % 3 == 0 else None
    packets = datagram(
        payload,
        source=source,
        destination=destination,
        piece=piece,
        from_user=from_user,
        identification=number | 1 << 15,
    )
    return [one.frame for one in packets]


def links(ap: Bed) -> None:
    for host in (ap.ap, ap.user):  # the kernel's own room for datagrams that never become whole
        host.sysctl({"net.ipv4.ipfrag_high_thresh": 1 << 29, "net.ipv6.ip6frag_high_thresh": 1 << 29})
        host.sysctl({"net.ipv4.ipfrag_time": 1, "net.ipv6.ip6frag_time": 1})
    for number, address in ((7, USER), (9, USER6)):
        ap.link(number, LIMIT_KBIT, LIMIT_KBIT, Key(ip_address(address), LIMITED))
        ap.link(number + 1, 0, 0, Key(ip_address(address), BLOCKED))


def run(ap: Bed, frames: int, seed: int, *, from_user: bool, show: bool = False) -> Found:
    """Send so many frames, with probes among them. Bounded: it ends with the frames."""
    rng, found = random.Random(seed), Found()  # noqa: S311  a repeatable order, no secret
    sockets = _witnesses(ap, from_user=from_user)
    seen: set[int] = set()
    began = time.monotonic()
    while found.frames < frames:
        batch: list[bytes] = []
        while len(batch) < BATCH:
            batch += grown(rng, from_user=from_user)
            if rng.random() < 0.1:
                batch += probe(found.probes, from_user=from_user)
                found.probes += 1
        found.frames += len(batch)
        ap.send(batch, from_ap=not from_user)
        _take(sockets, found, seen)
        if show and found.frames % 50_000 < BATCH:
            print(f"{found.frames} frames, {found.probes} probes, {dict(found.arrived)}", flush=True)
    time.sleep(1.0)
    _take(sockets, found, seen)
    found.seconds = time.monotonic() - began
    for one in sockets:
        one.close()
    found.arrived[0] = len(seen)
    return found


def _witnesses(ap: Bed, *, from_user: bool) -> list[socket.socket]:
    host = ap.ap if from_user else ap.user
    ends = (
        [(AP, AP_PORT), (AP6, AP_PORT)]
        if from_user
        else [(one, port) for one in (USER, USER6) for port in (LIMITED, BLOCKED, FREE)]
    )
    return [host.call(lambda end=end: _witness(*end)) for end in ends]


def _witness(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
    if ":" in address:
        sock.setsockopt(socket.IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)
    sock.bind((address, port))
    sock.setblocking(False)
    return sock


def _take(sockets: list[socket.socket], found: Found, seen: set[int]) -> None:
    for sock in sockets:
        here = sock.getsockname()[1]
        while True:
            try:
                data, sender = sock.recvfrom(65_535)
            except BlockingIOError:
                break
            if sender[0] not in (USER, USER6, AP, AP6):
                continue  # a changed address is somebody else's
            port = sender[1] if here == AP_PORT else here
            found.arrived[port] += 1
            found.arrived_bytes[port] += len(data)
            if data.startswith(b"probe") and port == FREE and len(data) == 209:
                seen.add(struct.unpack_from("!I", data, 5)[0])


def verdicts(found: Found) -> list[str]:
    """What is wrong; nothing, if all is well."""
    wrong = []
    if found.arrived[BLOCKED]:
        wrong.append(f"{found.arrived[BLOCKED]} datagrams of a blocked link arrived")
    if found.arrived_bytes[LIMITED] > found.most_limited_bytes:
        wrong.append(f"{found.arrived_bytes[LIMITED]} bytes of limited links, {found.most_limited_bytes:.0f} allowed")
    if found.arrived[0] != found.probes:
        wrong.append(f"{found.probes - found.arrived[0]} of {found.probes} datagrams of another port were lost")
    return wrong


def main(arguments: list[str]) -> int:
    frames = int(arguments[0]) if arguments else 1_000_000
    seed = int(arguments[1]) if len(arguments) > 1 else random.SystemRandom().getrandbits(32)
    print(f"{frames} frames, seed {seed}")
    failures = 0
    with bed() as ap:
        links(ap)
        for from_user in (True, False):
            found = run(ap, frames // 2, seed, from_user=from_user, show=True)
            words = verdicts(found)
            failures += len(words)
            print("from the user:" if from_user else "to the user:", found, words or "all is well")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
