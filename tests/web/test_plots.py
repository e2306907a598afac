"""Geometry of the plots: nothing is drawn where nothing is known, and sums survive the drawing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from scionlab.limits.presets import PRESETS, offered
from scionlab.web.pages.plots import (
    Slot,
    slots_of,
    usage_plot,
)

BEGIN = datetime(2026, 11, 21, tzinfo=UTC)


@dataclass
class Point:
    bytes: int
    covered_s: float = 300.0
    drops: int = 0
    limit_kbit: int | None = 1000
    at_limit_s: float = 0.0

    @property
    def kbit(self) -> float | None:
        return self.bytes * 8 / 1000 / self.covered_s if self.covered_s else None


def slot(kbit: float | None, *, limit: int | None = 1000, drops: int = 0, at_limit_s: float = 0.0) -> Slot:
    return Slot(BEGIN, kbit, limit, 0, drops, at_limit_s, 0.0 if kbit is None else 300.0)


def test_a_gap_is_a_gap_and_not_zero() -> None:
    plot = usage_plot([slot(500), slot(None), slot(0), slot(1000)], top_kbit=1000)
    assert plot.used == "M0 100V50H250V100zM500 100V100H750V0H1000V100z"
    assert plot.gaps == "M250 0h250v100h-250z"
    assert plot.limit == "M0 0H250M500 0H1000"


def test_a_slot_is_at_the_limit_only_if_it_was_all_the_time() -> None:
    """But for the 5 % that a full link may fall short of."""
    slots = [slot(900, at_limit_s=seconds) for seconds in (150, 284.9, 285, 300)]
    assert usage_plot(slots, top_kbit=1000).at_limit == "M500 100V10H1000V100z"


@given(st.lists(st.one_of(st.none(), st.integers(0, 10**9)), max_size=60), st.integers(1, 40))
def test_sums_are_kept_whatever_the_slots(values: list[int | None], count: int) -> None:
    points = [
        (BEGIN + timedelta(minutes=5 * number), None if value is None else Point(value, drops=number))
        for number, value in enumerate(values)
    ]
    slots = slots_of(points, begins_at=BEGIN, ends_at=BEGIN + timedelta(hours=5), count=count)
    assert len(slots) == count
    assert sum(one.bytes for one in slots) == sum(value for value in values if value is not None)
    assert sum(one.drops for one in slots) == sum(number for number, value in enumerate(values) if value is not None)
    for one in slots:
        assert (one.kbit is None) == (one.covered_s == 0)


def test_bytes_after_a_gap_count_without_being_a_rate() -> None:
    (found,) = slots_of(
        [(BEGIN, Point(10**9, covered_s=0))], begins_at=BEGIN, ends_at=BEGIN + timedelta(hours=1), count=1
    )
    assert (found.bytes, found.kbit) == (10**9, None)


def test_well_known_links_are_offered_up_to_the_maximum_with_both_directions() -> None:
    possible, too_fast = offered(6144)
    assert len(possible) + len(too_fast) == len(PRESETS)
    assert all(max(one.limits) <= 6144 for one in possible)
    assert all(max(one.limits) > 6144 for one in too_fast)
    assert "adsl" in {one.key for one in possible}
    assert len({one.key for one in PRESETS}) == len(PRESETS)
