"""Every suite of the evaluation has what the report needs, and the command line says whether its claims hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.bench import plots
from lab.bench.core import Outcome, Step
from lab.bench.plots import Plot
from lab.evaluation import __main__ as command_line
from lab.evaluation.core import Claim, EvaluationScale
from lab.measuring import iperf


class Suite:
    """One step, and one claim that holds as it is told."""

    NAME, TITLE, INTRO = "sizes", "Sizes", "Intro."

    def __init__(self, *, holds: bool = True, breaks: bool = False) -> None:
        self._holds, self._breaks = holds, breaks

    def steps(self, scale: EvaluationScale) -> list[Step]:
        return [Step("a step", 1, self._measure)]

    def _measure(self, outcome: Outcome) -> None:
        if self._breaks:
            raise RuntimeError("the machine is on fire")
        outcome.add(1, "kbit/s", experiment="sizes", limiter="ours", direction="to user")

    def plots(self, outcome: Outcome) -> list[Plot]:
        return []

    def claims(self, outcome: Outcome) -> list[Claim]:
        return [Claim("It holds", "bound", "measured", self._holds)]


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which the command line measures what it is told; the folder in place of this repository."""
    for module, name in ((command_line, "available"), (plots, "missing"), (iperf, "available")):
        monkeypatch.setattr(module, name, lambda: None)
    monkeypatch.setattr(command_line, "cleanup_stale", lambda _: [])
    monkeypatch.setattr(command_line, "REPOSITORY", tmp_path)
    monkeypatch.setattr(command_line, "RESULTS", tmp_path / "results")
    return tmp_path


@pytest.mark.parametrize(
    ("suite", "code", "words"),
    [
        (Suite(), 0, "1 of 1 claims hold; 0 steps failed"),
        (Suite(holds=False), 1, "FAILS  It holds: measured; bound"),
        (Suite(breaks=True), 1, "FAILED a step: RuntimeError: the machine is on fire"),
    ],
)
def test_the_exit_code_says_whether_every_claim_was_measured_and_holds(
    suite: Suite,
    code: int,
    words: str,
    measuring: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command_line, "load", lambda _: suite)
    assert command_line.main(["sizes", "QUICK=1"]) == code
    assert words in capsys.readouterr().out
    assert "`./dev evaluate sizes QUICK=1`" in (measuring / "results" / "evaluation.md").read_text()
    assert not (measuring / "docs").exists(), "a quick run leaves the documentation alone"


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
