"""The command line of the evaluation; see the package's head.

    python -m lab.evaluation [SUITE ...] [QUICK=1]

Writes evaluation.md, and below evaluation/ plots and samples, into lab/evaluation/results; a whole run writes claims,
verdicts and plots into docs/ as well. Ends with 1 when a claim does not hold or a step failed (the other steps are
measured anyway), with 2 when nothing can be measured here.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import cast

from lab.bench import plots
from lab.bench.core import REPOSITORY, Outcome, machine, read_arguments, run_steps
from lab.bench.plots import Plot
from lab.bench.report import write_samples
from lab.evaluation.bed import PREFIX
from lab.evaluation.core import EvaluationScale, Finding, Suite
from lab.evaluation.publish import FOLDER, PAGE, Section, write
from lab.measuring import iperf
from measuring.iproute import available, cleanup_stale

# In the order of the page: the thesis' figures, fragments solved, what it did not measure, the accuracy of HTB.
SUITES = (
    "sizes", "offered", "mtu", "fragments", "beside", "rates", "protocols", "sharing", "change", "heartbeats",
    "bystander", "latency", "htbtable", "gigabit", "tests", "multipath",
)  # fmt: skip
RESULTS = REPOSITORY / "lab" / "evaluation" / "results"


def load(name: str) -> Suite:
    return cast(Suite, importlib.import_module(f"lab.evaluation.suites.{name}"))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev evaluate", description="Measure what the documentation claims, beside the thesis and wondershaper."
    )
    return read_arguments(parser, SUITES, argv)


def section_of(suite: Suite, outcome: Outcome) -> Section:
    """A claim about what could not be measured does not hold, so a suite never judges an empty outcome as good."""
    findings: Callable[[Outcome], list[Finding]] = getattr(suite, "findings", lambda _: [])
    drawn: Callable[[Outcome], list[Plot]] = getattr(suite, "plots", lambda _: [])
    return Section(
        suite.NAME,
        suite.TITLE,
        suite.INTRO,
        outcome,
        [plot for plot in drawn(outcome) if plot.lines],
        suite.claims(outcome),
        findings(outcome),
    )


def verdict_lines(sections: Sequence[Section]) -> list[str]:
    """For a terminal or a log: every claim with its verdict, what failed, and the sum."""
    lines = []
    for one in sections:
        lines.append(f"{one.title} ({one.name})")
        for claim in one.claims:
            lines.append(f"  {'holds ' if claim.holds else 'FAILS '} {claim.sentence}: {claim.measured}; {claim.bound}")
        lines += [f"  FAILED {failure}" for failure in one.outcome.failures]
        lines += [f"  note   {note}" for note in one.outcome.notes]
    claims = [claim for one in sections for claim in one.claims]
    missing = sum(len(one.outcome.failures) for one in sections)
    lines.append(f"{sum(one.holds for one in claims)} of {len(claims)} claims hold; {missing} steps failed")
    return lines


def main(argv: Sequence[str]) -> int:
    given = parse(argv)
    problem = available() or plots.missing() or iperf.available()
    if problem is not None:
        print(f"evaluate: {problem}", file=sys.stderr)
        return 2
    cleanup_stale(PREFIX)
    began = time.monotonic()
    before = machine()
    suites = [load(name) for name in given.suites or SUITES]
    todo = [(suite.NAME, step) for suite in suites for step in suite.steps(EvaluationScale(quick=given.quick))]
    outcomes = run_steps(todo, [suite.NAME for suite in suites], "evaluate")
    sections = [section_of(suite, outcome) for suite, outcome in zip(suites, outcomes, strict=True)]
    took_min = (time.monotonic() - began) / 60
    command = " ".join(["./dev evaluate", *given.suites, *(["QUICK=1"] if given.quick else [])])
    machine_and_time = before | {"took": f"{took_min:.1f} min"}
    write(RESULTS, machine_and_time, command, sections, SUITES, is_whole=True)
    write_samples(RESULTS / FOLDER, outcomes)
    if not given.quick:
        write(REPOSITORY / "docs", machine_and_time, command, sections, SUITES, is_whole=False)
    print("\n".join(verdict_lines(sections)))
    print(f"evaluate: {took_min:.1f} min; written to {RESULTS / PAGE}", file=sys.stderr)
    return 0 if all(one.is_sound for one in sections) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
