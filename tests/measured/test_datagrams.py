"""Datagrams larger than the MTU arrive whole under overload, and nobody pays for it (chapter 6.3.3 of the thesis)."""

from __future__ import annotations

from measuring.framing import goodput_bound, wire_bytes
from measuring.traffic import data, heartbeats, run_traffic
from tests.measured.testbed import Testbed, TestLink, assert_limit, assert_never_exceeded, report

WANTED_SHARE = 0.97  # of what headers and fragments leave of the limit
LINKS = {
    TestLink(1, kbit=500, user=1): 10_000,
    TestLink(2, kbit=500, user=2, family=6): 3_000,
    TestLink(5, kbit=5_000, user=2, family=6): 65_487,
    TestLink(6, kbit=20_000, user=1): 10_000,
    TestLink(3, kbit=10_000, user=3): 65_507,
    TestLink(4, kbit=500, user=4): 1_472,
}
TIMES = 4
SECONDS = 5.0


def test_datagrams_of_any_size_arrive_whole_in_both_directions(bed: Testbed) -> None:
    bed.enforce(LINKS)
    plan = bed.plan(
        (link, link.ends((data(link.kbit * TIMES, size), *(() if size == 1_472 else (heartbeats(),)))))
        for link, size in LINKS.items()
    )
    results = run_traffic(plan, seconds=SECONDS)
    for link, size in LINKS.items():
        bound = goodput_bound(link.kbit, size, version=link.family)
        # Heartbeats are part of the limit; and a run may end in the middle of one datagram.
        beats = wire_bytes(92 if link.family == 4 else 116, family=link.family) * 8 / 200
        cut = size * 8 / 1000 / (SECONDS - 1)
        for host in (bed.user(link.user), bed.ap):
            goodput, samples = results.goodput_kbit(host, link.name), results.goodput_samples(host, link.name)
            report(limit=link.kbit, size=size, at=host.short, goodput=f"{goodput:.1f}", bound=f"{bound:.1f}")
            assert goodput >= WANTED_SHARE * bound - beats - cut, f"{link.name} at {host.short}: {samples}"
            assert 0 not in samples, f"{link.name} at {host.short}: {samples}"
            assert results.lost(host, link.name, "heartbeat") == 0
            largest = wire_bytes(size, family=link.family)
            assert_never_exceeded(results, host, link, largest_bytes=largest, with_heartbeats=True)
    within = next(link for link, size in LINKS.items() if size == 1_472)
    for host in (bed.user(within.user), bed.ap):
        assert_limit(results, host, within)
