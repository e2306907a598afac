"""No packet of anyone is lost by a change, and a link that stays limited never gets more than the larger of its limits.

Beside the link that changes, flooded, there is a neighbour behind the same address and one over IPv6, both within
their limits by far (a machine that stood still sends a burst), and a conversation that is nobody's link.

When the first limit comes or the last one goes, a clsact qdisc does: Linux stops all sending of the card for that
(qdisc_graft in net/sched/sch_api.c deactivates the device), 3 ms on an idle machine; measured with `tc` alone.

A rate that rises or falls is the evaluation's (`./dev evaluate change`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest

from measuring.judge import excess_bytes
from measuring.netns import Namespace
from measuring.traffic import Results, TrafficRun, data, ends, heartbeats
from tests.measured.testbed import (
    AP_ADDRESS,
    Testbed,
    TestLink,
    allowed_excess_bytes,
    check_excess,
    report,
    user_address,
)

CHANGE_AT_S = 0.6
SETTLED_NS = 20_000_000  # a packet that was on its way when the change was done has arrived by then
QUIET = TestLink(1, kbit=40_000, user=1)
QUIET6 = TestLink(2, kbit=20_000, user=2, family=6)
BUSY = TestLink(3, kbit=2_000, user=1)
BESIDE = TestLink(5, kbit=2_000, user=1)
DEFAULT_KBIT = 20_000

Act = Callable[[Testbed, Iterable[TestLink]], object]


def _enforce(bed: Testbed, links: Iterable[TestLink]) -> None:
    assert bed.enforce(links).writes > 0


def _switch_unmatched(bed: Testbed, links: Iterable[TestLink]) -> None:
    assert bed.enforce(links, DEFAULT_KBIT).writes > 0


def _with_a_larger_mtu(bed: Testbed, links: Iterable[TestLink]) -> None:
    bed.ap.ip("link", "set", "eth0", "mtu", "9000")
    bed.enforce(links)


def _start_again(bed: Testbed, links: Iterable[TestLink]) -> None:
    """The limiter as a process that finds everything in place."""
    bed.engine.again()
    assert bed.enforce(links).writes == 0


def _reset(bed: Testbed, _links: Iterable[TestLink]) -> None:
    bed.ap.call(bed.engine.engine.reset)


@dataclass(frozen=True)
class Change:
    """Of the busy link, or of something around it. `neighbours` have limits before, and after."""

    before: tuple[TestLink, ...]
    after: tuple[TestLink, ...]
    act: Act = _enforce
    neighbours: tuple[bool, bool] = (True, True)


def _at_the_ports_of(link: TestLink, other: TestLink) -> TestLink:
    return replace(link, port=other.remote[1], local_port=other.local[1])


CHANGES = {
    "blocked": Change((BUSY,), (replace(BUSY, kbit=0),)),
    "added": Change((), (BUSY,)),
    "removed": Change((BUSY,), ()),
    "port moved": Change((BUSY,), (replace(BUSY, port=50_333, local_port=51_333),)),
    "ports swapped": Change((BUSY, BESIDE), (_at_the_ports_of(BUSY, BESIDE), _at_the_ports_of(BESIDE, BUSY))),
    "address moved": Change((BUSY,), (replace(BUSY, user=2, local_port=51_333),)),
    "unmatched switched": Change((BUSY,), (BUSY,), _switch_unmatched),
    "MTU changed": Change((BUSY,), (BUSY,), _with_a_larger_mtu),
    "limiter restarted": Change((BUSY,), (BUSY,), _start_again),
    "first limit": Change((), (BUSY,), neighbours=(False, True)),
    "last limit": Change((BUSY,), (), neighbours=(True, False)),
    "reset": Change((BUSY,), (), _reset, neighbours=(True, False)),
}
SECONDS = 1.5
STANDSTILL_S = 0.05


@pytest.mark.parametrize("name", CHANGES)
def test_no_packet_of_a_neighbour_is_lost_and_no_limit_is_exceeded(bed: Testbed, name: str) -> None:
    change = CHANGES[name]
    before, after = ((QUIET, QUIET6) if is_there else () for is_there in change.neighbours)
    bed.enforce([*before, *change.before])
    flows = _flows(change)
    plan = bed.plan(
        [
            (QUIET, QUIET.ends((data(10_000), heartbeats()))),
            (QUIET6, QUIET6.ends((data(5_000, 500), heartbeats()))),
            *((link, ends(flow, link.local, link.remote, (data(6_000),))) for flow, link in flows.items()),
        ]
    )
    free = ends("free", (AP_ADDRESS[4], 40_000), (user_address(3), 40_000), (data(5_000),))
    plan[bed.ap].append(free[0])
    plan[bed.user(3)] = [free[1]]

    run = TrafficRun(plan, seconds=SECONDS).go()
    run.sleep_until(CHANGE_AT_S)
    before_ns = time.monotonic_ns()
    change.act(bed, [*after, *change.after])
    after_ns = time.monotonic_ns()
    results = run.finish()

    for bystander, user in ((QUIET.name, 1), (QUIET6.name, 2), ("free", 3)):
        for host in (bed.ap, bed.user(user)):
            lost = {kind: results.lost(host, bystander, kind) for kind in ("data", "heartbeat")}
            if change.neighbours == (True, True):
                assert lost == {"data": 0, "heartbeat": 0}, (bystander, host.short)
            else:
                assert lost["data"] <= results.other_end(host, bystander).sent() * STANDSTILL_S / SECONDS, bystander
    bed.ap.ip("link", "set", "eth0", "mtu", "1500")
    for flow, link in flows.items():
        for host in (bed.ap, bed.user(link.user)):
            _assert_limited(results, host, flow, change, before_ns, after_ns)
    report(change=name, took_ms=f"{(after_ns - before_ns) / 1e6:.1f}", neighbours_lost=0)


def _flows(change: Change) -> dict[str, TestLink]:
    """The packets of the links that are flooded: one that moves has those of before and those of after."""
    return {_flow(link): link for link in (*change.before, *change.after)}


def _flow(link: TestLink) -> str:
    return f"{link.remote[0]}-{link.remote[1]}"


def _assert_limited(
    results: Results, host: Namespace, flow: str, change: Change, before_ns: int, after_ns: int
) -> None:
    """While its packets are those of a limited link: all the time, until the change, or from it on."""
    old, new = ({_flow(link): link.kbit for link in links}.get(flow) for links in (change.before, change.after))
    arrivals, wire = results.at(host, flow).data, results.at(host, flow).wire
    from_ns = 0 if old is not None else after_ns + SETTLED_NS
    until_ns = results.stop_ns * 2 if new is not None else before_ns
    limited = arrivals.between(from_ns, until_ns)
    kbit = max(old or 0, new or 0)
    excess = excess_bytes(limited, wire, kbit)
    report(flow=flow, at=host.short, old=old, new=new, excess=round(excess), packets=len(limited))
    check_excess(excess, allowed_excess_bytes(kbit), f"{flow} at {host.short}")
    assert len(limited) > 10
    if new == 0:
        assert len(arrivals.between(after_ns + SETTLED_NS, until_ns)) == 0
    free = arrivals.between(results.start_ns, before_ns) if old is None else arrivals.between(after_ns, results.stop_ns)
    if old is None or new is None:  # without a limit the flood passes: three times as much
        seconds = (before_ns - results.start_ns if old is None else results.stop_ns - after_ns) / 1e9
        assert wire.total(free) * 8 / seconds / 1000 > 2 * kbit
