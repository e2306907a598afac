"""Frames byte by byte: tags, options, extension headers and fragments in any order."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from lab.frames.shape import Frame
from tests.dataplane.bed import AP, AP_PORT, DATA, USER, USER_PORT


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def udp(payload: bytes, source: int, destination: int, addresses: tuple[str, str]) -> bytes:
    """With its checksum, which IPv6 demands."""
    length = 8 + len(payload)
    body = struct.pack("!HHHH", source, destination, length, 0) + payload
    pseudo = b"".join(ip_address(one).packed for one in addresses) + struct.pack("!HxxxB", length, 17)
    return body[:6] + struct.pack("!H", checksum(pseudo + body) or 0xFFFF) + body[8:]


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
    """One frame of the user to the attachment point, or back. `extensions` of IPv6, in order."""

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
    hops: int = 64  # of IPv6
    from_user: bool = True

    @property
    def frame(self) -> bytes:
        encoded, _ = Frame(
            ip_address(self.source).packed,
            ip_address(self.destination).packed,
            self.body,
            self.from_user,
            protocol=self.protocol,
            tags=list(self.tags),
            options=self.options,
            extensions=list(self.extensions),
            fragment=(self.identification, self.offset, self.more) if self.more or self.offset else None,
            changes={} if self.hops == 64 else {"ipv6.hops": self.hops},
        ).encoded()
        return bytes(encoded)


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
