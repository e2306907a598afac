"""iperf3 beside our own sender and receiver: an instrument that nobody here wrote has to see the same.

A wire per cell and direction, all of them and all limiters at once; what iperf3's receiver reports is put beside what
the grid of the same experiment found with our own stations.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from lab.bench.core import Outcome, Series, Step
from lab.evaluation.bed import Bed, limit_all
from lab.evaluation.core import DIRECTIONS, FROM_USER, WARM_UP_S, Claim, EvaluationScale, labels_of
from lab.evaluation.figures import GridOutcome
from lab.evaluation.grid import LIMIT_KBIT, Cell
from lab.evaluation.limiters import OURS, THESIS
from lab.evaluation.together import add_all, beds
from lab.measuring import iperf
from measuring.iproute import LabError

IPERF_AVERAGE = "iperf3 average"


@dataclass(frozen=True)
class _Task:
    """One client and one server of iperf3."""

    bed: Bed
    number: int  # of the wire
    cell: Cell
    direction: str


def steps(experiment: str, cells: Sequence[Cell], scale: EvaluationScale) -> list[Step]:
    return [
        Step(
            f"iperf3 as second witness ({number} of {scale.repetitions})",
            scale.run_s + 8,
            partial(_measure, experiment, cells, scale),
        )
        for number in range(1, scale.repetitions + 1)
    ]


def _measure(experiment: str, cells: Sequence[Cell], scale: EvaluationScale, outcome: Outcome) -> None:
    pairs = [(cell, direction) for cell in cells for direction in DIRECTIONS]
    with beds((OURS, THESIS), len(pairs)) as found:
        limit_all(found.values(), dict.fromkeys(range(1, len(pairs) + 1), LIMIT_KBIT))
        tasks = [
            _Task(bed, number, cell, direction)
            for bed in found.values()
            for number, (cell, direction) in enumerate(pairs, start=1)
        ]
        with ThreadPoolExecutor(max_workers=len(tasks)) as pool:
            reports = list(pool.map(partial(_run, scale.samples), tasks))
    for task, (samples, is_second_try) in zip(tasks, reports, strict=True):
        if is_second_try:
            outcome.note("An iperf3 that could not start was started once more.")
        labels = labels_of(
            experiment,
            task.bed.limiter,
            task.direction,
            payload=task.cell.payload_bytes,
            offered=task.cell.offered_kbit,
        )
        add_all(outcome, samples, "kbit/s", **labels, what="iperf3 sample")
        outcome.add(fmean(samples), "kbit/s", **labels, what=IPERF_AVERAGE)


def _run(seconds: int, task: _Task) -> tuple[list[float], bool]:
    """Goodput in each second, and whether it took two tries. Raises `LabError` when the second fails as well."""
    local, remote = task.bed.wire(task.number).ends
    measure = partial(
        iperf.measure_udp,
        task.bed.ap,
        local,
        task.bed.users,
        remote,
        offered_kbit=task.cell.offered_kbit,
        seconds=seconds,
        reverse=task.direction == FROM_USER,
        payload_bytes=task.cell.payload_bytes,
        warm_up_s=round(WARM_UP_S),
    )
    try:
        return measure(), False
    except LabError:
        return measure(), True


# --- what came out ----------------------------------------------------------------------------------------------


def _seen(grid: GridOutcome, limiter: str, direction: str, cell: Cell) -> Series | None:
    return grid.series(limiter, direction, cell, IPERF_AVERAGE)


def claim(grid: GridOutcome, cells: Sequence[Cell]) -> Claim:
    """Within the MTU iperf3 sees what headers leave of the limit, as exactly as the arithmetic of a window allows."""
    seconds = max(1, grid.samples_per_run())
    cases = [
        (cell, one)
        for direction in DIRECTIONS
        for cell in cells
        if cell.is_whole_frame and (one := _seen(grid, OURS, direction, cell)) is not None
    ]
    off = [one for cell, one in cases if abs(one.median - cell.bound_kbit) > cell.allowed_kbit(seconds)]
    furthest = max((abs(one.median / cell.bound_kbit - 1) for cell, one in cases), default=0.0)
    return Claim(
        "iperf3 sees the same: within the MTU our limiter gives exactly the limit, in both directions",
        f"burst, two frames and one datagram of {seconds} s away from what headers leave",
        f"{len(cases) - len(off)} of {len(cases)} medians within it; furthest {furthest:.2%} away",
        bool(cases) and not off,
    )
