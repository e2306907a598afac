"""Figures 6.1 to 6.4 of the thesis: goodput and silent seconds over the size of the datagrams."""

from __future__ import annotations

from lab.bench.core import Outcome, Step
from lab.bench.peers import wondershaper
from lab.bench.plots import Plot
from lab.evaluation import witness
from lab.evaluation.bed import Bed, BedLab
from lab.evaluation.core import Claim, EvaluationScale, Finding
from lab.evaluation.figures import AVERAGE, ZEROS, GridOutcome, grid_plot, told, told_both
from lab.evaluation.grid import LIMIT_KBIT, Cell
from lab.evaluation.grid import steps as grid_steps
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WONDERSHAPER
from lab.evaluation.verdicts import collapse_claim, control_claim, exact_claim, never_more_claim, whole_claims

NAME = "sizes"
TITLE = "Datagram size (figures 6.1 to 6.4)"
OFFERED_KBIT = 2_000
ONE_FRAME = 1_472  # the largest payload that is not fragmented; beside the thesis' sizes
CELLS = tuple(Cell(size, OFFERED_KBIT) for size in sorted([ONE_FRAME, *range(1_000, 10_001, 1_000)]))
# One datagram more or less is 10 % of three seconds for the largest ones: a wrong limit need not show there.
CONTROLLED = [cell for cell in CELLS if cell.payload_bytes <= 4_000]
QUICK_CELLS = [cell for cell in CELLS if cell.payload_bytes in (1_000, ONE_FRAME, 2_000, 4_000, 10_000)]
THESIS_CELLS = [cell for cell in CELLS if cell.payload_bytes != ONE_FRAME]
WITNESSED = [cell for cell in CELLS if cell.payload_bytes in (1_000, ONE_FRAME, 10_000)]
WITHIN_MTU = [cell for cell in CELLS if cell.is_whole_frame]
FRAGMENTED = [cell for cell in CELLS if not cell.is_whole_frame]
INTRO = f"""
Limit {LIMIT_KBIT} kbit/s, {OFFERED_KBIT} kbit/s of payload offered in both directions at once, datagrams of 1000 to
10000 B and of {ONE_FRAME} B, MTU 1500: everything above 1472 B travels in fragments. Counted is the payload of
complete datagrams at the receiver, in samples of one second after one second of warm-up. *What can arrive* is what
headers and fragments leave of the limit. Figures 6.1 and 6.2 are the thesis' sequence, 6.3 and 6.4 wondershaper.
(The thesis had no warm-up: its first second has what found an empty queue.)
"""


def steps(scale: EvaluationScale) -> list[Step]:
    installed = Step("the wondershaper that is installed", 1.0, _installed)
    return [installed, *grid_steps(NAME, scale.pick(CELLS, QUICK_CELLS), scale), *witness.steps(NAME, WITNESSED, scale)]


def _installed(outcome: Outcome) -> None:
    """What Debian's wondershaper does on this kernel, in its own words."""
    with BedLab() as lab:
        bed = Bed(lab, NO_LIMIT, wires=1)
        outcome.note(wondershaper.effect(bed.ap, bed.wire(1).dev, LIMIT_KBIT))


def _grid(outcome: Outcome) -> GridOutcome:
    return GridOutcome(outcome, NAME, CELLS)


def plots(outcome: Outcome) -> list[Plot]:
    title = f"Average over the size, {OFFERED_KBIT} kbit/s offered (6.1, 6.3)"
    x_label = "payload of a datagram, B"
    return [grid_plot(_grid(outcome), "sizes-average", title, x_label, lambda cell: cell.payload_bytes)]


def claims(outcome: Outcome) -> list[Claim]:
    grid = _grid(outcome)
    return [
        exact_claim(
            grid, WITHIN_MTU, (OURS,), "Within the MTU our limiter gives exactly the limit, in both directions"
        ),
        never_more_claim(grid, (OURS,)),
        *whole_claims(grid, FRAGMENTED),
        collapse_claim(grid, FRAGMENTED),
        witness.claim(grid, WITNESSED),
        control_claim(grid, CONTROLLED),
    ]


def findings(outcome: Outcome) -> list[Finding]:
    grid = _grid(outcome)
    over = f"offered {OFFERED_KBIT} k, l = 1000…10000"
    egress, ingress = "to user", "from user"

    def row(name: str, thesis: str, direction: str | None, what: str, peer: str = THESIS) -> Finding:
        def said(who: str) -> str:
            cells = THESIS_CELLS
            return told(grid, who, direction, what, cells) if direction else told_both(grid, who, what, cells)

        return Finding(name, over, thesis, said(peer), said(OURS))

    return [
        row("6.1 egress, kbit/s", "average slightly above 500, stable", egress, AVERAGE),
        row("6.1 ingress, kbit/s", "near the limit at 1000 B, falls drastically", ingress, AVERAGE),
        row("6.2 ingress, zero samples", "grow with the size", ingress, ZEROS),
        row("6.2 egress, zero samples", "far fewer", egress, ZEROS),
        row("6.3, 6.4 wondershaper, kbit/s", "same pattern", None, AVERAGE, WONDERSHAPER),
    ]
