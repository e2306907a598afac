"""Datagrams as frames with 802.1Q priority tags (VLAN id 0), which a receiver takes as untagged ones.

No socket sends these, and devices that do need a kernel module of their own. So the frame is built here, and sent
through a packet socket.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from dataclasses import dataclass
from ipaddress import ip_address

PRIORITY_TAG, SERVICE_TAG = 0x8100, 0x88A8
_PRIORITY = 5 << 13  # the tag's priority bits; its VLAN id is 0
_HOP_LIMIT = 64


@dataclass(frozen=True)
class Tagged:
    """Which tags frames carry, outermost first, and between which network cards they go."""

    dev: str
    own_mac: str
    other_mac: str
    tags: tuple[int, ...] = (PRIORITY_TAG,)


def headers(how: Tagged, source: tuple[str, int], destination: tuple[str, int], payload_bytes: int) -> bytes:
    """Everything in front of the payload. The UDP checksum is 0: "none" for IPv4 (RFC 768), and for IPv6 where the
    receiver allows it (RFC 6935)."""
    ends = [ip_address(one) for one, _ in (source, destination)]
    udp_bytes = 8 + payload_bytes
    udp = struct.pack("!HHHH", source[1], destination[1], udp_bytes, 0)
    addresses = b"".join(one.packed for one in ends)
    if ends[0].version == 6:
        kind, network = 0x86DD, struct.pack("!IHBB", 6 << 28, udp_bytes, socket.IPPROTO_UDP, _HOP_LIMIT) + addresses
    else:
        fields = (0x45, 0, 20 + udp_bytes, 0, 0x4000, _HOP_LIMIT, socket.IPPROTO_UDP)
        head = struct.pack("!BBHHHBBH", *fields, 0) + addresses
        kind, network = 0x0800, struct.pack("!BBHHHBBH", *fields, _checksum(head)) + addresses
    tags = b"".join(struct.pack("!HH", one, _PRIORITY) for one in how.tags)
    return _mac(how.other_mac) + _mac(how.own_mac) + tags + struct.pack("!H", kind) + network + udp


def frame_socket(dev: str) -> socket.socket:
    """Sends frames by this device. Raises `OSError` without CAP_NET_RAW."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.setblocking(False)
    sock.bind((dev, 0))
    return sock


def send_frame(sock: socket.socket, frame: memoryview) -> None:
    """What a limit at the sender's own hook refuses (ENOBUFS) counts as sent: a UDP socket would not say so either."""
    with contextlib.suppress(BlockingIOError, OSError):
        sock.send(frame)


def _checksum(header: bytes) -> int:
    """RFC 1071."""
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
