"""A limited link keeps its heartbeats under any overload, and nobody gains by dressing data up as heartbeats."""

from __future__ import annotations

import pytest

from lab.scion_packet import NEXT_HEADER_BFD
from lab.traffic import ROUTER_SEND_BUFFER_BYTES, data, heartbeats, run_traffic
from tests.measured.testbed import Testbed, TestLink, assert_limit, assert_never_exceeded, report

SECONDS = 4.3  # 22 heartbeats in each direction of each link


@pytest.mark.parametrize("payload_bytes", [100, 200, 1472])
def test_all_heartbeats_arrive_under_twenty_fold_overload(bed: Testbed, payload_bytes: int) -> None:
    links = [TestLink(number, kbit=kbit, user=number) for number, kbit in enumerate((32, 100, 2_000), start=1)]
    bed.enforce(links)
    plan = bed.plan(
        (
            link,
            link.ends((heartbeats(), data(link.kbit * 20, payload_bytes)), send_buffer_bytes=ROUTER_SEND_BUFFER_BYTES),
        )
        for link in links
    )
    results = run_traffic(plan, seconds=SECONDS, linger_s=1.0)
    for link in links:
        for host in (bed.ap, bed.user(link.user)):
            sender = results.other_end(host, link.name)
            beats = results.heartbeats(host, link.name)
            excess = assert_never_exceeded(results, host, link, with_heartbeats=True)
            report(
                payload=payload_bytes,
                kbit=link.kbit,
                at=host.short,
                sent=sender.sent("heartbeat"),
                arrived=beats.received,
                downs=beats.downs,
                longest_gap=f"{beats.longest_gap_s:.3f}",
                total=f"{results.rate_kbit(host, link.name):.1f}",
                excess=round(excess),
            )
            assert sender.sent("heartbeat") == 22
            assert results.lost(host, link.name, "heartbeat") == 0
            assert beats.downs == 0
    for host in (bed.ap, bed.user(3)):
        assert_limit(results, host, links[2])


def test_heartbeats_over_ipv6_arrive_too(bed: Testbed) -> None:
    links = [TestLink(number, kbit=kbit, user=number, family=6) for number, kbit in enumerate((32, 500), start=1)]
    bed.enforce(links)
    results = run_traffic(bed.flood(links, times=20, payload_bytes=200, more=(heartbeats(),)), seconds=SECONDS)
    for link in links:
        for host in (bed.ap, bed.user(link.user)):
            beats = results.heartbeats(host, link.name)
            report(kbit=link.kbit, at=host.short, arrived=beats.received, longest_gap=f"{beats.longest_gap_s:.3f}")
            assert (results.lost(host, link.name, "heartbeat"), beats.downs) == (0, 0)
            assert_never_exceeded(results, host, link, with_heartbeats=True)


def test_data_marked_as_heartbeats_gains_nothing(bed: Testbed) -> None:
    only_marked = TestLink(1, kbit=500, user=1)
    both = TestLink(2, kbit=500, user=2)
    small = TestLink(3, kbit=500, user=3)
    bed.enforce([only_marked, both, small])
    marked = data(5_000, next_header=NEXT_HEADER_BFD)
    plan = bed.plan(
        [
            (only_marked, only_marked.ends((marked,))),
            (both, both.ends((data(5_000), marked))),
            # Of a heartbeat's size, in case that is what the classifier looks at.
            (small, small.ends((data(2_500, 1472), data(2_500, 100, next_header=NEXT_HEADER_BFD)))),
        ]
    )
    results = run_traffic(plan, seconds=SECONDS)
    for link in (only_marked, both, small):
        for host in (bed.ap, bed.user(link.user)):
            measured = results.rate_kbit(host, link.name)
            report(link=link.name, at=host.short, kbit=f"{measured:.1f}")
            assert measured <= 500 * 1.02
            assert_never_exceeded(results, host, link, with_heartbeats=True)
