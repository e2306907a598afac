"""A limited link keeps its heartbeats beside what looks like them, and nobody gains by dressing data up as heartbeats.

Twenty times the limit in data is the evaluation's (`./dev evaluate heartbeats`).
"""

from __future__ import annotations

from measuring.judge import FRAME_BYTES, bucket_bytes, room_bytes
from measuring.netns import Namespace
from measuring.scion_packet import NEXT_HEADER_BFD
from measuring.traffic import Results, Stream, data, heartbeats, run_traffic
from tests.measured.testbed import (
    HEARTBEAT_BUCKET_S,
    Testbed,
    TestLink,
    assert_never_exceeded,
    check_excess,
    report,
)

SECONDS = 3.3  # 17 heartbeats in each direction of each link
HEARTBEATS = 17


def _assert_heartbeats(results: Results, host: Namespace, link: TestLink) -> None:
    assert results.other_end(host, link.name).sent("heartbeat") == HEARTBEATS
    assert results.lost(host, link.name, "heartbeat") == 0
    assert results.heartbeats(host, link.name).downs == 0


def test_heartbeats_arrive_whatever_looks_like_them_on_another_port_of_the_address(bed: Testbed) -> None:
    """Links of 32 and 500 kbit/s, overloaded, beside 20 Mbit/s of such packets that no link has, and beside 5 Mbit/s of
    them on a link of its own."""
    own = [TestLink(1, 32, 1), TestLink(2, 500, 1, 6), TestLink(3, 500, 2), TestLink(4, 32, 2, 6)]
    posing = TestLink(5, 500, 2)
    bed.enforce([*own, posing])
    loads = [(link, link.ends((heartbeats(), data(link.kbit * 4, 500)))) for link in own]
    loads.append((posing, posing.ends((data(5_000, 1_200, next_header=NEXT_HEADER_BFD),))))
    nobodys = [TestLink(90 + family, 0, 1, family) for family in (4, 6)]
    loads += [(one, one.ends((data(10_000, 1_200, next_header=NEXT_HEADER_BFD),))) for one in nobodys]
    results = run_traffic(bed.plan(loads), seconds=SECONDS, linger_s=1.0)
    for link in own:
        for host in (bed.ap, bed.user(link.user)):
            assert_never_exceeded(results, host, link, with_heartbeats=True)
            _assert_heartbeats(results, host, link)


def test_heartbeats_arrive_beside_2_mbit_of_packets_that_nobody_can_tell_from_them(bed: Testbed) -> None:
    """From the very same port, on links of 2.5 Mbit/s that are overloaded with data as well."""
    links = [TestLink(1, 2_500, 1), TestLink(2, 2_500, 2, 6)]
    bed.enforce(links)
    streams = (heartbeats(), data(2_000, 1_000, next_header=NEXT_HEADER_BFD), data(5_000, 1_400))
    results = run_traffic(bed.plan((link, link.ends(streams)) for link in links), seconds=SECONDS, linger_s=1.0)
    for link in links:
        for host in (bed.ap, bed.user(link.user)):
            beats = results.heartbeats(host, link.name)
            report(
                family=link.family,
                at=host.short,
                arrived=f"{beats.received}/{HEARTBEATS}",
                gap=f"{beats.longest_gap_s:.3f}",
            )
            _assert_heartbeats(results, host, link)
            _assert_nothing_gained(results, host, link)


def test_data_marked_as_heartbeats_gains_nothing(bed: Testbed) -> None:
    marked = data(5_000, next_header=NEXT_HEADER_BFD)
    # Of a heartbeat's size, in case that is what the classifier looks at.
    small = data(2_500, 100, next_header=NEXT_HEADER_BFD)
    over_v6 = data(5_000, 1_452, next_header=NEXT_HEADER_BFD)
    loads: dict[TestLink, tuple[Stream, ...]] = {
        TestLink(1, kbit=500, user=1): (marked,),
        TestLink(2, kbit=500, user=2): (data(5_000), marked),
        TestLink(3, kbit=500, user=3): (data(2_500), small),
        TestLink(4, kbit=500, user=4, family=6): (data(5_000, 1_452), over_v6),
        TestLink(5, kbit=32, user=1): (data(500), small),
        TestLink(6, kbit=10_000, user=2): (data(30_000), marked),
        TestLink(7, kbit=2_000, user=3, family=6): (over_v6,),
    }
    honest = TestLink(8, kbit=500, user=1)
    bed.enforce([*loads, honest])
    plan = bed.plan(
        (link, link.ends(streams)) for link, streams in [*loads.items(), (honest, (data(5_000), heartbeats()))]
    )
    results = run_traffic(plan, seconds=SECONDS)
    for link in loads:
        for host in (bed.ap, bed.user(link.user)):
            _assert_nothing_gained(results, host, link)
    for host in (bed.ap, bed.user(1)):  # behind the same address as two of them
        _assert_heartbeats(results, host, honest)


def _assert_nothing_gained(results: Results, host: Namespace, link: TestLink) -> None:
    """Not a byte more than the limit, whatever the window: what heartbeats may bring at once is their bucket's content,
    and what data may is the queue's room; both are paid back at the limit's rate."""
    excess = results.excess_bytes(host, link.name, link.kbit)
    heartbeat_bucket = max(link.kbit * 125 * HEARTBEAT_BUCKET_S, 1_000)
    allowed = room_bytes(link.kbit) + heartbeat_bucket + bucket_bytes(link.kbit) + 2 * FRAME_BYTES
    report(link=link.name, at=host.short, kbit=f"{results.rate_kbit(host, link.name):.1f}", excess=round(excess))
    check_excess(excess, allowed, f"{link.name} at {host.short}")
