"""What slipped past the first engine, one test for each: packets in odd forms, and neighbours behind one address.

All flows run at once, over both families and in both directions, once without a limit for what no link has and once
with one. The forms themselves are tested one by one in tests/dataplane.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from measuring.framing import ETHERNET_BYTES, Wire
from measuring.netns import Namespace
from measuring.scion_packet import NEXT_HEADER_BFD
from measuring.tagged import PRIORITY_TAG, SERVICE_TAG
from measuring.traffic import Endpoint, Results, Stream, data, ends, heartbeats, run_traffic
from tests.measured.testbed import (
    Testbed,
    TestLink,
    allowed_excess_bytes,
    check_excess,
    report,
)

SECONDS = 3.2
UNMATCHED_KBIT = 60_000
FAMILIES = (4, 6)
_OPTION_BYTES = {4: 4, 6: 8}
_TAGS = {"tagged": (PRIORITY_TAG,), "service tag": (SERVICE_TAG,), "two tags": (SERVICE_TAG, PRIORITY_TAG)}


@dataclass(frozen=True)
class Flow:
    """`kbit`: the limit of its link, None where it has none. Whoever shares a `user` shares an address."""

    name: str
    family: int
    user: int
    kbit: int | None
    streams: tuple[Stream, ...]
    more: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}{self.family}"


def _flows(family: int) -> list[Flow]:
    full = 1400
    options = (("ip_options", True),)

    def flow(
        name: str, user: int, kbit: int | None, *streams: Stream, more: tuple[tuple[str, object], ...] = ()
    ) -> Flow:
        return Flow(name, family, user, kbit, streams, more)

    return [
        *(flow(name, 1, 500, data(2_500, full), heartbeats()) for name in _TAGS),
        flow("tagged, blocked", 1, 0, data(500, full), heartbeats()),
        flow("tagged, free", 1, None, data(1_000, full)),
        flow("options, blocked", 2, 0, data(500, full), heartbeats(), more=options),
        flow("beside blocked", 2, 2_000, data(1_500, full), heartbeats()),
        flow("options, free", 2, None, data(500, full), more=options),
        flow("fragments, blocked", 2, 0, data(500, 3_000)),
        flow("fragments, free", 2, None, data(500, 3_000)),
        flow("options, neighbour", 3, 3_000, data(6_000, full), more=options),
        flow("within its limit", 3, 200, data(150, 500), heartbeats()),
        flow("large", 3, 2_000, data(8_000, 10_000), heartbeats()),
        flow("overloaded", 4, 2_000, data(4_000, full), heartbeats()),
        flow("posing", 4, None, data(2_000, 100, next_header=NEXT_HEADER_BFD)),
    ]


@dataclass
class Run:
    """All flows, and what arrived."""

    bed: Testbed
    unmatched_kbit: int | None
    links: dict[str, TestLink] = field(default_factory=dict)

    def __post_init__(self) -> None:
        flows = [flow for family in FAMILIES for flow in _flows(family)]
        for number, flow in enumerate(flows, start=1):
            self.links[str(flow)] = TestLink(number, flow.kbit or 0, flow.user, flow.family)
        self.bed.enforce([self.links[str(flow)] for flow in flows if flow.kbit is not None], self.unmatched_kbit)
        plan: dict[Namespace, list[Endpoint]] = {}
        for flow in flows:
            link = self.links[str(flow)]
            both = list(ends(str(flow), link.local, link.remote, flow.streams, **dict(flow.more)))  # type: ignore[arg-type]
            kind = next((tags for name, tags in _TAGS.items() if flow.name.startswith(name)), None)
            if kind:
                both = [
                    replace(one, tagged=how) for one, how in zip(both, self.bed.tagged(flow.user, kind), strict=True)
                ]
            plan.setdefault(self.bed.ap, []).append(both[0])
            plan.setdefault(self.bed.user(flow.user), []).append(both[1])
        self.results: Results = run_traffic(plan, seconds=SECONDS, linger_s=0.6)

    def receivers(self, flow: str) -> tuple[Namespace, Namespace]:
        """Of what goes to the user, and of what comes from it."""
        return self.bed.user(self.links[flow].user), self.bed.ap

    def arrived(self, flow: str) -> list[tuple[int, int, int]]:
        """To the user and from it: data packets and heartbeats that arrived, and data packets that were sent."""
        found = []
        for host in self.receivers(flow):
            end = self.results.at(host, flow)
            found.append((len(end.data), len(end.heartbeats), self.results.other_end(host, flow).sent()))
        return found

    def assert_limited(self, flow: str, *, more_bytes: tuple[int, int] = (0, 0), largest_bytes: int = 1514) -> None:
        """`more_bytes`: what each frame has beside the usual headers, to the user and from it."""
        link = self.links[flow]
        for host, more in zip(self.receivers(flow), more_bytes, strict=True):
            wire = Wire(link.family, ETHERNET_BYTES + more)
            excess = self.results.excess_bytes(host, flow, link.kbit, wire=wire)
            rate = self.results.rate_kbit(host, flow, wire=wire)
            report(flow=flow, at=host.short, limit=link.kbit, kbit=f"{rate:.1f}", excess=round(excess))
            allowed = allowed_excess_bytes(link.kbit, with_heartbeats=True, largest_bytes=largest_bytes)
            check_excess(excess, allowed, f"{flow} at {host.short}")
            assert rate >= link.kbit * 0.9

    def assert_blocked(self, flow: str) -> None:
        for data_packets, beats, sent in self.arrived(flow):
            assert (data_packets, beats) == (0, 0)
            assert sent > 50

    def assert_nothing_lost(self, flow: str) -> None:
        """Of what its own address would have lost to somebody else's limit."""
        for host in self.receivers(flow):
            report(flow=flow, at=host.short, sent=self.results.other_end(host, flow).sent())
            assert self.results.lost(host, flow) == 0
            assert self.results.lost(host, flow, "heartbeat") == 0


@pytest.fixture(scope="module", params=[None, UNMATCHED_KBIT], ids=["unmatched unlimited", "unmatched default"])
def run(request: pytest.FixtureRequest, _namespaces: None) -> Iterator[Run]:
    with Testbed() as bed:
        yield Run(bed, request.param)


both_families = pytest.mark.parametrize("family", FAMILIES)


@both_families
@pytest.mark.parametrize(("name", "tag_bytes"), [("tagged", 4), ("service tag", 4), ("two tags", 8)])
def test_frames_with_priority_tags_have_the_limit_of_their_link(
    run: Run, name: str, tag_bytes: int, family: int
) -> None:
    """The first engine let all of 4.8 Mbit/s pass at 500 kbit/s."""
    run.assert_limited(f"{name}{family}", more_bytes=(tag_bytes, tag_bytes - 4 if tag_bytes == 8 else 0))


@both_families
def test_frames_with_priority_tags_do_not_pass_a_blocked_link(run: Run, family: int) -> None:
    run.assert_blocked(f"tagged, blocked{family}")


@both_families
@pytest.mark.parametrize("name", ["options, blocked", "fragments, blocked"])
def test_a_link_at_0_beside_another_link_of_its_address_gets_nothing(run: Run, name: str, family: int) -> None:
    """With options or in fragments the first engine gave it the other link's 2 Mbit/s."""
    run.assert_blocked(f"{name}{family}")
    run.assert_nothing_lost(f"beside blocked{family}")


@both_families
def test_a_neighbour_behind_the_same_nat_neither_takes_nor_adds_to_a_limit(run: Run, family: int) -> None:
    """With options the first engine took the other's 200 kbit/s away (4 left) and added it to his own."""
    run.assert_nothing_lost(f"within its limit{family}")
    run.assert_limited(f"options, neighbour{family}", more_bytes=(_OPTION_BYTES[family],) * 2)


@both_families
@pytest.mark.parametrize("name", ["options, free", "fragments, free", "tagged, free"])
def test_a_link_at_0_harms_no_other_port_of_its_address(run: Run, name: str, family: int) -> None:
    """The first engine dropped 34 of 34 fragments and packets with options of other ports."""
    run.assert_nothing_lost(f"{name}{family}")


@both_families
def test_packets_that_look_like_heartbeats_do_not_take_a_neighbours_link_down(run: Run, family: int) -> None:
    """40 kbit/s of them did: they filled the 16 kbit/s that the neighbour's heartbeats had."""
    for host in run.receivers(f"overloaded{family}"):
        flow = f"overloaded{family}"
        assert run.results.other_end(host, flow).sent("heartbeat") == 16
        assert run.results.lost(host, flow, "heartbeat") == 0
    run.assert_limited(f"overloaded{family}")
    run.assert_nothing_lost(f"posing{family}")


@both_families
def test_datagrams_above_the_mtu_arrive_whole_under_overload(run: Run, family: int) -> None:
    """0 % arrived under overload, 64 to 70 % below the limit."""
    flow = f"large{family}"
    run.assert_limited(flow, largest_bytes=Wire(family).bytes(10_000))
    for host in run.receivers(flow):
        assert run.results.lost(host, flow, "heartbeat") == 0


def test_what_no_link_has_is_counted_only_where_it_is_limited(run: Run) -> None:
    counted = {number for number, _ in run.bed.engine.engine.counters()}
    assert (0 in counted) is (run.unmatched_kbit is not None)
    if run.unmatched_kbit is not None:
        for counters in run.bed.engine.counters(0):
            assert counters.passed_bytes > 500_000
            assert counters.refused_packets == 0
