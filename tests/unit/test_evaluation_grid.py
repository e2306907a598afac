"""When a run of a grid says nothing about limits, and what is written down of one that does."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, cast

import pytest

from lab.bench.core import Outcome
from lab.evaluation import grid, witness
from lab.evaluation.bed import Bed, Wire
from lab.evaluation.core import EvaluationScale
from lab.evaluation.figures import GridOutcome
from lab.evaluation.grid import Cell, paused_s
from lab.evaluation.limiters import NO_LIMIT, OURS
from lab.measuring.iperf import IperfResult
from measuring.arrivals import Arrivals
from measuring.framing import wire_bytes
from measuring.iproute import LabError
from measuring.judge import NS
from measuring.traffic import EndpointResult, Results

START_NS = 5 * NS
SECONDS = 3
CELL = Cell(1_000, 800)


class Host:
    def __init__(self, name: str) -> None:
        self.name = name


class StillBed:
    """A bed without a kernel."""

    def __init__(self, limiter: str) -> None:
        self.limiter = limiter
        self.ap, self.users = Host(f"{limiter}-ap"), Host(f"{limiter}-u")

    def wires(self) -> list[Wire]:
        return [self.wire(1)]

    def wire(self, number: int) -> Wire:
        return Wire(1, number)


def bed(limiter: str) -> Bed:
    return cast(Bed, StillBed(limiter))


def arrivals(kbit: float, payload_bytes: int = 1_000) -> Arrivals:
    """Evenly, from the start to the end of the run."""
    count = round(kbit * 1000 / 8 / payload_bytes * (SECONDS + 1))
    times = array("q", (START_NS + number * (SECONDS + 1) * NS // count for number in range(count)))
    return Arrivals(times, array("I", [payload_bytes] * count), array("I", range(count)), times)


def results_of(beds: Sequence[Bed], kbit: float, *, skipped: int = 0, **more: Any) -> Results:
    endpoints = {}
    for one in beds:
        for host in (one.ap, one.users):
            stream = {"kind": "data", "sent": 1, "refused": 0, "skipped": skipped if host is one.ap else 0}
            endpoints[host.name, "wire1"] = EndpointResult(cast(Any, None), [stream], {"data": arrivals(kbit)}, 0, 0)
    return Results(START_NS, START_NS + (SECONDS + 1) * NS, endpoints, **more)


def test_what_is_offered_counts_payload_and_goes_both_ways() -> None:
    ((left, right),) = grid._pairs([CELL], bed(OURS))
    assert left.streams[0].kbit == pytest.approx(800 * 1042 / 1000)
    assert (left.local, left.remote) == (("10.1.1.1", 51_001), ("10.1.1.2", 50_001))
    assert left.streams == right.streams
    (large,) = grid._pairs([Cell(10_000, 100)], bed(OURS))[0][0].streams
    assert large.kbit == pytest.approx(100 * wire_bytes(10_000, family=4) / 10_000)


def test_a_run_counts_where_everything_arrives_without_a_limit() -> None:
    found = {name: bed(name) for name in (OURS, NO_LIMIT)}
    assert grid._inconclusive(found, [CELL], results_of(list(found.values()), 800)) is None
    why = grid._inconclusive(found, [CELL], results_of(list(found.values()), 700))
    assert why is not None
    assert "701 of 800 kbit/s arrived, to user" in why


def test_a_run_in_which_a_sender_waited_for_the_processor_says_nothing() -> None:
    found = {name: bed(name) for name in (OURS, NO_LIMIT)}
    # each packet stands for 10 ms at 800 kbit/s; a leaf bridges 100 ms, of which a station may be 50 late
    assert grid._inconclusive(found, [CELL], results_of(list(found.values()), 800, skipped=5)) is None
    why = grid._inconclusive(found, [CELL], results_of(list(found.values()), 800, skipped=6))
    assert why == "a sender did not get the processor for 60 ms"


def test_pauses_count_after_the_warm_up_beyond_what_a_bucket_makes_up_for() -> None:
    bucket_ns = 4000 * NS // 62_500
    second = START_NS + NS
    pauses = [(START_NS, START_NS + NS // 2), (second, second + bucket_ns), (second + NS, second + NS + 2 * bucket_ns)]
    assert paused_s(results_of([bed(OURS)], 800, pauses=pauses)) == pytest.approx(bucket_ns / NS)


def test_samples_averages_and_silent_seconds_are_written_down_for_both_directions() -> None:
    outcome = Outcome("sizes")
    grid._note(outcome, "sizes", bed(OURS), [CELL], results_of([bed(OURS)], 480), number=2)
    ways = outcome.values("direction")
    assert ways == ["to user", "from user"]
    assert [len(one.samples) for one in outcome.find(what="sample", repetition=2)] == [3, 3]
    assert outcome.median(what="average", direction="to user") == pytest.approx(480, abs=3)
    assert outcome.find(what="zeros")[0].samples == [0]


def test_a_run_that_says_nothing_is_repeated_once_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [500.0, 800.0]

    class Beds:
        def __enter__(self) -> dict[str, Bed]:
            return {name: bed(name) for name in (OURS, NO_LIMIT)}

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(grid, "beds", lambda *_: Beds())
    monkeypatch.setattr(grid, "limit_all", lambda *_: None)
    monkeypatch.setattr(grid, "run", lambda found, *_: results_of(list(found.values()), runs.pop(0)))
    outcome = Outcome("sizes")
    grid.steps("sizes", [CELL], EvaluationScale(quick=True))[0].run(outcome)
    assert runs == []
    assert outcome.notes == [
        "Run 1 said nothing (without any limit 501 of 800 kbit/s arrived, to user) and was repeated."
    ]
    assert outcome.median(what="average", limiter=OURS, direction="to user") == pytest.approx(800, abs=3)


# --- the second witness -------------------------------------------------------------------------------------------


def witnessed(kbit: float) -> GridOutcome:
    outcome = Outcome("sizes")
    for limiter in (OURS,):
        for direction in ("to user", "from user"):
            labels = {"experiment": "sizes", "limiter": limiter, "direction": direction, "payload": 1_000}
            labels |= {"offered": 2_000}
            for _ in range(SECONDS):
                outcome.add(kbit, "kbit/s", **labels, what="sample", repetition=1)
            outcome.add(kbit, "kbit/s", **labels, what="average")
            outcome.add(kbit, "kbit/s", **labels, what=witness.IPERF_AVERAGE)
    return GridOutcome(outcome, "sizes", [Cell(1_000, 2_000)])


def test_the_second_witness_must_see_the_limit_too() -> None:
    cells = [Cell(1_000, 2_000)]
    assert witness.claim(witnessed(480), cells).holds
    assert not witness.claim(witnessed(430), cells).holds
    assert not witness.claim(GridOutcome(Outcome("sizes"), "sizes", cells), cells).holds


def test_an_iperf3_that_cannot_start_is_started_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[dict[str, Any]] = []

    def measure(*ends: object, **options: Any) -> IperfResult:
        tries.append(options)
        if len(tries) == 1:
            raise LabError("no")
        return IperfResult([480.0])

    monkeypatch.setattr(witness.iperf, "measure_udp", measure)
    task = witness._Task(bed(OURS), 1, Cell(1_000, 2_000), "from user")
    assert witness._run(3, task) == (IperfResult([480.0]), True)
    assert tries[0]["reverse"] is True
    assert (tries[0]["payload_bytes"], tries[0]["offered_kbit"]) == (1_000, 2_000)
