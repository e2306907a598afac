"""Every suite of the evaluation has what the report needs."""

from __future__ import annotations

import pytest

from lab.bench.core import Outcome
from lab.evaluation import __main__ as command_line
from lab.evaluation.core import EvaluationScale


@pytest.mark.parametrize("name", command_line.SUITES)
def test_every_suite_has_what_the_report_needs(name: str) -> None:
    """Before anything was measured: no claim holds by default, and nothing breaks."""
    suite = command_line.load(name)
    assert name == suite.NAME
    for scale in (EvaluationScale(), EvaluationScale(quick=True)):
        steps = suite.steps(scale)
        assert steps
        assert all(step.expected_s > 0 for step in steps)
    found = command_line.section_of(suite, Outcome(name))
    assert found.intro.strip()
    assert not any(one.holds for one in found.claims)
