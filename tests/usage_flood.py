"""A flood over some links in both directions, and what the program in the kernel counted of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from lab import bpf, witness
from measuring.netns import Namespace
from tests.usage_ledger import Sums

Address = tuple[str, int]
DIRECTIONS = ("to_user", "from_user")
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


def kernel(lanes_map: Path, host: Namespace) -> Sums:
    """Bytes and packets that passed, packets that did not, of each link and direction: from the map's own memory, and
    what HTB dropped, by `tc`."""
    dropped = {key: one.drops for key, one in _classes(host).items()}
    found: Sums = {}
    for number, (_, size, packets, _, refused) in bpf.lanes(str(lanes_map)).items():
        key = number // 2, DIRECTIONS[number % 2]
        found[key] = (size, packets, refused + dropped.get(key, 0))
    return found


def backlog(host: Namespace, *links: int) -> int:
    """Bytes that wait in the queues of these links."""
    return sum(one.backlog_bytes for key, one in _classes(host).items() if key[0] in links)


def _classes(host: Namespace) -> dict[tuple[int, str], witness.HtbClass]:
    return {
        (int(classid.partition(":")[2], 16) & 0xFFF, direction): one
        for dev, direction in zip(("slbw0", "slbw1"), DIRECTIONS, strict=True)
        for classid, one in witness.classes(host, dev).items()
    }


def added(one: Sums, other: Sums) -> Sums:
    total: Sums = {}
    for key in one.keys() | other.keys():
        some, more = one.get(key, _NOTHING), other.get(key, _NOTHING)
        total[key] = (some[0] + more[0], some[1] + more[1], some[2] + more[2])
    return total
