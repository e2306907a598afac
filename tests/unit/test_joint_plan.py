"""Joint tests, before anything is reserved: what may be chosen, when its parts are, how Links are congested."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bandwidth_config import Limits, LinkStep
from link_tests import TEST_LANES
from scionlab.linktests.joint_plan import (
    CONGEST_BOTH,
    CONGEST_ONE,
    SINGLES,
    Choice,
    Part,
    congestion,
    free_slots,
    read_choice,
    stages_of,
)
from scionlab.linktests.test_slots import LANE_AHEAD, LANE_REST, Slot, Taken
from scionlab.platform.field_errors import FieldRuleError

T0 = datetime(2027, 1, 1, tzinfo=UTC)
NOW = T0 - timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("kind", "chosen", "expected"),
    [
        (SINGLES, {}, Choice(SINGLES, 5, None, None)),
        (SINGLES, {"seconds": 3}, Choice(SINGLES, 3, None, None)),
        (SINGLES, {"seconds": 2}, "joint_seconds"),
        (SINGLES, {"seconds": 21}, "joint_seconds"),
        (SINGLES, {"percent": 50}, "joint_no_congestion"),
        (SINGLES, {"link_id": 7}, "joint_no_congestion"),
        (CONGEST_ONE, {}, Choice(CONGEST_ONE, 12, 50, None)),
        (CONGEST_ONE, {"seconds": 8, "percent": 10, "link_id": 7}, Choice(CONGEST_ONE, 8, 10, 7)),
        (CONGEST_ONE, {"seconds": 7}, "joint_seconds"),
        (CONGEST_ONE, {"percent": 9}, "joint_percent"),
        (CONGEST_ONE, {"percent": 91}, "joint_percent"),
        (CONGEST_BOTH, {"percent": 90}, Choice(CONGEST_BOTH, 12, 90, None)),
        (CONGEST_BOTH, {"link_id": 7}, "joint_all_congested"),
    ],
)
def test_what_may_be_chosen(kind: str, chosen: dict[str, int], expected: Choice | str) -> None:
    values: dict[str, int | None] = {"seconds": None, "percent": None, "link_id": None, **chosen}
    if isinstance(expected, Choice):
        assert read_choice(kind, **values) == expected
        return
    with pytest.raises(FieldRuleError) as refused:
        read_choice(kind, **values)
    assert refused.value.code == expected


def test_congested_link_loses_its_share_in_turn() -> None:
    profile = congestion(Limits(1000, 30), Choice(CONGEST_ONE, 8, 50, None), 23 * SECOND)
    assert profile.steps[:3] == (
        LinkStep(0, Limits(500, 15)), LinkStep(2, Limits(1000, 30)), LinkStep(4, Limits(500, 15)),
    )  # fmt: skip
    assert (profile.kind, profile.duration_s) == ("square", 20), "with the first 2 s not longer than the test"
    assert congestion(Limits(1, 1), Choice(CONGEST_ONE, 8, 10, None), 23 * SECOND).steps[0].limits == Limits(1, 1)


def parts(*aps: int, length_s: int = 17) -> list[Part]:
    """A Link at each of these attachment points; the first is Link 1."""
    return [Part(number, ap_id, length_s * SECOND) for number, ap_id in enumerate(aps, 1)]


def at(seconds: int, lane: int) -> Slot:
    return Slot(T0 + seconds * SECOND, lane)


def taken(link_id: int, lane: int, begin_s: int, end_s: int) -> Taken:
    return Taken(link_id, lane, T0 + begin_s * SECOND, T0 + end_s * SECOND)


def test_links_follow_each_other_and_then_are_together_each_in_a_lane_of_its_own() -> None:
    stages = stages_of(SINGLES, parts(1, 1))
    assert free_slots(stages, {1: []}, T0, now=NOW) == [[at(0, 0)], [at(17, 1)], [at(34, 2), at(34, 3)]]
    stages = stages_of(SINGLES, parts(1, 2))
    assert free_slots(stages, {1: [], 2: []}, T0, now=NOW) == [[at(0, 0)], [at(17, 0)], [at(34, 1), at(34, 1)]]


def test_three_links_at_one_attachment_point_wait_for_their_own_lanes() -> None:
    """Lanes 0 to 2 are of the single Links; one of them is free again 2 s after its end, and 30 s ahead of the next."""
    stages = stages_of(SINGLES, parts(1, 1, 1))
    *_, together = free_slots(stages, {1: []}, T0, now=NOW)
    free_again = 34 * SECOND + LANE_REST + LANE_AHEAD
    assert [one.begins_at - T0 for one in together] == [free_again] * 3
    assert sorted(one.lane or 0 for one in together) == [0, 1, 3]


def test_somebody_elses_test_moves_all_of_it() -> None:
    """Link 2 is taken for a while, only when it would be tested alone."""
    stages = stages_of(SINGLES, parts(1, 2))
    busy = {1: [], 2: [taken(2, 3, 20, 25)]}
    assert free_slots(stages, busy, T0, now=NOW) == [[at(8, 0)], [at(25, 0)], [at(42, 1), at(42, 1)]]
    lanes_full = {1: [taken(9, lane, 40, 50) for lane in range(TEST_LANES)], 2: []}
    first = free_slots(stages, lanes_full, T0, now=NOW)[0][0].begins_at
    assert first == T0 + 50 * SECOND + LANE_REST + LANE_AHEAD


def test_congested_ones_are_one_stage() -> None:
    assert stages_of(CONGEST_ONE, parts(1, 2)) == [parts(1, 2)]
