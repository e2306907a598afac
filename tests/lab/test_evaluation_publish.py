"""The report: sections that did not run stay, verdicts are summed up, samples are complete; and the command line."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from lab.bench import plots
from lab.bench.core import Outcome, Step
from lab.bench.plots import Plot
from lab.evaluation import __main__ as command_line
from lab.evaluation.core import Claim, EvaluationScale, Finding
from lab.evaluation.publish import Section, write, write_samples
from lab.measuring import iperf

MACHINE = {
    "date": "2026-11-22 03:00 UTC",
    "kernel": "Linux 6.18",
    "cpu": "2 x X",
    "iproute2": "iproute2-6.1.0",
    "python": "3.11.7",
    "commit": "abc",
    "load": "0.1",
    "took": "1.0 min",
}
ORDER = ("sizes", "offered")


def section(name: str, *, holds: bool = True, sentence: str = "It holds") -> Section:
    outcome = Outcome(name, notes=["A note."])
    outcome.add(1.25, "kbit/s", experiment=name, limiter="ours", direction="to user", what="sample", repetition=1)
    outcome.add(2.5, "kbit/s", experiment=name, limiter="ours", direction="to user", what="sample", repetition=1)
    outcome.add(3, "s", experiment=name, limiter="all", direction="both")
    return Section(
        name,
        f"The suite (of {name})",
        "\nWhat was done.\n",
        outcome,
        [Plot(f"{name}-plot", "A plot", "kbit/s", "B", lines={"ours, to user": [(1, 2), (2, 3)]}, panels=["to user"])],
        [Claim(sentence, "rate * T", "480 | 500", holds)],
        [Finding("6.1", "l = 1000", "above", "480", "486")],
    )


def test_a_section_has_verdicts_plots_tables_notes_and_samples(tmp_path: Path) -> None:
    sections = [section("sizes", holds=False)]
    write(tmp_path, MACHINE, "./dev evaluate sizes", sections, ORDER, is_whole=True)
    write_samples(tmp_path, sections)
    page = (tmp_path / "evaluation.md").read_text()
    assert "| It holds | 480 \\| 500 | rate * T | **does not hold** |" in page
    assert "![A plot](evaluation/sizes-plot.svg)" in page
    assert "Measured by `./dev evaluate sizes` on 2026-11-22" in page
    assert "The whole run took 1.0 min." in page
    assert "- A note." in page
    assert "| to user, 1 | 1.88 (1.25 to 2.5) |" in page
    assert "| [The suite (of sizes)](#the-suite-of-sizes) (`sizes`) | 0 of 1 |" in page
    assert "| 6.1 | l = 1000 | above | 480 | 486 |" in page
    assert (tmp_path / "evaluation" / "sizes-plot.svg").read_text().startswith("<?xml")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "evaluation" / "sizes.csv").read_text())))
    assert [(row["what"], row["number"], row["value"], row["unit"]) for row in rows] == [
        ("sample", "1", "1.25", "kbit/s"),
        ("sample", "2", "2.5", "kbit/s"),
        ("", "1", "3", "s"),
    ]


def test_suites_that_did_not_run_stay_as_they_were(tmp_path: Path) -> None:
    write(
        tmp_path,
        MACHINE,
        "./dev evaluate",
        [section("offered"), section("sizes", sentence="Old")],
        ORDER,
        is_whole=False,
    )
    newer = [section("sizes", sentence="New")]
    write(tmp_path, MACHINE | {"commit": "def"}, "./dev evaluate sizes", newer, ORDER, is_whole=False)
    page = (tmp_path / "evaluation.md").read_text()
    assert "| New |" in page
    assert "| Old |" not in page
    assert page.count("What was done.") == 2
    assert page.index("evaluation:sizes") < page.index("evaluation:offered")  # the order of the page, not of the runs
    assert "(1.25 to 2.5)" not in page, "the tables are in the report"
    summed = [line.rsplit(" | ", 3)[1:] for line in page.splitlines() if line.startswith("| [The suite")]
    assert summed == [
        ["`./dev evaluate sizes`", "2026-11-22 03:00 UTC", "def |"],
        ["`./dev evaluate`", "2026-11-22 03:00 UTC", "abc |"],
    ]


# --- the command line ---------------------------------------------------------------------------------------------


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
