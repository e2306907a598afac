"""The flows of the measuring library on a wire that `tc` alone limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.measuring.quic_like import run_quic_like
from measuring.echo import percentile
from measuring.framing import goodput_bound
from measuring.iproute import cleanup_stale
from measuring.judge import CLOCK_SLACK_S, FRAME_BYTES, delays_ms
from measuring.netns import Lab, Namespace
from measuring.tcp import run_tcp
from measuring.traffic import Endpoint, data, echoes, ends, run_traffic
from tests.measured.testbed import report

pytestmark = pytest.mark.usefixtures("_namespaces")

PREFIX = "sltflow"
LIMIT_KBIT, QUEUE_BYTES, BURST_BYTES = 2_000, 20_000, 2 * FRAME_BYTES
MOST_AHEAD_KBIT = ((BURST_BYTES + FRAME_BYTES) * 8 / 1_000 + LIMIT_KBIT * CLOCK_SLACK_S) / 2  # in a window of 2 s
NEAR, FAR = {4: "192.0.2.1", 6: "2001:db8::1"}, {4: "192.0.2.2", 6: "2001:db8::2"}
Hosts = tuple[Namespace, Namespace]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Two hosts on one wire; what the first sends is limited to 2 Mbit/s by a queue of 20 kB."""
    cleanup_stale(PREFIX)
    with Lab(PREFIX) as lab:
        near, far = lab.namespace("near"), lab.namespace("far")
        lab.veth(
            near.nic("eth0", f"{NEAR[4]}/24", f"{NEAR[6]}/64"),
            far.nic("eth0", f"{FAR[4]}/24", f"{FAR[6]}/64"),
        )
        rate = ("rate", f"{LIMIT_KBIT}kbit", "burst", str(BURST_BYTES), "cburst", str(BURST_BYTES))
        for command in (
            ("qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1"),
            ("class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", *rate),
            ("qdisc", "add", "dev", "eth0", "parent", "1:1", "bfifo", "limit", str(QUEUE_BYTES)),
        ):
            near.run("tc", *command)
        yield near, far


def test_datagrams_of_every_size_arrive_whole_and_are_counted_with_their_fragments(hosts: Hosts) -> None:
    near, far = hosts
    cases = [(size, family) for family in (4, 6) for size in (100, 1_452, 1_473, 10_000)] + [(65_507, 4), (65_487, 6)]
    kbit = {size: 2_000.0 if size > 60_000 else 400.0 for size, _ in cases}
    plan: dict[Namespace, list[Endpoint]] = {near: [], far: []}
    for port, (size, family) in enumerate(cases, start=50_000):
        # From the host that nothing limits.
        at_far, at_near = ends(
            f"{size}/{family}", (FAR[family], port), (NEAR[family], port), (data(kbit[size], size),), right_streams=()
        )
        plan[far].append(at_far)
        plan[near].append(at_near)
    results = run_traffic(plan, seconds=2)
    for size, family in cases:
        name = f"{size}/{family}"
        arrived, sent = results.at(near, name), results.at(far, name)
        assert results.lost(near, name) == 0
        assert set(arrived.data.payload_bytes) == {size}
        assert sent.sent() * sent.wire.bytes(size) * 8 / 2_000 == pytest.approx(
            kbit[size] * (1 - sent.sent_streams[0]["skipped"] / sent.sent()), abs=sent.wire.bytes(size) * 8 / 2_000 + 1
        )
        total = sum(results.goodput_samples(near, name, warm_up_s=0))
        assert total * 125 == pytest.approx(sent.sent() * size, abs=size)  # one may arrive after the last whole second
    report(cpu_s=results.cpu_s)


def test_echoes_and_delays_say_how_long_the_queue_is(hosts: Hosts) -> None:
    near, far = hosts
    stream = (data(2 * LIMIT_KBIT), echoes())
    at_near, at_far = ends("link", (NEAR[4], 50_000), (FAR[4], 50_000), stream, right_streams=())
    results = run_traffic({near: [at_near], far: [at_far]}, seconds=2)
    full_ms = QUEUE_BYTES * 8 / LIMIT_KBIT
    # The queue takes no further full frame when it has less room than one, and a frame is on the wire already.
    least_ms, most_ms = full_ms - FRAME_BYTES * 8 / LIMIT_KBIT, full_ms + FRAME_BYTES * 8 / LIMIT_KBIT
    end = results.at(near, "link")
    middle_ms, delay_ms = (
        percentile(sorted(delays_ms(one)), 50) for one in (end.received["answer"], results.at(far, "link").data)
    )
    report(answered=len(end.received["answer"]), middle_ms=middle_ms, delay_ms=delay_ms, full_ms=full_ms)
    assert end.sent("question") == 40
    assert least_ms <= middle_ms <= most_ms + 2 * CLOCK_SLACK_S * 1000
    assert least_ms <= delay_ms <= most_ms + CLOCK_SLACK_S * 1000


@pytest.mark.parametrize("family", [4, 6])
def test_tcp_counts_what_a_limit_lets_through(hosts: Hosts, family: int) -> None:
    near, far = hosts
    result = run_tcp(near, far, FAR[family], flows=2, seconds=2, source=NEAR[family])
    carried = result.wire_kbit(version=family, warm_up_s=0)
    report(family=family, kbit=f"{carried:.0f}", samples=result.samples_kbit(warm_up_s=0), again=result.retransmitted)
    assert len(result.flows) == 2
    assert len(result.flows[0]) == 20
    assert LIMIT_KBIT / 2 < carried <= LIMIT_KBIT + MOST_AHEAD_KBIT
    assert sum(result.samples_kbit(warm_up_s=0)) * 125 == pytest.approx(sum(map(sum, result.flows)))


def test_a_loss_controlled_flow_fills_a_limit_and_is_not_mistaken_for_a_flood(hosts: Hosts) -> None:
    near, far = hosts
    result = run_quic_like(near, far, (NEAR[4], 50_001), (FAR[4], 50_001), seconds=2.5)
    carried = result.wire_kbit(warm_up_s=0.5)
    report(kbit=f"{carried:.0f}", sent=result.sent, lost=result.declared_lost, rtt_ms=result.smoothed_rtt_ms)
    assert LIMIT_KBIT / 2 < carried <= LIMIT_KBIT + MOST_AHEAD_KBIT
    assert result.goodput_kbit(warm_up_s=0.5) == pytest.approx(goodput_bound(carried, 1_200))
    assert result.reductions >= 1
    assert result.sent < 2 * len(result.arrivals)  # a flood of twice the limit would lose half
