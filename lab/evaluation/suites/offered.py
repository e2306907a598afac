"""Figures 6.6 and 6.7 of the thesis: goodput and silent seconds of large datagrams over the rate that is offered."""

from __future__ import annotations

from lab.bench.core import Outcome, Step
from lab.bench.plots import Plot
from lab.evaluation.core import FROM_USER, Claim, EvaluationScale, Finding
from lab.evaluation.figures import AVERAGE, ZEROS, GridOutcome, grid_plot, told
from lab.evaluation.grid import LIMIT_KBIT, Cell
from lab.evaluation.grid import steps as grid_steps
from lab.evaluation.limiters import OURS, THESIS
from lab.evaluation.verdicts import collapse_claim, never_more_claim, too_much_claim, whole_claims

NAME = "offered"
TITLE = "Offered rate (figures 6.6 and 6.7)"
SIZE_BYTES = 10_000
CELLS = tuple(Cell(SIZE_BYTES, rate) for rate in range(100, 1_001, 100))
QUICK_CELLS = [cell for cell in CELLS if cell.offered_kbit in (300, 500, 600, 1_000)]
FAR_ABOVE = [cell for cell in CELLS if cell.offered_kbit > 1.5 * LIMIT_KBIT]
INTRO = f"""
Limit {LIMIT_KBIT} kbit/s, datagrams of {SIZE_BYTES} B in seven fragments, 100 to 1000 kbit/s of payload offered in
both directions at once. Counted as above. *What can arrive* is what is offered, or what headers and fragments leave
of the limit.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    return grid_steps(NAME, scale.pick(CELLS, QUICK_CELLS), scale)


def _grid(outcome: Outcome) -> GridOutcome:
    return GridOutcome(outcome, NAME, CELLS)


def plots(outcome: Outcome) -> list[Plot]:
    title = f"Average over the offered rate, {SIZE_BYTES} B (6.6)"
    x_label = "payload offered, kbit/s"
    return [grid_plot(_grid(outcome), "offered-average", title, x_label, lambda cell: cell.offered_kbit)]


def claims(outcome: Outcome) -> list[Claim]:
    grid = _grid(outcome)
    return [
        never_more_claim(grid, (OURS,)),
        *whole_claims(grid, CELLS),
        collapse_claim(grid, FAR_ABOVE),
        too_much_claim(grid),
    ]


def findings(outcome: Outcome) -> list[Finding]:
    grid = _grid(outcome)

    def row(name: str, thesis: str, what: str) -> Finding:
        said = [told(grid, who, FROM_USER, what, CELLS) for who in (THESIS, OURS)]
        return Finding(name, f"l = {SIZE_BYTES}, b = 100…1000", thesis, *said)

    return [
        row("6.6 ingress, kbit/s", "reaches the target below 500, collapses above", AVERAGE),
        row("6.7 ingress, zero samples", "many above 500", ZEROS),
    ]
