"""An engine without a kernel: what it was asked for, and answers as the real one gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from ap_agent.common.problem import Problem
from ap_agent.dataplane.devices import Device, Host
from ap_agent.dataplane.outcome import Outcome, Plan, Readback
from ap_agent.dataplane.tree import Operation
from ap_agent.dataplane.wanted import Wanted
from ap_agent.document.state import ClosedSegment, Counters, Direction

HOST = Host((Device(1, "lo", is_loopback=True), Device(2, "eth0")), {ip_address("198.51.100.1"): frozenset({2})})
NOTHING = Counters(0, 0, 0, 0, 0, 0)
DIRECTIONS: tuple[Direction, Direction] = ("to_user", "from_user")


@dataclass
class FakeEngine:
    """`error`, `problems`, `failed`, `drift` (devices that somebody changed) are what the next passes find."""

    on_closed: Callable[[tuple[ClosedSegment, ...]], None] = lambda _: None
    devices: Host = HOST
    error: Exception | None = None
    problems: tuple[Problem, ...] = ()
    failed: dict[int, str] = field(default_factory=dict)
    drift: tuple[str, ...] = ()
    passes: list[tuple[Wanted, bool]] = field(default_factory=list)
    factors: list[tuple[float, float]] = field(default_factory=list)
    segments: dict[tuple[int, Direction], int] = field(default_factory=dict)
    count: dict[tuple[int, Direction], Counters] = field(default_factory=dict)
    lost: dict[tuple[int, Direction], int] = field(default_factory=dict)  # HTB's drops
    has: Wanted = field(default_factory=Wanted)
    obstructed: tuple[str, ...] = ()  # devices without our filters
    host_reads: int = 0
    dies_then: BaseException | None = None  # when the last counters of lanes were told, before they are forgotten
    is_closed: bool = False

    def host(self) -> Host:
        self.host_reads += 1
        return self.devices

    def xdp(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    def plan(self, wanted: Wanted) -> Outcome:
        if self.error is not None:
            raise self.error
        return self._outcome(wanted, wanted != self.has)

    def enforce(self, wanted: Wanted, *, is_settled: bool = False) -> Outcome:
        self.passes.append((wanted, is_settled))
        if self.error is not None:
            raise self.error
        before = self.has
        gone = [key for key in self.segments if key[0] not in wanted.links]
        closed = tuple(ClosedSegment(*key, self.segments[key], 500, 1_795_305_600_000, self.count[key]) for key in gone)
        if closed:
            self.on_closed(closed)
            if self.dies_then is not None:
                raise self.dies_then
        for key in gone:
            del self.segments[key], self.count[key]
        for number in wanted.links:
            for direction in DIRECTIONS:
                if (number, direction) not in self.segments:
                    self.segments[number, direction] = 1000 * number + (direction == "from_user")
                    self.count[number, direction] = NOTHING
        self.has = wanted
        changed = {n for n in wanted.links if before.links.get(n) is not wanted.links[n]}
        return self._outcome(wanted, wanted != before, only=changed if is_settled else None)

    def _outcome(self, wanted: Wanted, is_another: bool, *, only: set[int] | None = None) -> Outcome:
        devices = self.drift or (("slbw0",) if is_another else ())
        operations = tuple(Operation("change", "clsact", one, 2) for one in devices)
        self.drift = ()
        numbers = wanted.links if only is None else only
        readback = self._readback(wanted, numbers)
        return Outcome(
            Plan(operations=operations),
            len(operations),
            self.problems,
            dict(self.failed),
            readback,
            ("eth0",) if wanted.links else (),
            ("eth0",) if wanted.links and "eth0" not in self.obstructed else (),
            not self.failed and not self.problems,
            frozenset({4001}),
        )

    def reset(self) -> Outcome:
        return self.enforce(Wanted())

    def counters(self, links: Iterable[int] | None = None) -> Mapping[tuple[int, Direction], tuple[int, Counters]]:
        asked = set(links) if links is not None else {link for link, _ in self.segments}
        return {key: (segment, self.count[key]) for key, segment in self.segments.items() if key[0] in asked}

    def readback(self, links: Iterable[int]) -> dict[int, tuple[Readback | None, Readback | None]]:
        return self._readback(self.has, links)

    def _readback(self, wanted: Wanted, links: Iterable[int]) -> dict[int, tuple[Readback | None, Readback | None]]:
        lost = self.lost
        return {
            n: (
                Readback(wanted.links[n].to_user_kbit, lost.get((n, "to_user"), 0), 0),
                Readback(wanted.links[n].from_user_kbit, lost.get((n, "from_user"), 0), 0),
            )
            for n in links
        }

    def set_factors(self, to_user: float, from_user: float) -> None:
        self.factors.append((to_user, from_user))

    def close(self) -> None:
        self.is_closed = True
