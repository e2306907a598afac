"""What the outcome of a grid shows: a plot in the thesis' way, and rows for its table of findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lab.bench.core import Outcome, Series
from lab.bench.plots import Plot, Point, Range
from lab.bench.report import NOTHING
from lab.evaluation.core import DIRECTIONS
from lab.evaluation.grid import LIMIT_KBIT, Cell
from lab.evaluation.limiters import OURS, THESIS, WONDERSHAPER

SHOWN = (OURS, THESIS, WONDERSHAPER)
PALETTE = {OURS: "#0b6e4f", THESIS: "#c1666b", WONDERSHAPER: "#5b7db1"}
Case = tuple[str, str, Cell, Series]  # limiter, direction, cell, averages of the runs
CAN_ARRIVE = "what can arrive"  # what is offered, or what headers and fragments leave of the limit
AVERAGE, ZEROS = "average", "zeros"


@dataclass(frozen=True)
class GridOutcome:
    """One experiment's series, by limiter, direction and cell."""

    outcome: Outcome
    experiment: str
    cells: Sequence[Cell]

    def series(self, limiter: str, direction: str, cell: Cell, what: str) -> Series | None:
        """None where it was not measured."""
        found = self.outcome.find(
            experiment=self.experiment,
            limiter=limiter,
            direction=direction,
            payload=cell.payload_bytes,
            offered=cell.offered_kbit,
            what=what,
        )
        return found[0] if found else None

    def samples_per_run(self) -> int:
        """One-second samples that each run has; 0 without any run."""
        found = self.outcome.find(experiment=self.experiment, what="sample")
        return len(found[0].samples) if found else 0

    def paused_share(self) -> float:
        """Of the time, in which the machine stood still in the worst run."""
        found = self.outcome.find(experiment=self.experiment, what="paused")
        return max((max(one.samples) for one in found), default=0.0) / max(1, self.samples_per_run())

    def cases(self, cells: Iterable[Cell], whose: Iterable[str], ways: Iterable[str] = DIRECTIONS) -> list[Case]:
        """(limiter, direction, cell, averages) of everything among these that was measured."""
        found = [
            (who, way, cell, self.series(who, way, cell, AVERAGE)) for who in whose for way in ways for cell in cells
        ]
        return [(who, way, cell, one) for who, way, cell, one in found if one is not None]


# --- plot -------------------------------------------------------------------------------------------------------


def grid_plot(grid: GridOutcome, name: str, title: str, x_label: str, x_of: Callable[[Cell], int]) -> Plot:
    """Averages, one panel per direction; limiters told apart by colour, the limit and what headers leave as lines."""
    lines: dict[str, list[Point]] = {}
    spread: dict[str, list[Range]] = {}
    for limiter in SHOWN:
        for direction in DIRECTIONS:
            measured = [(cell, one) for _, _, cell, one in grid.cases(grid.cells, [limiter], [direction])]
            if measured:
                lines[f"{limiter}, {direction}"] = [(x_of(cell), one.median) for cell, one in measured]
                spread[f"{limiter}, {direction}"] = [(min(one.samples), max(one.samples)) for _, one in measured]
    return Plot(
        name,
        title,
        "kbit/s of payload",
        x_label,
        lines=lines,
        is_log=False,
        is_log_x=False,
        mark_y=LIMIT_KBIT,
        panels=DIRECTIONS,
        palette=PALETTE,
        references={CAN_ARRIVE: [(float(x_of(cell)), cell.bound_kbit) for cell in grid.cells]},
        spread=spread,
    )


# --- rows of the thesis -----------------------------------------------------------------------------------------


def told(grid: GridOutcome, limiter: str, direction: str, what: str, cells: Sequence[Cell]) -> str:
    """The medians of these cells in their order, e.g. "480, 34, 48"; a dash where nothing was measured."""
    found = [grid.series(limiter, direction, cell, what) for cell in cells]
    return ", ".join(f"{one.median:.0f}" if one is not None else NOTHING for one in found)


def told_both(grid: GridOutcome, limiter: str, what: str, cells: Sequence[Cell]) -> str:
    return "; ".join(f"{way}: {told(grid, limiter, way, what, cells)}" for way in DIRECTIONS)
