"""Changes under traffic: nobody else's packets are harmed, and the new limit holds at once."""

from __future__ import annotations

import time
from dataclasses import replace

from lab.witness import traces
from measuring import probes
from measuring.judge import RateVerdict, bins_kbit
from measuring.traffic import TrafficRun, data, ends, heartbeats
from tests.measured.testbed import (
    AP_ADDRESS,
    Testbed,
    TestLink,
    allowed_excess_bytes,
    assert_limit,
    report,
    seconds,
    user_address,
)


def test_a_limit_changed_in_place_harms_no_other_link_and_holds_within_200_ms(bed: Testbed) -> None:
    quiet = TestLink(1, kbit=12_000, user=1)
    raised = TestLink(2, kbit=1_000, user=2)
    lowered = TestLink(3, kbit=8_000, user=3)
    bed.enforce([quiet, raised, lowered])
    plan = bed.plan(
        [
            (quiet, quiet.ends((data(10_000, 958), heartbeats()))),
            (raised, raised.ends((data(10_000),))),
            (lowered, lowered.ends((data(16_000),))),
        ]
    )
    run = TrafficRun(plan, seconds=5).go()
    run.sleep_until(2.5)
    before_ns = time.monotonic_ns()
    bed.enforce([quiet, replace(raised, kbit=4_000), replace(lowered, kbit=2_000)])
    changed_ns = time.monotonic_ns()
    results = run.finish()
    for host in (bed.ap, bed.user(1)):
        assert results.lost(host, quiet.name) == 0
        assert results.lost(host, quiet.name, "heartbeat") == 0
        report(at=host.short, quiet_sent=results.other_end(host, quiet.name).sent(), lost=0)
    settled_ns = changed_ns + 200_000_000
    for link, kbit in ((raised, 4_000), (lowered, 2_000)):
        for host in (bed.ap, bed.user(link.user)):
            old = assert_limit(results, host, link, stop_ns=before_ns)
            new = assert_limit(results, host, link, kbit=kbit, start_ns=settled_ns, warm_up_s=0)
            arrivals = results.all_arrivals(host, link.name)
            wire = results.at(host, link.name).wire
            first = bins_kbit(arrivals, wire, start_ns=settled_ns, stop_ns=settled_ns + 100_000_000)[0]
            report(link=link.name, at=host.short, old=f"{old:.1f}", new=f"{new:.1f}", first_bin=f"{first:.0f}")
            # In the very first 100 ms after that: rate*T, give or take a bucket and a frame.
            assert abs(first - kbit) * 12.5 <= allowed_excess_bytes(kbit)
    report(took_ms=f"{(changed_ns - before_ns) / 1e6:.1f}")


def test_zero_blocks_both_directions_and_unblocking_brings_the_link_back(bed: Testbed) -> None:
    link = TestLink(1, kbit=0, user=1)
    bed.enforce([link])
    other_port = ends("other", (AP_ADDRESS[4], 40_000), (user_address(1), 40_000), (data(5_000),))
    plan = bed.plan([(link, link.ends((data(4_000), heartbeats())))])
    plan[bed.ap].append(other_port[0])
    plan[bed.user(1)].append(other_port[1])
    run = TrafficRun(plan, seconds=5).go()
    run.sleep_until(1.5)
    opened_ns = time.monotonic_ns()
    bed.enforce([replace(link, kbit=2_000)])
    open_ns = time.monotonic_ns()
    run.sleep_until(4.0)
    closing_ns = time.monotonic_ns()
    bed.enforce([link])
    closed_ns = time.monotonic_ns()
    results = run.finish()
    for host in (bed.ap, bed.user(1)):
        arrivals = results.all_arrivals(host, link.name)
        assert len(arrivals.between(results.start_ns, opened_ns)) == 0
        assert len(arrivals.between(closed_ns, results.stop_ns * 2)) == 0
        measured = assert_limit(results, host, link, kbit=2_000, start_ns=open_ns, stop_ns=closing_ns, warm_up_s=0.5)
        assert results.lost(host, "other") == 0
        report(at=host.short, open_kbit=f"{measured:.1f}", other_kbit=f"{results.rate_kbit(host, 'other'):.0f}")


def test_the_last_user_as_leaves_a_reachable_and_clean_attachment_point(bed: Testbed) -> None:
    link = TestLink(1, kbit=1_000, user=1)
    clean = traces(bed.ap)
    assert clean == []
    bed.enforce([link])
    assert traces(bed.ap) != []
    served = probes.ServedHost(bed.ap, AP_ADDRESS[4])
    run = TrafficRun(bed.flood([link], times=6), seconds=4).go()
    asking = [served.start_asking(bed.user(number), 3) for number in (1, 2)]
    run.sleep_until(2.0)
    bed.enforce([])
    gone_ns = time.monotonic_ns()
    results = run.finish()
    assert traces(bed.ap) == []
    for host in (bed.ap, bed.user(1)):
        freed = results.rate_kbit(host, link.name, start_ns=gone_ns, warm_up_s=0.2)
        after = results.at(host, link.name).data.between(gone_ns + 200_000_000, results.stop_ns).sequence
        report(at=host.short, freed_kbit=f"{freed:.0f}", without_a_gap=len(after))
        assert freed > 5 * link.kbit  # six times the limit are offered
        assert len(after) == after[-1] - after[0] + 1
        assert_limit(results, host, link, stop_ns=seconds(results, 2.0))
    for probe in asking:
        for kind, seen in probes.answers(probe).items():
            report(kind=kind, seen=seen)
            assert seen.answered == seen.asked


def test_bystanders_keep_their_rate_while_limited_links_are_flooded(bed: Testbed) -> None:
    links = [TestLink(1, kbit=500, user=1), TestLink(2, kbit=5_000, user=2, family=6)]
    served = probes.ServedHost(bed.user(1), user_address(1))

    def load() -> tuple[dict[str, RateVerdict], dict[str, int], dict[str, probes.Answers]]:
        plan = bed.plan(
            (link, link.ends((data(20_000, 1472 if link.family == 4 else 1452), heartbeats()))) for link in links
        )
        for name, user, family, kbit in (
            ("same_host", 1, 4, 10_000),
            ("free_host", 3, 4, 20_000),
            ("free6", 4, 6, 5_000),
        ):
            local, remote = (AP_ADDRESS[family], 40_000 + user), (user_address(user, family), 40_000)
            at_ap, at_user = ends(name, local, remote, (data(kbit, 1400),))
            plan[bed.ap].append(at_ap)
            plan.setdefault(bed.user(user), []).append(at_user)
        run = TrafficRun(plan, seconds=3.5).go()
        asking = served.start_asking(bed.ap, 3)
        results = run.finish()
        kept, lost = {}, {}
        for name, user, kbit in (("same_host", 1, 10_000), ("free_host", 3, 20_000), ("free6", 4, 5_000)):
            for host in (bed.ap, bed.user(user)):
                kept[f"{name}@{host.short}"] = results.judge_rate(host, name, kbit)  # what is offered
                lost[f"{name}@{host.short}"] = results.lost(host, name)
        return kept, lost, probes.answers(asking)

    _, lost_without, _ = load()
    bed.enforce(links)
    kept, lost, answered = load()
    report(kept={name: f"{verdict.deviation:+.2%}" for name, verdict in kept.items()}, lost=lost, before=lost_without)
    assert all(verdict.holds for verdict in kept.values()), list(map(str, kept.values()))
    assert all(lost[name] <= lost_without[name] for name in lost)
    for kind, seen in answered.items():
        report(kind=kind, seen=seen)
        assert seen.answered == seen.asked


def test_a_second_cycle_under_load_writes_nothing(bed: Testbed) -> None:
    links = [TestLink(1, kbit=2_000, user=1), TestLink(2, kbit=0, user=2)]
    first = bed.enforce(links)
    run = TrafficRun(bed.flood(links[:1], times=3), seconds=2).go()
    run.sleep_until(1.0)
    second = bed.enforce(links)
    results = run.finish()
    report(first_writes=first.writes, second_writes=second.writes)
    assert first.writes > 0
    assert second.writes == 0
    assert_limit(results, bed.ap, links[0], warm_up_s=0.5)
