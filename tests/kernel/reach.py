"""Can the attachment point still be reached and managed? A short session over TCP, and its addresses asked for by hand.

A host keeps its neighbours in a cache, so a session alone would not show that ARP or neighbour discovery fail.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType

from measuring.netns import Namespace

SSH = 22
PATIENCE_S = 2.0
ETH_P_ARP, ARP_REQUEST, ARP_REPLY = 0x0806, 1, 2
ND_SOLICIT, ND_ADVERTISE, SOURCE_LINK_LAYER = 135, 136, 1
IPV6_MULTICAST_IF, IPV6_MULTICAST_HOPS = 17, 18  # <linux/in6.h>
_ARP = struct.Struct("!HHBBH6s4s6s4s")


class Reach:
    """Asks `host` from `asker`, which is its neighbour on `dev`; to be used in a `with`."""

    def __init__(self, host: Namespace, asker: Namespace, v4: str, v6: str, dev: str = "eth0") -> None:
        self._v4, self._v6, self._dev = v4, v6, dev
        self._listeners = [host.call(_listening(address)) for address in (v4, v6)]
        self._asker = asker
        self._arp, self._nd, self._own_mac, self._own_v4 = asker.call(self._open)

    def _open(self) -> tuple[socket.socket, socket.socket, bytes, bytes]:
        arp = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ARP))
        arp.bind((self._dev, ETH_P_ARP))
        nd = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        nd.setsockopt(socket.IPPROTO_IPV6, IPV6_MULTICAST_IF, socket.if_nametoindex(self._dev))
        nd.setsockopt(socket.IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 255)  # RFC 4861: anything less is not from a neighbour
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.connect((self._v4, SSH))
            own = socket.inet_aton(udp.getsockname()[0])
        return arp, nd, arp.getsockname()[4], own

    def __enter__(self) -> Reach:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in (*self._listeners, self._arp, self._nd):
            sock.close()

    def failures(self) -> list[str]:
        """What did not answer; empty where all is well. From a thread in any namespace."""
        asked: dict[str, Callable[[], bool]] = {
            "tcp over IPv4": lambda: self._session(0),
            "tcp over IPv6": lambda: self._session(1),
            "arp": self._finds_by_arp,
            "neighbour discovery": self._finds_by_nd,
        }
        return [name for name, ask in asked.items() if not self._asker.call(ask)]

    def _session(self, number: int) -> bool:
        listener = self._listeners[number]
        try:
            with socket.create_connection(listener.getsockname()[:2], PATIENCE_S) as there:
                here, _ = listener.accept()
                with here:
                    here.settimeout(PATIENCE_S)
                    there.sendall(b"question")
                    here.sendall(here.recv(8)[::-1])
                    return there.recv(8) == b"question"[::-1]
        except OSError:
            return False

    def _finds_by_arp(self) -> bool:
        wanted = socket.inet_aton(self._v4)
        body = _ARP.pack(1, 0x0800, 6, 4, ARP_REQUEST, self._own_mac, self._own_v4, bytes(6), wanted)
        _drain(self._arp)
        self._arp.send(b"\xff" * 6 + self._own_mac + struct.pack("!H", ETH_P_ARP) + body)
        return _heard(self._arp, lambda data: data[20:22] == ARP_REPLY.to_bytes(2) and data[28:32] == wanted)

    def _finds_by_nd(self) -> bool:
        wanted = socket.inet_pton(socket.AF_INET6, self._v6)
        to_all_of_it = socket.inet_ntop(socket.AF_INET6, bytes.fromhex("ff0200000000000000000001ff") + wanted[-3:])
        option = bytes([SOURCE_LINK_LAYER, 1]) + self._own_mac
        _drain(self._nd)
        self._nd.sendto(struct.pack("!BBHI", ND_SOLICIT, 0, 0, 0) + wanted + option, (to_all_of_it, 0))
        return _heard(self._nd, lambda data: data[0] == ND_ADVERTISE and data[8:24] == wanted)


def _listening(address: str) -> Callable[[], socket.socket]:
    def make() -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, SSH), family=family)
        listener.settimeout(PATIENCE_S)
        return listener

    return make


def _drain(sock: socket.socket) -> None:
    sock.setblocking(False)
    while True:
        try:
            sock.recv(2048)
        except BlockingIOError:
            return


def _heard(sock: socket.socket, is_wanted: Callable[[bytes], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while (left := until - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            if is_wanted(sock.recv(2048)):
                return True
        except TimeoutError:
            break
    return False
