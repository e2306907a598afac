"""What somebody does to a limited host by hand: the limiter hears of it from the kernel, and repairs or reports it.

Each fault of `lab.faults` on a host of its own under traffic; nothing polls or compares during a run. How long it takes
is the benchmark's; here it is less than a second.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.fault_world import FaultWorld
from lab.faults import FAULTS, Report, measure
from measuring.iproute import available, cleanup_stale

PREFIX = "slbwb"
HEALED_MS = 1_000

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(120)]


@pytest.fixture
def world() -> Iterator[FaultWorld]:
    missing = available()
    if missing is not None:
        pytest.skip(missing)
    cleanup_stale(PREFIX)
    with FaultWorld(PREFIX) as made:
        yield made


def show(report: Report) -> None:
    """For whoever runs this with -s."""
    print(f"\n{report.fault}: done after {report.cause_ms:.0f} ms, healed after {report.healed_ms:.0f} ms")
    for name, one in report.stretches.items():
        print(f"  {name}: unlimited {one.unlimited_ms:.0f} ms, silent {one.silent_ms:.0f} ms, lost {one.lost}")


@pytest.mark.measured
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_repaired_or_reported_within_a_second(world: FaultWorld, name: str) -> None:
    report = measure(world, FAULTS[name], name)
    show(report)

    assert report.healed_ms < HEALED_MS
    fault = FAULTS[name]
    for who, one in report.stretches.items():
        assert one.limited_at_end or fault.leaves_unlimited, who
        assert one.flows_at_end or fault.leaves_silent, who
    assert world.planned_writes() == 0
