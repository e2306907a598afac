"""One limiter's attachment point with an interface per wire, and the users at the other end of all wires.

    with BedLab() as lab:
        beds = {limiter: Bed(lab, limiter, wires=10) for limiter in (OURS, THESIS, NO_LIMIT)}
        limit_all(beds.values(), dict.fromkeys(range(1, 11), 500))
        run_traffic(plan_of(beds), seconds=11)

                     ┌ eth1 10.<bed>.1.1 ──── 10.<bed>.1.2 eth1 ┐
    bed.ap           ├ eth2 10.<bed>.2.1 ──── 10.<bed>.2.2 eth2 ┤            bed.users
                     └ …                                        ┘

An interface per wire, because wondershaper knows nothing smaller and the thesis' default class is one per interface.
Wires carry IPv6 beside IPv4: fd00:<bed>:<wire>::1 and ::2. No offloads (`gso_max_segs 1`), as everywhere in the lab.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from bandwidth_config import Limits
from lab.bench.engines import Engine
from lab.evaluation.limiters import OWN, WRONG, Link, install_peer, wrong
from measuring.iproute import run_command
from measuring.netns import Lab
from measuring.traffic import Address

PREFIX = "sleval"
FIRST_LOCAL_PORT, FIRST_REMOTE_PORT = 51_000, 50_000
MAX_WIRES = 250


class BedLab(Lab):
    """A lab that ends what belongs to the beds in it as well: the processes and folders of our engine."""

    def __init__(self) -> None:
        super().__init__(PREFIX)
        self.at_close = ExitStack()

    def __enter__(self) -> BedLab:
        super().__enter__()
        return self

    def close(self) -> None:
        super().close()
        self.at_close.close()


@dataclass(frozen=True)
class Wire:
    """One wire of a bed, numbered from 1; its link has this number as interface id."""

    bed: int
    number: int

    @property
    def dev(self) -> str:
        """At both ends."""
        return f"eth{self.number}"

    @property
    def name(self) -> str:
        """Of its endpoints in a traffic plan."""
        return f"wire{self.number}"

    @property
    def ends(self) -> tuple[Address, Address]:
        """(address, port) at the attachment point and at the user."""
        net = f"10.{self.bed}.{self.number}"
        return (f"{net}.1", FIRST_LOCAL_PORT + self.number), (f"{net}.2", FIRST_REMOTE_PORT + self.number)

    @property
    def other_user(self) -> str:
        """A second address behind the wire, which stands for another host; see `Bed.add_other_user`."""
        return f"10.{self.bed}.{self.number}.3"

    @property
    def ends6(self) -> tuple[Address, Address]:
        """The same over IPv6."""
        net = f"fd00:{self.bed}:{self.number}:"
        return (f"{net}:1", FIRST_LOCAL_PORT + self.number), (f"{net}:2", FIRST_REMOTE_PORT + self.number)

    def link(self, kbit: int, *, ipv6: bool = False) -> Link:
        """With this limit in both directions."""
        local, remote = self.ends6 if ipv6 else self.ends
        return Link(self.number, self.dev, local, remote, Limits.both(kbit))


class Bed:
    """`ap` and `users` are the namespaces; `own` is our limiter, None with another one."""

    def __init__(self, lab: BedLab, limiter: str, wires: int) -> None:
        """Raises `LabError`, `RuntimeError` where our engine does not start, `ValueError` for more than 250 wires."""
        if not 1 <= wires <= MAX_WIRES:
            raise ValueError(f"{wires} wires; a bed has 1 to {MAX_WIRES}, make a second bed for more")
        self.lab, self.limiter, self.wire_count = lab, limiter, wires
        self.number = 1 + sum(short.startswith("ap") for short in lab.namespaces)
        self.ap, self.users = lab.namespace(f"ap{self.number}"), lab.namespace(f"u{self.number}")
        self._connect()
        self.own: Engine | None = None
        if limiter in OWN:
            self.own = Engine(self.ap)
            lab.at_close.callback(self.own.close)

    def _connect(self) -> None:
        """All wires in three processes."""
        lines = [
            f"link add {one.dev} netns {self.ap.name} type veth peer name {one.dev} netns {self.users.name}"
            for one in self.wires()
        ]
        run_command(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
        for side, host in enumerate((self.ap, self.users)):
            setup = []
            for one in self.wires():
                setup.append(f"link set {one.dev} gso_max_segs 1 up")
                setup.append(f"addr add {one.ends[side][0]}/24 dev {one.dev}")
                setup.append(f"addr add {one.ends6[side][0]}/64 dev {one.dev} nodad")
            host.ip_batch(setup)

    def wire(self, number: int) -> Wire:
        """Numbered from 1."""
        return Wire(self.number, number)

    def wires(self) -> list[Wire]:
        return [self.wire(number) for number in range(1, self.wire_count + 1)]

    def add_other_user(self, number: int) -> None:
        """Behind the wire of this number."""
        self.users.ip("addr", "add", f"{self.wire(number).other_user}/24", "dev", self.wire(number).dev)

    def limit(
        self,
        limits: Mapping[int, int],
        *,
        four_keys: bool = False,
        extra: Iterable[Link] = (),
    ) -> None:
        """Limit these wires (by number, kbit/s) and nothing else, in place of what was limited before; returns when it
        is so. `extra` are further links (interface ids above those of the wires), `four_keys`: matched by address
        alone. Raises `LabError`, or `RuntimeError` with the reasons of our engine."""
        self.enforce(self.links(limits, extra=extra), four_keys=four_keys)

    def enforce(self, links: Iterable[Link], *, four_keys: bool = False) -> None:
        """These links and no others; raises what `limit` raises."""
        if self.own is not None:
            self.own.enforce({one.interface_id: one.entry(four_keys=four_keys) for one in links})
        else:
            install_peer(self.limiter, self.ap, links)

    def links(self, limits: Mapping[int, int], *, extra: Iterable[Link] = ()) -> list[Link]:
        """What `limit` hands to the limiter."""
        found = [*(self.wire(number).link(limit) for number, limit in limits.items()), *extra]
        return [wrong(one) for one in found] if self.limiter == WRONG else found


def limit_all(beds: Iterable[Bed], limits: Mapping[int, int], *, four_keys: bool = False) -> None:
    """The same limits in every bed. Raises what `Bed.limit` raises."""
    at_once(beds, lambda bed: bed.limit(limits, four_keys=four_keys))


def at_once(beds: Iterable[Bed], limit: Callable[[Bed], None]) -> None:
    """Do it with every bed, with all of them at the same time. Raises what it raises."""
    listed = list(beds)
    with ThreadPoolExecutor(max_workers=max(1, len(listed))) as pool:
        list(pool.map(limit, listed))
