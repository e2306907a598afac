"""Sequences from a seed, until one breaks a property; then the smallest that still does."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from ap_agent.dataplane.program import OBJECT
from lab.frames.grow import ON_BOTH_EVERY, Sequence, sequence, smaller
from lab.frames.judge import Broken, examined
from lab.frames.replay import Replay, replay

PROBED_EVERY = 4
TRIES_ON_BOTH = 8  # two processors do not meet each time


@dataclass(frozen=True)
class Finding:
    """`frames`: how many had been tried."""

    broken: Broken
    seed: int
    number: int
    frames: int
    sequence: Sequence

    @property
    def kind(self) -> str:
        """What else it needs: two findings of a kind are one, most probably."""
        frames = self.sequence.frames
        traits = {"tags": any(one.tags for one in frames), "fragments": any(one.fragment for one in frames)}
        return " ".join([self.broken.rule, *(name for name, has in traits.items() if has)])

    def __str__(self) -> str:
        head = f"{self.kind}: {self.broken.words} (seed {self.seed}, sequence {self.number}, {self.frames} frames)"
        return f"{head}\n{self.sequence.lines()}"


@dataclass
class Found:
    frames: int = 0
    sequences: int = 0
    seconds: float = 0.0  # of processor time
    broken: list[Finding] = field(default_factory=list)

    @property
    def per_hour(self) -> float:
        """Of one processor."""
        return self.frames * 3600 / self.seconds if self.seconds else 0.0


def fuzz(
    frames: int,
    seed: int,
    object_file: Path = OBJECT,
    *,
    keep_going: bool = False,
) -> Found:
    """`keep_going`: the first finding of each kind."""
    found, known = Found(), set[str]()
    with replay(object_file) as running:
        began = time.process_time()
        while found.frames < frames:
            number = found.sequences
            tried = sequence(seed, number)
            probed, both = number % PROBED_EVERY == 0, number % ON_BOTH_EVERY == 1
            broken, count = examined(running, tried, is_probed=probed, is_on_both=both)
            found.frames += count
            found.sequences += 1
            if broken is None:
                continue
            one = Finding(broken, seed, number, found.frames, smallest(running, tried, broken))
            if one.kind in known:
                continue
            known.add(one.kind)
            found.broken.append(one)
            if not keep_going:
                break
        found.seconds = time.process_time() - began
    return found


def smallest(running: Replay, tried: Sequence, broken: Broken) -> Sequence:
    is_limit = broken.rule == "limit"

    def is_still(one: Sequence) -> bool:
        turns = TRIES_ON_BOTH if is_limit else 1
        for _ in range(turns):
            found, _frames = examined(running, one, is_probed=broken.rule == "claim", is_on_both=is_limit)
            if found is not None and found.rule == broken.rule:
                return True
        return False

    return smaller(tried, is_still)
