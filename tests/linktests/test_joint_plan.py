"""Joint tests, before anything is reserved: how long, and when its parts are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from contract.link_tests import TEST_LANES
from scionlab.linktests.joint_plan import Part, free_slots, read_seconds, stages_of
from scionlab.linktests.test_slots import LANE_AHEAD, LANE_REST, Slot, Taken
from scionlab.platform.field_errors import FieldRuleError

T0 = datetime(2027, 1, 1, tzinfo=UTC)
NOW = T0 - timedelta(hours=1)
SECOND = timedelta(seconds=1)


def test_seconds_at_their_bounds() -> None:
    assert [read_seconds(one) for one in (None, 3, 20)] == [5, 3, 20]
    for wrong in (0, 2, 21):
        with pytest.raises(FieldRuleError, match="3 to 20 s") as refused:
            read_seconds(wrong)
        assert (refused.value.code, refused.value.field) == ("joint_seconds", "seconds")


def parts(*aps: int, length_s: int = 17) -> list[Part]:
    """A Link at each of these attachment points; the first is Link 1."""
    return [Part(number, ap_id, length_s * SECOND) for number, ap_id in enumerate(aps, 1)]


def at(seconds: int, lane: int) -> Slot:
    return Slot(T0 + seconds * SECOND, lane)


def taken(link_id: int, lane: int, begin_s: int, end_s: int) -> Taken:
    return Taken(link_id, lane, T0 + begin_s * SECOND, T0 + end_s * SECOND)


def test_links_follow_each_other_and_then_are_together_each_in_a_lane_of_its_own() -> None:
    stages = stages_of(parts(1, 1))
    assert free_slots(stages, {1: []}, T0, now=NOW) == [[at(0, 0)], [at(17, 1)], [at(34, 2), at(34, 3)]]
    stages = stages_of(parts(1, 2))
    assert free_slots(stages, {1: [], 2: []}, T0, now=NOW) == [[at(0, 0)], [at(17, 0)], [at(34, 1), at(34, 1)]]


def test_three_links_at_one_attachment_point_wait_for_their_own_lanes() -> None:
    """Lanes 0 to 2 are of the single Links; one of them is free again 2 s after its end, and 30 s ahead of the next."""
    stages = stages_of(parts(1, 1, 1))
    *_, together = free_slots(stages, {1: []}, T0, now=NOW)
    free_again = 34 * SECOND + LANE_REST + LANE_AHEAD
    assert [one.begins_at - T0 for one in together] == [free_again] * 3
    assert sorted(one.lane or 0 for one in together) == [0, 1, 3]


def test_somebody_elses_test_moves_all_of_it() -> None:
    """Link 2 is taken for a while, only when it would be tested alone."""
    stages = stages_of(parts(1, 2))
    busy = {1: [], 2: [taken(2, 3, 20, 25)]}
    assert free_slots(stages, busy, T0, now=NOW) == [[at(8, 0)], [at(25, 0)], [at(42, 1), at(42, 1)]]
    lanes_full = {1: [taken(9, lane, 40, 50) for lane in range(TEST_LANES)], 2: []}
    first = free_slots(stages, lanes_full, T0, now=NOW)[0][0].begins_at
    assert first == T0 + 50 * SECOND + LANE_REST + LANE_AHEAD
