"""The judge of the self-test: what holds, what does not, and when nothing can be said. A wrong limiter must fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ap_agent.selftest.cases import BLOCKED, BYSTANDER, FAST, OBSERVED, SLOW, SUPER_PACKETS, Direction
from ap_agent.selftest.verdict import Heartbeats, Judged, Measured, Strain, Verdict, allowed, judge, total

HALF_MBIT, UNLIMITED, TOO_FAST = SLOW[0], SLOW[3], SLOW[4]
BUSY = Strain(least_idle_share=0.0)
GOOD = Measured(
    HALF_MBIT,
    Direction.TO_USER,
    5.0,
    501.3,
    offered_kbit=1000,
    excess_bytes=6115,
    arrived=200,
    lost=200,
    refused=200,
    heartbeats=Heartbeats(30, 0, 0),
)
GOOD_TCP = Measured(SUPER_PACKETS, Direction.FROM_USER, 2.2, 500_100)
GOOD_BLOCKED = Measured(BLOCKED, Direction.TO_USER, 5.0, 0.0, refused=100, heartbeats=Heartbeats(30, 30, 1))
GOOD_OBSERVED = Measured(OBSERVED, Direction.TO_USER, 5.0, 2000.0, arrived=400, refused=200)
GOOD_BYSTANDER = Measured(BYSTANDER, Direction.TO_USER, 5.0, 1000.0, arrived=400)


def judged(measured: Measured = GOOD, **changes: object) -> Judged:
    return judge(replace(measured, **changes))  # type: ignore[arg-type]


def verdict_of(measured: Measured = GOOD, **changes: object) -> Verdict:
    return judged(measured, **changes).verdict


@pytest.mark.parametrize("strain", [Strain(), BUSY])
@pytest.mark.parametrize("good", [GOOD, GOOD_TCP, GOOD_BLOCKED, GOOD_OBSERVED, GOOD_BYSTANDER])
def test_what_is_as_it_should_be_holds_on_any_machine(good: Measured, strain: Strain) -> None:
    assert (judged(good, strain=strain).verdict, judged(good, strain=strain).reasons) == (Verdict.HOLDS, ())


@pytest.mark.parametrize("strain", [Strain(), BUSY])
@pytest.mark.parametrize(
    ("measured", "kbit"),
    [
        (GOOD, 510.1),
        (replace(GOOD, case=SLOW[2], offered_kbit=20_000), 10_040),
        (replace(GOOD, case=FAST, offered_kbit=130_000, excess_bytes=0), 100_500),
        (GOOD_TCP, 503_300),
    ],
)
def test_too_fast_is_a_failure_whatever_the_machine_did(measured: Measured, kbit: float, strain: Strain) -> None:
    assert verdict_of(measured, measured_kbit=kbit, strain=strain) is Verdict.WRONG


@pytest.mark.parametrize(
    ("measured", "changes", "idle", "busy"),
    [
        (GOOD_BLOCKED, {"arrived": 1}, Verdict.WRONG, Verdict.WRONG),
        (GOOD_BLOCKED, {"refused": 0}, Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),  # nothing was sent to it
        (GOOD_OBSERVED, {"refused": 0}, Verdict.WRONG, Verdict.WRONG),
        (GOOD_OBSERVED, {"lost": 1}, Verdict.WRONG, Verdict.INCONCLUSIVE),
        (GOOD_BYSTANDER, {"lost": 1}, Verdict.WRONG, Verdict.INCONCLUSIVE),
        (GOOD_BYSTANDER, {"arrived": 0}, Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
        (GOOD, {"offered_kbit": 520, "measured_kbit": 519}, Verdict.WRONG, Verdict.WRONG),  # little was offered
    ],
)
def test_verdict_of_links_in_every_state(
    measured: Measured, changes: dict[str, object], idle: Verdict, busy: Verdict
) -> None:
    assert verdict_of(measured, **changes) is idle
    assert verdict_of(measured, strain=BUSY, **changes) is busy


@pytest.mark.parametrize(
    "wrong",
    [
        {"measured_kbit": 489.0},
        {"measured_kbit": 0.0},
        {"excess_bytes": 11_000.0},
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
        found = judged(measured_kbit=kbit, offered_kbit=520)
        assert found.verdict is Verdict.INCONCLUSIVE
        assert "520 kbit/s" in found.reasons[0]


def test_bounds_are_rate_times_time_plus_burst_heartbeats_and_frames() -> None:
    # 4 ms of 100 Mbit/s, a frame of each kind, 25 heartbeats of 134 B, 8 ms of the rate for the clock
    assert allowed(FAST, 5.0).excess_bytes == 50_000 + 2 * 1514 + 25 * 134 + 100_000
    assert allowed(FAST, 5.0).highest == pytest.approx(156_378 / 62_500_000)
    assert allowed(HALF_MBIT, 5.0).excess_bytes == 4_000 + 2 * 1514 + 25 * 134 + 500
    assert allowed(HALF_MBIT, 5.0).highest == 0.02  # the service's promise, less than 10 878 of 312 500 bytes
    assert allowed(SUPER_PACKETS, 2.2).lowest == -0.02
    assert allowed(HALF_MBIT, 3600.0).excess_bytes == 4_000 + 2 * 1514 + 20_000 + 500  # no more than the queue has room


@pytest.mark.parametrize("kbit", [4000.0, 2100.0])
@pytest.mark.parametrize("case", [UNLIMITED, TOO_FAST])
def test_controls_are_found_wrong(case: object, kbit: float) -> None:
    assert verdict_of(case=case, measured_kbit=kbit, offered_kbit=4000) is Verdict.HOLDS


def test_a_control_that_passes_fails_the_whole_test() -> None:
    """The kernel cannot have the limit that it was not given, so the measuring is broken."""
    missed = judged(case=TOO_FAST, measured_kbit=2000.0, offered_kbit=4000)
    assert (missed.verdict, missed.reasons) == (
        Verdict.WRONG,
        ("a negative control passed: no result here is reliable",),
    )
    assert total([judged(), missed]) is Verdict.WRONG
    assert verdict_of(case=TOO_FAST, measured_kbit=2000.0, offered_kbit=4000, strain=BUSY) is Verdict.INCONCLUSIVE


def test_one_limit_that_does_not_hold_is_a_failure_among_doubts() -> None:
    wrong, doubtful = judged(measured_kbit=600), judged(offered_kbit=500)
    assert total([judged(), doubtful, wrong]) is Verdict.WRONG
    assert total([judged(), doubtful]) is Verdict.INCONCLUSIVE
    assert total([judged()]) is Verdict.HOLDS
    assert total([]) is Verdict.INCONCLUSIVE  # nothing was measured
