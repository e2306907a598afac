"""What a SCION border router puts on a link: underlay UDP payloads, built and recognised.

Only the bytes that a bandwidth limit can see matter here: the common header with NextHdr at offset 4, real header
lengths and real packet sizes. Hop fields are not authenticated; no router has to forward these packets.

    offset  0  version, traffic class, flow id (4 bytes)
            4  NextHdr: 17 UDP, 202 SCMP, 203 BFD
            5  header length in 4-byte units (common + address + path)
            6  payload length (2 bytes)
            8  path type: 1 SCION, 2 one-hop
            9  address types, then 2 reserved bytes
           12  address header: ISD-AS of both ends (16 bytes), then both host addresses
            .  path, then the payload

A heartbeat is a BFD control packet of 24 bytes (RFC 5880, section 4.1) behind a one-hop path of 32 bytes (info field
8, two hop fields of 12), with the router's underlay addresses as host addresses. So its UDP payload is
12 + 16 + 2*4 + 32 + 24 = 92 bytes over IPv4 and 12 + 16 + 2*16 + 32 + 24 = 116 bytes over IPv6: 134 and 178 bytes
on an Ethernet, of which a router sends one every 200 ms.
(Source of the layout: the SCION header specification; of the heartbeat's: the open source border router, which
builds it from exactly these parts with traffic class 0xb8 and flow id 0xdead.)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

NEXT_HEADER_OFFSET = 4
NEXT_HEADER_UDP = 17
NEXT_HEADER_BFD = 203

HEARTBEAT_INTERVAL_S = 0.2
HEARTBEAT_MISSES = 3  # BFD's detection multiplier: three intervals without a heartbeat, and the link is down

_COMMON_BYTES = 12
_PATH_TYPE_SCION = 1
_PATH_TYPE_ONE_HOP = 2
_HOST_IPV4 = 0x00  # address types and lengths of both hosts: IPv4 and IPv4
_HOST_IPV6 = 0x33  # IPv6 (length code 3 = 16 bytes) for both
_BFD_BYTES = 24
_BFD_VERSION_1 = 1 << 5
_BFD_STATE_UP = 3 << 6
_MY_DISCRIMINATOR = 0x5CA1AB1E

# Packets that we fill end with this trailer: a mark, the sequence number, the sender's CLOCK_MONOTONIC in ns.
_MARKS = {"data": b"SLBW", "question": b"SLBQ", "answer": b"SLBA"}
_TRAILER = struct.Struct(">4sIq")
# A heartbeat has no room for such a trailer: its number sits where the first hop field's MAC is, which changes from
# packet to packet on a real link too, and the time in the second hop field, which nobody reads before it is filled.
_HEARTBEAT_STAMP = struct.Struct(">IHq")

Kind = Literal["data", "heartbeat", "question", "answer"]  # a question is answered by the other end, see `echo`
_KINDS: dict[bytes, Kind] = {b"SLBW": "data", b"SLBQ": "question", b"SLBA": "answer"}


@dataclass(frozen=True, slots=True)
class Recognised:
    """One of our packets: what it is, its number and when it was sent (CLOCK_MONOTONIC, ns)."""

    kind: Kind
    sequence: int
    sent_ns: int


def heartbeat_payload_bytes(family: int) -> int:
    """UDP payload of a heartbeat over IPv4 (4) or IPv6 (6)."""
    return _COMMON_BYTES + 16 + 2 * (4 if family == 4 else 16) + 32 + _BFD_BYTES


def build_heartbeat(*, family: int) -> bytearray:
    """A heartbeat; `stamp` gives it its number and time. `family` is 4 or 6."""
    address_types, host_bytes = (_HOST_IPV4, 4) if family == 4 else (_HOST_IPV6, 16)
    # Info field: flags C (in construction direction), reserved, segment id, timestamp. Hop field: flags, expiry 63,
    # ingress 0, egress 1, MAC of 6 bytes.
    path = struct.pack(">BBHI", 1, 0, 0, 0x6900_0000) + struct.pack(">BBHH6s", 0, 63, 0, 1, bytes(6)) + bytes(12)
    bfd = struct.pack(
        ">BBBBIIIII",
        _BFD_VERSION_1,
        _BFD_STATE_UP,
        HEARTBEAT_MISSES,
        _BFD_BYTES,
        _MY_DISCRIMINATOR,
        _MY_DISCRIMINATOR ^ 0xFFFF_FFFF,
        int(HEARTBEAT_INTERVAL_S * 1_000_000),  # desired minimum interval of sending, µs
        int(HEARTBEAT_INTERVAL_S * 1_000_000),  # required minimum interval of receiving, µs
        0,
    )
    header = _headers(
        traffic_class=0xB8,
        flow_id=0xDEAD,
        next_header=NEXT_HEADER_BFD,
        path_type=_PATH_TYPE_ONE_HOP,
        address_types=address_types,
        host_bytes=host_bytes,
        path=path,
        payload_bytes=len(bfd),
    )
    return bytearray(header + bfd)


def build_data(payload_bytes: int, *, next_header: int = NEXT_HEADER_UDP) -> bytearray:
    """A data packet of so many bytes of underlay UDP payload; `stamp` gives it its number and time.

    It has a path of one segment with two hops, IPv4 hosts and an inner UDP header: 80 bytes, then filling and our
    trailer. `next_header` can lie: 203 marks data as a heartbeat. Raises `ValueError` below `MIN_DATA_BYTES`.
    """
    if payload_bytes < MIN_DATA_BYTES:
        raise ValueError(f"a data packet has at least {MIN_DATA_BYTES} bytes of payload, not {payload_bytes}")
    # Path meta header: current info and hop field 0, segment lengths 2, 0, 0. Then an info and two hop fields.
    path = (
        struct.pack(">I", 2 << 12)
        + struct.pack(">BBHI", 1, 0, 0x1234, 0x6900_0000)
        + struct.pack(">BBHH6s", 0, 63, 0, 1, b"\x11" * 6)
        + struct.pack(">BBHH6s", 0, 63, 1, 0, b"\x22" * 6)
    )
    inner = payload_bytes - _COMMON_BYTES - 16 - 8 - len(path)
    header = _headers(
        traffic_class=0,
        flow_id=0x1CEB0,
        next_header=next_header,
        path_type=_PATH_TYPE_SCION,
        address_types=_HOST_IPV4,
        host_bytes=4,
        path=path,
        payload_bytes=inner,
    )
    udp = struct.pack(">HHHH", 40_001, 40_002, inner, 0)
    filling = bytes(inner - len(udp) - _TRAILER.size)
    return bytearray(header + udp + filling + _TRAILER.pack(_MARKS["data"], 0, 0))


MIN_DATA_BYTES = 12 + 16 + 8 + 36 + 8 + _TRAILER.size


def stamp(payload: bytearray | memoryview, kind: Kind, sequence: int, sent_ns: int) -> None:
    """Write number and time into a packet that `build_data` or `build_heartbeat` made."""
    if kind != "heartbeat":
        _TRAILER.pack_into(payload, len(payload) - _TRAILER.size, _MARKS[kind], sequence & 0xFFFF_FFFF, sent_ns)
    else:
        _HEARTBEAT_STAMP.pack_into(payload, _stamp_offset(len(payload)), sequence & 0xFFFF_FFFF, 0, sent_ns)


def recognise(payload: bytes | bytearray | memoryview) -> Recognised | None:
    """What one received payload is, or None when it is not one of ours."""
    size = len(payload)
    if size >= MIN_DATA_BYTES:
        mark, sequence, sent_ns = _TRAILER.unpack_from(payload, size - _TRAILER.size)
        kind = _KINDS.get(mark)
        if kind is not None:
            return Recognised(kind, sequence, sent_ns)
    if size in _HEARTBEAT_SIZES and payload[NEXT_HEADER_OFFSET] == NEXT_HEADER_BFD:
        sequence, _, sent_ns = _HEARTBEAT_STAMP.unpack_from(payload, _stamp_offset(size))
        return Recognised("heartbeat", sequence, sent_ns)
    return None


_HEARTBEAT_SIZES = (heartbeat_payload_bytes(4), heartbeat_payload_bytes(6))


def _stamp_offset(size: int) -> int:
    """Where a heartbeat of this size has the MAC of its first hop field: 18 bytes before its BFD packet."""
    return size - _BFD_BYTES - 12 - 6


def _headers(
    *,
    traffic_class: int,
    flow_id: int,
    next_header: int,
    path_type: int,
    address_types: int,
    host_bytes: int,
    path: bytes,
    payload_bytes: int,
) -> bytes:
    """Common header, address header and path."""
    header_bytes = _COMMON_BYTES + 16 + 2 * host_bytes + len(path)
    common = struct.pack(
        ">IBBHBBH",
        traffic_class << 20 | flow_id,
        next_header,
        header_bytes // 4,
        payload_bytes,
        path_type,
        address_types,
        0,
    )
    destination = struct.pack(">HHI", 17, 0xFFAA, 0x0001_00B6)  # 17-ffaa:1:b6
    source = struct.pack(">HHI", 17, 0xFFAA, 0x0000_1107)  # 17-ffaa:0:1107
    return common + destination + source + bytes(2 * host_bytes) + path
