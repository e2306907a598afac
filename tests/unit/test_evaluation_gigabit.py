"""1 Gbit/s: who is measured how, tolerances that are derived, and verdicts that can fail."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab.bench.core import Outcome
from lab.evaluation.core import DIRECTIONS, EvaluationScale
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WRONG
from lab.evaluation.suites import gigabit
from lab.evaluation.suites.gigabit import BOUND_KBIT, FRAMES, SUPER_PACKETS, cases, tolerance

FULL, QUICK = EvaluationScale(quick=False), EvaluationScale(quick=True)
GOOD = {(OURS, FRAMES): 0.9, (OURS, SUPER_PACKETS): 1.0, (THESIS, SUPER_PACKETS): 0.96}
CONTROLS = {(WRONG, SUPER_PACKETS): 1.1, (NO_LIMIT, SUPER_PACKETS): 10.0}


def test_headers_leave_956_4_mbit_of_a_gigabit() -> None:
    assert pytest.approx(956_407, abs=1) == BOUND_KBIT


def test_ours_is_measured_with_1_2_and_8_flows_in_both_directions() -> None:
    found = {(one.flows, one.direction) for one in cases(FULL) if (one.limiter, one.packets) == (OURS, FRAMES)}
    assert found == {(flows, direction) for flows in (1, 2, 8) for direction in DIRECTIONS}


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_both_controls_are_always_there(scale: EvaluationScale) -> None:
    assert {WRONG, NO_LIMIT} <= {one.limiter for one in cases(scale)}


def test_each_round_has_every_case_once_in_another_order() -> None:
    assert len(gigabit.steps(FULL)) == gigabit.FULL_ROUNDS
    assert len(set(cases(FULL))) == len(cases(FULL))


def test_what_is_allowed_shrinks_with_the_time() -> None:
    assert tolerance(1.0) == pytest.approx(0.008 + 68_000 / 125e6)
    assert tolerance(2.0) == pytest.approx(tolerance(1.0) / 2)


def failing(shares: Mapping[tuple[str, str], float]) -> list[int]:
    """Which claims fail: 0 exact, 1 never more, 2 the thesis, 3 and 4 the controls."""
    outcome = Outcome("gigabit")
    for (limiter, packets), share in shares.items():
        for direction in DIRECTIONS:
            for what, value in (("goodput", share * BOUND_KBIT), ("judged", 1.5)):
                outcome.add(
                    value, "kbit/s", what=what, experiment="gigabit", limiter=limiter, packets=packets, flows=1,
                    direction=direction,
                )  # fmt: skip
    return [number for number, one in enumerate(gigabit.claims(outcome)) if not one.holds]


def test_good_figures_hold() -> None:
    assert failing({**GOOD, **CONTROLS}) == []


def test_less_than_the_limit_fails_where_the_machine_has_time() -> None:
    assert failing({**GOOD, **CONTROLS, (OURS, SUPER_PACKETS): 0.993}) == [0]


def test_more_than_the_limit_fails_frame_by_frame_too() -> None:
    assert failing({**GOOD, **CONTROLS, (OURS, FRAMES): 1.007}) == [1]
    assert failing({**GOOD, **CONTROLS, (OURS, SUPER_PACKETS): 1.007}) == [0, 1]


def test_less_than_the_thesis_fails() -> None:
    assert failing({**GOOD, **CONTROLS, (THESIS, SUPER_PACKETS): 1.001}) == [2]


@pytest.mark.parametrize(("moved", "failed"), [(0.6, []), (2.0, [2])])
def test_a_row_in_which_the_machine_is_slower_than_the_limit_compares_nobody(moved: float, failed: list[int]) -> None:
    slower = {(OURS, FRAMES): 0.5, (THESIS, FRAMES): 0.6, (NO_LIMIT, FRAMES): moved}
    assert failing({**GOOD, **CONTROLS, **slower}) == failed


# A machine that moves no more than the limit without one can compare nobody either.
@pytest.mark.parametrize(("control", "claims"), [(WRONG, [3]), (NO_LIMIT, [2, 4])])
def test_a_judge_that_lets_a_control_pass_fails(control: str, claims: list[int]) -> None:
    assert failing({**GOOD, **CONTROLS, (control, SUPER_PACKETS): 1.0}) == claims


def test_nothing_measured_proves_nothing() -> None:
    assert failing({}) == [0, 1, 2, 3, 4]
