"""Encoding of traffic control messages: HTB roots, classes, leaves, and filters at the hooks. No sockets.

Layouts are those of linux/pkt_sched.h, linux/pkt_cls.h and linux/tc_act/tc_mirred.h; native byte order unless noted.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache
from socket import htons
from typing import Final, NamedTuple

from ap_agent.dataplane.attributes import (
    ADD,
    CHANGE,
    PUT,
    Message,
    attribute,
    attributes,
    number_of,
    text,
    text_of,
    u32,
)
from ap_agent.dataplane.devices import FROM_USER, TO_USER, Direction
from ap_agent.dataplane.lanes import LEAF_RESERVE_BYTES, OWN_MAJOR, room_bytes
from ap_agent.dataplane.rtsocket import messages_of

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTCLASS, RTM_DELTCLASS, RTM_GETTCLASS = 40, 41, 42
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46

OWN_ROOT: Final = OWN_MAJOR << 16
AT_ROOT, AT_INGRESS, CLSACT_HANDLE = 0xFFFF_FFFF, 0xFFFF_FFF1, 0xFFFF_0000
HOOKS: Final = {TO_USER: 0xFFFF_FFF3, FROM_USER: 0xFFFF_FFF2}  # egress and ingress of clsact
HOOK_NAMES: Final = {TO_USER: "egress", FROM_USER: "ingress"}
PROGRAM_PREF, ADMITTED_PREF = 20, 21  # before the ones that `tc` assigns
NAME: Final = "scionlab-bw"  # of our filters
NAME_WITH_CLSACT: Final = "scionlab-bw-clsact"  # where the clsact is ours as well

_TCA_KIND, _TCA_OPTIONS, _TCA_STATS2, _TCA_CHAIN = 1, 2, 7, 11
_TCA_HTB_PARMS, _TCA_HTB_INIT, _TCA_HTB_DIRECT_QLEN, _TCA_HTB_RATE64, _TCA_HTB_CEIL64 = 1, 2, 5, 6, 7
_TCA_STATS_QUEUE = 3
_TCA_BPF_ACT, _TCA_BPF_FD, _TCA_BPF_NAME, _TCA_BPF_FLAGS, _TCA_BPF_ID = 1, 6, 7, 8, 11
_BPF_DIRECT_ACTION = 1  # the program's return value is the verdict, not a class
_TCA_ACT_KIND, _TCA_ACT_OPTIONS, _TCA_MIRRED_PARMS = 1, 2, 2
_TC_ACT_STOLEN, _EGRESS_REDIRECT = 4, 1
_ETH_P_ALL = 3
_MIRRED = struct.Struct("=IIiiiiI")  # index, capabilities, action, references, bindings, what to do, device

_NS_PER_S = 1_000_000_000
_TICK_NS = 64  # PSCHED_SHIFT 6
_MAX_U32 = 0xFFFF_FFFF
_LINKLAYER_ETHERNET = 1  # plain length; 0 would demand a rate table
_DIRECT_QUEUE_PACKETS = 1000  # for unclassified packets; the default is the device's tx queue, 32 on an IFB
_QUANTUM_BYTES = 1514
_TEMPORARY = 0x8000 << 16  # handle of a leaf that is only a placeholder for a replacement

_TCMSG = struct.Struct("=BxxxiIII")
_RATESPEC = struct.Struct("=BBHhHI")
_HTB_TAIL = struct.Struct("=IIIII")  # buffer, cbuffer, quantum, level, priority
_HTB_GLOB = struct.Struct("=IIIII")


class HtbClass(NamedTuple):
    """As the kernel stores it: bursts are transmission times at that rate, in ticks."""

    rate_bytes_s: int
    ceil_bytes_s: int
    burst_ticks: int
    cburst_ticks: int
    quantum_bytes: int = _QUANTUM_BYTES
    priority: int = 0

    @property
    def rate_kbit(self) -> int:
        return self.rate_bytes_s // 125

    @staticmethod
    @cache
    def of(rate_kbit: int) -> HtbClass:
        """Bursts of 4 ms, at least two frames plus HTB's clock error."""
        rate = rate_kbit * 125
        burst = max(4000, rate_kbit // 2)
        ticks = min(_MAX_U32, (burst * _NS_PER_S + rate * _TICK_NS // 2) // (rate * _TICK_NS))
        return HtbClass(rate, rate, ticks, ticks)


def leaf_bytes(rate_kbit: int) -> int:
    """Holds the virtual queue and the largest datagrams, so that admitted packets are not dropped, unless the rate was
    lowered below what is queued."""
    return room_bytes(rate_kbit) + LEAF_RESERVE_BYTES


class Readback(NamedTuple):
    """One direction of a link in the kernel; `rate_kbit` 0 blocks. The others are HTB's."""

    rate_kbit: int
    dropped_packets: int
    backlog_bytes: int


def tcmsg(ifindex: int, handle: int = 0, parent: int = 0, info: int = 0) -> bytes:
    return _TCMSG.pack(0, ifindex, handle, parent, info)


# --- the tree of an IFB ----------------------------------------------------------------------------------------


def pack_root(ifindex: int) -> Message:
    """Replaces any other root of the device, with everything below it."""
    glob = _HTB_GLOB.pack(3, 10, 0, 0, 0)  # version 3, r2q 10 (quanta are explicit), no default class
    options = attribute(_TCA_HTB_INIT, glob) + u32(_TCA_HTB_DIRECT_QLEN, _DIRECT_QUEUE_PACKETS)
    body = text(_TCA_KIND, "htb") + attribute(_TCA_OPTIONS, options)
    return RTM_NEWQDISC, PUT, tcmsg(ifindex, OWN_ROOT, AT_ROOT) + body


def pack_class(ifindex: int, minor: int, one: HtbClass, *, is_new: bool) -> Message:
    parms = b"".join(
        _RATESPEC.pack(0, _LINKLAYER_ETHERNET, 0, -1, 0, min(rate, _MAX_U32))
        for rate in (one.rate_bytes_s, one.ceil_bytes_s)
    ) + _HTB_TAIL.pack(one.burst_ticks, one.cburst_ticks, one.quantum_bytes, 0, one.priority)
    options = attribute(_TCA_HTB_PARMS, parms)
    if one.rate_bytes_s > _MAX_U32:
        options += attribute(_TCA_HTB_RATE64, struct.pack("=Q", one.rate_bytes_s))
        options += attribute(_TCA_HTB_CEIL64, struct.pack("=Q", one.ceil_bytes_s))
    body = text(_TCA_KIND, "htb") + attribute(_TCA_OPTIONS, options)
    return RTM_NEWTCLASS, ADD if is_new else CHANGE, tcmsg(ifindex, OWN_ROOT | minor, OWN_ROOT) + body


def pack_class_name(ifindex: int, minor: int) -> bytes:
    """For a query, or a deletion."""
    return tcmsg(ifindex, OWN_ROOT | minor)


def pack_leaf(ifindex: int, minor: int, limit_bytes: int, *, now: int | None) -> list[Message]:
    """`now`: limit of the present leaf, -1 for one of another kind, None for that of a new class. A qdisc with the same
    handle would be changed, whatever its kind: so a placeholder of ours goes in between."""
    body = text(_TCA_KIND, "bfifo") + attribute(_TCA_OPTIONS, struct.pack("=I", limit_bytes))
    parent, handle = OWN_ROOT | minor, minor << 16
    if now is not None and now >= 0:
        return [(RTM_NEWQDISC, CHANGE, tcmsg(ifindex, handle, parent) + body)]
    handles = [handle] if now is None else [handle | _TEMPORARY, handle]
    return [(RTM_NEWQDISC, PUT, tcmsg(ifindex, one, parent) + body) for one in handles]


_BFIFO_HEAD = text(_TCA_KIND, "bfifo") + struct.pack("=HH", 8, _TCA_OPTIONS)
# Header, tcmsg, then the fixed part of almost every message; others take the slow path.
_CLASS = struct.Struct("=I16xiII4x60s24xI4xII")  # kind and options; 24 B of other statistics; queue
_QUEUE_HEAD = 24 | _TCA_STATS_QUEUE << 16
_OPTIONS_HEAD = struct.pack("=HH", 52, _TCA_OPTIONS)
_QDISC = struct.Struct("=I16xiII4x16sI")


class Classes(NamedTuple):
    """Classes of an IFB, by minor. Foreign ones have an impossible rate."""

    classes: dict[int, HtbClass]
    readbacks: dict[int, Readback]


@lru_cache(maxsize=16_384)
def _class_of(options: bytes) -> HtbClass:
    """From kind and options, cached: thousands of classes share them."""
    return _parse_class(options)[0]


def parse_classes(piece: bytes) -> Classes:
    found = Classes({}, {})
    position, end = 0, len(piece)
    while position + _CLASS.size <= end:
        length, _, handle, parent, options, head, backlog, drops = _CLASS.unpack_from(piece, position)
        if head == _QUEUE_HEAD and parent == AT_ROOT and options[8:12] == _OPTIONS_HEAD:
            one = _class_of(options)
        else:
            one, (drops, backlog) = _parse_class(piece[position + 36 : position + length])
            if parent != AT_ROOT:
                one = one._replace(rate_bytes_s=0)
        if handle >> 16 == OWN_MAJOR:
            minor = handle & 0xFFFF
            found.classes[minor], found.readbacks[minor] = one, Readback(one.rate_kbit, drops, backlog)
        position += length + 3 & ~3
    return found


def _parse_class(data: bytes) -> tuple[HtbClass, tuple[int, int]]:
    """(Its values, (packets dropped, backlog in bytes)) from the attributes of a class message."""
    said = dict(attributes(data))
    options = dict(attributes(said.get(_TCA_OPTIONS, b"")))
    parms = options.get(_TCA_HTB_PARMS, b"")
    queue = dict(attributes(said.get(_TCA_STATS2, b""))).get(_TCA_STATS_QUEUE, bytes(12))
    _, backlog, drops = struct.unpack_from("=III", queue)
    if text_of(said.get(_TCA_KIND, b"")) != "htb" or len(parms) < 44:
        return HtbClass(0, 0, 0, 0), (drops, backlog)
    rate, ceil = (_RATESPEC.unpack_from(parms, at)[5] for at in (0, _RATESPEC.size))
    burst, cburst, quantum, _, priority = _HTB_TAIL.unpack_from(parms, 2 * _RATESPEC.size)
    if _TCA_HTB_RATE64 in options:
        (rate,) = struct.unpack_from("=Q", options[_TCA_HTB_RATE64])
    if _TCA_HTB_CEIL64 in options:
        (ceil,) = struct.unpack_from("=Q", options[_TCA_HTB_CEIL64])
    return HtbClass(rate, ceil, burst, cburst, quantum, priority), (drops, backlog)


class Qdiscs(NamedTuple):
    """One piece of the kernel's list. Interface numbers with our HTB as root; with a `clsact` or `ingress` (its kind).
    `leaves`: limits in bytes by interface number and minor of the class; -1 for a foreign one."""

    roots: set[int]
    ingress: dict[int, str]
    leaves: dict[int, dict[int, int]]


def parse_qdiscs(piece: bytes) -> Qdiscs:
    found = Qdiscs(set(), {}, defaultdict(dict))
    position, end = 0, len(piece)
    while position + _QDISC.size <= end:
        length, ifindex, handle, parent, head, limit = _QDISC.unpack_from(piece, position)
        if parent >> 16 == OWN_MAJOR:
            is_as_ours = head == _BFIFO_HEAD and handle == (parent & 0xFFFF) << 16
            found.leaves[ifindex][parent & 0xFFFF] = limit if is_as_ours else -1
        elif parent == AT_INGRESS or (parent == AT_ROOT and handle == OWN_ROOT):
            kind = text_of(dict(attributes(piece[position + 36 : position + length])).get(_TCA_KIND, b""))
            if parent == AT_INGRESS:
                found.ingress[ifindex] = kind
            elif kind == "htb":
                found.roots.add(ifindex)
        position += length + 3 & ~3
    return found


# --- hooks -----------------------------------------------------------------------------------------------------


def pack_clsact(ifindex: int) -> bytes:
    return tcmsg(ifindex, CLSACT_HANDLE, AT_INGRESS) + text(_TCA_KIND, "clsact")


def pack_filters(
    ifindex: int, direction: Direction, *, program_fd: int, admitted_fd: int, ifb: int, name: str
) -> list[Message]:
    """Create or replace both filters of a hook in place: redirect first, then admit."""
    parms = _MIRRED.pack(0, 0, _TC_ACT_STOLEN, 0, 0, _EGRESS_REDIRECT, ifb)
    action = text(_TCA_ACT_KIND, "mirred") + attribute(_TCA_ACT_OPTIONS, attribute(_TCA_MIRRED_PARMS, parms))
    redirect = u32(_TCA_BPF_FD, admitted_fd) + text(_TCA_BPF_NAME, name)
    redirect += attribute(_TCA_BPF_ACT, attribute(1, action))
    admit = u32(_TCA_BPF_FD, program_fd) + text(_TCA_BPF_NAME, name) + u32(_TCA_BPF_FLAGS, _BPF_DIRECT_ACTION)
    return [
        (RTM_NEWTFILTER, PUT, _filter_name(ifindex, direction, pref) + attribute(_TCA_OPTIONS, options))
        for pref, options in ((ADMITTED_PREF, redirect), (PROGRAM_PREF, admit))
    ]


def pack_filter_removal(ifindex: int, direction: Direction, pref: int) -> Message:
    return RTM_DELTFILTER, CHANGE, _filter_name(ifindex, direction, pref)


def _filter_name(ifindex: int, direction: Direction, pref: int) -> bytes:
    return tcmsg(ifindex, 1, HOOKS[direction], pref << 16 | htons(_ETH_P_ALL)) + text(_TCA_KIND, "bpf")


class Filter(NamedTuple):
    """A filter at a hook. `name` and `program` (its id) of a filter that runs a program, `redirect` the number of the
    device to which its action redirects; otherwise empty and 0."""

    pref: int
    handle: int
    kind: str
    chain: int
    name: str
    program: int
    is_direct: bool
    redirect: int

    @property
    def is_ours(self) -> bool:
        is_place = self.chain == 0 and self.handle == 1 and self.pref in (PROGRAM_PREF, ADMITTED_PREF)
        return is_place and self.name in (NAME, NAME_WITH_CLSACT)


def parse_filters(piece: bytes) -> Iterator[Filter]:
    for kind, _, start, end in messages_of(piece):
        if kind == RTM_NEWTFILTER:
            _, _, handle, _, info = _TCMSG.unpack_from(piece, start)
            if handle:  # 0: the list itself
                yield _parse_filter(handle, info >> 16, piece[start + _TCMSG.size : end])


@lru_cache(maxsize=4096)
def _parse_filter(handle: int, pref: int, data: bytes) -> Filter:
    said = dict(attributes(data))
    kind, chain = text_of(said.get(_TCA_KIND, b"")), number_of(said.get(_TCA_CHAIN))
    if kind != "bpf":
        return Filter(pref, handle, kind, chain, "", 0, False, 0)
    options = dict(attributes(said.get(_TCA_OPTIONS, b"")))
    is_direct = bool(number_of(options.get(_TCA_BPF_FLAGS)) & _BPF_DIRECT_ACTION)
    name, program = text_of(options.get(_TCA_BPF_NAME, b"")), number_of(options.get(_TCA_BPF_ID))
    return Filter(pref, handle, kind, chain, name, program, is_direct, _redirect(options.get(_TCA_BPF_ACT, b"")))


def _redirect(actions: bytes) -> int:
    """The device to which these actions redirect; 0 if they do something else."""
    found = [dict(attributes(one)) for _, one in attributes(actions)]
    if len(found) != 1 or text_of(found[0].get(_TCA_ACT_KIND, b"")) != "mirred":
        return 0
    parms = dict(attributes(found[0].get(_TCA_ACT_OPTIONS, b""))).get(_TCA_MIRRED_PARMS, b"")
    if len(parms) < _MIRRED.size:
        return 0
    _, _, action, _, _, what, device = _MIRRED.unpack_from(parms)
    return int(device) if (action, what) == (_TC_ACT_STOLEN, _EGRESS_REDIRECT) else 0
