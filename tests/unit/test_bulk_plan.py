"""What a bulk change makes of limits: pure arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwidth_config import MAX_BANDWIDTH_KBIT, Limits, RuleError
from scionlab.links.bulk_plan import CHANGED_SINCE, SAME, TOO_HIGH, Line, Operation, Present, differing, plan

KBIT = st.integers(0, MAX_BANDWIDTH_KBIT)
LIMITS = st.builds(Limits, KBIT, KBIT)


@pytest.mark.parametrize(
    ("operation", "old", "new"),
    [
        (Operation("set", 500), (1000, 64), (500, 500)),
        (Operation("set", 500, "to_user"), (1000, 64), (500, 64)),
        (Operation("cap", 500), (1000, 64), (500, 64)),
        (Operation("cap", 500, "from_user"), (1000, 640), (1000, 500)),
        (Operation("scale", 50), (1000, 64), (500, 32)),
        (Operation("scale", 50), (1, 3), (1, 2)),  # a half is rounded up
        (Operation("scale", 1), (1, 0), (1, 0)),  # rounding alone blocks nobody, and frees nobody
        (Operation("scale", 0), (1000, 64), (0, 0)),
        (Operation("scale", 150), (1000, 0), (1500, 0)),
    ],
)
def test_new_limits_follow_from_the_old_ones(operation: Operation, old: tuple[int, int], new: tuple[int, int]) -> None:
    assert operation.applied_to(Limits(*old)) == Limits(*new)


def one(operation: Operation, old: tuple[int, int], maximum: int, target: Line | None = None) -> Line:
    found = plan([Present(7, Limits(*old), maximum)], operation, {} if target is None else {7: target})
    assert [line.link_id for line in found] == [7]
    return found[0]


def test_what_stays_the_same_is_left_out_and_says_so() -> None:
    line = one(Operation("cap", 500), (300, 500), 1000)
    assert (line.skipped, line.new, line.why_skipped) == (SAME, Limits(300, 500), "already has this limit")


def test_nobody_gets_more_than_the_maximum() -> None:
    line = one(Operation("set", 2000), (300, 500), 1000)
    assert (line.skipped, line.new) == (TOO_HIGH, Limits(300, 500))
    assert one(Operation("set", 1000), (300, 500), 1000).new == Limits(1000, 1000)


def test_a_clamped_choice_is_kept_in_the_direction_that_is_not_meant() -> None:
    line = one(Operation("set", 400, "to_user"), (300, 5000), 1000)
    assert (line.skipped, line.new, line.new_enforced) == ("", Limits(400, 5000), Limits(400, 1000))


def test_lowering_what_is_clamped_is_a_change_although_the_same_is_enforced() -> None:
    line = one(Operation("cap", 1000), (5000, 5000), 1000)
    assert (line.is_change, line.new, line.old_enforced, line.new_enforced) == (
        True,
        Limits(1000, 1000),
        Limits(1000, 1000),
        Limits(1000, 1000),
    )


def test_putting_back_gives_what_was_there_even_above_the_maximum() -> None:
    done = Line(7, Limits(5000, 64), Limits(500, 64), Limits(1000, 64), Limits(500, 64))
    line = one(Operation("put_back"), (500, 64), 1000, done)
    assert (line.skipped, line.new, line.new_enforced) == ("", Limits(5000, 64), Limits(1000, 64))


def test_putting_back_leaves_alone_what_was_changed_again() -> None:
    done = Line(7, Limits(5000, 64), Limits(500, 64), Limits(1000, 64), Limits(500, 64))
    assert one(Operation("put_back"), (501, 64), 1000, done).skipped == CHANGED_SINCE
    assert one(Operation("put_back"), (5000, 64), 1000, done).skipped == SAME  # the owner was quicker


@given(st.lists(st.tuples(LIMITS, KBIT), max_size=8), st.sampled_from(["set", "cap", "scale"]), st.integers(0, 10_000))
def test_every_link_has_a_line_and_only_lines_that_change_differ(
    links: list[tuple[Limits, int]], kind: str, value: int
) -> None:
    present = [Present(pk, old, maximum) for pk, (old, maximum) in enumerate(links)]
    found = plan(present, Operation(kind, value), {})  # type: ignore[arg-type]  # one of the three
    assert [line.link_id for line in found] == [link.link_id for link in present]
    for link, line in zip(present, found, strict=True):
        assert line.is_change == (line.new != line.old)
        assert line.old == link.requested
        assert line.new_enforced == line.new.clamped(link.maximum_kbit)
        assert all(new <= max(old, link.maximum_kbit) for old, new in zip(line.old, line.new, strict=True))
        assert Line.read(line.stored()) == line
    assert differing(found, found) == []


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [("scale", 10_001, "scale_range"), ("scale", -1, "scale_range"), ("set", -1, "bandwidth_negative")],
)
def test_impossible_operations_are_refused(kind: str, value: int, code: str) -> None:
    with pytest.raises(RuleError) as refused:
        Operation(kind, value)  # type: ignore[arg-type]  # one of the kinds
    assert refused.value.code == code


def test_a_link_that_came_or_went_differs() -> None:
    line = Line(7, Limits(1, 1), Limits(2, 2), Limits(1, 1), Limits(2, 2))
    assert differing([line], []) == [7]
    assert differing([], [line]) == [7]
