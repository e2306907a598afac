"""A limited link keeps its heartbeats under any overload, and nobody gains by dressing data up as heartbeats."""

from __future__ import annotations

import pytest

from measuring.netns import Namespace
from measuring.scion_packet import NEXT_HEADER_BFD
from measuring.traffic import ROUTER_SEND_BUFFER_BYTES, Results, data, heartbeats, run_traffic
from tests.measured.testbed import (
    HEARTBEAT_SHARE_KBIT,
    Testbed,
    TestLink,
    assert_limit,
    assert_never_exceeded,
    report,
)

SECONDS = 4.3  # 22 heartbeats in each direction of each link
HEARTBEATS = 22
OVERLOAD = 20
# From the documented minimum up. What a station can send bounds the last ones: 20 times 2 Mbit/s are 35 000 packets of
# 100 bytes a second in each direction, 20 times 10 Mbit/s in full frames 17 000.
SLOW_KBIT, FAST_KBIT, FASTEST_KBIT = (32, 50, 100, 500), 2_000, 10_000
FEWEST_BYTES_AT_FASTEST = 1_000


def _links(payload_bytes: int) -> list[TestLink]:
    """Slow ones over both families, fast ones over the two in turn, and idle ones beside them on each user's host."""
    found = [(kbit, family) for kbit in SLOW_KBIT for family in (4, 6)]
    found.append((FAST_KBIT, 4 if payload_bytes in (100, 500, 1_472) else 6))
    if payload_bytes >= FEWEST_BYTES_AT_FASTEST:
        found.append((FASTEST_KBIT, 4 if payload_bytes == FEWEST_BYTES_AT_FASTEST else 6))
    return [
        TestLink(number, kbit=kbit, user=number % 4 + 1, family=family)
        for number, (kbit, family) in enumerate(found, start=1)
    ]


def _payload(link: TestLink, payload_bytes: int) -> int:
    """In one packet over either family."""
    return min(payload_bytes, 1_452) if link.family == 6 else payload_bytes


@pytest.mark.parametrize("payload_bytes", [100, 200, 500, 1_000, 1_472])
def test_all_heartbeats_arrive_under_twenty_fold_overload(bed: Testbed, payload_bytes: int) -> None:
    flooded = _links(payload_bytes)
    idle = [TestLink(50 + 10 * family + user, 100, user, family) for user in (1, 2, 3, 4) for family in (4, 6)]
    bed.enforce([*flooded, *idle])
    loads = [(link, (heartbeats(), data(link.kbit * OVERLOAD, _payload(link, payload_bytes)))) for link in flooded] + [
        (link, (heartbeats(),)) for link in idle
    ]
    plan = bed.plan((link, link.ends(streams, send_buffer_bytes=ROUTER_SEND_BUFFER_BYTES)) for link, streams in loads)
    results = run_traffic(plan, seconds=SECONDS, linger_s=1.0)
    for link, streams in loads:
        for host in (bed.ap, bed.user(link.user)):
            excess = assert_never_exceeded(results, host, link, with_heartbeats=True)
            _report(results, host, link, payload_bytes if link in flooded else 0, excess)
            _assert_heartbeats(results, host, link)
            # It was flooded: where the queue is longer than the socket's buffer, that is what refuses.
            too_much = results.lost(host, link.name) + results.other_end(host, link.name).refused()
            assert too_much > 0 or len(streams) == 1


def _assert_heartbeats(results: Results, host: Namespace, link: TestLink) -> None:
    assert results.other_end(host, link.name).sent("heartbeat") == HEARTBEATS
    assert results.lost(host, link.name, "heartbeat") == 0
    assert results.heartbeats(host, link.name).downs == 0


def _report(results: Results, host: Namespace, link: TestLink, payload_bytes: int, excess: float) -> None:
    beats, sender = results.heartbeats(host, link.name), results.other_end(host, link.name)
    offered = (sender.sent() + sender.refused()) * sender.wire.bytes(_payload(link, payload_bytes)) / SECONDS / 125
    report(
        payload=payload_bytes,
        family=link.family,
        kbit=link.kbit,
        at=host.short,
        offered=f"{offered / link.kbit:.1f}x",
        arrived=f"{beats.received}/{HEARTBEATS}",
        longest_gap=f"{beats.longest_gap_s:.3f}",
        total=f"{results.rate_kbit(host, link.name):.1f}",
        excess=round(excess),
    )


def test_data_marked_as_heartbeats_gains_nothing(bed: Testbed) -> None:
    marked = data(5_000, next_header=NEXT_HEADER_BFD)
    # Of a heartbeat's size, in case that is what the classifier looks at.
    small = data(2_500, 100, next_header=NEXT_HEADER_BFD)
    over_v6 = data(5_000, 1_452, next_header=NEXT_HEADER_BFD)
    loads = {
        TestLink(1, kbit=500, user=1): (marked,),
        TestLink(2, kbit=500, user=2): (data(5_000), marked),
        TestLink(3, kbit=500, user=3): (data(2_500), small),
        TestLink(4, kbit=500, user=4, family=6): (data(5_000, 1_452), over_v6),
        TestLink(5, kbit=32, user=1): (data(500), small),
        TestLink(6, kbit=10_000, user=2): (data(30_000), marked),
        TestLink(7, kbit=10_000, user=3, family=6): (over_v6,),
    }
    honest = TestLink(8, kbit=500, user=1)
    bed.enforce([*loads, honest])
    plan = bed.plan(
        (link, link.ends(streams)) for link, streams in [*loads.items(), (honest, (data(5_000), heartbeats()))]
    )
    results = run_traffic(plan, seconds=SECONDS)
    for link in loads:
        for host in (bed.ap, bed.user(link.user)):
            verdict = results.judge_rate(host, link.name, link.kbit)
            report(link=link.name, family=link.family, at=host.short, verdict=verdict)
            assert not verdict.is_exceeded
            assert_never_exceeded(results, host, link, with_heartbeats=True)
    # Data alone that poses as heartbeats gets their share of 16 kbit/s and no more, the rest of the limit stays idle.
    for link in (one for one, streams in loads.items() if len(streams) == 1):
        assert not results.judge_rate(bed.ap, link.name, HEARTBEAT_SHARE_KBIT).is_exceeded
    for host in (bed.ap, bed.user(1)):  # behind the same address as two of them
        _assert_heartbeats(results, host, honest)
        assert_limit(results, host, honest)
