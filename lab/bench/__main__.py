"""The command line of the benchmarks; see the package's head.

    python -m lab.bench [SUITE ...] [QUICK=1] [--publish]

Writes `<date>-<suite>.csv` with all samples, `<date>.md` with the tables and the plots as SVG into lab/bench/results.
Ends with 1 when a step failed (the other steps are measured anyway), with 2 when nothing can be measured here.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, cast

from lab.bench import plots, publish
from lab.bench.core import REPOSITORY, RESULTS, Outcome, Scale, Step, machine, read_arguments, run_steps
from lab.bench.plots import Plot
from lab.bench.report import Verdict, write_samples
from lab.bench.world import PREFIX
from measuring.iproute import RUN_NETNS, available, cleanup_stale

SUITES = ("packet", "install", "document", "live", "fuzz", "save", "service", "pages", "usage", "scale")


class Suite(Protocol):
    """What a module in `lab.bench.suites` offers; many have `verdicts(outcome)` and `plots(outcome)` as well."""

    NAME: str
    TITLE: str

    def steps(self, scale: Scale) -> list[Step]: ...


def load(name: str) -> Suite:
    return cast(Suite, importlib.import_module(f"lab.bench.suites.{name}"))


def page_of(suite: Suite, outcome: Outcome) -> publish.Page:
    verdicts: Callable[[Outcome], Iterable[Verdict]] = getattr(suite, "verdicts", lambda _: [])
    drawn: Callable[[Outcome], list[Plot]] = getattr(suite, "plots", lambda _: [])
    named = [
        replace(one, name=f"bench-{one.name}") for one in drawn(outcome) if one.lines
    ]  # beside other images in docs/img
    return publish.Page(suite.NAME, suite.TITLE, list(verdicts(outcome)), named, outcome)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description="Measure the engine beside its peers.")
    parser.add_argument("--publish", action="store_true", help="write the targets and plots into docs/ as well")
    given = read_arguments(parser, SUITES, argv)
    if given.quick and given.publish:
        parser.error("a quick run is not worth publishing; leave one of them out")
    return given


def main(argv: Sequence[str]) -> int:
    given = parse(argv)
    names = given.suites or SUITES
    problem = available() or plots.missing()
    if problem is not None:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    cleanup_stale(PREFIX)
    others = sorted(path.name for path in RUN_NETNS.iterdir()) if RUN_NETNS.is_dir() else []
    if others:
        warning = "the kernel makes classes more slowly the more there are on the whole machine"
        print(f"bench: there are other network namespaces ({', '.join(others[:5])}); {warning}", file=sys.stderr)
    command = " ".join(["./dev bench", *argv])
    before = machine()
    suites = [load(name) for name in names]
    todo = [(suite.NAME, step) for suite in suites for step in suite.steps(Scale(quick=given.quick))]
    outcomes = run_steps(todo, [suite.NAME for suite in suites], "bench")
    stem = before["date"].removesuffix(" UTC").replace(" ", "T").replace(":", "")
    write_samples(RESULTS, outcomes, f"{stem}-")
    pages = [page_of(suite, one) for suite, one in zip(suites, outcomes, strict=True)]
    drawn = [plot for one in pages for plot in one.plots]
    plots.draw(drawn, RESULTS)
    text = publish.report(before, command, pages)
    (RESULTS / f"{stem}.md").write_text(text, encoding="utf-8")
    print(text)
    print(f"bench: written to {RESULTS}/{stem}.md and .csv", file=sys.stderr)
    if given.publish:
        publish.into_docs(REPOSITORY / "docs" / "performance.md", before, command, pages)
    return 1 if any(outcome.failures for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
