"""Bytes of rtnetlink's traffic control messages, both ways; no sockets here.

We pack these ourselves because pyroute2's u32 encoder cannot express what we need (explicit nodes, hash tables, chains)
and computes two 1 kB rate tables per class that the kernel has not needed since 3.8. Layouts are those of
linux/pkt_sched.h, linux/pkt_cls.h, linux/tc_act/tc_mirred.h and linux/rtnetlink.h; native byte order unless said.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ap_agent.model import (
    Handle,
    HtbClass,
    Qdisc,
    is_inner,
)

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTCLASS, RTM_DELTCLASS, RTM_GETTCLASS = 40, 41, 42
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46

TCA_KIND, TCA_OPTIONS, TCA_STATS, TCA_XSTATS, TCA_STATS2 = 1, 2, 3, 4, 7
TCA_HTB_PARMS, TCA_HTB_INIT, TCA_HTB_DIRECT_QLEN, TCA_HTB_RATE64, TCA_HTB_CEIL64 = 1, 2, 5, 6, 7
TCA_STATS_BASIC, TCA_STATS_QUEUE = 1, 3

NS_PER_S = 1_000_000_000
TICK_NS = 64  # PSCHED_SHIFT 6
MAX_U32 = 0xFFFF_FFFF
LINKLAYER_ETHERNET = 1  # plain length; TC_LINKLAYER_UNAWARE (0) would demand a rate table
DIRECT_QUEUE_PACKETS = 1000  # unmatched packets wait here; the default is the device's txqueuelen, 32 on an IFB
INNER_QUANTUM_BYTES = 1514  # without one the kernel derives it from r2q and warns; unused once there are children

_TCMSG = struct.Struct("=BxxxiIII")
_ATTRIBUTE = struct.Struct("=HH")
_RATESPEC = struct.Struct("=BBHhHI")
_HTB_OPT_TAIL = struct.Struct("=IIIII")  # buffer, cbuffer, quantum, level, prio
_HTB_GLOB = struct.Struct("=IIIII")


# --- attributes ------------------------------------------------------------------------------------------------


def attribute(number: int, data: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(data)
    return _ATTRIBUTE.pack(length, number) + data + b"\0" * (-length % 4)


def u32(number: int, value: int) -> bytes:
    return attribute(number, struct.pack("=I", value))


def text(number: int, value: str) -> bytes:
    return attribute(number, value.encode() + b"\0")


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The (number, data) pairs in a row of attributes; flag bits of the number are dropped."""
    position = 0
    while position + _ATTRIBUTE.size <= len(data):
        length, number = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size:
            return
        yield number & 0x3FFF, data[position + _ATTRIBUTE.size : position + length]
        position += (length + 3) & ~3


def text_of(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


def tcmsg(ifindex: int, handle: int = 0, parent: int = 0, info: int = 0) -> bytes:
    return _TCMSG.pack(0, ifindex, handle, parent, info)


def ifindex_of(body: bytes) -> int:
    """The device that a message of traffic control is about."""
    return int(_TCMSG.unpack_from(body)[1])


# --- rates -----------------------------------------------------------------------------------------------------


def ticks(size_bytes: int, rate_bytes_s: int) -> int:
    """The time `size_bytes` take at that rate, in ticks, to the nearest; never more than 32 bits hold (274 s)."""
    return min(MAX_U32, (size_bytes * NS_PER_S + rate_bytes_s * TICK_NS // 2) // (rate_bytes_s * TICK_NS))


def bytes_of_ticks(tick_count: int, rate_bytes_s: int) -> int:
    return (tick_count * TICK_NS * rate_bytes_s + NS_PER_S // 2) // NS_PER_S


def kept_bytes(size_bytes: int, rate_bytes_s: int) -> int:
    """What the kernel makes of a burst: it keeps ticks, and one tick at 100 Gbit/s is 800 bytes.

    Applied once it is a fixed point, so that values which went through it can be compared with those read back.
    """
    return bytes_of_ticks(ticks(size_bytes, rate_bytes_s), rate_bytes_s)


# --- qdiscs ----------------------------------------------------------------------------------------------------


def pack_root(ifindex: int, root: Qdisc) -> bytes:
    glob = _HTB_GLOB.pack(3, 10, root.default_minor or 0, 0, 0)  # version 3, r2q 10 (unused: quanta are explicit)
    options = attribute(TCA_HTB_INIT, glob) + u32(TCA_HTB_DIRECT_QLEN, DIRECT_QUEUE_PACKETS)
    body = text(TCA_KIND, "htb") + attribute(TCA_OPTIONS, options)
    return tcmsg(ifindex, int(root.handle), int(root.parent)) + body


def pack_leaf(ifindex: int, leaf: Qdisc) -> bytes:
    options = attribute(TCA_OPTIONS, struct.pack("=I", leaf.limit_bytes or 0))
    return tcmsg(ifindex, int(leaf.handle), int(leaf.parent)) + text(TCA_KIND, "bfifo") + options


def pack_clsact(ifindex: int) -> bytes:
    return tcmsg(ifindex, 0xFFFF0000, 0xFFFFFFF1) + text(TCA_KIND, "clsact")


def parse_qdisc(data: bytes) -> tuple[int, Qdisc]:
    """(ifindex, qdisc)."""
    _, ifindex, handle, parent, _ = _TCMSG.unpack_from(data)
    found = dict(attributes(data[_TCMSG.size :]))
    kind, options = text_of(found.get(TCA_KIND, b"")), found.get(TCA_OPTIONS, b"")
    limit = default = None
    if kind == "bfifo" and len(options) >= 4:
        (limit,) = struct.unpack_from("=I", options)
    if kind == "htb":
        glob = dict(attributes(options)).get(TCA_HTB_INIT, b"")
        default = _HTB_GLOB.unpack_from(glob)[2] if len(glob) >= _HTB_GLOB.size else None
    return ifindex, Qdisc(kind, Handle.from_int(handle), Handle.from_int(parent), limit, default)


# --- classes ---------------------------------------------------------------------------------------------------


def pack_class(ifindex: int, one: HtbClass, birthmark: int = INNER_QUANTUM_BYTES) -> bytes:
    """`birthmark` stands where a leaf class has its quantum: nobody uses it, but the kernel keeps it as long as the
    class lives (`usage.reading`)."""
    quantum = one.quantum_bytes or birthmark
    parms = b"".join(
        _RATESPEC.pack(0, LINKLAYER_ETHERNET, 0, -1, 0, min(rate, MAX_U32))
        for rate in (one.rate_bytes_s, one.ceil_bytes_s)
    ) + _HTB_OPT_TAIL.pack(
        ticks(one.burst_bytes, one.rate_bytes_s), ticks(one.cburst_bytes, one.ceil_bytes_s), quantum, 0, one.prio
    )
    options = attribute(TCA_HTB_PARMS, parms)
    if one.rate_bytes_s > MAX_U32:
        options += attribute(TCA_HTB_RATE64, struct.pack("=Q", one.rate_bytes_s))
    if one.ceil_bytes_s > MAX_U32:
        options += attribute(TCA_HTB_CEIL64, struct.pack("=Q", one.ceil_bytes_s))
    body = text(TCA_KIND, "htb") + attribute(TCA_OPTIONS, options)
    return tcmsg(ifindex, int(one.handle), int(one.parent)) + body


def parse_class(data: bytes) -> HtbClass | None:
    """None for a class of another kind than htb."""
    _, _, handle, parent, _ = _TCMSG.unpack_from(data)
    found = dict(attributes(data[_TCMSG.size :]))
    options = dict(attributes(found.get(TCA_OPTIONS, b"")))
    parms = options.get(TCA_HTB_PARMS, b"")
    if text_of(found.get(TCA_KIND, b"")) != "htb" or len(parms) < 44:
        return None
    _, linklayer, overhead, _, mpu, rate = _RATESPEC.unpack_from(parms)
    ceil = _RATESPEC.unpack_from(parms, _RATESPEC.size)[5]
    buffer, cbuffer, quantum, _, prio = _HTB_OPT_TAIL.unpack_from(parms, 2 * _RATESPEC.size)
    rate = _wide(options, TCA_HTB_RATE64, rate)
    ceil = _wide(options, TCA_HTB_CEIL64, ceil)
    name = Handle.from_int(handle)
    inner = is_inner(name)
    return HtbClass(
        handle=name,
        # The kernel says "root" for a class directly under the qdisc, whatever parent it was made with.
        parent=Handle(name.major) if parent == MAX_U32 else Handle.from_int(parent),
        rate_bytes_s=rate,
        ceil_bytes_s=ceil,
        burst_bytes=bytes_of_ticks(buffer, rate),
        cburst_bytes=bytes_of_ticks(cbuffer, ceil),
        quantum_bytes=0 if inner else quantum,
        prio=0 if inner else prio,
        accounting=(linklayer, overhead, mpu),
    )


def _wide(options: dict[int, bytes], number: int, narrow: int) -> int:
    data = options.get(number)
    return int(struct.unpack_from("=Q", data)[0]) if data else narrow
