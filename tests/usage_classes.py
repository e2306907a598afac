"""Messages of traffic control as the kernel sends them, for tests of what reads them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from ap_agent import tcmsg
from ap_agent.usage.reading import Device

IFINDEX = 7


@dataclass(frozen=True)
class Class:
    """One class with its counters; `minor` as in `1:1005`."""

    minor: int
    mark: int = 1514
    bytes: int = 0
    packets: int = 0
    drops: int = 0
    backlog: int = 0
    rate: int = 125_000

    def body(self, major: int) -> bytes:
        rates = struct.pack("=8xI", min(self.rate, tcmsg.MAX_U32)) * 2
        options = tcmsg.attribute(tcmsg.TCA_HTB_PARMS, rates + struct.pack("=IIIII", 1, 1, self.mark, 0, 0))
        if self.rate > tcmsg.MAX_U32:
            options += tcmsg.attribute(tcmsg.TCA_HTB_RATE64, struct.pack("=Q", self.rate))
        basic = tcmsg.attribute(tcmsg.TCA_STATS_BASIC, struct.pack("=QI4x", self.bytes, self.packets & tcmsg.MAX_U32))
        if self.packets > tcmsg.MAX_U32:
            basic += tcmsg.attribute(8, struct.pack("=Q", self.packets))  # TCA_STATS_PKT64
        queue = tcmsg.attribute(tcmsg.TCA_STATS_QUEUE, struct.pack("=IIIII", 0, self.backlog, self.drops, 0, 0))
        head = tcmsg.tcmsg(IFINDEX, handle=major << 16 | self.minor) + tcmsg.text(tcmsg.TCA_KIND, "htb")
        return head + tcmsg.attribute(tcmsg.TCA_OPTIONS, options) + tcmsg.attribute(tcmsg.TCA_STATS2, basic + queue)


def piece(major: int, classes: Iterable[Class]) -> bytes:
    """As one dump brings them."""
    bodies = [one.body(major) for one in classes]
    return b"".join(struct.pack("=IHHII", 16 + len(body), tcmsg.RTM_NEWTCLASS, 2, 9, 9) + body for body in bodies)


def link(number: int, *, mark: int, size: int, drops: int = 0, backlog: int = 0, rate: int = 125_000) -> list[Class]:
    """The three classes of a link."""
    return [
        Class(number, mark, size, size // 1000, rate=rate),
        Class(0x1000 + number, bytes=size, drops=drops, backlog=backlog),
        Class(0x2000 + number),
    ]


def device(name: str, *links: Iterable[Class]) -> Device:
    """A device with these links' classes; the IFB's have another major."""
    major = 3 if name == "slbw0" else 1
    return Device(name, IFINDEX + (major == 3), [piece(major, one) for one in links])
