"""The judge of the self-test: what holds, what does not, and when nothing can be said. A wrong limiter must fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ap_agent.selftest.cases import FAST, FASTEST, ROUNDS, SLOW, UNLIMITED_TCP, Direction, Protocol, all_cases, links
from ap_agent.selftest.inside import _is_settled
from ap_agent.selftest.verdict import (
    Control,
    Heartbeats,
    Judged,
    Measured,
    Strain,
    Verdict,
    allowed,
    judge,
    total,
)

HALF_MBIT, UNLIMITED, TOO_FAST = SLOW[0], SLOW[3], SLOW[4]
BUSY = Strain(least_idle_share=0.0)
GOOD = Measured(
    HALF_MBIT, Direction.TO_USER, 5.0, 501.3, offered_kbit=1000, excess_bytes=6115, heartbeats=Heartbeats(30, 0, 0)
)
GOOD_TCP = Measured(FASTEST, Direction.FROM_USER, 2.2, 1_000_100, offered_kbit=3_000_000)


def verdict_of(measured: Measured = GOOD, **changes: object) -> Verdict:
    return judge(replace(measured, **changes)).verdict  # type: ignore[arg-type]


@pytest.mark.parametrize("strain", [Strain(), BUSY])
def test_a_limit_that_is_kept_holds_on_any_machine(strain: Strain) -> None:
    assert judge(replace(GOOD, strain=strain)).reasons == ()
    assert verdict_of(strain=strain) is Verdict.HOLDS
    assert verdict_of(GOOD_TCP, strain=strain) is Verdict.HOLDS


@pytest.mark.parametrize("strain", [Strain(), BUSY])
@pytest.mark.parametrize(
    ("measured", "kbit"),
    [
        (GOOD, 510.1),
        (replace(GOOD, case=SLOW[2], offered_kbit=20_000), 10_040),
        (replace(GOOD, case=FAST, offered_kbit=130_000, excess_bytes=0), 100_500),
        (GOOD_TCP, 1_006_000),
    ],
)
def test_too_fast_is_a_failure_whatever_the_machine_did(measured: Measured, kbit: float, strain: Strain) -> None:
    assert verdict_of(measured, measured_kbit=kbit, strain=strain) is Verdict.WRONG


@pytest.mark.parametrize(
    "wrong",
    [
        {"measured_kbit": 489.0},
        {"measured_kbit": 0.0},
        {"excess_bytes": 9_600.0},
        {"heartbeats": Heartbeats(30, 1, 0)},
        {"heartbeats": Heartbeats(30, 0, 1)},
    ],
)
def test_too_slow_late_or_lost_is_a_failure_only_where_the_machine_had_time(wrong: dict[str, object]) -> None:
    assert verdict_of(**wrong) is Verdict.WRONG
    for strain in (BUSY, Strain(stolen_share=0.1), Strain(paused_share=0.01, longest_pause_s=0.05)):
        assert verdict_of(strain=strain, **wrong) is Verdict.INCONCLUSIVE


def test_a_limit_that_was_not_exceeded_by_the_load_says_nothing() -> None:
    """Neither that it holds, though the rate is right, nor that it is too low."""
    for kbit in (500.0, 300.0):
        found = judge(replace(GOOD, measured_kbit=kbit, offered_kbit=520))
        assert found.verdict is Verdict.INCONCLUSIVE
        assert "520 kbit/s" in found.reasons[0]
    assert verdict_of(GOOD_TCP, offered_kbit=1_000_000) is Verdict.INCONCLUSIVE
    assert verdict_of(GOOD_TCP, offered_kbit=700_000, measured_kbit=690_000) is Verdict.INCONCLUSIVE


def test_a_rate_too_high_is_a_failure_also_where_little_was_offered() -> None:
    assert verdict_of(offered_kbit=520, measured_kbit=519) is Verdict.WRONG


def test_bounds_are_rate_times_time_plus_buckets_and_frames() -> None:
    # 4 ms of 100 Mbit/s, the heartbeats' two frames, one frame of each, 8 ms of the rate for the clock
    assert allowed(FAST, 4.0).excess_bytes == 50_000 + 2 * 1514 + 2 * 1514 + 100_000
    assert allowed(FAST, 4.0).highest == pytest.approx(156_056 / 50_000_000)
    assert allowed(HALF_MBIT, 5.0).excess_bytes == 4 * 1514 + 2 * 1514 + 500
    assert allowed(HALF_MBIT, 5.0).highest == 0.02  # the service's promise, less than 9584 of 312 500 bytes
    assert allowed(FASTEST, 2.2).lowest == -0.02


@pytest.mark.parametrize("kbit", [4000.0, 2100.0])
def test_controls_are_found_wrong(kbit: float) -> None:
    for case in (UNLIMITED, TOO_FAST):
        found = Control(judge(replace(GOOD, case=case, measured_kbit=kbit, offered_kbit=4000)))
        assert found.is_caught
        assert found.verdict is Verdict.HOLDS


def test_a_control_that_is_let_pass_fails_the_whole_test() -> None:
    """The kernel cannot have the limit that it was not given, so the measuring is broken."""
    missed = Control(judge(replace(GOOD, case=TOO_FAST, measured_kbit=2000.0, offered_kbit=4000)))
    assert missed.verdict is Verdict.WRONG
    assert total([judge(GOOD)], [missed]) is Verdict.WRONG


def test_a_machine_below_a_gigabit_says_nothing_about_one() -> None:
    slow = Control(judge(replace(GOOD_TCP, case=UNLIMITED_TCP, measured_kbit=700_000, offered_kbit=None)))
    assert slow.verdict is Verdict.INCONCLUSIVE
    assert total([judge(GOOD)], [slow]) is Verdict.INCONCLUSIVE


def test_one_limit_that_does_not_hold_is_a_failure_among_doubts() -> None:
    wrong, doubtful = judge(replace(GOOD, measured_kbit=600)), judge(replace(GOOD, offered_kbit=500))
    assert total([judge(GOOD), doubtful, wrong], []) is Verdict.WRONG
    assert total([judge(GOOD), doubtful], []) is Verdict.INCONCLUSIVE
    assert total([judge(GOOD)], []) is Verdict.HOLDS
    assert total([], []) is Verdict.INCONCLUSIVE  # nothing was measured


def test_measured_once_more_is_what_may_come_out_otherwise() -> None:
    def row(measured: Measured = GOOD, **changes: object) -> Judged:
        return judge(replace(measured, **changes))  # type: ignore[arg-type]

    assert _is_settled(row())
    assert not _is_settled(row(measured_kbit=400.0))
    assert not _is_settled(row(offered_kbit=400.0))
    assert _is_settled(row(GOOD_TCP, offered_kbit=700_000))  # TCP does not get faster by being limited
    assert _is_settled(row(case=TOO_FAST, measured_kbit=2100.0, offered_kbit=4000.0))
    assert not _is_settled(row(case=TOO_FAST, measured_kbit=2000.0, offered_kbit=4000.0))


def test_every_limit_of_the_issue_is_measured_both_ways_with_two_controls() -> None:
    measured = {
        (case.judged_kbit, way, case.protocol)
        for one in ROUNDS
        for case in one.cases
        for way in one.directions
        if not case.is_control
    }
    udp = {(kbit, way, Protocol.UDP) for kbit in (500, 1_000, 10_000, 100_000) for way in Direction}
    assert measured == udp | {(1_000_000, way, Protocol.TCP) for way in Direction}
    assert [case.enforced_kbit for case in all_cases() if case.is_control] == [None, 2_100, None]
    assert {number: link.limits.to_user_kbit for number, link in links(all_cases()).items()} == {
        1: 500,
        2: 1_000,
        3: 10_000,
        5: 2_100,
        6: 100_000,
        7: 1_000_000,
    }
    assert links(all_cases())[7].remote_port is None  # TCP has other ports than a link
