"""How the program's maps are laid out: what the agent writes about an address, and what the program keeps. Pure."""

from __future__ import annotations


class Limit:
    """Offsets in what a map of limits says of an address; `admission` writes it, the program only reads."""

    MULTIPLIER = 0  # u64: ns per byte of the virtual queue, times 2**SHIFT
    ROOM_NS = 8  # u64
    DEPTH_NS = 16  # u64
    HEARTBEAT_MULTIPLIER = 24  # u64: the same for what the heartbeat leaf lets through
    PORTS_MASK = 32  # u32, as in the packet: source port, destination port; 0 where any will do
    PORTS = 36  # u32
    QUEUE = 40  # u32: the number of the address' queue
    FLAGS = 44  # u32: IS_ANY, HAS_LOCAL
    LOCAL = 48  # the local address, 4 or 16 bytes
    OWN_ROOM_NS = 64  # u64: the room for whole packets of the link itself
    BYTES = 72


class Queue:
    """Offsets in the state of an address, which the program writes."""

    EMPTY_AT_NS = 0  # u64, CLOCK_MONOTONIC: the virtual queue as a time
    HEARTBEATS_AT_NS = 8  # u64: the same for the heartbeat leaf
    REFUSED_PACKETS = 16  # u64
    REFUSED_BYTES = 24  # u64
    LEAF_EMPTY_AT_NS = 32  # u64: what the real leaf still has, as it drains at the limit itself
    BYTES = 40


class Slots:
    """What was decided about the datagrams of an address; apart from its queue, which every packet needs: 4000 queues
    in one row fit a processor's cache, with the slots between them they do not (docs/adr/0020)."""

    COUNT = 64  # of u64: tag << 32 | time << 2 | seen first << 1 | refused
    BYTES = 8 * COUNT


LIMITS_V4, LIMITS_V6, QUEUES, SLOTS = "slbw_limits_v4", "slbw_limits_v6", "slbw_queues", "slbw_slots"  # the maps
IS_ANY, HAS_LOCAL = 1, 2
SHIFT = 20  # a multiplier has 20 binary places: 1 kbit/s and frames of 512 kB still fit 64 bits, 100 Gbit/s has 16 bits
# The virtual queue drains by 1/256 slower than HTB: what HTB loses when the machine stands still for longer than its
# burst, the virtual queue makes up for in the next seconds, instead of admitting for ever what finds no room any more.
SLOWER_SHIFT = 8
