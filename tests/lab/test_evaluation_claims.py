"""Each claim of the evaluation holds where all is well, at its bound too, and falls with what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import pytest

from lab.bench.core import Label, Outcome
from lab.evaluation import tests_latency, witness
from lab.evaluation.beside import LARGE, LAXER, MIXED, NEIGHBOUR, ONLY_LARGE, ONLY_SMALL, SMALL, STRICTER
from lab.evaluation.core import DIRECTIONS, Claim
from lab.evaluation.figures import GridOutcome
from lab.evaluation.grid import Cell
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WRONG
from lab.evaluation.suites import (
    beside,
    bystander,
    change,
    gigabit,
    heartbeats,
    latency,
    protocols,
    rates,
    sharing,
)
from lab.evaluation.verdicts import (
    collapse_claim,
    control_claim,
    exact_claim,
    is_exact,
    never_more_claim,
    too_much_claim,
    whole_claims,
)

Row = tuple[tuple[Label, ...], float]


def outcome_of(names: Iterable[str], rows: Iterable[Row]) -> Outcome:
    """A sample for each row and direction, with these labels; an empty label is left out."""
    found = Outcome("measured")
    for values, value in rows:
        labels = {name: one for name, one in zip(names, values, strict=True) if one != ""}
        for direction in DIRECTIONS:
            found.add(value, "", direction=direction, **labels)
    return found


# --- suites whose samples are a table: names of the labels, good figures, and what each change of one breaks ---------

RATES = {
    (limiter, what, 1_000): value
    for limiter, ratio in ((OURS, 1.0), (WRONG, 1.1), (NO_LIMIT, 2.0))
    for what, value in (("long run", ratio), ("bound", 0.01), ("window 10 ms", 0.9))
}
PROTOCOLS = {
    (kind, OURS, what, 500): value
    for kind in ("UDP, IPv6", "TCP, 1 flow", "QUIC-like")
    for what, value in (("goodput", 1.0), ("bound", 0.05))
}
SHARING: dict[tuple[Label, ...], float] = {
    **{
        (experiment, OURS, what, kbit, ""): value
        for experiment in sharing.PAIRS
        for kbit in (300, 900)
        for what, value in (("rate", kbit), ("bound", 0.01))
    },
    **{
        ("crowd", OURS, what, "", 100): value
        for what, value in (("lowest", 0.99), ("highest", 1.01), ("jain", 0.9999), ("bound", 0.02), ("busy", 10))
    },
}
HEARTBEATS = {
    (OURS, "due"): 40, (OURS, "arrived"): 40, (OURS, "down"): 0,
    (THESIS, "due"): 40, (THESIS, "arrived"): 3, (THESIS, "down"): 2,
}  # fmt: skip
BYSTANDER = {
    (OURS, "asked"): 20, (OURS, "answered"): 20, (OURS, "sent"): 1_000, (OURS, "lost"): 0,
    (THESIS, "asked"): 20, (THESIS, "answered"): 20, (THESIS, "sent"): 1_000, (THESIS, "lost"): 900,
}  # fmt: skip
# (20 kB of room and two frames) at 500 kbit/s, 8 ms for late timers; here the machine stood still for 20 ms.
LATENCY = {
    ("99 %", "data", OURS, 500): (20_000 + 2 * 1514) * 8 / 500 + 28,
    ("worst", "data", OURS, 500): 900.0,  # one packet: told, not judged
    ("longest pause", "data", OURS, 500): 20.0,
}
CHANGE = {
    (OURS, "500 → 1000", "holds after"): 0.99, (OURS, "500 → 1000", "never held"): 0,
    (OURS, "500 → 1000", "too much"): 0, (OURS, "250 → 0", "passed at 0"): 0,
    (OURS, "", "sent"): 1_000, (OURS, "", "lost"): 0, (THESIS, "", "sent"): 1_000, (THESIS, "", "lost"): 70,
}  # fmt: skip
BESIDE = {
    ("share", OURS, MIXED, SMALL): 0.25, ("share", OURS, MIXED, LARGE): 0.125, ("down", OURS, MIXED, ""): 0,
    ("lost", OURS, NEIGHBOUR, ""): 0, ("lost", OURS, LAXER, ""): 0, ("lost", OURS, STRICTER, ""): 0,
    ("delay", OURS, ONLY_SMALL, SMALL): 368.8, ("share", THESIS, ONLY_LARGE, LARGE): 0.0,
    ("lost", THESIS, STRICTER, ""): 0.2,
}  # fmt: skip
GIGABIT = {
    (OURS, "frames", "goodput"): 860_000, (OURS, "super-packets", "goodput"): 956_407,
    (THESIS, "super-packets", "goodput"): 918_000, (WRONG, "super-packets", "goodput"): 1_052_000,
    (NO_LIMIT, "super-packets", "goodput"): 9_564_000, (OURS, "frames", "judged"): 1.5,
}  # fmt: skip
LATE = {("submit",): 1.99, ("verdict",): 3.0, ("documents",): 1, ("killed",): 2.0, ("armed",): 2, ("left",): 0}

SUITES: list[tuple[ModuleType, tuple[str, ...], Mapping[Any, float], list[tuple[dict[Any, float], list[int]]]]] = [
    (rates, ("limiter", "what", "kbit"), RATES, [
        ({(OURS, "long run", 1_000): 1.011}, [0]),
        ({(OURS, "long run", 1_000): 0.989}, [0]),
        ({(OURS, "window 10 ms", 1_000): 1.01}, [1]),
        ({(WRONG, "long run", 1_000): 1.009}, [2]),
        ({(NO_LIMIT, "long run", 1_000): 1.0}, [3]),
    ]),
    (protocols, ("experiment", "limiter", "what", "kbit"), PROTOCOLS, [
        ({("UDP, IPv6", OURS, "goodput", 500): 0.94}, [0]),
        ({("QUIC-like", OURS, "goodput", 500): 1.06}, [1]),
    ]),
    (sharing, ("experiment", "limiter", "what", "kbit", "links"), SHARING, [
        ({(sharing.ONE_ADDRESS, OURS, "rate", 300, ""): 304}, [0]),
        ({(sharing.ONE_AS, OURS, "rate", 900, ""): 890}, [1]),
        ({("crowd", OURS, "lowest", "", 100): 0.97}, [2]),
        ({("crowd", OURS, "jain", "", 100): 0.99}, [2]),
    ]),
    (heartbeats, ("limiter", "what"), HEARTBEATS, [
        ({(OURS, "arrived"): 39}, [0]), ({(OURS, "down"): 1}, [0]), ({(THESIS, "down"): 0}, [1]),
    ]),
    (bystander, ("limiter", "what"), BYSTANDER, [
        ({(OURS, "answered"): 19}, [0]), ({(OURS, "lost"): 1}, [0]), ({(THESIS, "lost"): 0}, [1]),
    ]),
    (latency, ("what", "experiment", "limiter", "kbit"), LATENCY, [
        ({("99 %", "data", OURS, 500): (20_000 + 2 * 1514) * 8 / 500 + 29}, [0]),
    ]),
    (change, ("limiter", "change", "what"), CHANGE, [
        ({(OURS, "500 → 1000", "holds after"): 1.0}, [0]),
        ({(OURS, "", "lost"): 1}, [1]),
        ({(OURS, "500 → 1000", "too much"): 1.0}, [1]),
        ({(OURS, "250 → 0", "passed at 0"): 1}, [2]),
        ({(THESIS, "", "lost"): 0}, [3]),
    ]),
    (beside, ("what", "limiter", "case", "kind"), BESIDE, [
        ({("share", OURS, MIXED, LARGE): 0.12}, [0]),
        ({("down", OURS, MIXED, ""): 1}, [1]),
        ({("lost", OURS, NEIGHBOUR, ""): 0.001}, [2]),
        ({("delay", OURS, ONLY_SMALL, SMALL): 369.0}, [3]),
        ({("share", THESIS, ONLY_LARGE, LARGE): 0.2}, [4]),
        ({("lost", THESIS, STRICTER, ""): 0.0}, [4]),
    ]),
    (gigabit, ("limiter", "packets", "what"), GIGABIT, [
        ({(OURS, "super-packets", "goodput"): 949_700}, [0]),
        ({(OURS, "frames", "goodput"): 964_000}, [1]),
        ({(THESIS, "super-packets", "goodput"): 957_000}, [2]),
        ({(WRONG, "super-packets", "goodput"): 957_000}, [3]),
        ({(NO_LIMIT, "super-packets", "goodput"): 950_000}, [2, 4]),  # and it compares nobody
        ({(THESIS, "frames", "goodput"): 900_000, (NO_LIMIT, "frames", "goodput"): 2_000_000}, [2]),
    ]),
    (tests_latency, ("what",), LATE, [
        ({("submit",): 2.0}, [0]), ({("verdict",): 3.01}, [1]), ({("documents",): 2}, [2]), ({("documents",): 0}, [2]),
        ({("killed",): 2.01}, [3]), ({("left",): 1}, [4]), ({("armed",): 1}, [4]),  # there was nothing to be left
    ]),
]  # fmt: skip
CASES = [
    (suite, names, {**good, **changed}, broken)
    for suite, names, good, table in SUITES
    for changed, broken in [({}, []), *table]
]


@pytest.mark.parametrize(("suite", "names", "values", "broken"), CASES)
def test_a_claim_falls_with_what_it_says(
    suite: ModuleType, names: tuple[str, ...], values: Mapping[Any, float], broken: list[int]
) -> None:
    more: dict[ModuleType, dict[str, Label]] = {
        gigabit: {"flows": 1},
        tests_latency: {"experiment": tests_latency.EXPERIMENT},
    }
    extra = more.get(suite, {})
    outcome = outcome_of([*names, *extra], [((*key, *extra.values()), value) for key, value in values.items()])
    claims: list[Claim] = suite.claims(outcome)
    assert [number for number, one in enumerate(claims) if not one.holds] == broken
    assert not any(one.holds for one in suite.claims(Outcome("nothing measured")))


# --- grids: what sizes, offered and mtu share ------------------------------------------------------------------------

FRAME, LARGE_CELL, SLOW = Cell(1_472, 2_000), Cell(10_000, 2_000), Cell(1_472, 100)
CELLS = (FRAME, LARGE_CELL, SLOW)
SECONDS = 10
Goodput = Callable[[str, str, Cell], float]


def as_it_should_be(limiter: str, direction: str, cell: Cell) -> float:
    if limiter == WRONG:
        return min(cell.offered_kbit, 1.1 * 500 * cell.payload_bytes / 1514)
    if limiter == NO_LIMIT:
        return cell.offered_kbit
    return 0.0 if (limiter, direction, cell) == (THESIS, "from user", LARGE_CELL) else cell.bound_kbit


def but(wanted: Callable[[str, str, Cell], bool], value: Callable[[Cell], float]) -> Goodput:
    return lambda who, way, cell: value(cell) if wanted(who, way, cell) else as_it_should_be(who, way, cell)


def grid_of(goodput: Goodput, *, paused_s: float = 0.0) -> GridOutcome:
    """Three runs in which every sample of a cell is what `goodput` says."""
    outcome = Outcome("sizes")
    for limiter in (OURS, THESIS, WRONG, NO_LIMIT):
        for direction in DIRECTIONS:
            for cell in CELLS:
                labels: dict[str, Label] = {"experiment": "x", "limiter": limiter, "direction": direction}
                labels |= {"payload": cell.payload_bytes, "offered": cell.offered_kbit}
                value = goodput(limiter, direction, cell)
                for run in range(3):
                    for _ in range(SECONDS):
                        outcome.add(value, "kbit/s", **labels, what="sample", repetition=run)
                    outcome.add(value, "kbit/s", **labels, what="average")
                    outcome.add(value, "kbit/s", **labels, what=witness.IPERF_AVERAGE)
                    outcome.add(SECONDS if value == 0 else 0, "samples", **labels, what="zeros")
    outcome.add(paused_s, "s", experiment="x", limiter="all", direction="both", what="paused")
    return GridOutcome(outcome, "x", CELLS)


def claims_of(grid: GridOutcome) -> list[bool]:
    """0 exact, 1 never more, 2 large ones use it, 3 no silence, 4 the thesis, 5 and 6 controls, 7 iperf3."""
    found = [
        exact_claim(grid, [FRAME, SLOW], (OURS,), "exact"),
        never_more_claim(grid, (OURS,)),
        *whole_claims(grid, [LARGE_CELL]),
        collapse_claim(grid, [LARGE_CELL]),
        control_claim(grid, [FRAME]),
        too_much_claim(grid),
        witness.claim(grid, [FRAME]),
    ]
    return [one.holds for one in found]


@pytest.mark.parametrize(
    ("goodput", "broken"),
    [
        (as_it_should_be, []),
        (but(lambda who, _, cell: (who, cell) == (OURS, FRAME), lambda cell: 0.98 * cell.bound_kbit), [0, 7]),
        (but(lambda who, _, cell: (who, cell) == (OURS, FRAME), lambda cell: 1.02 * cell.bound_kbit), [0, 1, 7]),
        (but(lambda *of: of == (OURS, "from user", LARGE_CELL), lambda cell: cell.bound_kbit + 20), [1]),
        (but(lambda who, _, cell: (who, cell) == (OURS, LARGE_CELL), lambda _: 0.0), [2, 3]),
        (but(lambda who, *_: who == THESIS, lambda cell: cell.bound_kbit), [4]),
        (but(lambda who, *_: who == WRONG, lambda cell: cell.bound_kbit), [5, 6]),
    ],
)
def test_each_claim_of_a_grid_can_fail(goodput: Goodput, broken: list[int]) -> None:
    assert [number for number, holds in enumerate(claims_of(grid_of(goodput))) if not holds] == broken


def test_too_much_in_one_run_of_many_is_found_and_nothing_measured_proves_nothing() -> None:
    grid = grid_of(as_it_should_be)
    one = grid.series(OURS, "to user", FRAME, "average")
    assert one is not None
    one.samples[1] += 20
    assert [number for number, holds in enumerate(claims_of(grid)) if not holds] == [1]
    assert not any(claims_of(GridOutcome(Outcome("sizes"), "x", CELLS)))


def test_what_can_be_reached_and_how_far_a_window_may_be_off() -> None:
    assert FRAME.bound_kbit == pytest.approx(500 * 1472 / 1514)
    assert LARGE_CELL.bound_kbit == pytest.approx(500 * 10_000 / (10_000 + 8 + 7 * 34))
    assert SLOW.bound_kbit == 100
    # (4000 B of burst and two frames of 1514 B) as payload, and one datagram of 1472 B, in ten seconds
    allowed = ((4000 + 3028) * 1472 / 1514 + 1472) * 8 / 10_000
    grid, paused = grid_of(as_it_should_be), grid_of(as_it_should_be, paused_s=0.5)
    for off, holds in ((allowed - 0.01, True), (allowed + 0.01, False), (-allowed - 0.01, False)):
        assert is_exact(grid, FRAME, FRAME.bound_kbit + off) == holds
    low = -allowed - 0.04 * FRAME.bound_kbit  # excused while the machine stood still; more never is
    assert is_exact(paused, FRAME, FRAME.bound_kbit + low)
    assert not is_exact(paused, FRAME, FRAME.bound_kbit + allowed + 0.01)
