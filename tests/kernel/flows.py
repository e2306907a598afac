"""Who is limited right now? Asked of the kernel with packets: some links' own, a few at a time, in both directions.

A burst of `BURST` full packets decides it, without a clock. At up to `FASTEST_KBIT` a limited link passes two frames of
bucket and one that overdraws it, and keeps four frames in its queue: seven of ten, however late one counts them. All
ten arrive only where nothing limits them, and none at all where the link is blocked.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from types import TracebackType

from bandwidth_config import LinkInfo
from measuring.netns import Namespace
from tests.kernel.conftest import Host
from tests.kernel.packets import SCION_DATA, SCION_HEARTBEAT, Address, _family
from tests.kernel.reach import Reach

BURST = 10
FASTEST_KBIT = 40
SETTLE_S = 0.002  # the softirq of the IFB runs behind ours; what comes later still counts for its own burst
STRAGGLERS_S = 0.1
_STAMP = struct.Struct("=I")
_BYTES = 1400
_OWN = {  # the attachment point's address for users of each network (conftest)
    "192.0.2.": "192.0.2.1",
    "198.51.100.": "198.51.100.1",
    "2001:db8:1:": "2001:db8:1::1",
    "2001:db8:2:": "2001:db8:2::1",
}
KINDS = (("data", SCION_DATA), ("heartbeats", SCION_HEARTBEAT))
DIRECTIONS = ("to user", "from user")


@dataclass(frozen=True)
class Flow:
    """The packets of one link: between its two addresses. `user` is the host at the other end."""

    local: Address
    remote: Address

    @classmethod
    def of(cls, link: LinkInfo) -> Flow:
        """An entry without ports gets some: any are its own."""
        remote = str(link.remote_ip)
        local_ip = next(own for start, own in _OWN.items() if remote.startswith(start))
        number = link.interface_id
        return cls((local_ip, link.local_port or 51_000 + number), (remote, link.remote_port or 50_000))


Way = tuple[Flow, str]


@dataclass
class Verdicts:
    """What one burst showed so far: packets that come later are counted when the prober is used again."""

    kind: str
    arrived: Counter[Way] = field(default_factory=Counter)

    @property
    def free(self) -> set[Way]:
        return {way for way, count in self.arrived.items() if count == BURST}

    def blocked(self, ways: Iterable[Way]) -> set[Way]:
        return {way for way in ways if not self.arrived[way]}


class Prober:
    """Sockets at both ends of every flow; `ask` sends a burst on each. Use it in a `with`."""

    def __init__(self, ap: Namespace, users: Mapping[str, Namespace], flows: Iterable[Flow]) -> None:
        """`users` by the beginning of their addresses."""
        self.flows = list(flows)
        self.ways = list(product(self.flows, DIRECTIONS))
        self._bursts: list[Verdicts] = []
        self._ends: dict[Way, tuple[socket.socket, Address]] = {}
        self._sockets: dict[tuple[str, Address], socket.socket] = {}
        for flow in self.flows:
            user = next(host for start, host in users.items() if flow.remote[0].startswith(start))
            here, there = self._socket(ap, flow.local), self._socket(user, flow.remote)
            self._ends[flow, "to user"] = here, flow.remote
            self._ends[flow, "from user"] = there, flow.local
        self._way_of = {
            **{(flow.remote, flow.local): (flow, "to user") for flow in self.flows},
            **{(flow.local, flow.remote): (flow, "from user") for flow in self.flows},
        }

    def _socket(self, host: Namespace, address: Address) -> socket.socket:
        def make() -> socket.socket:
            sock = socket.socket(_family(address[0]), socket.SOCK_DGRAM)
            sock.bind(address)
            sock.setblocking(False)
            return sock

        if (host.short, address) not in self._sockets:
            self._sockets[host.short, address] = host.call(make)
        return self._sockets[host.short, address]

    def __enter__(self) -> Prober:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in self._sockets.values():
            sock.close()

    def ask(self) -> Verdicts:
        """A burst on every way: of data one time, of what looks like heartbeats the next, since both are the link's."""
        kind, sample = KINDS[len(self._bursts) % len(KINDS)]
        payload = sample.ljust(_BYTES - _STAMP.size) + _STAMP.pack(len(self._bursts))
        verdicts = Verdicts(kind)
        self._bursts.append(verdicts)
        for sock, other in self._ends.values():
            for _ in range(BURST):
                sock.sendto(payload, other)
        time.sleep(SETTLE_S)
        self._collect()
        return verdicts

    def wait_for_stragglers(self) -> None:
        """Packets on a machine that is busy elsewhere; not those that wait in a queue, which are few enough."""
        time.sleep(STRAGGLERS_S)
        self._collect()

    def _collect(self) -> None:
        for (_, own), sock in self._sockets.items():
            while True:
                try:
                    data, sender = sock.recvfrom(2048)
                except BlockingIOError:
                    break
                way = self._way_of.get((own, sender[:2]))
                if way is not None:
                    self._bursts[_STAMP.unpack_from(data, len(data) - _STAMP.size)[0]].arrived[way] += 1


USERS = {"192.0.2.": "u1", "2001:db8:1:": "u1", "198.51.100.": "u2", "2001:db8:2:": "u2"}


@contextmanager
def observers(host: Host, *documents: Mapping[int, LinkInfo]) -> Iterator[tuple[Prober, Reach]]:
    """Of all links of these documents, whose addresses the users get."""
    found = [link for document in documents for link in document.values()]
    for user in (host.u1, host.u2):
        own = {link.remote_ip for link in found if _user_of(host, str(link.remote_ip)) is user}
        user.ip_batch(f"addr add {one}/{24 if one.version == 4 else 64} dev eth0 nodad" for one in sorted(own, key=str))
    users = {start: _user_of(host, start) for start in USERS}
    flows = sorted({Flow.of(link) for link in found}, key=str)
    with Prober(host.ap, users, flows) as prober, Reach(host.ap, host.u1, "192.0.2.1", "2001:db8:1::1") as reach:
        yield prober, reach


def _user_of(host: Host, address: str) -> Namespace:
    return next(host.lab.namespaces[short] for start, short in USERS.items() if address.startswith(start))
