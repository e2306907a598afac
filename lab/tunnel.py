"""A tun device's other half: carries its packets inside UDP to another host's, as OpenVPN does, without encryption.

    python -m lab.tunnel --dev tun0 --local 192.0.2.1:1194 --peer 10.10.1.2=192.0.2.11:1194 [--peer ...]

Each peer is an inner IPv4 address and the outer address where it lives. A packet from the tun device goes to the peer
of its destination; a datagram from a known peer goes into the device. The server of a VPN has many peers, a client has
one: `--peer default=...` takes whatever no other peer matches. Where the device is deleted and made anew, the new one
is served.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time

_TUNSETIFF = 0x400454CA  # <linux/if_tun.h>
_IFF_TUN_NO_PI = 0x1001
_LIFE_S = 3600
_ABSENT_S = 10.0
_MOST_PER_WAKE = 64

Outer = tuple[str, int]


def open_tun(dev: str) -> int:
    """A descriptor of this host's tun device (made before with `Lab.tun`)."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", dev.encode(), _IFF_TUN_NO_PI))
    return descriptor


def parse_outer(text: str) -> Outer:
    """`192.0.2.1:1194` -> address and port."""
    address, _, port = text.rpartition(":")
    return address, int(port)


def peer_of(packet: bytes, peers: dict[str, Outer]) -> Outer | None:
    """Where a packet from the tun device goes: by its IPv4 destination, else to the default peer, else nowhere."""
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    return peers.get(socket.inet_ntoa(packet[16:20]), peers.get("default"))


def serve(dev: str, outer: socket.socket, peers: dict[str, Outer]) -> None:
    """Carry packets both ways until ended, through whatever device has that name. Raises `OSError` where none has it
    for some seconds."""
    tun = open_tun(dev)
    print("ready", flush=True)
    while True:
        try:
            carry(tun, outer, peers)
        except OSError as exc:
            if exc.errno != errno.EBADFD:
                raise
        os.close(tun)
        tun = reopened(dev)


def reopened(dev: str) -> int:
    """As `open_tun`, once somebody made the device: opening a name that nobody has would make one."""
    deadline = time.monotonic() + _ABSENT_S
    while True:
        try:
            socket.if_nametoindex(dev)
            return open_tun(dev)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)


def carry(tun: int, outer: socket.socket, peers: dict[str, Outer]) -> None:
    """Carry packets both ways until the device is deleted: `OSError`, EBADFD."""
    known = set(peers.values())
    while True:
        readable, _, _ = select.select([tun, outer.fileno()], [], [])
        if tun in readable:
            _from_device(tun, outer, peers)
        if outer.fileno() in readable:
            _from_peers(tun, outer, known)


def _from_device(tun: int, outer: socket.socket, peers: dict[str, Outer]) -> None:
    for _ in range(_MOST_PER_WAKE):
        try:
            packet = os.read(tun, 65_535)
        except BlockingIOError:
            return
        target = peer_of(packet, peers)
        if target is not None:
            with contextlib.suppress(OSError):  # a full socket drops, like any tunnel
                outer.sendto(packet, target)


def _from_peers(tun: int, outer: socket.socket, known: set[Outer]) -> None:
    for _ in range(_MOST_PER_WAKE):
        try:
            packet, source = outer.recvfrom(65_535)
        except OSError:  # nothing left, or an ICMP error of an earlier packet
            return
        if source in known:
            with contextlib.suppress(OSError):  # not an IP packet: the device refuses it
                os.write(tun, packet)


def main(argv: list[str] | None = None) -> int:
    """See the module's head."""
    signal.alarm(_LIFE_S)
    parser = argparse.ArgumentParser(prog="python -m lab.tunnel", description=__doc__)
    parser.add_argument("--dev", required=True)
    parser.add_argument("--local", type=parse_outer, required=True)
    parser.add_argument("--peer", action="append", required=True, metavar="INNER=OUTER:PORT")
    given = parser.parse_args(argv)
    peers = {inner: parse_outer(outer) for inner, _, outer in (text.partition("=") for text in given.peer)}
    outer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    outer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
    outer.bind(given.local)
    outer.setblocking(False)
    serve(given.dev, outer, peers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
