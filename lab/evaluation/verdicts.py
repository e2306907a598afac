"""The verdicts that the suites of a grid share: what our agent promises, what the thesis found, negative controls."""

from __future__ import annotations

from collections.abc import Sequence

from lab.bench.report import NOTHING
from lab.evaluation.core import FROM_USER, Claim
from lab.evaluation.figures import ZEROS, Case, GridOutcome
from lab.evaluation.grid import LIMIT_KBIT, Cell
from lab.evaluation.limiters import CONTROLS, NO_LIMIT, OURS, THESIS, WRONG

WHOLE_SHARE = 0.95  # of what headers leave: what is promised for datagrams larger than the MTU


def exact_claim(grid: GridOutcome, cells: Sequence[Cell], whose: Sequence[str], sentence: str) -> Claim:
    """The median of the runs is what can be reached, on both sides, within what the arithmetic of a window allows."""
    cases = grid.cases(cells, whose)
    off = [one for one in cases if not is_exact(grid, one[2], one[3].median)]
    worst = max((abs(one.median / cell.bound_kbit - 1) for _, _, cell, one in cases), default=0.0)
    measured = f"{len(cases) - len(off)} of {len(cases)} medians within it; furthest {worst:.2%} away{_named(off)}"
    return Claim(sentence, _exact_bound(grid, cells), measured, bool(cases) and not off)


def _exact_bound(grid: GridOutcome, cells: Sequence[Cell]) -> str:
    seconds = max(1, grid.samples_per_run())
    allowed = max((cell.allowed_kbit(seconds) for cell in cells), default=0.0)
    paused = f", and {grid.paused_share():.2%} less, for which the machine stood still" if grid.paused_share() else ""
    share = f"(burst + frame + one datagram) / {seconds} s = {allowed:.1f} kbit/s"
    return f"within {share} of what is offered, or of what headers leave{paused}"


def is_exact(grid: GridOutcome, cell: Cell, measured_kbit: float) -> bool:
    """The judge that must find the negative controls wrong."""
    allowed = cell.allowed_kbit(max(1, grid.samples_per_run()))
    return -allowed - grid.paused_share() * cell.bound_kbit <= measured_kbit - cell.bound_kbit <= allowed


def never_more_claim(grid: GridOutcome, whose: Sequence[str]) -> Claim:
    """No run of any cell carried more than a window may."""
    seconds = max(1, grid.samples_per_run())
    shares = _shares_of_allowed(grid, whose)
    worst = max(shares, default=0.0)
    return Claim(
        "Our limiter never lets more through than the limit, whatever the size and the rate that is offered",
        f"in every run at most rate * {seconds} s + burst + two frames + one datagram, as payload",
        f"at most {worst:.1%} of that in {len(shares)} cells",
        bool(shares) and worst <= 1,
    )


def _shares_of_allowed(grid: GridOutcome, whose: Sequence[str]) -> list[float]:
    """Of each cell and direction the busiest run, over the most that it may carry."""
    seconds = max(1, grid.samples_per_run())
    return [
        max(one.samples) / (cell.bound_kbit + cell.allowed_kbit(seconds))
        for _, _, cell, one in grid.cases(grid.cells, whose)
    ]


def too_much_claim(grid: GridOutcome) -> Claim:
    """The negative control of `never_more_claim`."""
    worst = {who: max(_shares_of_allowed(grid, [who]), default=0.0) for who in CONTROLS}
    return Claim(
        "The same judge finds that a wrong limit, and no limit, let too much through (negative controls)",
        "110 % of the limit, and no limit, each above what is allowed",
        "; ".join(f"{who}: {share:.1%} of it" for who, share in worst.items()),
        all(share > 1 for share in worst.values()),
    )


def whole_claims(grid: GridOutcome, cells: Sequence[Cell]) -> list[Claim]:
    """Chapter 6.3.3: datagrams larger than the MTU arrive, in every sample."""
    seconds = max(1, grid.samples_per_run())
    cases = sorted(grid.cases(cells, [OURS]), key=lambda one: one[3].median / _whole_floor(grid, one[2], seconds))
    short = [one for one in cases if one[3].median < _whole_floor(grid, one[2], seconds)]
    nearest = f"{_told(cases[0])} of {cases[0][2].bound_kbit:.1f}" if cases else NOTHING
    zeros = [(way, cell, grid.series(OURS, way, cell, ZEROS)) for _, way, cell, _ in cases]
    silent = sum(sum(one.samples) for _, _, one in zeros if one is not None)
    return [
        Claim(
            "Datagrams larger than the MTU use the limit in both directions",
            f"median at least {WHOLE_SHARE:.0%} of what is offered, or of what headers and fragments leave, "
            f"less one datagram that the edge of {seconds} s cuts",
            f"{len(cases) - len(short)} of {len(cases)} cells; closest to it {nearest}",
            bool(cases) and not short,
        ),
        Claim(
            "No second passes without payload",
            "0 samples of a second",
            f"{silent:.0f} samples",
            bool(cases) and silent == 0,
        ),
    ]


def _whole_floor(grid: GridOutcome, cell: Cell, seconds: int) -> float:
    return (WHOLE_SHARE - grid.paused_share()) * cell.bound_kbit - cell.edge_kbit(seconds)


def control_claim(grid: GridOutcome, cells: Sequence[Cell]) -> Claim:
    """Every run of a wrong limit, and of none, is judged wrong in each of these cells, in both directions."""
    cases = grid.cases(cells, (WRONG, NO_LIMIT))
    passed = [one for one in cases if any(is_exact(grid, one[2], sample) for sample in one[3].samples)]
    return Claim(
        "The judge calls a wrong limit, and no limit, wrong (negative controls)",
        "every run of 110 % of the limit and of no limit lies outside of what is allowed",
        f"{len(cases) - len(passed)} of {len(cases)} cells found wrong{_named(passed)}",
        bool(cases) and not passed,
    )


def collapse_claim(grid: GridOutcome, cells: Sequence[Cell]) -> Claim:
    """What the thesis saw is seen again; otherwise this is another experiment than the thesis'."""
    cases = [one for one in grid.cases(cells, [THESIS]) if one[1] == FROM_USER]
    most = max((one.median / LIMIT_KBIT for *_, one in cases), default=1.0)
    return Claim(
        "What the thesis found is seen again: under overload its tree loses most fragmented datagrams from the user",
        "less than half of the limit arrives",
        f"at most {most:.0%} of the limit in {len(cases)} cells",
        bool(cases) and most < 0.5,
    )


def _named(cases: Sequence[Case]) -> str:
    """The first of what is wrong, for who has to find it."""
    return f"; e.g. {_told(cases[0])}" if cases else ""


def _told(case: Case) -> str:
    who, way, cell, one = case
    return f"{who}, {way}, {cell.payload_bytes} B at {cell.offered_kbit} kbit/s: {one.median:.1f} kbit/s"
