"""No packet of anyone is lost by a change, and a link that stays limited never gets more than the larger of its limits.

Beside the link that changes, flooded, there is a neighbour behind the same address and one over IPv6, both within
their limits, and a conversation that is nobody's link. Attaching and removing our root is the exception; bench measures
it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ap_agent.model import EngineSettings
from ap_agent.reconcile import CycleResult
from measuring.judge import excess_bytes
from measuring.netns import Namespace
from measuring.traffic import Results, TrafficRun, data, ends, heartbeats
from tests.measured.testbed import (
    AP_ADDRESS,
    Testbed,
    TestLink,
    allowed_excess_bytes,
    check_excess,
    document,
    report,
    user_address,
)

CHANGE_AT_S = 1.0
SETTLED_NS = 20_000_000  # a packet that was on its way when the change was done has arrived by then
QUIET = TestLink(1, kbit=12_000, user=1)
QUIET6 = TestLink(2, kbit=6_000, user=2, family=6)
BUSY = TestLink(3, kbit=2_000, user=1)
BUSY6 = TestLink(4, kbit=2_000, user=1, family=6)
# Addresses that end like the first user's: the bytes by which two addresses were told apart do not tell these.
CROWD = tuple(TestLink(n, kbit=100, user=1, family=6, remote_address=f"2001:db8::{n:x}:0:11") for n in range(20, 41))
DEFAULT = EngineSettings(unmatched="default", default_bandwidth_kbit=20_000)

Act = Callable[[Testbed, Iterable[TestLink], Path], CycleResult | None]


def _enforce(bed: Testbed, links: Iterable[TestLink], _folder: Path) -> CycleResult:
    return bed.enforce(links)


def _switch_unmatched(bed: Testbed, links: Iterable[TestLink], _folder: Path) -> CycleResult:
    return bed.enforce(links, DEFAULT)


def _with_a_larger_mtu(bed: Testbed, links: Iterable[TestLink], _folder: Path) -> CycleResult:
    bed.ap.ip("link", "set", "eth0", "mtu", "9000")
    return bed.enforce(links)


def _start_again(bed: Testbed, links: Iterable[TestLink], folder: Path) -> None:
    """The agent as a process that finds everything in place."""
    path = folder / "link_info.json"
    path.write_text(json.dumps(document(links)))
    config = folder / "agent.toml"
    config.write_text(f'state_dir = "{folder}/state"\nrun_dir = "{folder}/run"\n')
    said = bed.ap.run(sys.executable, "-m", "ap_agent", "once", "--config", str(config), "--link-info", str(path))
    assert "3 of 3 limited links enforced" in said
    assert "Nothing had to change in the kernel." in said


@dataclass(frozen=True)
class Change:
    """Of the busy link, or of something around it. `kinds` of operations must be among those that it takes."""

    before: tuple[TestLink, ...]
    after: tuple[TestLink, ...]
    act: Act = _enforce
    kinds: frozenset[str] = frozenset()
    mtu_bytes: int = 1500
    seconds: float = 2.4


CHANGES = {
    "rate raised": Change((BUSY,), (replace(BUSY, kbit=4_000),), kinds=frozenset({"class-change"})),
    "rate lowered": Change((replace(BUSY, kbit=4_000),), (BUSY,), kinds=frozenset({"class-change"})),
    "blocked": Change((BUSY,), (replace(BUSY, kbit=0),), kinds=frozenset({"leaf-replace"})),
    "added": Change((), (BUSY,), kinds=frozenset({"class-add", "filter-add"})),
    "removed": Change((BUSY,), (), kinds=frozenset({"class-del", "filter-del"})),
    "port moved": Change(
        (BUSY,), (replace(BUSY, port=50_333, local_port=51_333),), kinds=frozenset({"filter-add", "filter-del"})
    ),
    "address moved": Change(
        (BUSY,), (replace(BUSY, user=2, local_port=51_333),), kinds=frozenset({"filter-add", "filter-del"})
    ),
    "index rebuilt": Change((BUSY6,), (BUSY6, *CROWD), kinds=frozenset({"head-switch"})),
    "unmatched switched": Change((BUSY,), (BUSY,), _switch_unmatched, frozenset({"class-add"})),
    "MTU changed": Change((BUSY,), (BUSY,), _with_a_larger_mtu, frozenset({"class-change"}), mtu_bytes=9000),
    "agent restarted": Change((BUSY,), (BUSY,), _start_again, seconds=4.0),  # a process that begins from nothing
}


@pytest.mark.parametrize("name", CHANGES)
def test_no_packet_of_a_neighbour_is_lost_and_no_limit_is_exceeded(bed: Testbed, tmp_path: Path, name: str) -> None:
    change = CHANGES[name]
    always = (QUIET, QUIET6)
    bed.enforce([*always, *change.before])
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

    run = TrafficRun(plan, seconds=change.seconds).go()
    run.sleep_until(CHANGE_AT_S)
    before_ns = time.monotonic_ns()
    result = change.act(bed, [*always, *change.after], tmp_path)
    after_ns = time.monotonic_ns()
    results = run.finish()

    if result is not None:
        assert change.kinds <= {op.kind for op in result.plan.ops}
    for bystander, user in ((QUIET.name, 1), (QUIET6.name, 2), ("free", 3)):
        for host in (bed.ap, bed.user(user)):
            lost = {kind: results.lost(host, bystander, kind) for kind in ("data", "heartbeat")}
            assert lost == {"data": 0, "heartbeat": 0}, (bystander, host.short)
    for flow, link in flows.items():
        for host in (bed.ap, bed.user(link.user)):
            _assert_limited(results, host, flow, change, before_ns, after_ns)
    report(change=name, took_ms=f"{(after_ns - before_ns) / 1e6:.1f}", neighbours_lost=0)


def _flows(change: Change) -> dict[str, TestLink]:
    """The packets of the links that are flooded: one that moves has those of before and those of after."""
    busy = [link for link in (*change.before, *change.after) if link not in CROWD]
    return {_flow(link): link for link in busy}


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
    check_excess(excess, allowed_excess_bytes(kbit, mtu_bytes=change.mtu_bytes), f"{flow} at {host.short}")
    assert len(limited) > 10
    if new == 0:
        assert len(arrivals.between(after_ns + SETTLED_NS, until_ns)) == 0
    free = arrivals.between(results.start_ns, before_ns) if old is None else arrivals.between(after_ns, results.stop_ns)
    if old is None or new is None:  # without a limit the flood passes: three times as much
        seconds = (before_ns - results.start_ns if old is None else results.stop_ns - after_ns) / 1e9
        assert wire.total(free) * 8 / seconds / 1000 > 2 * kbit
