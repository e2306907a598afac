"""What every experiment shares: how much is measured, what a suite offers, and a claim with its verdict.

Samples, steps, progress and tables are those of the benchmarks (`core`, `report` and `plots` of `lab.bench`). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lab.bench.core import Label, Outcome, Scale, Step

TO_USER, FROM_USER = "to user", "from user"  # the values of every series' label `direction`
DIRECTIONS = (TO_USER, FROM_USER)
WARM_UP_S = 1.0  # before the first sample: the first bucket and the first leaf are spent by then (measuring.judge)


@dataclass(frozen=True)
class Claim:
    """A sentence that the product's documentation rests on, and whether the measurement bears it out.

    `bound` says what is allowed and how that is derived, `measured` what was found; both with units.
    """

    sentence: str
    bound: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Finding:
    """One row of the thesis' evaluation: what it says, and what was measured of its own commands and of ours."""

    row: str
    grid: str
    thesis: str
    peer: str
    ours: str


@dataclass(frozen=True)
class EvaluationScale(Scale):
    """Five repetitions of ten one-second samples, or (quick) one of three."""

    @property
    def repetitions(self) -> int:
        return self.pick(5, 1)

    @property
    def samples(self) -> int:
        """One-second samples of each run, after the warm-up."""
        return self.pick(10, 3)

    @property
    def run_s(self) -> float:
        """How long senders send in one run."""
        return WARM_UP_S + self.samples


def labels_of(experiment: str, limiter: str, direction: str, **more: Label) -> dict[str, Label]:
    """Those that every series has, and more."""
    return {"experiment": experiment, "limiter": limiter, "direction": direction, **more}


class Suite(Protocol):
    """What a module in `lab.evaluation.suites` offers. `INTRO` is Markdown: what was done, and what is counted.

    Every series has at least the labels `experiment`, `limiter` and `direction`. A step that finds that a run says
    nothing (the machine stood still) repeats it once and notes that in its outcome. A suite that repeats rows of the
    thesis has `findings(outcome) -> list[Finding]` as well, and one with figures `plots(outcome) -> list[Plot]`.
    """

    NAME: str
    TITLE: str
    INTRO: str

    def steps(self, scale: EvaluationScale) -> list[Step]: ...

    def claims(self, outcome: Outcome) -> list[Claim]: ...
