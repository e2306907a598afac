"""The judge of the grids: arithmetic of a window, negative controls, and what an empty outcome proves (nothing)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.bench.core import Outcome
from lab.evaluation.core import DIRECTIONS
from lab.evaluation.figures import GridOutcome, grid_plot
from lab.evaluation.grid import Cell
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WRONG
from lab.evaluation.verdicts import (
    collapse_claim,
    control_claim,
    exact_claim,
    is_exact,
    never_more_claim,
    too_much_claim,
    whole_claims,
)

FRAME = Cell(1_472, 2_000)
LARGE = Cell(10_000, 2_000)
SLOW = Cell(1_472, 100)
CELLS = (FRAME, LARGE, SLOW)
SECONDS = 10


def outcome_of(goodput: Callable[[str, str, Cell], float], *, runs: int = 3, paused_s: float = 0.0) -> GridOutcome:
    """A grid in which every sample of a cell is what `goodput` says."""
    outcome = Outcome("sizes")
    for limiter in (OURS, THESIS, WRONG, NO_LIMIT):
        for direction in DIRECTIONS:
            for cell in CELLS:
                labels = {"experiment": "x", "limiter": limiter, "direction": direction}
                labels |= {"payload": cell.payload_bytes, "offered": cell.offered_kbit}
                value = goodput(limiter, direction, cell)
                for run in range(runs):
                    for _ in range(SECONDS):
                        outcome.add(value, "kbit/s", **labels, what="sample", repetition=run)
                    outcome.add(value, "kbit/s", **labels, what="average")
                    outcome.add(SECONDS if value == 0 else 0, "samples", **labels, what="zeros")
    outcome.add(paused_s, "s", experiment="x", limiter="all", direction="both", what="paused")
    return GridOutcome(outcome, "x", CELLS)


def as_it_should_be(limiter: str, direction: str, cell: Cell) -> float:
    if limiter == WRONG:
        return min(cell.offered_kbit, 1.1 * 500 * cell.payload_bytes / 1514)
    if limiter == NO_LIMIT:
        return cell.offered_kbit
    if limiter == THESIS and cell == LARGE and direction == "from user":
        return 0.0
    return cell.bound_kbit


def test_what_can_be_reached_is_what_headers_and_fragments_leave_or_what_is_offered() -> None:
    assert FRAME.bound_kbit == pytest.approx(500 * 1472 / 1514)
    assert LARGE.bound_kbit == pytest.approx(500 * 10_000 / (10_000 + 8 + 7 * 34))
    assert SLOW.bound_kbit == 100
    assert (FRAME.is_whole_frame, LARGE.is_whole_frame) == (True, False)


def test_a_window_allows_a_burst_two_frames_and_a_datagram_and_no_more() -> None:
    # (4000 B of burst + two frames of 1514 B) as payload, and one datagram of 1472 B, in ten seconds
    assert FRAME.allowed_kbit(10) == pytest.approx(((4000 + 3028) * 1472 / 1514 + 1472) * 8 / 10_000)
    grid = outcome_of(as_it_should_be)
    edge = FRAME.bound_kbit + FRAME.allowed_kbit(SECONDS)
    assert is_exact(grid, FRAME, edge - 0.01)
    assert not is_exact(grid, FRAME, edge + 0.01)
    assert not is_exact(grid, FRAME, 2 * FRAME.bound_kbit - edge - 0.01)


def test_a_machine_that_stood_still_excuses_a_lower_rate_and_never_a_higher_one() -> None:
    grid = outcome_of(as_it_should_be, paused_s=0.5)
    low = FRAME.bound_kbit - FRAME.allowed_kbit(SECONDS) - 0.04 * FRAME.bound_kbit
    assert is_exact(grid, FRAME, low)
    assert not is_exact(outcome_of(as_it_should_be), FRAME, low)
    assert not is_exact(grid, FRAME, FRAME.bound_kbit + FRAME.allowed_kbit(SECONDS) + 0.01)


def test_every_claim_holds_where_everything_is_as_it_should_be() -> None:
    grid = outcome_of(as_it_should_be)
    claims = [
        exact_claim(grid, [FRAME, SLOW], (OURS,), "exact"),
        never_more_claim(grid, (OURS,)),
        *whole_claims(grid, [LARGE]),
        collapse_claim(grid, [LARGE]),
        control_claim(grid, [FRAME]),
        too_much_claim(grid),
    ]
    assert [one for one in claims if not one.holds] == []
    assert len(claims) == 7


def test_a_rate_that_is_two_per_cent_off_is_not_exact() -> None:
    for factor in (0.98, 1.02):
        grid = outcome_of(lambda who, way, cell, f=factor: as_it_should_be(who, way, cell) * (f if who == OURS else 1))
        claim = exact_claim(grid, [FRAME], (OURS,), "exact")
        assert not claim.holds
        assert "0 of 2" in claim.measured
        assert "e.g. ours, to user, 1472 B at 2000 kbit/s" in claim.measured


def test_too_much_in_a_single_direction_is_found() -> None:
    def goodput(limiter: str, direction: str, cell: Cell) -> float:
        more = 20 if (limiter, direction, cell) == (OURS, "from user", LARGE) else 0
        return as_it_should_be(limiter, direction, cell) + more

    assert not never_more_claim(outcome_of(goodput), (OURS,)).holds


def test_too_much_in_one_run_of_many_is_found() -> None:
    grid = outcome_of(as_it_should_be)
    one = grid.series(OURS, "to user", FRAME, "average")
    assert one is not None
    one.samples[1] += 20
    assert not never_more_claim(grid, (OURS,)).holds
    assert exact_claim(grid, [FRAME], (OURS,), "the median of the runs").holds


def test_large_datagrams_that_do_not_arrive_are_found() -> None:
    def goodput(limiter: str, direction: str, cell: Cell) -> float:
        return 0.0 if (limiter, cell) == (OURS, LARGE) else as_it_should_be(limiter, direction, cell)

    used, silent = whole_claims(outcome_of(goodput), [LARGE])
    assert (used.holds, silent.holds) == (False, False)
    assert silent.measured == "60 samples"


def test_a_judge_that_lets_a_wrong_limit_pass_fails_its_own_claim() -> None:
    for control in (WRONG, NO_LIMIT):

        def goodput(limiter: str, direction: str, cell: Cell, *, control: str = control) -> float:
            return cell.bound_kbit if limiter == control else as_it_should_be(limiter, direction, cell)

        assert not control_claim(outcome_of(goodput), [FRAME]).holds
        assert not too_much_claim(outcome_of(goodput)).holds


def test_another_experiment_than_the_thesis_is_noticed() -> None:
    grid = outcome_of(lambda _who, _way, cell: cell.bound_kbit)
    assert not collapse_claim(grid, [LARGE]).holds


def test_nothing_measured_proves_nothing() -> None:
    nothing = GridOutcome(Outcome("sizes"), "x", CELLS)
    claims = [
        exact_claim(nothing, CELLS, (OURS,), "exact"),
        never_more_claim(nothing, (OURS,)),
        *whole_claims(nothing, [LARGE]),
        collapse_claim(nothing, [LARGE]),
        control_claim(nothing, CELLS),
        too_much_claim(nothing),
    ]
    assert not any(one.holds for one in claims)


def test_plots_show_both_directions_of_everybody() -> None:
    grid = outcome_of(as_it_should_be)
    plot = grid_plot(grid, name="p", title="t", x_label="B", x_of=lambda cell: cell.payload_bytes, what="average")
    assert f"{THESIS}, from user" in plot.lines
    assert not any(name.startswith((WRONG, NO_LIMIT)) for name in plot.lines)
    assert plot.references["what can arrive"][0] == (1472, FRAME.bound_kbit)
