"""What the outcome of a grid shows: tables and plots in the thesis' way, and the verdicts that its suites share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.core import Outcome, Series
from bench.plots import Plot, Point, Range
from bench.report import NOTHING, Table
from evaluation.core import DIRECTIONS, Claim
from evaluation.grid import LIMIT_KBIT, Cell
from evaluation.limiters import CONTROLS, NO_LIMIT, OURS, THESIS, WHOLE, WONDERSHAPER, WRONG

WHOLE_SHARE = 0.95  # of what headers leave: what is promised for datagrams larger than the MTU
SHOWN = (OURS, WHOLE, THESIS, WONDERSHAPER)
PALETTE = {OURS: "#0b6e4f", WHOLE: "#e08a00", THESIS: "#c1666b", WONDERSHAPER: "#5b7db1"}
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

    def limiters(self) -> list[str]:
        present = {str(one) for one in self.outcome.values("limiter", experiment=self.experiment)}
        return [one for one in (*SHOWN, *CONTROLS) if one in present]

    def samples_per_run(self) -> int:
        """One-second samples that each run has; 0 without any run."""
        found = self.outcome.find(experiment=self.experiment, what="sample")
        return len(found[0].samples) if found else 0

    def paused_share(self) -> float:
        """Of the time, in which the machine stood still in the worst run."""
        found = self.outcome.find(experiment=self.experiment, what="paused")
        return max((max(one.samples) for one in found), default=0.0) / max(1, self.samples_per_run())

    def cases(self, cells: Iterable[Cell], whose: Iterable[str]) -> list[tuple[str, str, Cell, Series]]:
        """(limiter, direction, cell, averages) of everything among these that was measured."""
        found = [
            (who, way, cell, self.series(who, way, cell, AVERAGE))
            for who in whose
            for way in DIRECTIONS
            for cell in cells
        ]
        return [(who, way, cell, one) for who, way, cell, one in found if one is not None]


# --- tables and plots -------------------------------------------------------------------------------------------


def grid_tables(grid: GridOutcome, row_label: str, row_of: Callable[[Cell], int], title: str) -> list[Table]:
    """Averages and zero samples, each per direction: a row per cell, a column per limiter."""
    averages = [
        _table(grid, f"{title}: average, kbit/s of payload, {way}", row_label, row_of, direction=way, what=AVERAGE)
        for way in DIRECTIONS
    ]
    zeros = [
        _table(grid, f"{title}: seconds without payload, {way}", row_label, row_of, direction=way, what=ZEROS)
        for way in DIRECTIONS
    ]
    return [*averages, *zeros]


def _table(
    grid: GridOutcome, title: str, row_label: str, row_of: Callable[[Cell], int], *, direction: str, what: str
) -> Table:
    header = [row_label, *grid.limiters()]
    if what == AVERAGE:
        header.append("what headers leave")
    rows = []
    for cell in grid.cells:
        found = [grid.series(limiter, direction, cell, what) for limiter in grid.limiters()]
        cells = [_shown(one, what) if one is not None else NOTHING for one in found]
        rows.append([f"{row_of(cell):,}", *cells, *([f"{cell.bound_kbit:.1f}"] if what == AVERAGE else [])])
    remark = f"Median of the runs (lowest to highest); each run has {grid.samples_per_run()} samples."
    return Table(title, header, rows if any(grid.limiters()) else [], remark)


def _shown(one: Series, what: str) -> str:
    digits = 1 if what == AVERAGE else 0
    low, high = (f"{value:.{digits}f}" for value in (min(one.samples), max(one.samples)))
    return f"{one.median:.{digits}f}" if low == high else f"{one.median:.{digits}f} ({low} to {high})"


def grid_plot(
    grid: GridOutcome, *, name: str, title: str, x_label: str, x_of: Callable[[Cell], int], what: str
) -> Plot:
    """One panel per direction; limiters told apart by colour, the limit and what headers leave as lines."""
    lines: dict[str, list[Point]] = {}
    spread: dict[str, list[Range]] = {}
    for limiter in SHOWN:
        for direction in DIRECTIONS:
            found = [(cell, grid.series(limiter, direction, cell, what)) for cell in grid.cells]
            measured = [(cell, one) for cell, one in found if one is not None]
            if measured:
                lines[f"{limiter}, {direction}"] = [(x_of(cell), one.median) for cell, one in measured]
                spread[f"{limiter}, {direction}"] = [(min(one.samples), max(one.samples)) for _, one in measured]
    references = (
        {"what headers leave": [(float(x_of(cell)), cell.bound_kbit) for cell in grid.cells]} if what == AVERAGE else {}
    )
    return Plot(
        name,
        title,
        "kbit/s of payload" if what == AVERAGE else f"samples without payload, of {grid.samples_per_run()}",
        x_label,
        lines=lines,
        is_log=False,
        is_log_x=False,
        mark_y=LIMIT_KBIT if what == AVERAGE else None,
        panels=DIRECTIONS,
        palette=PALETTE,
        references=references,
        spread=spread,
        has_whole_values=what == ZEROS,
        program="",
    )


# --- verdicts ---------------------------------------------------------------------------------------------------


def exact_claim(grid: GridOutcome, cells: Sequence[Cell], whose: Sequence[str], sentence: str) -> Claim:
    """The median of the runs is what can be reached, on both sides, within what the arithmetic of a window allows."""
    cases = grid.cases(cells, whose)
    off = [one for one in cases if not is_exact(grid, one[2], one[3].median)]
    worst = max((abs(one.median / cell.bound_kbit - 1) for _, _, cell, one in cases), default=0.0)
    measured = f"{len(cases) - len(off)} of {len(cases)} medians within it; furthest {worst:.2%} away{_named(off)}"
    return Claim(sentence, exact_bound(grid, cells), measured, bool(cases) and not off)


def exact_bound(grid: GridOutcome, cells: Sequence[Cell]) -> str:
    seconds = max(1, grid.samples_per_run())
    allowed = max((cell.above(seconds) for cell in cells), default=0.0)
    paused = f", and {grid.paused_share():.2%} less, for which the machine stood still" if grid.paused_share() else ""
    share = f"(burst + frame + one datagram) / (rate * {seconds} s) = {allowed:.2%}"
    return f"within {share} of what is offered, or of what headers leave{paused}"


def is_exact(grid: GridOutcome, cell: Cell, measured_kbit: float) -> bool:
    """The judge that must find the negative controls wrong."""
    share = measured_kbit / cell.bound_kbit - 1
    allowed = cell.above(max(1, grid.samples_per_run()))
    return -allowed - grid.paused_share() <= share <= allowed


def never_more_claim(grid: GridOutcome, whose: Sequence[str]) -> Claim:
    """No run of any cell carried more than a window may."""
    seconds = max(1, grid.samples_per_run())
    cases = grid.cases(grid.cells, whose)
    shares = [
        (who, way, cell, max(one.samples) / (cell.bound_kbit * (1 + cell.above(seconds))))
        for who, way, cell, one in cases
    ]
    worst = max((share for *_, share in shares), default=0.0)
    return Claim(
        "Our agent never lets more through than the limit, whatever the size and the rate that is offered",
        f"in every run at most rate * {seconds} s + burst + one frame + one datagram, as payload",
        f"at most {worst:.1%} of that in {len(shares)} cells",
        bool(shares) and worst <= 1,
    )


def whole_claims(grid: GridOutcome, cells: Sequence[Cell]) -> list[Claim]:
    """Chapter 6.3.3: datagrams larger than the MTU arrive, in every sample; no claim where nobody took part."""
    seconds = max(1, grid.samples_per_run())
    cases = grid.cases(cells, [WHOLE])
    if not cases:
        return []
    short = [one for one in cases if one[3].median < _whole_floor(grid, one[2], seconds)]
    least = min(one.median / cell.bound_kbit for _, _, cell, one in cases)
    zeros = [(way, cell, grid.series(WHOLE, way, cell, ZEROS)) for _, way, cell, _ in cases]
    silent = sum(sum(one.samples) for _, _, one in zeros if one is not None)
    return [
        Claim(
            "With whole datagrams admitted, datagrams larger than the MTU use the limit in both directions",
            f"median at least {WHOLE_SHARE:.0%} of what is offered, or of what headers and fragments leave, "
            f"less one datagram that the edge of {seconds} s cuts",
            f"at least {least:.1%} in {len(cases)} cells{_named(short)}",
            not short,
        ),
        Claim(
            "With whole datagrams admitted, no second passes without payload",
            "0 samples of a second",
            f"{silent:.0f} samples",
            silent == 0,
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
    cases = [one for one in grid.cases(cells, [THESIS]) if one[1] == DIRECTIONS[1]]
    most = max((one.median / LIMIT_KBIT for *_, one in cases), default=1.0)
    return Claim(
        "What the thesis found is seen again: under overload its tree loses most fragmented datagrams from the user",
        "less than half of the limit arrives",
        f"at most {most:.0%} of the limit in {len(cases)} cells",
        bool(cases) and most < 0.5,
    )


def _named(cases: Sequence[tuple[str, str, Cell, Series]]) -> str:
    """The first of what is wrong, for who has to find it."""
    if not cases:
        return ""
    who, way, cell, one = cases[0]
    return f"; e.g. {who}, {way}, {cell.payload_bytes} B at {cell.offered_kbit} kbit/s: {one.median:.1f} kbit/s"


# --- rows of the thesis -----------------------------------------------------------------------------------------


def told(grid: GridOutcome, limiter: str, direction: str, what: str, cells: Sequence[Cell]) -> str:
    """The medians of these cells in their order, e.g. "480, 34, 48"; a dash where nothing was measured."""
    found = [grid.series(limiter, direction, cell, what) for cell in cells]
    return ", ".join(f"{one.median:.0f}" if one is not None else NOTHING for one in found)


def told_both(grid: GridOutcome, limiter: str, what: str, cells: Sequence[Cell]) -> str:
    return "; ".join(f"{way}: {told(grid, limiter, way, what, cells)}" for way in DIRECTIONS)
