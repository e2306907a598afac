"""What the suites of the evaluation send, whom they tell what, and the arithmetic under their verdicts."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from lab.evaluation import grid, taps, together, witness
from lab.evaluation.bed import Bed, Wire
from lab.evaluation.core import EvaluationScale
from lab.evaluation.fragment_runs import all_slots
from lab.evaluation.grid import Cell
from lab.evaluation.holding import Change, hold_after_s
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WRONG
from lab.evaluation.suites import beside, gigabit, latency, protocols, rates
from lab.measuring.iperf import IperfResult
from measuring.arrivals import Arrivals
from measuring.framing import Wire as FrameWire
from measuring.iproute import LabError
from measuring.judge import NS, highest_level
from measuring.traffic import EndpointResult, Results

FULL = EvaluationScale()
MS = 1_000_000


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_bounds_are_a_frame_and_what_is_sent_late() -> None:
    frame_s = 1514 / (100 * 125)
    assert together.ratio_bound(100, 10) == pytest.approx((frame_s + 0.008) / 10)
    assert together.ratio_bound(100, 10, [(0, NS // 10), (NS, NS + NS // 20)]) == pytest.approx((frame_s + 0.158) / 10)
    assert gigabit.tolerance(1.0) == pytest.approx(0.008 + 68_000 / 125e6)
    assert beside.allowed_delay_ms() == pytest.approx((20_000 + 1042 + 1514) * 8 / 500 + 8)
    # the room, the frame that was admitted last, and one on its way
    assert [latency.delay_bound_ms(kbit) for kbit in (32, 100, 10_000)] == pytest.approx(
        [(14_000 + 3028) * 8 / 32, (20_000 + 3028) * 8 / 100, 100 + 3028 * 8 / 10_000]
    )
    # The control of 110 % is beyond the bound at every rate, also in a run that is as disturbed as may be.
    for seconds in (3, 10):
        assert all(together.ratio_bound(kbit, seconds, [(0, NS // 10)]) < 0.1 for kbit in rates.SLOW)


def test_headers_leave_so_much_of_a_limit_for_payload() -> None:
    kinds = (protocols.UDP6, protocols.TCP_8, protocols.TCP6_1, protocols.QUIC)
    assert list(map(protocols.header_share, kinds)) == pytest.approx(
        [1452 / 1514, 1448 / 1514, 1428 / 1514, 1200 / 1242]
    )
    slot = next(one for one in all_slots(FULL) if one.payload_bytes == 10_000)
    assert slot.bound_kbit == pytest.approx(500 * 10_000 / 10_246)
    assert gigabit.BOUND_KBIT == pytest.approx(956_407, abs=1)  # noqa: SIM300  a constant of theirs


def test_excess_is_what_a_bucket_that_leaks_at_the_rate_held_at_most() -> None:
    at_the_rate = range(0, 1000 * MS, 24 * MS)  # 1500 bytes every 24 ms are 500 kbit/s
    assert highest_level(at_the_rate, [1500] * len(at_the_rate), 500) == 1500
    assert highest_level([0, 0, 0, 24 * MS], [1500] * 4, 500) == 4500
    assert highest_level([0, 1000 * MS, 1000 * MS], [1500] * 3, 500) == 3000
    assert highest_level([], [], 500) == 0
    wire = Wire(1, 3)
    assert [taps.device_behind(one, wire) for one in (OURS, WRONG, THESIS, NO_LIMIT)] == [
        "slbw1", "slbw1", "ifb3", "eth3",
    ]  # fmt: skip


# --- from when on does a changed limit hold? -------------------------------------------------------------------------


def at_rates(*phases: tuple[int, float]) -> Arrivals:
    """Full frames: so many kbit/s for so many seconds, one phase after the other, from 1 s on."""
    arrivals, now_s = Arrivals(), 1.0
    for kbit, lasts_s in phases:
        end_s = now_s + lasts_s
        step_s = 1514 * 8 / (kbit * 1000) if kbit else lasts_s
        while now_s + step_s <= end_s + 1e-9 and kbit:
            now_s += step_s
            arrivals.arrived_ns.append(round(now_s * NS))
            arrivals.payload_bytes.append(1472)
            arrivals.sequence.append(len(arrivals.sequence))
            arrivals.sent_ns.append(round(now_s * NS))
        now_s = end_s
    return arrivals


@pytest.mark.parametrize(
    ("phases", "old", "new", "least", "most"),
    [
        ([(500, 0.2), (1_000, 2.8)], 500, 1_000, 0.17, 0.3),
        ([(1_000, 0.7), (250, 2.3)], 1_000, 250, 0.68, 0.86),
        ([(500, 3.0)], 500, 1_000, None, None),  # never comes
        ([(500, 3.0)], 500, 250, None, None),
        ([(1_000, 1.0), (4_000, 0.3), (1_000, 1.7)], 500, 1_000, 1.25, 1.4),  # from the last disturbance on
        ([(500, 2.7), (1_000, 0.3)], 500, 1_000, None, None),  # only at the very end
        ([(250, 0.5), (0, 2.5)], 250, 0, 0.45, 0.5),  # a blocked link: its last packet
        ([], 250, 0, 0.0, 0.0),
        ([(250, 2.8)], 250, 0, None, None),
        ([], 500, 1_000, None, None),
    ],
)
def test_the_moment_from_which_a_rate_holds(
    phases: list[tuple[int, float]], old: int, new: int, least: float | None, most: float | None
) -> None:
    found = hold_after_s(at_rates(*phases), FrameWire(4), Change(1, old, new, NS, 4 * NS), 0.008)
    if least is None or most is None:
        assert found is None
    else:
        assert found is not None
        assert least <= found <= most


# --- one run of a grid -----------------------------------------------------------------------------------------------


@dataclass
class Host:
    """A host without a kernel."""

    name: str


START_NS, SECONDS = 5 * NS, 3
CELL = Cell(1_000, 800)


class StillBed:
    """A bed without a kernel."""

    def __init__(self, limiter: str) -> None:
        self.limiter = limiter
        self.ap, self.users = Host(f"{limiter}-ap"), Host(f"{limiter}-u")

    def wires(self) -> list[Wire]:
        return [Wire(1, 1)]

    def wire(self, number: int) -> Wire:
        return Wire(1, number)


def bed(limiter: str) -> Bed:
    return cast(Bed, StillBed(limiter))


BEDS = {name: bed(name) for name in (OURS, NO_LIMIT)}


def results_of(kbit: float, *, skipped: int = 0, beds: Sequence[Bed] = tuple(BEDS.values()), **more: Any) -> Results:
    """Arrivals come evenly, from the start to the end of the run."""
    count = round(kbit * (SECONDS + 1) / 8)
    times = array("q", (START_NS + number * (SECONDS + 1) * NS // count for number in range(count)))
    arrivals = Arrivals(times, array("I", [1_000] * count), array("I", range(count)), times)
    endpoints = {}
    for one in beds:
        for host in (one.ap, one.users):
            stream = {"kind": "data", "sent": 1, "refused": 0, "skipped": skipped if host is one.ap else 0}
            endpoints[host.name, "wire1"] = EndpointResult(cast(Any, None), [stream], {"data": arrivals})
    return Results(START_NS, START_NS + (SECONDS + 1) * NS, endpoints, **more)


@pytest.mark.parametrize(
    ("results", "why"),
    [
        (results_of(800), None),
        (results_of(700), "without any limit 701 of 800 kbit/s arrived, to user"),
        (results_of(800, skipped=5), None),  # each packet stands for 10 ms; a station may be 50 late
        (results_of(800, skipped=6), "a sender did not get the processor for 60 ms"),
    ],
)
def test_a_run_counts_where_everything_arrives_without_a_limit(results: Results, why: str | None) -> None:
    assert grid._inconclusive(BEDS, [CELL], results) == why


def test_pauses_count_after_the_warm_up_beyond_what_a_bucket_makes_up_for() -> None:
    bucket_ns = 4000 * NS // 62_500
    second = START_NS + NS
    pauses = [(START_NS, START_NS + NS // 2), (second, second + bucket_ns), (second + NS, second + NS + 2 * bucket_ns)]
    assert grid.paused_s(results_of(800, pauses=pauses)) == pytest.approx(bucket_ns / NS)


def test_an_iperf3_that_cannot_start_is_started_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[dict[str, Any]] = []

    def measure(*ends: object, **options: Any) -> IperfResult:
        tries.append(options)
        if len(tries) == 1:
            raise LabError("no")
        return IperfResult([480.0])

    monkeypatch.setattr("lab.measuring.iperf.measure_udp", measure)
    task = witness._Task(bed(OURS), 1, Cell(1_000, 2_000), "from user")
    assert witness._run(3, task) == (IperfResult([480.0]), True)
    assert (tries[0]["reverse"], tries[0]["payload_bytes"], tries[0]["offered_kbit"]) == (True, 1_000, 2_000)
