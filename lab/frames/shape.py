"""A frame as its fields, each of which has a name and may be written over.

Lengths and the checksum of IPv4 are right unless they are among the `changes`. UDP goes without a checksum.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

TAG, OUTER_TAG = 0x8100, 0x88A8
HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION, UDP = 0, 43, 44, 51, 60, 17
MAC_AP, MAC_USER = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
AP4, AP6 = ip_address("192.0.2.1").packed, ip_address("2001:db8::1").packed
USER4, USER6 = ip_address("192.0.2.11").packed, ip_address("2001:db8::11").packed
OTHER4, OTHER6 = ip_address("192.0.2.12").packed, ip_address("2001:db8::12").packed  # of no link
WHOLE4, WHOLE6 = ip_address("192.0.2.13").packed, ip_address("2001:db8::13").packed  # a blocked link, whatever port
AP_PORT: Final = 51_001
SHORTEST: Final = 60  # of Ethernet, without its checksum

Place = tuple[str, int, int]  # name, offset, bytes


@dataclass
class Frame:
    """`extensions` stand in front of a fragment header, of 8 bytes each; `copies`: of successive identifications."""

    source: bytes
    destination: bytes
    body: bytes
    from_user: bool
    protocol: int = UDP
    tags: list[tuple[int, int]] = field(default_factory=list)
    options: bytes = b""
    extensions: list[int] = field(default_factory=list)
    fragment: tuple[int, int, bool] | None = None  # identification, offset in bytes, more
    changes: dict[str, int] = field(default_factory=dict)
    cut: int = 0  # bytes taken from the end
    copies: int = 1
    is_bystander: bool = False  # must arrive, as it would without a limiter

    @property
    def family(self) -> int:
        return 4 if len(self.source) == 4 else 6

    def encoded(self) -> tuple[bytearray, int]:
        """The frame, and where its identification ends (0: it has none)."""
        kinds = [kind for kind, _ in self.tags] + [0x0800 if self.family == 4 else 0x86DD]
        frame = bytearray((MAC_AP + MAC_USER) if self.from_user else (MAC_USER + MAC_AP))
        frame += kinds[0].to_bytes(2, "big")
        for (_, tci), following in zip(self.tags, kinds[1:], strict=True):
            frame += struct.pack("!HH", tci, following)
        at = len(frame)
        identified = self._add_ipv4(frame) if self.family == 4 else self._add_ipv6(frame)
        if len(frame) < SHORTEST:
            frame += bytes(SHORTEST - len(frame))
        if self.changes:
            self._change(frame)
        if self.family == 4 and "ipv4.checksum" not in self.changes:
            mend_checksum(frame, at)
        if self.cut:
            del frame[max(14, len(frame) - self.cut) :]
        return frame, identified

    def _add_ipv4(self, frame: bytearray) -> int:
        identification, offset, more = self.fragment or (0, 0, False)
        size = 20 + len(self.options)
        frame += struct.pack(
            "!BBHHHBBH",
            0x40 | size >> 2,
            0,
            size + len(self.body),
            identification & 0xFFFF,
            (0x2000 if more else 0) | offset >> 3,
            64,
            self.protocol,
            0,
        )
        frame += self.source + self.destination + self.options + self.body
        return len(frame) - size - len(self.body) + 6

    def _add_ipv6(self, frame: bytearray) -> int:
        chain = [*self.extensions, FRAGMENT] if self.fragment else self.extensions
        kinds = [*chain, self.protocol]
        frame += struct.pack("!IHBB", 6 << 28, 8 * len(chain) + len(self.body), kinds[0], 64)
        frame += self.source + self.destination
        identified = 0
        for kind, following in zip(chain, kinds[1:], strict=True):
            if kind == FRAGMENT and self.fragment:
                identification, offset, more = self.fragment
                frame += struct.pack("!BBHI", following, 0, offset & 0xFFF8 | more, identification)
                identified = len(frame)
            else:
                frame += extension(kind, following)
        frame += self.body
        return identified

    def places(self) -> list[Place]:
        """Every field."""
        found = [("ethernet.destination", 0, 6), ("ethernet.source", 6, 6), ("ethernet.type", 12, 2)]
        at = 14
        for number in range(len(self.tags)):
            found += [(f"tag{number}.tci", at, 2), (f"tag{number}.type", at + 2, 2)]
            at += 4
        found += [(name, at + offset, size) for name, offset, size in (IPV4 if self.family == 4 else IPV6)]
        at += 20 + len(self.options) if self.family == 4 else 40
        if self.options:
            found += [("ipv4.option", at - len(self.options), 1), ("ipv4.option_length", at - len(self.options) + 1, 1)]
        if self.family == 6:
            for number in range(len(self.extensions)):
                found += [(f"extension{number}.next", at, 1), (f"extension{number}.length", at + 1, 1)]
                found += [(f"extension{number}.option", at + 2, 1), (f"extension{number}.option_length", at + 3, 1)]
                at += 8
            if self.fragment:
                found += [("fragment.next", at, 1), ("fragment.reserved", at + 1, 1)]
                found += [("fragment.offset", at + 2, 2), ("fragment.identification", at + 4, 4)]
                at += 8
        if self.fragment is None or self.fragment[1] == 0:
            udp = [("source", 0, 2), ("destination", 2, 2), ("length", 4, 2), ("checksum", 6, 2), ("scion", 12, 1)]
            found += [
                (f"udp.{name}", at + offset, size) for name, offset, size in udp if offset + size <= len(self.body)
            ]
        return found

    def _change(self, frame: bytearray) -> None:
        places = {name: (at, size) for name, at, size in self.places()}
        for name, value in self.changes.items():
            if name.startswith("byte"):
                at, size = int(name[4:]), 1
            elif name in places:
                at, size = places[name]
            else:
                continue
            if at + size <= len(frame):
                frame[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "big")

    def __str__(self) -> str:
        words = [f"{ip_address(self.source)} to {ip_address(self.destination)}"]
        words += [f"{len(self.tags)} tags {' '.join(f'{kind:04x}:{tci:04x}' for kind, tci in self.tags)}"] * bool(
            self.tags
        )
        words += [f"{len(self.options)} B of options"] * bool(self.options)
        words += [f"extensions {' '.join(map(str, self.extensions))}"] * bool(self.extensions)
        if self.fragment:
            identification, offset, more = self.fragment
            words.append(f"fragment {identification:#x} from {offset}{', more follow' if more else ', the last'}")
        if self.protocol == UDP and (self.fragment is None or self.fragment[1] == 0) and len(self.body) >= 6:
            source, destination, length = struct.unpack_from("!HHH", self.body)
            words.append(f"UDP {source} to {destination}, length {length}")
        else:
            words.append(f"protocol {self.protocol}")
        words.append(f"{len(self.body)} B behind the headers")
        words += [f"{name} = {value:#x}" for name, value in self.changes.items()]
        words += [f"cut by {self.cut} B"] * bool(self.cut) + [f"{self.copies} copies"] * (self.copies > 1)
        return ", ".join(words + ["a bystander's"] * self.is_bystander)


IPV4: Final[list[Place]] = [
    ("ipv4.version", 0, 1),
    ("ipv4.tos", 1, 1),
    ("ipv4.length", 2, 2),
    ("ipv4.identification", 4, 2),
    ("ipv4.offset", 6, 2),
    ("ipv4.ttl", 8, 1),
    ("ipv4.protocol", 9, 1),
    ("ipv4.checksum", 10, 2),
    ("ipv4.source", 12, 4),
    ("ipv4.destination", 16, 4),
]
IPV6: Final[list[Place]] = [
    ("ipv6.version", 0, 4),
    ("ipv6.length", 4, 2),
    ("ipv6.next", 6, 1),
    ("ipv6.hops", 7, 1),
    ("ipv6.source", 8, 16),
    ("ipv6.destination", 24, 16),
]


def extension(kind: int, following: int) -> bytes:
    if kind == ROUTING:
        return bytes((following, 0, 253, 0, 0, 0, 0, 0))  # experimental, no segments left
    if kind == FRAGMENT:
        return bytes((following, 0, 0, 0, 0, 0, 0, 9))  # atomic
    return bytes((following, 0, 1, 4, 0, 0, 0, 0))  # PadN


def mend_checksum(frame: bytearray, at: int) -> None:
    """RFC 1071: the sum of 16-bit words is the remainder of the number that they are."""
    size = (frame[at] & 15) * 4 if len(frame) > at else 0
    if 20 <= size <= len(frame) - at:
        frame[at + 10 : at + 12] = b"\0\0"
        total = int.from_bytes(frame[at : at + size], "big") % 0xFFFF
        frame[at + 10 : at + 12] = ((0xFFFF - total) & 0xFFFF).to_bytes(2, "big")


def udp(source: int, destination: int, payload: bytes) -> bytes:
    return struct.pack("!HHHH", source, destination, 8 + len(payload), 0) + payload
