"""Packets of every kind that a filter has to tell apart, sent with the kernel's own sockets from inside a namespace."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from lab import witness
from measuring.netns import Namespace

IPV6_HOPOPTS, IPV6_DSTOPTS = 54, 59  # <linux/in6.h>
# An extension header of 8 bytes: next header (filled in by the kernel), length 0, one PadN option.
PADDING_HEADER = bytes([0, 0, 1, 4, 0, 0, 0, 0])
NO_OPERATION_OPTIONS = bytes([1, 1, 1, 1])  # four bytes of IPv4 options: the header is 24 bytes long
SCION_DATA = bytes([0, 0, 0, 0, 17]) + b"d" * 59  # next header 17 (UDP) at byte 4 of the common header
SCION_HEARTBEAT = bytes([0, 0, 0, 0, 203]) + b"h" * 59

Address = tuple[str, int]


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@dataclass(frozen=True)
class Datagram:
    """A UDP datagram; `options` go into an IPv4 header, `extension` is the IPv6 socket option for a header."""

    source: Address
    destination: Address
    payload: bytes = SCION_DATA
    options: bytes = b""
    extension: int | None = None

    def send(self, count: int = 1) -> None:
        """From the namespace that the calling thread is in."""
        with socket.socket(_family(self.source[0]), socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.options:
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, self.options)
            if self.extension is not None:
                sock.setsockopt(socket.IPPROTO_IPV6, self.extension, PADDING_HEADER)
            sock.bind(self.source)
            for _ in range(count):
                sock.sendto(self.payload, self.destination)


def _echo_request(destination: str, extension: int | None = None) -> socket.socket:
    family = _family(destination)
    protocol, kind = (socket.IPPROTO_ICMPV6, 128) if family == socket.AF_INET6 else (socket.IPPROTO_ICMP, 8)
    sock = socket.socket(family, socket.SOCK_RAW, protocol)
    if extension is not None:
        sock.setsockopt(socket.IPPROTO_IPV6, extension, PADDING_HEADER)
    body = struct.pack("!BBHHH", kind, 0, 0, 1, 1)
    total = sum(struct.unpack("!4H", body))
    total = (total & 0xFFFF) + (total >> 16)  # RFC 1071; the kernel does it itself for ICMPv6
    sock.sendto(body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:], (destination, 0))
    return sock


def ping(destination: str, extension: int | None = None) -> Callable[[], None]:
    """An ICMP(v6) echo request, with an extension header in front if said."""
    return lambda: _echo_request(destination, extension).close()


def is_reachable(host: Namespace, destination: str, *, deadline_s: float = 1.0) -> bool:
    """Whether an echo request is answered; the machine may have no `ping`."""

    def ask() -> bool:
        with _echo_request(destination) as sock:
            until = time.monotonic() + deadline_s
            while (left := until - time.monotonic()) > 0:
                sock.settimeout(left)
                try:
                    data, sender = sock.recvfrom(2048)
                except TimeoutError:
                    break
                kind = data[0] if ":" in destination else data[(data[0] & 0xF) * 4]
                if kind in (0, 129) and sender[0] == destination:
                    return True
        return False

    return host.call(ask)


def connect(destination: Address) -> Callable[[], None]:
    """The first packet of a TCP connection, to a port where nobody listens."""

    def send() -> None:
        with socket.socket(_family(destination[0]), socket.SOCK_STREAM) as sock:
            sock.settimeout(1)
            sock.connect_ex(destination)

    return send


def counts(host: Namespace, dev: str) -> dict[str, int]:
    """Packets per leaf class so far, passed or dropped, without the classes that saw none."""
    found = {}
    for name, one in witness.classes(host, dev).items():
        seen = one.sent_packets + one.drops
        if seen and one.leaf is not None:
            found[name] = seen
    return found


def classified(
    host: Namespace, dev: str, sender: Namespace, send: Callable[[], None], *, wait_s: float = 0
) -> dict[str, int]:
    """What each leaf class of `dev` saw of one sending."""
    before = counts(host, dev)
    sender.call(send)
    time.sleep(wait_s)
    after = counts(host, dev)
    return {name: number - before.get(name, 0) for name, number in after.items() if number != before.get(name, 0)}


def arrivals(receiver: Namespace, at: Address, send: Callable[[], None], *, wait_s: float = 0.2) -> int:
    """How many datagrams reach a socket at `at` while `send` runs and until `wait_s` of silence."""

    def bound() -> socket.socket:
        sock = socket.socket(_family(at[0]), socket.SOCK_DGRAM)
        sock.bind(at)
        sock.settimeout(wait_s)
        return sock

    with receiver.call(bound) as sock:
        send()
        count = 0
        while True:
            try:
                sock.recv(65_535)
            except TimeoutError:
                return count
            count += 1
