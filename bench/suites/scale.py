"""What a testbed of any size costs: growth and ratios, group by group (`bench.scale`)."""

from __future__ import annotations

from typing import Protocol

from bench.core import Outcome, Scale, Step
from bench.plots import Plot
from bench.report import Table
from bench.scale import costs

NAME = "scale"
TITLE = "At scale"


class Group(Protocol):
    """What each module of `bench.scale` that is listed here offers."""

    def steps(self, scale: Scale) -> list[Step]: ...

    def tables(self, outcome: Outcome) -> list[Table]: ...

    def plots(self, outcome: Outcome) -> list[Plot]: ...


GROUPS: tuple[Group, ...] = (costs,)


def steps(scale: Scale) -> list[Step]:
    return [step for group in GROUPS for step in group.steps(scale)]


def tables(outcome: Outcome) -> list[Table]:
    return [table for group in GROUPS for table in group.tables(outcome)]


def plots(outcome: Outcome) -> list[Plot]:
    return [plot for group in GROUPS for plot in group.plots(outcome)]
