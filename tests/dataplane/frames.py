"""Frames byte by byte: tags, options, extension headers and fragments in any order."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from tests.dataplane.bed import AP, AP_PORT, DATA, MAC_AP, MAC_USER, USER, USER_PORT

TAG, OUTER_TAG = 0x8100, 0x88A8
HOP, DESTINATION, ROUTING, FRAGMENT, AUTHENTICATION = 0, 60, 43, 44, 51
IPV4_OPTIONS = bytes([1]) * 40  # NOP


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def udp(payload: bytes, source: int, destination: int, addresses: tuple[str, str]) -> bytes:
    """With its checksum, which IPv6 demands."""
    length = 8 + len(payload)
    body = struct.pack("!HHHH", source, destination, length, 0) + payload
    pseudo = b"".join(ip_address(one).packed for one in addresses) + struct.pack("!HxxxB", length, 17)
    return body[:6] + struct.pack("!H", checksum(pseudo + struct.pack("!H", length)[:0] + body) or 0xFFFF) + body[8:]


def checksum(data: bytes) -> int:
    """RFC 1071."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def scion(mark: int = DATA, size: int = 64, fill: bytes = b"p") -> bytes:
    """A payload that begins like a SCION header whose next header is `mark`."""
    return (bytes(4) + bytes([mark])).ljust(size, fill)[:size]


@dataclass(frozen=True)
class Packet:
    """One frame of the user to the attachment point, `back()` turns it round. `extensions` of IPv6, in order."""

    body: bytes
    source: str = USER
    destination: str = AP
    protocol: int = socket.IPPROTO_UDP
    identification: int = 1
    offset: int = 0
    more: bool = False
    options: bytes = b""
    tags: Sequence[tuple[int, int]] = ()  # (protocol, TCI)
    extensions: Sequence[int] = ()
    is_atomic: bool = False
    hops: int = 64  # of IPv6
    from_user: bool = True

    @property
    def frame(self) -> bytes:
        family = ip_address(self.source).version
        ends = (mac(MAC_AP), mac(MAC_USER)) if self.from_user else (mac(MAC_USER), mac(MAC_AP))
        kind = 0x0800 if family == 4 else 0x86DD
        kinds = [*(protocol for protocol, _ in self.tags), kind]
        head = b"".join(ends) + struct.pack("!H", kinds[0])
        for (_, tci), following in zip(self.tags, kinds[1:], strict=True):
            head += struct.pack("!HH", tci, following)
        return (head + (self._v4() if family == 4 else self._v6())).ljust(60, b"\0")

    def _v4(self) -> bytes:
        size = 20 + len(self.options)
        flags = (0x2000 if self.more else 0) | self.offset // 8
        head = struct.pack(
            "!BBHHHBBH",
            0x40 | size // 4,
            0,
            size + len(self.body),
            self.identification & 0xFFFF,
            flags,
            64,
            self.protocol,
            0,
        )
        head += ip_address(self.source).packed + ip_address(self.destination).packed + self.options
        return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + self.body

    def _v6(self) -> bytes:
        chain = list(self.extensions)
        if self.more or self.offset or self.is_atomic:
            chain.append(FRAGMENT)
        kinds = [*chain, self.protocol]
        rest = b""
        for one, following in zip(chain, kinds[1:], strict=True):
            rest += self._extension(one, following)
        rest += self.body
        head = struct.pack("!IHBB", 6 << 28, len(rest), kinds[0], self.hops)
        return head + ip_address(self.source).packed + ip_address(self.destination).packed + rest

    def _extension(self, kind: int, following: int) -> bytes:
        if kind == FRAGMENT:
            return struct.pack("!BBHI", following, 0, self.offset | int(self.more), self.identification)
        if kind == ROUTING:
            return struct.pack("!BBBBI", following, 0, 253, 0, 0)  # experimental, no segments left
        return bytes([following, 0, 1, 4, 0, 0, 0, 0])  # PadN

    def back(self) -> Packet:
        return replace(self, source=self.destination, destination=self.source, from_user=not self.from_user)


def datagram(
    payload: bytes = scion(),
    *,
    source: tuple[str, int] = (USER, USER_PORT),
    destination: tuple[str, int] = (AP, AP_PORT),
    piece: int | None = None,
    from_user: bool = True,
    **more: object,
) -> list[Packet]:
    """A UDP datagram in one packet, or in fragments of `piece` bytes."""
    body = udp(payload, source[1], destination[1], (source[0], destination[0]))
    whole = Packet(body, source[0], destination[0], from_user=from_user, **more)  # type: ignore[arg-type]
    return [whole] if piece is None else list(pieces(whole, piece))


def pieces(whole: Packet, size: int) -> Iterator[Packet]:
    """In order; `size` a multiple of 8."""
    for offset in range(0, len(whole.body), size):
        body = whole.body[offset : offset + size]
        yield replace(whole, body=body, offset=offset, more=offset + len(body) < len(whole.body))
