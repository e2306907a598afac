"""A flood over some links in both directions, what the kernel counted of it by `tc`, and a class made by hand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType

from lab import witness
from measuring.netns import Namespace
from tests.usage_ledger import Sums

Address = tuple[str, int]
DIRECTIONS = {"eth0": "to_user", "slbw0": "from_user"}
PAYLOAD_BYTES = 1400
_NOTHING = (0, 0, 0)


@dataclass(frozen=True)
class Ends:
    """The two ends of a link, and the host of the user AS."""

    user: Namespace
    ap_address: Address
    user_address: Address


@dataclass
class Flood:
    """Datagrams on the links' own ports, both ways, several times a slow link's limit, as long as the block lasts."""

    ap: Namespace
    links: Mapping[int, Ends]
    paused: set[int] = field(default_factory=set)
    _sockets: list[tuple[int, socket.socket]] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Flood:
        for link, ends in self.links.items():
            for host, own, other in (
                (self.ap, ends.ap_address, ends.user_address),
                (ends.user, ends.user_address, ends.ap_address),
            ):
                self._sockets.append((link, host.call(lambda own=own, other=other: _connected(own, other))))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join(10)
        for _link, one in self._sockets:
            one.close()

    def _run(self) -> None:
        while not self._is_over.wait(0.004):
            for link, one in self._sockets:
                if link not in self.paused:
                    for _ in range(3):
                        one.send(b"u" * PAYLOAD_BYTES)


def _connected(own: Address, other: Address) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * 1024 * 1024)
    made.bind(own)
    made.connect(other)
    return made


# --- the witness ------------------------------------------------------------------------------------------------------


def kernel(host: Namespace) -> Sums:
    """Bytes and packets of each link's inner class, drops of its leaves, by `tc`."""
    found: Sums = {}
    for dev, direction in DIRECTIONS.items():
        classes = witness.classes(host, dev)
        for one in classes.values():
            minor = int(one.classid.partition(":")[2], 16)
            if minor < 0x1000:
                leaves = [each for each in classes.values() if each.parent == one.classid]
                found[minor, direction] = (one.sent_bytes, one.sent_packets, sum(each.drops for each in leaves))
    return found


def backlog(host: Namespace, *links: int) -> int:
    """Bytes that wait in the queues of these links."""
    return sum(
        one.backlog_bytes
        for dev in DIRECTIONS
        for one in witness.classes(host, dev).values()
        if int(one.classid.partition(":")[2], 16) & 0xFFF in links
    )


def added(one: Sums, other: Sums) -> Sums:
    total: Sums = {}
    for key in one.keys() | other.keys():
        some, more = one.get(key, _NOTHING), other.get(key, _NOTHING)
        total[key] = (some[0] + more[0], some[1] + more[1], some[2] + more[2])
    return total


# --- somebody's hand --------------------------------------------------------------------------------------------------


def make_anew_by_hand(host: Namespace, link: int) -> None:
    """Somebody deletes both classes of a link with everything in them, and makes others like them."""
    for dev, major in (("eth0", 1), ("slbw0", 3)):
        inner, data, beats = f"{major}:{link:x}", f"{major}:{0x1000 + link:x}", f"{major}:{0x2000 + link:x}"
        lines = [
            *(f"filter del dev {dev} parent {major}: pref {pref}" for pref in (110, 112)),
            *(f"class del dev {dev} classid {one}" for one in (data, beats, inner)),
            f"class add dev {dev} parent {major}: classid {inner} htb rate 900kbit",
            f"class add dev {dev} parent {inner} classid {data} htb rate 884kbit ceil 900kbit",
        ]
        host.run("tc", "-batch", "-", stdin="\n".join(lines) + "\n")
