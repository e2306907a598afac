"""Bytes of questions about routes and of their answers; no sockets here. Layouts are those of linux/rtnetlink.h."""

from __future__ import annotations

import errno
import socket
import struct
import sys
from functools import lru_cache

from ap_agent import tcmsg
from ap_agent.placement import Route, RouteKind, RouteQuery

RTM_GETROUTE = 26
RTA_DST, RTA_SRC, RTA_OIF, RTA_IP_PROTO, RTA_SPORT, RTA_DPORT = 1, 2, 4, 27, 28, 29

_ATTRIBUTE = struct.Struct("=HH")
_RTMSG = struct.Struct("=BBBBBBBBI")
_ROUTE_KIND = 7  # byte of rtmsg
_ROUTE_KINDS: dict[int, RouteKind] = {1: "unicast", 2: "local", 6: "blackhole", 7: "unreachable", 8: "prohibit"}
# What the kernel answers instead of a route (fib_props in fib_semantics.c, ip6_route.c).
_ROUTE_ERRORS: dict[int, RouteKind] = {
    errno.ENETUNREACH: "none",
    errno.EHOSTUNREACH: "unreachable",
    errno.EINVAL: "blackhole",
    errno.EACCES: "prohibit",
}


def pack_question(query: RouteQuery) -> bytes:
    bits = query.destination.max_prefixlen
    family = socket.AF_INET if query.destination.version == 4 else socket.AF_INET6
    body = _RTMSG.pack(family, bits, bits if query.source else 0, 0, 0, 0, 0, 0, 0)
    body += tcmsg.attribute(RTA_DST, query.destination.packed)
    if query.source is not None:
        body += tcmsg.attribute(RTA_SRC, query.source.packed)
    body += tcmsg.attribute(RTA_IP_PROTO, bytes([socket.IPPROTO_UDP]))
    for number, port in ((RTA_SPORT, query.source_port), (RTA_DPORT, query.destination_port)):
        if port is not None:
            body += tcmsg.attribute(number, port.to_bytes(2))
    return body


def parse_answer(data: bytes) -> Route:
    """Thousands of these come in every cycle, so only what decides is looked at."""
    ifindex, position = 0, _RTMSG.size
    while position + 4 <= len(data):
        length, number = _ATTRIBUTE.unpack_from(data, position)
        if number == RTA_OIF or length < _ATTRIBUTE.size:
            ifindex = int.from_bytes(data[position + 4 : position + length], sys.byteorder)
            break
        position += length + 3 & ~3
    return _route(_ROUTE_KINDS.get(data[_ROUTE_KIND], "other"), ifindex)


def route_of_refusal(number: int) -> Route:
    """`number` is the errno with which the kernel answered instead of a route."""
    return Route(_ROUTE_ERRORS.get(number, "other"))


@lru_cache(maxsize=1024)
def _route(kind: RouteKind, ifindex: int) -> Route:
    """Thousands of answers name a handful of ways."""
    return Route(kind, ifindex)
