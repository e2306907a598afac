"""The cap of all links together, with packets: shares in proportion to the limits, and what the silent ones leave."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from ap_agent.limiter.total import TICK_S, Cap
from bandwidth_config import Limits
from measuring.iproute import available
from measuring.netns import Namespace
from measuring.traffic import Results, data, ends, heartbeats, run_traffic
from tests.kernel.engine_bed import AP1, U1, EngineBed, engine_bed, link, wanted

pytestmark = pytest.mark.kernel
WARM_UP_S, MEASURED_S = 3.0, 5.0


@pytest.fixture(scope="module")
def shared_bed() -> Iterator[EngineBed]:
    if (missing := available()) is not None:
        pytest.skip(missing)
    with engine_bed() as made:
        yield made


@contextmanager
def capped(bed: EngineBed, total_kbit: int, limits: Sequence[int]) -> Iterator[None]:
    """Links 1, 2, ... at these limits, and the loop that sets the factors."""
    bed.enforce(wanted(*(link(n, kbit, port=50_000 + n) for n, kbit in enumerate(limits, 1))))
    by_link = {n: Limits(kbit, kbit) for n, kbit in enumerate(limits, 1)}
    cap, is_over = Cap(), threading.Event()

    def keep() -> None:
        while not is_over.wait(TICK_S):
            bed.engine.set_factors(*cap.factors(time.monotonic(), total_kbit, by_link, bed.engine.counters()))

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        bed.engine.set_factors(1.0, 1.0)


@dataclass(frozen=True)
class Case:
    """`sent`: what each link offers, kbit/s; `shares`: what it shall get. The smallest share is more than 70 packets in
    `MEASURED_S`, so that one at the edge of the window is 1.5 %."""

    total: int
    limits: tuple[int, ...]
    sent: tuple[int, ...]
    shares: tuple[float, ...]
    payload_bytes: int = 500


# What the shares are for other offers: tests/limiter/test_limiter_total.py. Here the kernel keeps them.
CASES = {
    "two, 1:10": Case(1000, (2000, 200), (4000, 400), (909.1, 90.9)),
    "two, one modest": Case(1000, (1000, 1000), (200, 2000), (200, 800)),
    "ten, half of them silent": Case(
        3000,
        (500, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000),
        (300, 0, 900, 0, 1500, 0, 2100, 0, 2700, 0),
        (120, 0, 360, 0, 600, 0, 840, 0, 1080, 0),
        payload_bytes=1000,
    ),
}


def run(bed: EngineBed, sent: Sequence[int], payload_bytes: int, measured_s: float = MEASURED_S) -> Results:
    """The same in both directions."""
    pairs = [
        ends(f"l{n}", (AP1, 51_000 + n), (U1, 50_000 + n), (data(kbit, payload_bytes),) if kbit else ())
        for n, kbit in enumerate(sent, 1)
    ]
    plan = {bed.ap: [left for left, _ in pairs], bed.u1: [right for _, right in pairs]}
    return run_traffic(plan, seconds=WARM_UP_S + measured_s)


def got_kbit(found: Results, host: Namespace, links: int) -> list[float]:
    """What arrived of links 1 to `links`, kbit/s."""
    return [found.rate_kbit(host, f"l{n}", warm_up_s=WARM_UP_S) for n in range(1, links + 1)]


def check_shares(found: Results, hosts: Iterable[Namespace], shares: Sequence[float]) -> None:
    """Each within three percent; where a sender stood still, it is short of no more than what it did not send."""
    for host in hosts:
        for n, share in enumerate(shares, 1):
            if share:
                verdict = found.judge_rate(host, f"l{n}", round(share), warm_up_s=WARM_UP_S, tolerance=0.03)
                assert verdict.holds, f"{host.short} l{n}: {verdict}"


@pytest.mark.parametrize("what", CASES)
def test_each_link_gets_its_share_within_three_percent(shared_bed: EngineBed, what: str) -> None:
    case = CASES[what]
    with capped(shared_bed, case.total, case.limits):
        found = run(shared_bed, case.sent, case.payload_bytes)

    hosts = (shared_bed.u1, shared_bed.ap)
    check_shares(found, hosts, case.shares)
    for host in hosts:
        assert sum(got_kbit(found, host, len(case.limits))) <= case.total * 1.01, host.short


def test_datagrams_of_ten_thousand_bytes_arrive_whole_under_the_cap(shared_bed: EngineBed) -> None:
    with capped(shared_bed, 1000, (1000, 500)):
        found = run(shared_bed, (4000, 2000), 10_000, measured_s=10.0)  # 40 of the smaller share

    check_shares(found, (shared_bed.u1, shared_bed.ap), (667, 333))


def test_every_heartbeat_arrives_at_twentyfold_overload_of_the_cap(shared_bed: EngineBed) -> None:
    with capped(shared_bed, 500, (1000, 1000)):
        pairs = [ends(f"l{n}", (AP1, 51_000 + n), (U1, 50_000 + n), (data(5000), heartbeats())) for n in (1, 2)]
        plan = {shared_bed.ap: [left for left, _ in pairs], shared_bed.u1: [right for _, right in pairs]}
        found = run_traffic(plan, seconds=8)

    for host in (shared_bed.ap, shared_bed.u1):
        assert [found.heartbeats(host, name).downs for name in ("l1", "l2")] == [0, 0]
        assert sum(found.rate_kbit(host, name, warm_up_s=WARM_UP_S) for name in ("l1", "l2")) <= 505
