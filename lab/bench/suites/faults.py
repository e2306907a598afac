"""What somebody else breaks, and how long it stays broken: the running agent hears of it from the kernel.

Each fault of `lab.faults` on a host of its own under traffic. `noticed and healed` runs from the first command of the
fault until the kernel shows the repair; for what is not ours, until the agent reports it. What was let through or lost
meanwhile is read from numbered packets. Nothing polls and nothing compares during these runs.
"""

from __future__ import annotations

from functools import partial

from lab.bench.core import Outcome, Scale, Step
from lab.bench.plots import Plot
from lab.bench.world import PREFIX
from lab.fault_world import FaultWorld
from lab.faults import FAULTS, measure

NAME = "faults"
TITLE = "Faults, and their repair"
QUICK = ("the IFB is deleted", "a class is changed by hand")


def steps(scale: Scale) -> list[Step]:
    return [Step(name, 5.0, partial(_measure, name)) for name in scale.pick(tuple(FAULTS), QUICK)]


def _measure(name: str, outcome: Outcome) -> None:
    with FaultWorld(PREFIX) as world:
        report = measure(world, FAULTS[name], name)
    is_left = "yes" if FAULTS[name].leaves_unlimited else "no"  # somebody else's root: not the agent's to remove
    outcome.add(report.cause_ms, "ms", what="breaking", fault=name, left=is_left)
    outcome.add(report.healed_ms, "ms", what="healed", fault=name, left=is_left)
    stretches = report.stretches.values()
    outcome.add(max(one.unlimited_ms for one in stretches), "ms", what="unlimited", fault=name, left=is_left)
    outcome.add(max(one.silent_ms for one in stretches), "ms", what="silent", fault=name, left=is_left)
    outcome.add(sum(one.lost for one in stretches), "packets", what="lost", fault=name, left=is_left)


def slowest_s(outcome: Outcome) -> float | None:
    """From fault to repair, the slowest of all; None when nothing was measured."""
    samples = [sample for one in outcome.find(what="healed") for sample in one.samples]
    return max(samples) / 1000 if samples else None


def plots(outcome: Outcome) -> list[Plot]:
    """Names and five figures each: a table."""
    del outcome
    return []
