"""UDP sockets of both ends. Needs no rights: unavailable options are skipped.

An attachment point with several addresses answers from the one that was addressed (IP_PKTINFO): a NAT lets no other
pass.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import time

from station.plan import MAX_PAYLOAD_BYTES
from station.rounds import Sent
from station.talk import Peer, Talk

BUFFER_BYTES = 8 * 1024 * 1024  # requested; the kernel gives at most net.core.{w,r}mem_max
_IP_PKTINFO, _IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER = 8, 10, 23  # <linux/in.h>, <linux/in6.h>
_PMTUDISC_DONT, _PMTUDISC_PROBE = 0, 3  # PROBE: ignores the kernel's cached path MTU
_INFO4, _INFO6 = struct.Struct("@I4s4s"), struct.Struct("@16sI")
_LONGEST = MAX_PAYLOAD_BYTES + 64  # longer packets are not ours
_CONTROL_BYTES = 64
_MOST_AT_ONCE = 64  # packets that are read before the clock is checked again
_SHORTEST_S, _LONGEST_S = 0.0005, 0.05
_IS_SENT = frozenset({errno.ENOBUFS})  # dropped by a queue of this host: in transit
_FULL = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR})


def address_of(version: int, ip: str | None, port: int, scope: int = 0) -> tuple[str, int] | tuple[str, int, int, int]:
    """For a socket of that version of IP; None: all addresses of this host."""
    if version == 4:
        return ip or "0.0.0.0", port  # noqa: S104
    return ip or "::", port, 0, scope


class Wire:
    """A socket on an address and port of this host; None: on all addresses of that version of IP. Raises `OSError`."""

    def __init__(self, version: int, local_ip: str | None, port: int, scope: int = 0) -> None:
        self._version, self._is_v4 = version, version == 4
        self._socket = socket.socket(socket.AF_INET if self._is_v4 else socket.AF_INET6, socket.SOCK_DGRAM)
        self._is_whole: bool | None = None
        self.refused_at: dict[int, float] = {}  # errno reported by the network -> last time, monotonic
        try:
            self._socket.setblocking(False)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                self._socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            if self._is_v4:
                self._socket.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
            else:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            self._fragment(whole=False)
            self._socket.bind(address_of(version, local_ip, port, scope))
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def connect(self, peer: Peer) -> None:
        """Receive only from this peer, and receive ICMP errors. Raises `OSError`."""
        self._socket.connect(address_of(self._version, peer.ip, peer.port, peer.scope))

    @property
    def local_ip(self) -> str:
        return str(self._socket.getsockname()[0])

    def send(self, packet: bytes, peer: Peer, whole: bool = False) -> Sent:
        """`whole`: it must not be fragmented on the way."""
        if whole != self._is_whole:
            self._fragment(whole=whole)
        for _ in range(2):  # the first call may return an ICMP error of an earlier packet
            try:
                self._send(packet, peer)
            except OSError as exc:
                if exc.errno in _IS_SENT:
                    return Sent.SENT
                if exc.errno in _FULL:
                    return Sent.FULL
                last = exc.errno or 0
                self._refused(last)
            else:
                return Sent.SENT
        return Sent.TOO_BIG if last == errno.EMSGSIZE else Sent.FULL

    def _send(self, packet: bytes, peer: Peer) -> None:
        to = address_of(self._version, peer.ip, peer.port, peer.scope)
        if not peer.local:
            self._socket.sendto(packet, to)
        elif self._is_v4:
            info = _INFO4.pack(0, socket.inet_aton(peer.local), bytes(4))
            self._socket.sendmsg([packet], [(socket.IPPROTO_IP, _IP_PKTINFO, info)], 0, to)
        else:
            info = _INFO6.pack(socket.inet_pton(socket.AF_INET6, peer.local), peer.scope)
            self._socket.sendmsg([packet], [(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, info)], 0, to)

    def receive(self) -> list[tuple[bytes, Peer]]:
        """What has arrived, up to a number."""
        found: list[tuple[bytes, Peer]] = []
        for _ in range(_MOST_AT_ONCE):
            try:
                packet, control, _, source = self._socket.recvmsg(_LONGEST, _CONTROL_BYTES)
            except OSError as exc:
                if exc.errno in _FULL:
                    break
                self._refused(exc.errno or 0)  # each error is returned once
                continue
            found.append((packet, self._peer(control, source)))
        return found

    def _peer(self, control: list[tuple[int, int, bytes]], source: tuple[str, int, int, int]) -> Peer:
        local = ""
        for _, _, value in control:
            if self._is_v4:
                local = socket.inet_ntoa(_INFO4.unpack_from(value)[1])
            else:
                local = socket.inet_ntop(socket.AF_INET6, _INFO6.unpack_from(value)[0])
        return Peer(source[0].partition("%")[0], source[1], 0 if self._is_v4 else source[3], local)

    def wait(self, seconds: float) -> None:
        """Until something arrives or the time is over."""
        with contextlib.suppress(InterruptedError):
            select.select([self._socket], [], [], min(max(seconds, _SHORTEST_S), _LONGEST_S))

    def _refused(self, number: int) -> None:
        self.refused_at[number] = time.monotonic()

    def _fragment(self, *, whole: bool) -> None:
        level, option = (
            (socket.IPPROTO_IP, _IP_MTU_DISCOVER) if self._is_v4 else (socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER)
        )
        self._socket.setsockopt(level, option, _PMTUDISC_PROBE if whole else _PMTUDISC_DONT)
        self._is_whole = whole


def drive(wire: Wire, talk: Talk) -> None:
    """Runs a conversation over a socket until it is over."""
    while not talk.is_over:
        talk.step(time.monotonic())
        wire.wait(talk.next_at - time.monotonic())
        now = time.monotonic()
        for packet, peer in wire.receive():
            talk.receive(now, packet, peer)
