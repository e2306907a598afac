"""What the kernel says unasked: a socket that hears changes of links, tc, addresses, routes and rules.

Events say only *when* to look; what to do follows from what the kernel has then (docs/adr/0008). So a message is parsed
just far enough to decide whether it concerns what we limit, and a message that was lost is an occasion to look too.

Not here: how soon and how often to look (`attention`).
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from ap_agent.common.errors import AgentError
from ap_agent.model import IFB_ALIAS, IFB_NAME
from bandwidth_config import IPAddress

# <linux/rtnetlink.h>: RTNLGRP_LINK, TC, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE, IPV6_RULE, NEXTHOP
_GROUPS = (1, 4, 5, 7, 8, 9, 11, 19, 32)
_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP = 270, 1
_SO_RCVBUFFORCE = 33  # <asm-generic/socket.h>; may exceed net.core.rmem_max with CAP_NET_ADMIN
RECEIVE_BUFFER_BYTES = 32 * 1024 * 1024
_READ_BYTES = 64 * 1024  # a link with many virtual functions is the largest message there is
_MESSAGES_AT_ONCE = 4096  # of one `drain`: about 10 ms, so that a flood keeps nobody from a signal or a poll

_RTM_NEWLINK, _RTM_DELLINK = 16, 17
_LINK = frozenset({_RTM_NEWLINK, _RTM_DELLINK})
_ADDRESS = frozenset({20, 21})  # RTM_NEWADDR, RTM_DELADDR
_ROUTE = frozenset({24, 25})
_RULE = frozenset({32, 33})
_NEXTHOP = frozenset({104, 105})
_RTM_DELTCLASS = 41
_TC = {36: "qdisc", 37: "qdisc", 40: "class", 41: "class", 44: "filter", 45: "filter"}  # chains come and go with these

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_IFINFO = struct.Struct("=BxHiII")  # family, type, index, flags, which flags
_IFADDR = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index
_RTMSG = struct.Struct("=BBBB")  # family, destination bits; the rest does not matter here
_RTMSG_BYTES = 12
_TCMSG = struct.Struct("=BxxxI")  # family, index (2^32-1: a shared block); the rest does not matter here
_ATTRIBUTE = struct.Struct("=HH")
_IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_IFALIAS = 3, 4, 10, 20
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST = 1
_IFF_UP, _IFF_LOWER_UP = 1, 1 << 16
_BITS = {socket.AF_INET: 32, socket.AF_INET6: 128}


@dataclass(frozen=True, order=True)
class Change:
    """Something that somebody else did: to a device, to one of its addresses, or to routing (device empty)."""

    device: str
    what: str


@dataclass(frozen=True)
class Heard:
    """What one look into the socket brought: the changes that concern us.

    `is_lost`: the kernel dropped messages, so anything may have changed. `messages` were taken altogether; `is_all`
    says that none is left. `farewells` are the bodies of messages about classes that were deleted, by whomever: the
    last that the kernel says of their counters.
    """

    changes: frozenset[Change] = frozenset()
    is_lost: bool = False
    messages: int = 0
    is_all: bool = True
    farewells: tuple[bytes, ...] = field(default=(), compare=False)

    @property
    def concerns_us(self) -> bool:
        return bool(self.changes) or self.is_lost


class Prefixes:
    """Which of our addresses a route leads to. Sets per prefix length, made when a route of that length comes by."""

    def __init__(self, addresses: Iterable[IPAddress]) -> None:
        self._exact: dict[int, set[int]] = {32: set(), 128: set()}
        for address in addresses:
            self._exact[address.max_prefixlen].add(int(address))
        self._by_length: dict[tuple[int, int], set[int]] = {}

    def __contains__(self, address: bytes) -> bool:
        return int.from_bytes(address) in self._exact.get(len(address) * 8, ())

    def covers(self, bits: int, length: int, destination: bytes) -> bool:
        """Whether one of our addresses of that family (32 or 128 bits) lies in destination/length."""
        key = (bits, length)
        if key not in self._by_length:
            self._by_length[key] = {one >> (bits - length) for one in self._exact[bits]}
        return int.from_bytes(destination) >> (bits - length) in self._by_length[key]


@dataclass(frozen=True)
class Interest:
    """What can matter to the limits in force: devices that carry them, and the addresses of the links.

    `devices` None: nobody knows (nothing could be read back), so everything may matter. `ifb` is the number of our IFB
    if it was there and up; `names` has its name where one is wanted.
    """

    devices: frozenset[int] | None = frozenset()
    names: frozenset[str] = frozenset()
    ifb: int | None = None
    addresses: Prefixes = field(default_factory=lambda: Prefixes(()))


class EventSource(Protocol):
    """What the loop needs of a listener; `Listener` is the real one."""

    def fileno(self) -> int: ...

    def own(self, ports: Iterable[int]) -> None: ...

    def drain(self, interest: Interest) -> Heard: ...


class Listener:
    """The socket, for the network namespace that the calling thread is in. A plain one: see docs/adr/0008."""

    def __init__(self) -> None:
        """Raises `AgentError`."""
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
            )
            self._enlarge(RECEIVE_BUFFER_BYTES)
            self._socket.bind((0, 0))
            for group in _GROUPS:
                self._socket.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, group)
        except OSError as exc:
            raise AgentError(f"The kernel's events cannot be listened to: {exc.strerror}.") from exc
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._own: set[int] = set()
        self._devices = _Devices()
        self._farewells: list[bytes] = []

    def _enlarge(self, wanted_bytes: int) -> None:
        half = wanted_bytes // 2  # the kernel doubles what it is given (socket(7))
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, half)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, half)

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def own(self, ports: Iterable[int]) -> None:
        """What waits in the socket now and came from these netlink ports is our own doing.

        To be said as soon as those sockets are closed: the kernel may give the port to somebody else then. It is
        forgotten when the socket has been emptied.
        """
        self._own |= set(ports)

    def drain(self, interest: Interest) -> Heard:
        """Take what waits, without waiting for more; at most so much that nobody else waits long for it."""
        changes: set[Change] = set()
        messages, is_lost = 0, False
        for _ in range(_MESSAGES_AT_ONCE):
            try:
                size = self._socket.recv_into(self._buffer)
            except BlockingIOError:
                self._own.clear()
                break
            except OSError as exc:
                if exc.errno != errno.ENOBUFS:
                    raise
                is_lost = True
                self._devices = _Devices()  # of them too we may have missed something
                continue
            messages += 1
            changes.update(self._changes(bytes(self._buffer[:size]), interest))
        changes.update(self._devices.ifb_changes(interest))
        farewells, self._farewells = tuple(self._farewells), []
        is_all = messages < _MESSAGES_AT_ONCE - is_lost
        return Heard(frozenset(changes), is_lost, messages, is_all, farewells)

    def _changes(self, data: bytes, interest: Interest) -> Iterator[Change]:
        position = 0
        while position + _HEADER.size <= len(data):
            length, kind, _, _, port = _HEADER.unpack_from(data, position)
            if length < _HEADER.size:
                return
            body = data[position + _HEADER.size : position + length]
            position += (length + 3) & ~3
            if kind == _RTM_DELTCLASS:
                self._farewells.append(body)
            with contextlib.suppress(struct.error):  # too short to say anything: not from the kernel
                if kind in _LINK:
                    yield from self._devices.hear(kind, body, interest)
                elif port not in self._own:
                    yield from _judge(kind, body, interest)


class _Devices:
    """What was last heard of the devices that may matter. Most messages about devices repeat what was said before, and
    they come without a port (kernel 6.18), so what we did ourselves to our IFB is known by what became of it.
    """

    def __init__(self) -> None:
        self._facts: dict[int, tuple[object, ...]] = {}
        self._ifbs: dict[int, tuple[bool, bytes | None]] = {}  # of its name: ours and up, MTU
        self._ifbs_before: dict[int, tuple[bool, bytes | None]] = {}
        self._has_news_of_ifb = False

    def hear(self, kind: int, body: bytes, interest: Interest) -> Iterator[Change]:
        """A device that matters, if it is not as it was last said to be: also when it only went down and up again,
        because that costs routes of which no message speaks."""
        family, arphrd, ifindex, flags, _ = _IFINFO.unpack_from(body)
        if family != socket.AF_UNSPEC:  # a bridge speaks of its ports, with the same message types
            return
        found = dict(_attributes(body, _IFINFO.size))
        name = _text(found.get(_IFLA_IFNAME, b""))
        before = self._facts.pop(ifindex, None)
        if name == IFB_NAME or ifindex in self._ifbs or ifindex == interest.ifb:
            self._has_news_of_ifb = True
            self._ifbs.pop(ifindex, None)
            if kind == _RTM_NEWLINK and name == IFB_NAME:
                is_ours = _text(found.get(_IFLA_IFALIAS, b"")) == IFB_ALIAS and bool(flags & _IFF_UP)
                self._ifbs[ifindex] = (is_ours, found.get(_IFLA_MTU))
            return
        names = {name, before[0] if before is not None else name}  # also one that gives up a name that matters
        if interest.devices is not None and ifindex not in interest.devices and not names & interest.names:
            return
        if kind == _RTM_DELLINK:
            yield Change(name, "device deleted")
            return
        facts = (name, arphrd, flags & (_IFF_UP | _IFF_LOWER_UP), found.get(_IFLA_MTU), found.get(_IFLA_MASTER))
        self._facts[ifindex] = facts
        if facts != before:
            yield Change(name, "device")

    def ifb_changes(self, interest: Interest) -> Iterator[Change]:
        """Whether the IFB is another one than was read back, after everything that was heard of it by now."""
        if not self._has_news_of_ifb:
            return
        self._has_news_of_ifb = False
        now, before = self._ifbs, self._ifbs_before
        self._ifbs_before = dict(now)
        in_service = next((ifindex for ifindex, (is_ours, _) in now.items() if is_ours), None)
        if IFB_NAME not in interest.names and interest.devices is not None:
            return
        has_moved = in_service != interest.ifb or (in_service is None and now != before)
        has_other_mtu = in_service in before and in_service is not None and before[in_service][1] != now[in_service][1]
        if has_moved or has_other_mtu:
            yield Change(IFB_NAME, "device")


def _judge(kind: int, body: bytes, interest: Interest) -> Iterator[Change]:
    """A message of somebody else that is not about a device."""
    if kind in _TC:
        ifindex = _TCMSG.unpack_from(body)[1]
        if interest.devices is None or ifindex in interest.devices or ifindex == interest.ifb:
            yield Change(_name(ifindex), _TC[kind])
    elif kind in _ROUTE:
        if _route_matters(body, interest):
            yield Change("", "route")
    elif kind in _ADDRESS:
        if _address_matters(body, interest):
            yield Change("", "address")
    elif kind in _RULE:
        yield Change("", "routing rule")
    elif kind in _NEXTHOP:
        yield Change("", "nexthop")


def _route_matters(body: bytes, interest: Interest) -> bool:
    if interest.devices is None:
        return True
    family, length, _, _ = _RTMSG.unpack_from(body)
    bits = _BITS.get(family)
    if bits is None or length > bits:
        return False
    destination = next((data for kind, data in _attributes(body, _RTMSG_BYTES) if kind == _RTA_DST), bytes(bits // 8))
    return interest.addresses.covers(bits, length, destination)


def _address_matters(body: bytes, interest: Interest) -> bool:
    if interest.devices is None:
        return True
    if _IFADDR.unpack_from(body)[0] not in _BITS:
        return False
    found = dict(_attributes(body, _IFADDR.size))
    return any(one in interest.addresses for one in (found.get(_IFA_LOCAL), found.get(_IFA_ADDRESS)) if one is not None)


def _name(ifindex: int) -> str:
    try:
        return socket.if_indextoname(ifindex)
    except OSError:  # gone already
        return f"device {ifindex}"


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


def _attributes(body: bytes, position: int) -> Iterator[tuple[int, bytes]]:
    while position + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, position)
        if length < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, body[position + _ATTRIBUTE.size : position + length]  # without NLA_F_NESTED and the like
        position += (length + 3) & ~3
