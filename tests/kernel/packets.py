"""Datagrams as programs send them, from inside a namespace."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

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
