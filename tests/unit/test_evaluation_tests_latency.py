"""How long tests of links take: each claim can fail, and none holds without figures."""

from __future__ import annotations

import pytest

from lab.bench.core import Outcome
from lab.evaluation import tests_latency

GOOD: dict[str, list[float]] = {
    "command": [2.2, 2.3, 2.4],
    "submit": [1.2, 1.9, 2.6],
    "verdict": [1.0, 3.0, 2.0],
    "documents": [1, 1, 1],
    "killed": [2.0],
    "armed": [2],
    "left": [0],
}


def outcome(**changed: list[float]) -> Outcome:
    found = Outcome("tests")
    for what, values in {**GOOD, **changed}.items():
        for value in values:
            found.add(value, "s", what=what, experiment=tests_latency.EXPERIMENT)
    return found


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({}, []),
        ({"submit": [1.2, 2.0, 2.6]}, [0]),
        ({"verdict": [1.0, 3.01, 2.0]}, [1]),
        ({"documents": [1, 2, 1]}, [2]),
        ({"documents": [0, 1, 1]}, [2]),
        ({"killed": [2.01]}, [3]),
        ({"left": [1]}, [4]),
        ({"armed": [1]}, [4]),  # there was nothing to be left
        ({what: [] for what in GOOD}, [0, 1, 2, 3, 4]),
    ],
)
def test_claims_fail_at_their_bounds(changed: dict[str, list[float]], failing: list[int]) -> None:
    found = tests_latency.claims(outcome(**changed))
    assert [number for number, one in enumerate(found) if not one.holds] == failing
