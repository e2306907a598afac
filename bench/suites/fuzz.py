"""Hostile inputs: is there one that breaks a promise?

A million documents for what the agent reads from the network, coverage-guided, two processes side by side; the promises
are in `lab.fuzz.targets`. Millions of frames for the limiter's program, in sequences (`lab.frames`). What breaks a
promise is kept or printed with what repeats it. The seed is the hour, so that no two runs try the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial

from bench.core import REPOSITORY, Outcome, Scale, Step
from bench.plots import Plot
from bench.report import NOTHING, Table, figure
from lab.frames import runs as frame_runs
from lab.frames import wire
from lab.fuzz import runs
from lab.fuzz.__main__ import command_of
from lab.fuzz.targets import TARGETS

NAME = "fuzz"
TITLE = "Fuzzing"
PROCESSES = 2
INPUTS = {"bundle": 300_000, "manifest": 300_000, "link_info": 400_000}
QUICK_INPUTS = {"bundle": 6000, "manifest": 12_000, "link_info": 24_000}
INPUTS_PER_S = {"bundle": 1200, "manifest": 4000, "link_info": 8000}  # for the progress line
FRAMES, QUICK_FRAMES, FRAMES_PER_S = 5_000_000, 50_000, 10_000
WIRE_FRAMES, QUICK_WIRE_FRAMES, WIRE_FRAMES_PER_S = 400_000, 20_000, 10_000
DIRECTIONS = {"from the user": True, "to the user": False}
CRASHES = REPOSITORY / "bench" / "results" / "crashes"


def steps(scale: Scale) -> list[Step]:
    inputs = scale.pick(INPUTS, QUICK_INPUTS)
    frames, on_wire = scale.pick(FRAMES, QUICK_FRAMES), scale.pick(WIRE_FRAMES, QUICK_WIRE_FRAMES)
    return [
        Step(f"{frames:,} frames", frames / FRAMES_PER_S, partial(_replay, frames)),
        *(
            Step(f"{on_wire:,} frames {words}", 2 * on_wire / WIRE_FRAMES_PER_S, partial(_send, on_wire, words))
            for words in DIRECTIONS
        ),
        *(
            Step(f"{inputs[name]:,} x {name}", inputs[name] / INPUTS_PER_S[name], partial(_fuzz, name, inputs[name]))
            for name in TARGETS
        ),
    ]


def _seed() -> int:
    return int(time.time()) // 3600


def _replay(frames: int, outcome: Outcome) -> None:
    found = frame_runs.fuzz(frames, _seed(), keep_going=True)
    _add(outcome, "BPF_PROG_TEST_RUN, both directions", found.frames, found.per_hour, found.broken)


def _send(frames: int, words: str, outcome: Outcome) -> None:
    seed, from_user = _seed(), DIRECTIONS[words]
    without, came = (wire.send(frames, seed, from_user=from_user, is_limited=one) for one in (False, True))
    _add(outcome, f"veth pair, two processors, {words}", frames, frames * 3600 / came.seconds, came.broken(without))


def _add(outcome: Outcome, way: str, frames: int, per_hour: float, broken: Sequence[object]) -> None:
    outcome.add(float(frames), "frames", what="frames", way=way)
    outcome.add(per_hour, "frames/h", what="per hour", way=way)
    outcome.add(float(len(broken)), "kinds", what="broken", way=way)
    outcome.note(f"Frames: seed {_seed()}.")
    if broken:
        print("\n".join(map(str, broken)), file=sys.stderr)
        raise RuntimeError(f"{len(broken)} properties are broken; see above")


def _fuzz(target: str, inputs: int, outcome: Outcome) -> None:
    problem = runs.missing()
    if problem is not None:
        raise RuntimeError(problem)
    seed = _seed()
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
    outcome.note(f"Documents: seeds {seed} to {seed + PROCESSES - 1}.")
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
    frames = [
        [str(way), *(f"{outcome.median(what=what, way=way) or 0:,.0f}" for what in ("frames", "per hour", "broken"))]
        for way in outcome.values("way", what="frames")
    ]
    of_frames = Table("What came of sequences of frames", ["way", "frames", "in an hour", "broken"], frames)
    return [of_frames, Table("What came of hostile inputs", [*header, "memory, kB", "found"], rows, remark)]


def _cell(value: float | None, what: str) -> str:
    if value is None:
        return NOTHING
    return figure(value / 1000) if what == "memory" else f"{value:,.0f}" if what != "slowest" else figure(value)


def plots(outcome: Outcome) -> list[Plot]:
    """A table says it all."""
    del outcome
    return []
