"""What Linux makes of frames: is it for us, whose is it, does a datagram become whole? Written from RFC 791, 768, 8200,
5722, IEEE 802.1Q and what Linux 6.18 does (net/core/dev.c, ip_input.c, ip_fragment.c, ip6_input.c, exthdrs.c,
reassembly.c, inet_fragment.c, udp.c); nothing of it is shared with the limiter.

Where this says nothing was delivered Linux may still deliver; not the other way round. Checksums of UDP are ignored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

MOST_PADDING = 7
MOST_DISTANCE = 64


class Piece(NamedTuple):
    """An IP packet as it is for this host: whole (`identity` is empty), or a fragment."""

    source: bytes
    destination: bytes
    protocol: int
    payload: bytes  # behind the headers that were read
    identity: tuple[object, ...] = ()
    offset: int = 0
    more: bool = False


class Datagram(NamedTuple):
    """Delivered. `ports`: of UDP (source, destination), else None. `wire_bytes`: of all its frames."""

    source: bytes
    destination: bytes
    ports: tuple[int, int] | None
    wire_bytes: int


def read(frame: bytes) -> Piece | None:
    """None: Linux drops it, or it is of a VLAN, or no IP."""
    kind, at = int.from_bytes(frame[12:14], "big"), 14
    while kind in (0x8100, 0x88A8):  # every tag of VLAN 0 is taken off, however many there are
        if len(frame) < at + 6 or int.from_bytes(frame[at : at + 2], "big") & 0xFFF:
            return None
        kind = int.from_bytes(frame[at + 2 : at + 4], "big")
        at += 4
    if kind == 0x0800:
        return _ipv4(frame[at:])
    return _ipv6(frame[at:]) if kind == 0x86DD else None


def _ipv4(packet: bytes) -> Piece | None:
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    size, length = (packet[0] & 15) * 4, int.from_bytes(packet[2:4], "big")
    if not 20 <= size <= length <= len(packet) or int.from_bytes(packet[:size], "big") % 0xFFFF:
        return None
    if size > 20 and not _are_ipv4_options_right(packet[20:size]):
        return None
    source, destination, protocol = packet[12:16], packet[16:20], packet[9]
    field_ = int.from_bytes(packet[6:8], "big")
    payload = packet[size:length]
    if not field_ & 0x3FFF:
        return Piece(source, destination, protocol, payload)
    identity = (4, source, destination, packet[4:6], protocol)
    return Piece(source, destination, protocol, payload, identity, (field_ & 0x1FFF) * 8, bool(field_ & 0x2000))


def _are_ipv4_options_right(options: bytes) -> bool:
    """No operations, then the end: Linux reads others more exactly than this does."""
    return not options.lstrip(b"\1").strip(b"\0")


def _ipv6(packet: bytes) -> Piece | None:
    if len(packet) < 40 or packet[0] >> 4 != 6:
        return None
    length, following, at = int.from_bytes(packet[4:6], "big"), packet[6], 40
    if length or following != 0:
        if length + 40 > len(packet):
            return None
        packet = packet[: length + 40]
    if following == 0:  # hop-by-hop options are read in the first place alone
        size = _options_size(packet, at)
        if size is None:
            return None
        following = packet[at]
        at += size
    return _walk(packet[8:24], packet[24:40], packet, at, following, has_length=bool(length))


def _walk(
    source: bytes, destination: bytes, packet: bytes, at: int, following: int, *, has_length: bool, whole: bool = False
) -> Piece | None:
    """`whole`: it was put together, or had a fragment header: Linux takes no second one."""
    while True:
        if following == 60:
            size = _options_size(packet, at)
        elif following == 43:  # nobody is routed by it who has arrived
            size = (packet[at + 1] + 1) * 8 if len(packet) >= at + 8 and packet[at + 2] not in (3, 4) else None
            if size is None or packet[at + 3] or len(packet) < at + size:
                return None
        elif following == 44:
            if whole or not has_length or len(packet) < at + 8:
                return None
            field_ = int.from_bytes(packet[at + 2 : at + 4], "big")
            if field_ & 0xFFF9:
                if not field_ & 0xFFF8 and not _has_all_headers(packet, at + 8, packet[at]):
                    return None
                identity = (6, source, destination, packet[at + 4 : at + 8])
                return Piece(
                    source, destination, packet[at], packet[at + 8 :], identity, field_ & 0xFFF8, bool(field_ & 1)
                )
            size, whole = 8, True
        else:
            return None if following == 0 else Piece(source, destination, following, packet[at:])
        if size is None:
            return None
        following = packet[at]
        at += size


def _has_all_headers(packet: bytes, at: int, following: int) -> bool:
    """RFC 8200, section 4.5: else the first fragment is dropped."""
    while following in (0, 43, 60, 51):
        if len(packet) < at + 8:
            return False
        size = packet[at + 1] * 4 + 8 if following == 51 else packet[at + 1] * 8 + 8
        following, at = packet[at], at + size
    return len(packet) - at >= {17: 8, 6: 20}.get(following, 1)


def _options_size(packet: bytes, at: int) -> int | None:
    """Of hop-by-hop or destination options; None: Linux drops the packet, or might."""
    if len(packet) < at + 8:
        return None
    size = (packet[at + 1] + 1) * 8
    if len(packet) < at + size:
        return None
    return size if _are_options_right(packet[at + 2 : at + size]) else None


def _are_options_right(options: bytes) -> bool:
    """Padding of at most 7 zero bytes, and what may be skipped."""
    padding = at = 0
    while at < len(options):
        kind = options[at]
        length = options[at + 1] if kind and at + 1 < len(options) else 0
        value = options[at + 2 : at + 2 + length]
        is_padding = kind in (0, 1)
        padding = padding + (2 + length if kind else 1) if is_padding else 0
        is_short = bool(kind) and at + 2 + length > len(options)
        if is_short or padding > MOST_PADDING or (any(value) if is_padding else kind >> 6 or kind in (5, 0x31)):
            return False
        at += 2 + length if kind else 1
    return True


@dataclass
class _Queue:
    """Fragments of one datagram, as inet_frag_queue_insert keeps them."""

    protocol: int = 0
    length: int = 0
    has_last: bool = False
    runs: list[list[int]] = field(default_factory=list)  # start and end of pieces that came in order
    pieces: dict[int, bytes] = field(default_factory=dict)
    wire_bytes: int = 0

    @property
    def is_whole(self) -> bool:
        return self.has_last and 0 in self.pieces and sum(map(len, self.pieces.values())) == self.length

    def add(self, piece: Piece, wire_bytes: int) -> Literal["new", "dropped", "corrupt"]:
        payload, end = piece.payload, piece.offset + len(piece.payload)
        if piece.more and end & 7:
            if piece.identity[0] == 6:
                return "dropped"
            end &= ~7
            payload = payload[: end - piece.offset]
        if end > 65_535:
            return "dropped"
        is_behind = end > self.length if piece.more else end != self.length
        if (self.has_last and is_behind) or (not piece.more and end < self.length):
            return "corrupt"
        self.length = max(self.length, end)
        self.has_last = self.has_last or not piece.more
        found = "corrupt" if end == piece.offset else self._insert(piece.offset, end)
        if found == "new":
            self.pieces[piece.offset] = payload
            self.wire_bytes += wire_bytes
            if piece.offset == 0:
                self.protocol = piece.protocol
        return found

    def _insert(self, start: int, end: int) -> Literal["new", "dropped", "corrupt"]:
        """What is there already is dropped, what overlaps is corrupt."""
        last = max(self.runs, key=lambda run: run[1], default=[0, 0])
        if not self.runs or (last[1] < end and start > last[1]):
            self.runs.append([start, end])
        elif last[1] < end:
            if start < last[1]:
                return "corrupt"
            last[1] = end
        else:
            for run in self.runs:
                if start < run[1] and end > run[0]:
                    return "dropped" if run[0] <= start and end <= run[1] else "corrupt"
            self.runs.append([start, end])
        return "new"


class Distances:
    """How many fragments of its sender came between two of a datagram. Linux gives an IPv4 one up when there are more
    than 64 by default (net.ipv4.ipfrag_max_dist); `Host` does not, as where that is 0."""

    def __init__(self) -> None:
        self._fragments, self._last = Counter[bytes](), dict[tuple[object, ...], int]()

    def is_too_far(self, piece: Piece | None) -> bool:
        if piece is None or not piece.identity or piece.identity[0] != 4:
            return False
        self._fragments[piece.source] += 1
        now = self._fragments[piece.source]
        before = self._last.get(piece.identity, now)
        self._last[piece.identity] = now
        return now - before > MOST_DISTANCE


class Host:
    """Takes frames in order and puts datagrams together."""

    def __init__(self) -> None:
        self._queues: dict[tuple[object, ...], _Queue] = {}

    def has(self, piece: Piece) -> bool:
        """A part of its datagram waits for the rest."""
        return piece.identity in self._queues

    def take(self, piece: Piece | None, wire_bytes: int) -> Datagram | None:
        if piece is None or not piece.identity:
            return _delivered(piece, wire_bytes) if piece else None
        queue = self._queues.setdefault(piece.identity, _Queue())
        found = queue.add(piece, wire_bytes)
        if found == "corrupt":  # Linux forgets all of them
            del self._queues[piece.identity]
        if found != "new" or not queue.is_whole:
            return None
        del self._queues[piece.identity]
        body = b"".join(queue.pieces[one] for one in sorted(queue.pieces))
        whole: Piece | None = Piece(piece.source, piece.destination, queue.protocol, body)
        if piece.identity[0] == 6:
            whole = _walk(piece.source, piece.destination, body, 0, queue.protocol, has_length=True, whole=True)
        return _delivered(whole, queue.wire_bytes) if whole else None


def _delivered(piece: Piece, wire_bytes: int) -> Datagram | None:
    if piece.protocol != 17:
        return Datagram(piece.source, piece.destination, None, wire_bytes)
    ports = ports_of(piece.payload)
    length = int.from_bytes(piece.payload[4:6], "big")
    is_ipv6 = len(piece.source) == 16
    if len(piece.payload) < 8 or not (8 <= length <= len(piece.payload) or (is_ipv6 and length == 0)):
        return None
    return Datagram(piece.source, piece.destination, ports, wire_bytes)


def first_ports(piece: Piece) -> tuple[int, int] | None:
    """Of the UDP header in a first fragment, of whatever length."""
    following, at, body = piece.protocol, 0, piece.payload
    while following in (43, 60) and len(piece.source) == 16 and len(body) >= at + 8:
        following, at = body[at], at + body[at + 1] * 8 + 8
    return ports_of(body[at:]) if following == 17 and len(body) >= at + 4 else None


def ports_of(payload: bytes) -> tuple[int, int]:
    return int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")
