"""Sequences of frames for the limiter's program: is there one that breaks a property?

Millions of frames (`lab.frames`). What breaks a property is printed with what repeats it. The seed is the hour, so that
no two runs try the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial

from lab.bench.core import Outcome, Scale, Step
from lab.frames import runs, wire

NAME = "fuzz"
TITLE = "Fuzzing"
FRAMES, QUICK_FRAMES, FRAMES_PER_S = 5_000_000, 50_000, 10_000
WIRE_FRAMES, QUICK_WIRE_FRAMES, WIRE_FRAMES_PER_S = 400_000, 20_000, 10_000
DIRECTIONS = {"from the user": True, "to the user": False}


def steps(scale: Scale) -> list[Step]:
    frames, on_wire = scale.pick(FRAMES, QUICK_FRAMES), scale.pick(WIRE_FRAMES, QUICK_WIRE_FRAMES)
    return [
        Step(f"{frames:,} frames", frames / FRAMES_PER_S, partial(_replay, frames)),
        *(
            Step(f"{on_wire:,} frames {words}", 2 * on_wire / WIRE_FRAMES_PER_S, partial(_send, on_wire, words))
            for words in DIRECTIONS
        ),
    ]


def _seed() -> int:
    return int(time.time()) // 3600


def _replay(frames: int, outcome: Outcome) -> None:
    found = runs.fuzz(frames, _seed(), keep_going=True)
    _add(outcome, "BPF_PROG_TEST_RUN, both directions", found.frames, found.per_hour, found.broken)


def _send(frames: int, words: str, outcome: Outcome) -> None:
    seed, from_user = _seed(), DIRECTIONS[words]
    without, came = (wire.send(frames, seed, from_user=from_user, is_limited=one) for one in (False, True))
    _add(outcome, f"veth pair, two processors, {words}", frames, frames * 3600 / came.seconds, came.broken(without))


def _add(outcome: Outcome, way: str, frames: int, per_hour: float, broken: Sequence[object]) -> None:
    outcome.add(float(frames), "frames", what="frames", way=way)
    outcome.add(per_hour, "frames/h", what="per hour", way=way)
    outcome.add(float(len(broken)), "kinds", what="broken", way=way)
    outcome.note(f"Seed {_seed()}.")
    if broken:
        print("\n".join(map(str, broken)), file=sys.stderr)
        raise RuntimeError(f"{len(broken)} properties are broken; see above")
