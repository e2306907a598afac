"""The arithmetic behind every measured verdict, on arrivals made by hand."""

from __future__ import annotations

from array import array

import pytest

from measuring.arrivals import Arrivals
from measuring.framing import Wire, wire_bytes
from measuring.judge import (
    NS,
    bucket_bytes,
    common_pauses,
    excess_bytes,
    goodput_kbit,
    goodput_samples,
    jain,
    jain_bound,
    judge_heartbeats,
    judge_rate,
    missing_count,
    steady_rate,
)

ETHERNET_V4 = Wire(4)


def arrivals(*rows: tuple[float, int]) -> Arrivals:
    """(second, payload) pairs, numbered from 0, each one millisecond on its way."""
    return Arrivals(
        array("q", (int(at * NS) for at, _ in rows)),
        array("I", (size for _, size in rows)),
        array("I", range(len(rows))),
        array("q", (int(at * NS) - 1_000_000 for at, _ in rows)),
    )


def paced(kbit: float, seconds: float, *, payload: int = 1472, burst: int = 0) -> Arrivals:
    """A perfect limit: `burst` packets at once, then one whenever its time has come."""
    gap = wire_bytes(payload, family=4) * 8 / (kbit * 1000)
    rows = [(0.0, payload)] * burst + [(gap * number, payload) for number in range(1, int(seconds / gap) + 1)]
    return arrivals(*rows)


@pytest.mark.parametrize("kbit", [32, 50_000])
def test_a_perfectly_kept_limit_measures_as_itself(kbit: int) -> None:
    run = paced(kbit, 5, burst=3)
    verdict = judge_rate(run, ETHERNET_V4, limit_kbit=kbit, start_ns=0, stop_ns=5 * NS)
    assert verdict.measured_kbit == pytest.approx(kbit, rel=1e-6)
    assert verdict.holds


@pytest.mark.parametrize(("actual", "holds"), [(993, False), (996, True), (1004, True), (1007, False)])
def test_a_rate_holds_within_a_frame_and_the_clock(actual: int, holds: bool) -> None:
    """Over 4 s at 1 Mbit/s: 1514 B of 500 kB, and 8 ms of 4 s."""
    verdict = judge_rate(paced(actual, 5), ETHERNET_V4, limit_kbit=1000, start_ns=0, stop_ns=5 * NS)
    assert verdict.tolerance == pytest.approx(0.003028 + 0.002, rel=0.01)
    assert verdict.holds is holds
    assert f"measured {actual}.0 kbit/s at a limit of 1000 kbit/s" in str(verdict)


def test_a_bucket_that_was_full_when_the_measured_time_began_may_be_counted() -> None:
    gap_s = 1514 * 8 / 1_000_000
    stood_still = [(0.5, 1472), *((1.1, 1472) for _ in range(3)), *((1.1 + gap_s * n, 1472) for n in range(1, 300))]
    run = arrivals(*stood_still)

    def holds(pauses: list[tuple[int, int]]) -> bool:
        return judge_rate(run, ETHERNET_V4, limit_kbit=1000, start_ns=0, stop_ns=3 * NS, pauses=pauses).holds

    assert not holds([])
    assert not holds([(2 * NS, 2 * NS + 50_000_000)])
    assert holds([(NS // 2, 11 * NS // 10)])


def test_a_pause_of_the_machine_excuses_a_lower_rate_and_never_a_higher_one() -> None:
    def holds(kbit: int, pauses: list[tuple[int, int]]) -> bool:
        run = paced(kbit, 5)
        return judge_rate(run, ETHERNET_V4, limit_kbit=1000, start_ns=0, stop_ns=5 * NS, pauses=pauses).holds

    a_tenth = [(2 * NS, 2 * NS + 4 * NS // 10 + 4_000_000)]  # of the 4 s that are measured, and what a bucket holds
    assert not holds(900, [])
    assert holds(900, a_tenth)
    assert not holds(870, a_tenth)
    assert not holds(970, [(2 * NS + n * 4_000_000, 2 * NS + (n + 1) * 4_000_000) for n in range(100)])
    assert not holds(1025, a_tenth)
    assert not holds(900, [(0, NS)])  # before the measured time


def test_only_what_all_stations_missed_is_a_pause_of_the_machine() -> None:
    assert common_pauses([]) == []
    assert common_pauses([[(10, 20), (30, 40)], [(15, 35)]]) == [(15, 20), (30, 35)]
    assert common_pauses([[(10, 20)], [(20, 30)]]) == []
    assert common_pauses([[(10, 20)], []]) == []


def test_silence_is_a_rate_of_zero_and_does_not_hold() -> None:
    assert steady_rate(Arrivals(), ETHERNET_V4, start_ns=0, stop_ns=NS) is None
    verdict = judge_rate(Arrivals(), ETHERNET_V4, limit_kbit=1000, start_ns=0, stop_ns=5 * NS)
    assert (verdict.measured_kbit, verdict.holds) == (0.0, False)


def test_the_steady_rate_leaves_out_start_burst_and_drained_backlog() -> None:
    burst = [(0.001 * number, 958) for number in range(200)]
    steady = [(1.0 + 0.01 * number, 958) for number in range(101)]  # 1000 bytes every 10 ms: 800 kbit/s
    drained = [(2.5 + 0.0001 * number, 958) for number in range(100)]
    run = arrivals(*burst, *steady, *drained)
    assert steady_rate(run, ETHERNET_V4, start_ns=0, stop_ns=2 * NS) == pytest.approx(800.0)


def test_excess_is_a_bucket_of_two_frames_or_four_milliseconds_and_a_frame() -> None:
    assert (bucket_bytes(500), bucket_bytes(50_000)) == (4000, 25_000)
    assert excess_bytes(paced(1000, 3, burst=2), ETHERNET_V4, 1000) == pytest.approx(2 * 1514, abs=1)


def test_three_missing_heartbeats_in_a_row_are_a_down_and_two_are_not() -> None:
    def without(*lost: int) -> Arrivals:
        return arrivals(*((0.2 * number, 92) for number in range(1, 20) if number not in lost))

    assert judge_heartbeats(without(5, 6), start_ns=0, stop_ns=4 * NS).downs == 0
    assert judge_heartbeats(without(5, 6, 7), start_ns=0, stop_ns=4 * NS).downs == 1
    assert judge_heartbeats(without(5, 6, 7, 12, 13, 14), start_ns=0, stop_ns=4 * NS).downs == 2


def test_a_duplicate_does_not_make_up_for_a_loss() -> None:
    run = arrivals((0.1, 958), (0.2, 958), (0.3, 958))
    run.sequence[2] = 1
    assert missing_count(run, 3) == 1


def test_goodput_counts_payload_after_the_warm_up_over_the_whole_time() -> None:
    run = arrivals((0.5, 1000), (1.0, 1000), (1.5, 1000), (2.999, 1000), (3.0, 1000))
    assert goodput_kbit(run, start_ns=0, stop_ns=3 * NS) == pytest.approx(3 * 8 / 2)
    assert goodput_samples(run, start_ns=0, stop_ns=3 * NS) == [16.0, 8.0]
    assert goodput_samples(run, start_ns=0, stop_ns=3 * NS, warm_up_s=0, width_s=0.5)[:3] == [0.0, 16.0, 16.0]


def test_jain_is_one_for_equals_and_one_nth_for_a_winner() -> None:
    assert jain([0.97] * 7) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([0.0, 0.0]) == 1.0
    with pytest.raises(ValueError, match="at least one"):
        jain([])


@pytest.mark.parametrize(("least", "most"), [(0.95, 1.05), (0.5, 1.0)])
def test_no_ratios_within_bounds_are_less_fair_than_the_bound(least: float, most: float) -> None:
    bound = jain_bound(least, most)
    worst = min(jain([least] * few + [most] * (60 - few)) for few in range(61))
    assert bound <= worst + 1e-12
    assert bound == pytest.approx(worst, rel=1e-3)
