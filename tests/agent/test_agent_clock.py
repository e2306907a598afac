"""How far this host's clock is from the service's: what a Date header and a round trip tell, at the bounds."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ap_agent.agent.http import ClockComparison
from ap_agent.agent.problems import skew_problem

DATE = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)


def compared(ours_s: float, round_trip_s: float) -> int | None:
    """Ours is so many seconds after DATE when the answer has arrived."""
    clock = ClockComparison(lambda: DATE.timestamp() + ours_s)
    clock.note(DATE, round_trip_s)
    return clock.skew_ms


@pytest.mark.parametrize(
    ("ours_s", "round_trip_s", "skew_ms"),
    [
        (0.5, 0.0, 0),
        (1.5, 2.0, 0),
        (10.5, 1.0, 9500),
        (-9.5, 0.0, -10_000),
        (0.5, 2.001, None),  # too slow an answer
        (10.0**10, 0.0, 2**31 - 1),  # a clock of another century fits into a receipt
    ],
)
def test_half_the_round_trip_and_half_a_second_are_subtracted(
    ours_s: float, round_trip_s: float, skew_ms: int | None
) -> None:
    assert compared(ours_s, round_trip_s) == skew_ms


@pytest.mark.parametrize(("skew_ms", "words"), [(5001, "5 s ahead of"), (-600_000, "600 s behind")])
def test_more_than_5_seconds_are_named_with_direction_and_remedy(skew_ms: int, words: str) -> None:
    problem = skew_problem(skew_ms)

    assert problem is not None
    assert (problem.code, problem.subject) == ("clock_skewed", "clock")
    assert words in problem.message
    assert "run an NTP client" in problem.message
