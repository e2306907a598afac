"""The classes and leaves of today's engine, as lines for `tc -batch`: what an administrator would write by hand.

    slbw0, slbw1   root 51b0: htb ── class 51b0:<direction|ifid> per link ── bfifo

Without the program at the hooks: nothing finds a packet's class here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab.bench.engines import Entry
from lab.bench.world import IFBS
from measuring.judge import bucket_bytes, room_bytes

MAJOR, FROM_USER_BIT = 0x51B0, 0x1000
BEHIND_ROOM_BYTES = 140_000  # docs/adr/0028: a leaf holds the room and two of the largest datagrams


def tree_lines(links: Mapping[int, Entry]) -> list[str]:
    """The IFBs are there and have no root yet."""
    lines = [f"qdisc add dev {dev} root handle {MAJOR:x}: htb default 0" for dev in IFBS]
    return [*lines, *(line for number, link in links.items() for line in link_lines(number, link, "add"))]


def link_lines(number: int, link: Entry, word: str) -> Iterator[str]:
    """One link, both directions: `add` or `change`."""
    kbit = link["Bandwidth"]
    burst = bucket_bytes(kbit)
    for dev, bit in zip(IFBS, (0, FROM_USER_BIT), strict=True):
        minor = bit | number
        rate = f"rate {kbit}kbit ceil {kbit}kbit burst {burst} cburst {burst} quantum 1514"
        yield f"class {word} dev {dev} parent {MAJOR:x}: classid {MAJOR:x}:{minor:x} htb {rate}"
        leaf = f"bfifo limit {room_bytes(kbit) + BEHIND_ROOM_BYTES}"
        yield f"qdisc {word} dev {dev} parent {MAJOR:x}:{minor:x} handle {minor:x}: {leaf}"
