"""The largest testbed, and its parts failing: each module `scale_*` beside this one has steps and tables of its own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Protocol, cast

from lab.bench import suites
from lab.bench.core import Outcome, Scale, Step
from lab.bench.plots import Plot
from lab.bench.report import Verdict

NAME = "scale"
TITLE = "Scale"


class Part(Protocol):
    def steps(self, scale: Scale) -> list[Step]: ...

    def verdicts(self, outcome: Outcome) -> Iterator[Verdict]: ...

    def plots(self, outcome: Outcome) -> list[Plot]: ...


def parts() -> list[Part]:
    names = sorted(one.name for one in pkgutil.iter_modules(suites.__path__) if one.name.startswith("scale_"))
    return [cast(Part, importlib.import_module(f"lab.bench.suites.{name}")) for name in names]


def steps(scale: Scale) -> list[Step]:
    return [step for part in parts() for step in part.steps(scale)]


def verdicts(outcome: Outcome) -> list[Verdict]:
    return [verdict for part in parts() for verdict in part.verdicts(outcome)]


def plots(outcome: Outcome) -> list[Plot]:
    return [plot for part in parts() for plot in part.plots(outcome)]
