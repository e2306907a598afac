"""Frames for the admission program, byte by byte, and the program run on them without a device (BPF_PROG_TEST_RUN)."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address

from ap_agent.whole.bpf import call

PROG_TEST_RUN = 10
SK_BUFF_BYTES, WIRE_LEN = 192, 160  # __sk_buff (linux/bpf.h) and one of its fields
ETHER_TYPE = {4: 0x0800, 6: 0x86DD}
AP, USER, OTHER_USER = "192.0.2.1", "192.0.2.11", "192.0.2.12"
AP6, USER6 = "2001:db8::1", "2001:db8::11"
AP_PORT, USER_PORT = 51_001, 50_001
HEARTBEAT_MARK, DATA_MARK = 203, 17
FRAGMENT_PAYLOAD = 1480


@dataclass(frozen=True)
class Packet:
    """One frame from the user to the attachment point; `frame` turns it into bytes.

    `body` is what follows the IP header (and IPv6's fragment header). A fragment has an `offset` in bytes or `more`.
    """

    body: bytes = b""
    source: str = USER
    destination: str = AP
    protocol: int = socket.IPPROTO_UDP
    identification: int = 1
    offset: int = 0
    more: bool = False
    options: bytes = b""
    is_fragment: bool = False  # of IPv6: has the header even if whole

    @property
    def frame(self) -> bytes:
        family = ip_address(self.source).version
        ethernet = bytes(12) + struct.pack("!H", ETHER_TYPE[family])
        return ethernet + (self._v4() if family == 4 else self._v6())

    def _v4(self) -> bytes:
        header_bytes = 20 + len(self.options)
        total = header_bytes + len(self.body)
        flags = (0x2000 if self.more else 0) | self.offset // 8
        head = struct.pack(
            "!BBHHHBBH", 0x40 | header_bytes // 4, 0, total, self.identification & 0xFFFF, flags, 64, self.protocol, 0
        )
        return head + ip_address(self.source).packed + ip_address(self.destination).packed + self.options + self.body

    def _v6(self) -> bytes:
        rest, protocol = self.options + self.body, self.protocol
        if self.more or self.offset or self.is_fragment:
            rest = struct.pack("!BBHI", protocol, 0, self.offset | int(self.more), self.identification) + rest
            protocol = socket.IPPROTO_FRAGMENT
        head = struct.pack("!IHBB", 6 << 28, len(rest), protocol, 64)
        return head + ip_address(self.source).packed + ip_address(self.destination).packed + rest

    def back(self) -> Packet:
        """The same from the attachment point to the user, ports of a whole UDP packet exchanged too."""
        body = self.body
        if self.protocol == socket.IPPROTO_UDP and not self.offset and len(body) >= 4:
            body = body[2:4] + body[:2] + body[4:]
        return replace(self, source=self.destination, destination=self.source, body=body)


def udp(payload_bytes: int, *, mark: int = DATA_MARK, source: int = USER_PORT, destination: int = AP_PORT) -> bytes:
    """A UDP header and so many bytes behind it, which begin like a SCION header."""
    payload = (bytes(4) + bytes([mark])).ljust(payload_bytes, b"p")[:payload_bytes]
    return struct.pack("!HHHH", source, destination, 8 + payload_bytes, 0) + payload


def fragments(body: bytes, **what: object) -> Iterator[Packet]:
    """A datagram in pieces of 1480 bytes, in order."""
    for offset in range(0, len(body), FRAGMENT_PAYLOAD):
        piece = body[offset : offset + FRAGMENT_PAYLOAD]
        yield replace(Packet(**what), body=piece, offset=offset, more=offset + len(piece) < len(body))  # type: ignore[arg-type]


def run(program_fd: int, frame: bytes, *, wire_bytes: int = 0) -> int:
    """What the program answers. `wire_bytes`: what HTB will count, if not the frame's length. Raises `OSError`: the
    kernel takes no frame here that ends within its IP header."""
    data, context = bytearray(frame), bytearray(SK_BUFF_BYTES)
    struct.pack_into("=I", context, WIRE_LEN, wire_bytes)
    fields = struct.pack("=IIIIQQII", program_fd, 0, len(data), 0, _address(data), 0, 1, 0)
    _, answer = call(PROG_TEST_RUN, fields + struct.pack("=IIQQIII4x", len(context), 0, _address(context), 0, 0, 0, 0))
    return int(struct.unpack_from("=i", answer, 4)[0])


def _address(data: bytearray) -> int:
    return ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))
