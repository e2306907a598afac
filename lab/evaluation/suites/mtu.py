"""Figure 6.8 of the thesis: datagrams "of the MTU", which fit one frame only without their headers' 28 bytes."""

from __future__ import annotations

from lab.bench.core import Outcome, Step
from lab.evaluation.core import Claim, EvaluationScale, Finding
from lab.evaluation.figures import AVERAGE, GridOutcome, told_both
from lab.evaluation.grid import LIMIT_KBIT, Cell
from lab.evaluation.grid import steps as grid_steps
from lab.evaluation.limiters import OURS, THESIS, WRONG_SHARE
from lab.evaluation.verdicts import control_claim, exact_claim, never_more_claim, whole_claims
from measuring.framing import ETHERNET_BYTES, IPV4_BYTES, MTU_BYTES, UDP_BYTES

NAME = "mtu"
TITLE = "Datagrams of the MTU (figure 6.8)"
ONE_FRAME = MTU_BYTES - IPV4_BYTES - UDP_BYTES
RATES = (*range(100, 1_001, 100), 2_000)
QUICK_RATES = (300, 500, 900, 2_000)
GRIDS = {size: tuple(Cell(size, rate) for rate in RATES) for size in (ONE_FRAME, MTU_BYTES)}
# A wrong limit shows only where more is offered than it lets through.
CONTROLLED = [cell for cell in GRIDS[ONE_FRAME] if cell.offered_kbit > 1.5 * WRONG_SHARE * LIMIT_KBIT]
INTRO = f"""
Limit {LIMIT_KBIT} kbit/s, 100 to 2000 kbit/s of payload offered in both directions at once, in datagrams of
{MTU_BYTES} B, which the thesis takes for the MTU and which are two fragments, and of {ONE_FRAME} B, which fill one
frame of {MTU_BYTES + ETHERNET_BYTES} B. Counted as above.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    rates = scale.pick(RATES, QUICK_RATES)
    return grid_steps(NAME, [cell for cells in GRIDS.values() for cell in cells if cell.offered_kbit in rates], scale)


def _grid(outcome: Outcome, size: int) -> GridOutcome:
    return GridOutcome(outcome, NAME, GRIDS[size])


def claims(outcome: Outcome) -> list[Claim]:
    within, above = _grid(outcome, ONE_FRAME), _grid(outcome, MTU_BYTES)
    sentence = (
        f"Datagrams of {ONE_FRAME} B arrive at the offered rate up to the limit, and at exactly the limit above it"
    )
    return [
        exact_claim(within, within.cells, (OURS,), sentence),
        never_more_claim(above, (OURS,)),
        *whole_claims(above, above.cells),
        control_claim(within, CONTROLLED),
    ]


def findings(outcome: Outcome) -> list[Finding]:
    thesis = "both reach the target, then flat; egress a bit above, ingress a bit below"
    rows = []
    for size in (MTU_BYTES, ONE_FRAME):
        grid = _grid(outcome, size)
        said = [told_both(grid, who, AVERAGE, grid.cells) for who in (THESIS, OURS)]
        rows.append(Finding(f"6.8, l = {size}, kbit/s", "b = 100…1000, 2000", thesis, *said))
    return rows
