"""A million inputs for what the agent reads from the network: is there one that breaks a promise?

Coverage-guided, two processes side by side; the promises are in `lab.fuzz.targets`, and an input that breaks one is
kept with the command that repeats it. The seed is the hour, so that no two runs try the same; it stands in the table.
"""

from __future__ import annotations

import sys
import time
from functools import partial

from bench.core import REPOSITORY, Outcome, Scale, Step
from bench.plots import Plot
from bench.report import NOTHING, Table, figure
from lab.fuzz import runs
from lab.fuzz.__main__ import command_of
from lab.fuzz.targets import TARGETS

NAME = "fuzz"
TITLE = "Fuzzing"
PROCESSES = 2
INPUTS = {"bundle": 300_000, "manifest": 300_000, "link_info": 400_000}
QUICK_INPUTS = {"bundle": 6000, "manifest": 12_000, "link_info": 24_000}
INPUTS_PER_S = {"bundle": 1200, "manifest": 4000, "link_info": 8000}  # for the progress line
CRASHES = REPOSITORY / "bench" / "results" / "crashes"


def steps(scale: Scale) -> list[Step]:
    inputs = scale.pick(INPUTS, QUICK_INPUTS)
    return [
        Step(f"{inputs[name]:,} x {name}", inputs[name] / INPUTS_PER_S[name], partial(_fuzz, name, inputs[name]))
        for name in TARGETS
    ]


def _fuzz(target: str, inputs: int, outcome: Outcome) -> None:
    problem = runs.missing()
    if problem is not None:
        raise RuntimeError(problem)
    seed = int(time.time()) // 3600
    began = time.monotonic()

    def progress(tried: int) -> None:
        if sys.stderr.isatty():
            rate = tried / max(0.1, time.monotonic() - began)
            sys.stderr.write(f"\r\033[K  fuzz: {target}: {tried:,} of {inputs:,} inputs, {rate:,.0f} in a second")
            sys.stderr.flush()

    found = runs.fuzz(target, runs=inputs, seed=seed, processes=PROCESSES, crashes=CRASHES, progress=progress)
    for what, unit, value in (
        ("inputs", "inputs", float(found.inputs)),
        ("rate", "inputs/s", found.inputs / found.seconds),
        ("accepted", "inputs", float(found.ends["accepted"])),
        ("ends", "kinds", float(len(found.ends))),
        ("branches", "branches", float(found.branches)),
        ("kept", "inputs", float(found.corpus)),
        ("slowest", "ms", found.slowest_ms),
        ("memory", "bytes", float(found.peak_bytes)),
        ("crashes", "inputs", float(len(found.crashes))),
    ):
        outcome.add(value, unit, what=what, target=target)
    outcome.note(f"Seeds {seed} to {seed + PROCESSES - 1}.")
    if found.crashes:
        print(found.said[-4000:], file=sys.stderr)
        raise RuntimeError(f"an input breaks a promise; repeat it with `{command_of(target, found.crashes)}`")


def tables(outcome: Outcome) -> list[Table]:
    columns = ("inputs", "rate", "accepted", "ends", "branches", "kept", "slowest", "memory", "crashes")
    rows = [
        [str(target), *(_cell(outcome.median(what=what, target=target), what) for what in columns)]
        for target in outcome.values("target", what="inputs")
    ]
    header = ["read", "inputs", "in a second", "accepted", "outcomes", "branches", "new", "slowest, ms"]
    remark = (
        "*Accepted*: inputs that passed every check, were stored and read back. *Outcomes*: accepted, and each error "
        "code that was met. *Branches* of the readers reached by the better process; *new*: inputs that "
        "reached something for the first time. *Slowest*: processor time of one input; *memory*: the most that one of "
        "256 measured inputs took; *found*: inputs that broke a promise."
    )
    return [Table("What came of hostile inputs", [*header, "memory, kB", "found"], rows, remark)]


def _cell(value: float | None, what: str) -> str:
    if value is None:
        return NOTHING
    return figure(value / 1000) if what == "memory" else f"{value:,.0f}" if what != "slowest" else figure(value)


def plots(outcome: Outcome) -> list[Plot]:
    """A table says it all."""
    del outcome
    return []
