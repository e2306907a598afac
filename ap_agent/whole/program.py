"""The program that admits whole datagrams, step by step. Pure: it makes instructions, `bpf` loads them.

For each remote address that has an entry there is a *virtual queue*: that of the class in which the address' fragments
end, written as one number, the time at which it would be empty ("theoretical arrival time", the virtual scheduling
algorithm of ITU-T I.371). A packet of that class is admitted while the queue is not above `room`, and then makes it
longer by its own time on the wire. A fragment gets the verdict of its datagram:

    packet of an address with an entry?  no ----------------------------------------------------> on its way
      | yes
    fragment? -- yes -- its datagram known? -- yes -- refused then: refused; admitted then: charged, on its way
      |                    | no
      |                  queue <= room? -- the answer holds for the datagram ------> charged, on its way | refused
      | no
    a packet of the entry's link? no ------------------------------------------------------------> on its way
      | yes
    heartbeat? -- yes -- charged as far as its own leaf lets it through, never refused ----------> on its way
      | no
    queue <= own room? --------------------------------------------------------------> charged, on its way | refused

"On its way" is TC_ACT_UNSPEC: the next filter decides, as if the program were not there. HTB behind it stays in charge
of the rate; the program only chooses *which* packets find no room, because a leaf that drops single fragments delivers
none of the datagrams (chapter 6.3.3 of the thesis; docs/adr/0020).

- Which datagram a fragment belongs to: its addresses, protocol and identification (RFC 791, RFC 8200 section 4.5).
  An address has 64 slots of its own for what was decided, found by the identification's lowest bits; so nobody can
  push out what was decided about somebody else, whatever he sends. A slot holds for 4.3 s, and no longer than until
  another first fragment with the same identification: that is the next datagram. The last fragment may come first.
- A queue is never charged beyond `depth`, the limit of the real leaf: what is above is dropped there anyway, and a
  sender of endless fragments of one datagram would block his link for long after he stops.
- What has no ports where we look (IPv4 options, IPv6 extension headers) ends in the same class (see `classify`) and is
  judged like a fragment that is alone.
- Behind an address with several links the fragments of all of them end in the class of one. Whole packets of that one
  have a room of their own (`own_room_bytes`), so that the others' datagrams do not crowd them out.
- Two processors may charge at once: compare-and-swap, four attempts, then a plain addition.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from ap_agent.classify import (
    BFD,
    ICMPV6,
    NEIGHBOUR_DISCOVERY,
    UDP,
    V6_DESTINATION,
    V6_FRAGMENT,
    V6_HOP_BY_HOP,
    V6_ROUTING,
)
from ap_agent.model import ETH_P_IP, ETH_P_IPV6, Direction
from ap_agent.whole.assembler import (
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
    Assembler,
    Condition,
    Register,
    Size,
)
from ap_agent.whole.layout import HAS_LOCAL, IS_ANY, SHIFT, SLOWER_SHIFT, Limit, Queue, Slots

TC_ACT_UNSPEC, TC_ACT_SHOT = -1, 2  # linux/pkt_cls.h


TICK_SHIFT = 20  # slots count time in 2**20 ns (1.05 ms) ...
TICK_MASK = (1 << 30) - 1  # ... and with 30 bits, so that it comes again after 13 days
SLOT_TICKS = 1 << 12  # what was decided holds for 4.3 s: a 64 kB datagram at 125 kbit/s takes so long to arrive
SEEN_FIRST, REFUSED = 2, 1
HEARTBEAT_ROOM_NS = 1_000_000_000  # a queue of heartbeats of 1 s: five of them, as its leaf of four frames has place
ATTEMPTS = 4
GOLDEN = 0x61C8_8647  # 2**32 less its golden section: a multiplier that spreads addresses which differ in few bits
HEADER_BYTES = 68  # Ethernet, IPv6, fragment header: all that we ever look at, and one heartbeat mark

# __sk_buff (linux/bpf.h)
_LEN, _PROTOCOL, _VLAN_PRESENT, _WIRE_LEN = 0, 16, 20, 160
# Helpers (bpf-helpers(7)) and where a packet's network header begins
_MAP_LOOKUP, _KTIME_GET_NS, _SKB_PULL_DATA, _SKB_LOAD_BYTES_RELATIVE = 1, 5, 39, 68
_FROM_NETWORK_HEADER = 1
# The stack, from its end: what was read of the packet, and what must survive a call
_HEADER, _SECOND, _INDEX, _SLOT, _TAG, _IS_FIRST, _BYTES = -40, -56, -64, -72, -80, -88, -96

_WORD, _HALF, _BYTE, _DOUBLE = Size.WORD, Size.HALF, Size.BYTE, Size.DOUBLE
_EQUAL, _NOT_EQUAL, _ABOVE, _AT_LEAST, _ANY_BIT = (
    Condition.EQUAL,
    Condition.NOT_EQUAL,
    Condition.ABOVE,
    Condition.AT_LEAST,
    Condition.ANY_BIT,
)


@dataclass(frozen=True)
class Maps:
    """Descriptors: limits by address of each family; queues and slots by number."""

    limits_v4: int
    limits_v6: int
    queues: int
    slots: int


@dataclass(frozen=True)
class _Family:
    """Where things are in an IP header."""

    name: str
    header_bytes: int
    source: int
    destination: int
    address_words: int
    next_header: int


_V4 = _Family("v4", 20, 12, 16, 1, 9)
_V6 = _Family("v6", 40, 8, 24, 4, 6)


def build(direction: Direction, maps: Maps) -> bytes:
    """The instructions for one direction: the remote address is the destination on the way to the user."""
    return _Builder(direction, maps).build()


class _Builder:
    """R6 the packet, R7 the limit, R8 the queue, R9 the time; everything else is at hand for a few lines only."""

    def __init__(self, direction: Direction, maps: Maps) -> None:
        self.code = Assembler()
        self.direction = direction
        self.maps = maps

    def build(self) -> bytes:
        code = self.code
        code.move(R6, R1)
        code.load(_WORD, R1, R6, _VLAN_PRESENT)
        code.jump_if(R1, _NOT_EQUAL, 0, "on its way")  # a tag that the device took off: not a packet of this interface
        code.load(_WORD, R1, R6, _PROTOCOL)
        code.jump_if(R1, _EQUAL, socket.htons(ETH_P_IP), "v4")
        code.jump_if(R1, _EQUAL, socket.htons(ETH_P_IPV6), "v6")
        self._on_its_way()
        self._v4()
        self._v6()
        self._fragment()
        self._heartbeat()
        self._whole_packet()
        self._judge()
        self._answers()
        return code.assemble()

    # --- reading the packet ------------------------------------------------------------------------------------

    def _read(self, where: str, offset: int, to: int, length: int, otherwise: str) -> None:
        """Copy from the network header to the stack; `otherwise` is where a packet goes that is too short.

        The helper sees only the linear part of a packet. Some drivers leave the headers in a page: those packets are
        pulled together once and read again.
        """
        code = self.code
        for attempt in ("direct", "pulled"):
            code.move(R1, R6)
            code.move(R2, offset)
            code.move(R3, R10)
            code.add(R3, to)
            code.move(R4, length)
            code.move(R5, _FROM_NETWORK_HEADER)
            code.call(_SKB_LOAD_BYTES_RELATIVE)
            code.jump_if(R0, _EQUAL, 0, f"{where} read")
            if attempt == "direct":
                code.move(R1, R6)
                code.load(_WORD, R2, R6, _LEN)
                code.jump_if(R2, Condition.AT_MOST, HEADER_BYTES, f"{where} pull")
                code.move(R2, HEADER_BYTES)
                code.label(f"{where} pull")
                code.call(_SKB_PULL_DATA)
        code.jump(otherwise)
        code.label(f"{where} read")

    def _find_entry(self, family: _Family) -> None:
        """R7 and R8 of the remote address; everybody else is on his way after one look."""
        code = self.code
        remote = family.destination if self.direction == "to_user" else family.source
        code.load_map(R1, self.maps.limits_v4 if family is _V4 else self.maps.limits_v6)
        code.move(R2, R10)
        code.add(R2, _HEADER + remote)
        code.call(_MAP_LOOKUP)
        code.jump_if(R0, _EQUAL, 0, "on its way")
        code.move(R7, R0)
        code.load(_WORD, R1, R7, Limit.QUEUE)
        code.store(_WORD, R10, _INDEX, R1)
        self._look_up(self.maps.queues)
        code.move(R8, R0)
        code.call(_KTIME_GET_NS)
        code.move(R9, R0)
        # What HTB counts: on the way out the length with the headers of each segment of a super-packet.
        code.load(_WORD, R1, R6, _WIRE_LEN if self.direction == "to_user" else _LEN)
        code.store(_DOUBLE, R10, _BYTES, R1)

    def _look_up(self, map_fd: int) -> None:
        """R0 = what this array has for the address."""
        code = self.code
        code.load_map(R1, map_fd)
        code.move(R2, R10)
        code.add(R2, _INDEX)
        code.call(_MAP_LOOKUP)
        code.jump_if(R0, _EQUAL, 0, "on its way")

    def _v4(self) -> None:
        code = self.code
        code.label("v4")
        self._read("v4 header", 0, _HEADER, _V4.header_bytes, "on its way")
        self._find_entry(_V4)
        code.load(_WORD, R1, R7, Limit.FLAGS)
        code.jump_if(R1, _ANY_BIT, IS_ANY, "v4 protocol fits")
        code.load(_BYTE, R2, R10, _HEADER + _V4.next_header)
        code.jump_if(R2, _NOT_EQUAL, UDP, "on its way")
        code.label("v4 protocol fits")
        code.load(_HALF, R2, R10, _HEADER + 6)
        code.from_network_order(R2, 16)
        code.jump_if(R2, _ANY_BIT, 0x3FFF, "v4 fragment")  # more fragments, or an offset
        code.load(_BYTE, R2, R10, _HEADER)
        code.jump_if(R2, _NOT_EQUAL, 0x45, "anybodys")  # with options: its ports are elsewhere
        code.load(_BYTE, R2, R10, _HEADER + _V4.next_header)
        code.jump_if(R2, _NOT_EQUAL, UDP, "own")  # of an entry that owns its address
        self._plain_udp(_V4)
        code.label("v4 fragment")
        self._note_whether_first("v4", 0x1FFF)
        code.load(_HALF, R1, R10, _HEADER + 4)
        code.from_network_order(R1, 16)
        code.load(_BYTE, R2, R10, _HEADER + _V4.next_header)
        code.shift_left(R2, 16)
        code.or_(R1, R2)
        self._mix_local_into_tag(_V4)
        code.jump("fragment")

    def _v6(self) -> None:
        code = self.code
        code.label("v6")
        self._read("v6 header", 0, _HEADER, _V6.header_bytes, "on its way")
        self._find_entry(_V6)
        code.load(_BYTE, R2, R10, _HEADER + _V6.next_header)
        code.jump_if(R2, _EQUAL, V6_FRAGMENT, "v6 fragment")
        code.jump_if(R2, _EQUAL, UDP, "v6 udp")
        code.load(_WORD, R1, R7, Limit.FLAGS)
        code.jump_if(R1, _ANY_BIT, IS_ANY, "v6 owned")
        code.jump_if(R2, _EQUAL, V6_ROUTING, "anybodys")
        code.jump_if(R2, _EQUAL, V6_DESTINATION, "anybodys")
        code.jump_if(R2, _NOT_EQUAL, V6_HOP_BY_HOP, "on its way")
        self._read("v6 hop by hop", _V6.header_bytes, _SECOND, 1, "anybodys")
        code.load(_BYTE, R2, R10, _SECOND)
        code.jump_if(R2, _EQUAL, ICMPV6, "on its way")  # a report of a multicast listener: nobody's data
        code.jump("anybodys")
        self._owned_v6()
        code.label("v6 udp")
        self._plain_udp(_V6)
        code.label("v6 fragment")
        self._read("v6 fragment header", _V6.header_bytes, _SECOND, 8, "anybodys")
        code.load(_HALF, R2, R10, _SECOND + 2)
        code.from_network_order(R2, 16)
        self._note_whether_first("v6", 0xFFF8)
        code.load(_WORD, R1, R10, _SECOND + 4)
        code.from_network_order(R1, 32)
        self._mix_local_into_tag(_V6)
        code.jump("fragment")

    def _note_whether_first(self, where: str, offset_mask: int) -> None:
        """R2 is the field with the fragment's offset."""
        code = self.code
        code.move(R3, 0)
        code.jump_if(R2, _ANY_BIT, offset_mask, f"{where} later fragment")
        code.move(R3, SEEN_FIRST)
        code.label(f"{where} later fragment")
        code.store(_DOUBLE, R10, _IS_FIRST, R3)

    def _owned_v6(self) -> None:
        """Everything, but for neighbour discovery: with `unmatched = "default"` that has a class of its own, and under
        overload the address must still be found (`classify.exempt_filters`)."""
        code = self.code
        code.label("v6 owned")
        code.jump_if(R2, _NOT_EQUAL, ICMPV6, "own")
        self._read("v6 message", _V6.header_bytes, _SECOND, 1, "own")
        code.load(_BYTE, R2, R10, _SECOND)
        code.jump_if(R2, _AT_LEAST, NEIGHBOUR_DISCOVERY.stop, "own")
        code.jump_if(R2, _AT_LEAST, NEIGHBOUR_DISCOVERY.start, "on its way")
        code.jump("own")

    def _mix_local_into_tag(self, family: _Family) -> None:
        """A sender numbers its datagrams for each pair of addresses (RFC 6864): R1 is made to depend on the other one.

        Datagrams that follow each other between two addresses still have slots of their own.
        """
        code = self.code
        local = family.source if self.direction == "to_user" else family.destination
        for word in range(family.address_words):
            code.load(_WORD, R2, R10, _HEADER + local + 4 * word)
            code.multiply(R2, GOLDEN)
            code.move(R3, R2)
            code.shift_right(R3, 32)
            code.xor(R2, R3)
            code.xor(R1, R2)
        code.shift_left(R1, 32)
        code.shift_right(R1, 32)
        code.store(_DOUBLE, R10, _TAG, R1)

    def _plain_udp(self, family: _Family) -> None:
        """Ports, local address, heartbeat: whose whole UDP packet is this?"""
        code, name = self.code, family.name
        self._read(f"{name} ports", family.header_bytes, _SECOND, 13, f"{name} too short for a heartbeat")
        self._match(family, f"{name} long")
        code.load(_BYTE, R2, R10, _SECOND + 12)  # SCION's next header
        code.jump_if(R2, _EQUAL, BFD, "heartbeat")
        code.jump("own")
        code.label(f"{name} too short for a heartbeat")
        self._read(f"{name} only ports", family.header_bytes, _SECOND, 4, "anybodys")
        self._match(family, f"{name} short")
        code.jump("own")

    def _match(self, family: _Family, where: str) -> None:
        """Go on if the ports and the local address are those of the entry; an entry without a port takes every one."""
        code = self.code
        code.load(_WORD, R1, R10, _SECOND)
        code.load(_WORD, R2, R7, Limit.PORTS_MASK)
        code.and_(R1, R2)
        code.load(_WORD, R2, R7, Limit.PORTS)
        code.jump_if(R1, _NOT_EQUAL, R2, "on its way")
        code.load(_WORD, R1, R7, Limit.FLAGS)
        code.and_(R1, HAS_LOCAL)
        code.jump_if(R1, _EQUAL, 0, f"{where} matches")
        local = family.source if self.direction == "to_user" else family.destination
        for word in range(family.address_words):
            code.load(_WORD, R1, R10, _HEADER + local + 4 * word)
            code.load(_WORD, R2, R7, Limit.LOCAL + 4 * word)
            code.jump_if(R1, _NOT_EQUAL, R2, "on its way")
        code.label(f"{where} matches")

    # --- what is asked of the queue ----------------------------------------------------------------------------

    def _fragment(self) -> None:
        """Look for what was decided about its datagram. R4 becomes what the queue may hold for this packet."""
        code = self.code
        code.label("fragment")
        self._look_up(self.maps.slots)
        code.move(R3, R0)
        code.load(_DOUBLE, R1, R10, _TAG)
        code.move(R2, R1)
        code.and_(R2, Slots.COUNT - 1)
        code.shift_left(R2, 3)
        code.add(R3, R2)
        code.store(_DOUBLE, R10, _SLOT, R3)
        code.load(_DOUBLE, R4, R3, 0)
        code.move(R5, R4)
        code.shift_right(R5, 32)
        code.jump_if(R5, _NOT_EQUAL, R1, "new datagram")
        self._tick(R5)
        code.move(R2, R4)
        code.shift_right(R2, 2)
        code.and_(R2, TICK_MASK)
        code.subtract(R5, R2)
        code.and_(R5, TICK_MASK)
        code.jump_if(R5, _ABOVE, SLOT_TICKS, "new datagram")
        code.load(_DOUBLE, R2, R10, _IS_FIRST)
        code.jump_if(R2, _EQUAL, 0, "same datagram")
        code.jump_if(R4, _ANY_BIT, SEEN_FIRST, "new datagram")
        code.or_(R4, SEEN_FIRST)
        code.store(_DOUBLE, R3, 0, R4)
        code.label("same datagram")
        code.jump_if(R4, _ANY_BIT, REFUSED, "refuse")
        code.store(_DOUBLE, R10, _SLOT, 0)
        code.load(_DOUBLE, R4, R7, Limit.DEPTH_NS)
        code.jump("judge")
        code.label("new datagram")
        code.load(_DOUBLE, R4, R7, Limit.ROOM_NS)
        code.jump("judge")

    def _heartbeat(self) -> None:
        """Charged only as far as its own leaf lets it through: a flood of heartbeats must not starve the data."""
        code = self.code
        code.label("heartbeat")
        code.load(_DOUBLE, R2, R10, _BYTES)
        code.load(_DOUBLE, R3, R7, Limit.HEARTBEAT_MULTIPLIER)
        code.multiply(R2, R3)
        code.shift_right(R2, SHIFT)
        code.load(_DOUBLE, R1, R8, Queue.HEARTBEATS_AT_NS)
        code.jump_if(R1, _AT_LEAST, R9, "heartbeats wait")
        code.move(R1, R9)
        code.label("heartbeats wait")
        code.move(R3, R1)
        code.subtract(R3, R9)
        code.jump_if(R3, _ABOVE, HEARTBEAT_ROOM_NS, "on its way")
        code.add(R1, R2)
        code.store(_DOUBLE, R8, Queue.HEARTBEATS_AT_NS, R1)
        code.store(_DOUBLE, R10, _SLOT, 0)
        code.move(R4, -1)  # whatever the queue holds
        code.jump("judge")

    def _whole_packet(self) -> None:
        """Nothing to remember about it."""
        code = self.code
        code.label("own")
        code.load(_DOUBLE, R4, R7, Limit.OWN_ROOM_NS)
        code.jump("whole packet")
        code.label("anybodys")
        code.load(_DOUBLE, R4, R7, Limit.ROOM_NS)
        code.label("whole packet")
        code.store(_DOUBLE, R10, _SLOT, 0)

    def _judge(self) -> None:
        """Charge the queue unless it holds more than R4 (ns) already; R1 then says refused (1) or not (0)."""
        code = self.code
        code.label("judge")
        code.load(_DOUBLE, R2, R10, _BYTES)
        code.load(_DOUBLE, R3, R7, Limit.MULTIPLIER)
        code.multiply(R2, R3)
        code.add(R2, (1 << SHIFT) - 1)  # rounded up: the virtual queue must not be the faster one
        code.shift_right(R2, SHIFT)
        for attempt in range(ATTEMPTS):
            code.load(_DOUBLE, R0, R8, Queue.EMPTY_AT_NS)
            code.move(R1, R0)
            code.jump_if(R1, _AT_LEAST, R9, f"busy {attempt}")
            code.move(R1, R9)
            code.label(f"busy {attempt}")
            code.move(R3, R1)
            code.subtract(R3, R9)
            code.jump_if(R3, _ABOVE, R4, "full")
            code.add(R1, R2)
            code.move(R3, R0)
            code.compare_exchange(R8, Queue.EMPTY_AT_NS, R1)
            code.jump_if(R0, _EQUAL, R3, "charged")
        code.atomic_add(R8, Queue.EMPTY_AT_NS, R2)
        code.label("charged")
        # The leaf drains by 1/256 faster. Under a lasting overload it becomes short while the virtual queue stays at
        # its room: for the moment in which the limit changes, what the leaf has is kept too.
        code.move(R3, R2)
        code.shift_right(R3, SLOWER_SHIFT)
        code.subtract(R2, R3)
        code.load(_DOUBLE, R1, R8, Queue.LEAF_EMPTY_AT_NS)
        code.jump_if(R1, _AT_LEAST, R9, "leaf busy")
        code.move(R1, R9)
        code.label("leaf busy")
        code.add(R1, R2)
        code.store(_DOUBLE, R8, Queue.LEAF_EMPTY_AT_NS, R1)
        code.move(R1, 0)
        code.jump("remember")
        code.label("full")
        code.move(R1, REFUSED)

    def _answers(self) -> None:
        """Note what was decided about a new datagram, and answer."""
        code = self.code
        code.label("remember")
        code.load(_DOUBLE, R3, R10, _SLOT)
        code.jump_if(R3, _EQUAL, 0, "answer")
        self._tick(R5)
        code.shift_left(R5, 2)
        code.or_(R5, R1)
        code.load(_DOUBLE, R2, R10, _IS_FIRST)
        code.or_(R5, R2)
        code.load(_DOUBLE, R2, R10, _TAG)
        code.shift_left(R2, 32)
        code.or_(R5, R2)
        code.store(_DOUBLE, R3, 0, R5)
        code.label("answer")
        code.jump_if(R1, _NOT_EQUAL, 0, "refuse")
        code.label("on its way")
        self._on_its_way()
        code.label("refuse")
        code.move(R1, 1)
        code.atomic_add(R8, Queue.REFUSED_PACKETS, R1)
        code.load(_DOUBLE, R1, R10, _BYTES)
        code.atomic_add(R8, Queue.REFUSED_BYTES, R1)
        code.move(R0, TC_ACT_SHOT)
        code.exit()

    def _tick(self, target: Register) -> None:
        self.code.move(target, R9)
        self.code.shift_right(target, TICK_SHIFT)
        self.code.and_(target, TICK_MASK)

    def _on_its_way(self) -> None:
        self.code.move(R0, TC_ACT_UNSPEC)
        self.code.exit()
