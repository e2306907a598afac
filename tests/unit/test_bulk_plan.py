"""What a bulk change makes of limits and of defaults: pure arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandwidth_config import MAX_BANDWIDTH_KBIT, Limits, RuleError
from scionlab.links.bulk_plan import (
    CHANGED_SINCE,
    SAME,
    SITE,
    TOO_HIGH,
    DefaultLine,
    LimitsLine,
    Operation,
    PresentLimits,
    differing,
    plan,
    plan_defaults,
    read_line,
)

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
    assert PresentLimits(7, Limits(*old), MAX_BANDWIDTH_KBIT).changed(operation) == Limits(*new)


def one(operation: Operation, old: tuple[int, int], maximum: int, target: LimitsLine | None = None) -> LimitsLine:
    found = plan([PresentLimits(7, Limits(*old), maximum)], operation, {} if target is None else {7: target})
    assert [line.key for line in found] == [7]
    return found[0]


def test_what_stays_the_same_is_left_out_and_says_so() -> None:
    line = one(Operation("cap", 500), (300, 500), 1000)
    assert (line.skipped, line.new) == (SAME, Limits(300, 500))


def test_nobody_gets_more_than_the_maximum() -> None:
    line = one(Operation("set", 2000), (300, 500), 1000)
    assert (line.skipped, line.new) == (TOO_HIGH, Limits(300, 500))
    assert one(Operation("set", 1000), (300, 500), 1000).new == Limits(1000, 1000)


def test_a_clamped_choice_is_kept_in_the_direction_that_is_not_meant() -> None:
    line = one(Operation("set", 400, "to_user"), (300, 5000), 1000)
    assert (line.skipped, line.new, line.new_in_force) == ("", Limits(400, 5000), Limits(400, 1000))


def test_lowering_what_is_clamped_is_a_change_although_the_same_is_enforced() -> None:
    line = one(Operation("cap", 1000), (5000, 5000), 1000)
    assert (line.is_change, line.new, line.old_in_force, line.new_in_force) == (
        True,
        Limits(1000, 1000),
        Limits(1000, 1000),
        Limits(1000, 1000),
    )


def test_putting_back_gives_what_was_there_even_above_the_maximum() -> None:
    done = LimitsLine(7, Limits(5000, 64), Limits(500, 64), Limits(1000, 64), Limits(500, 64))
    line = one(Operation("put_back"), (500, 64), 1000, done)
    assert (line.skipped, line.new, line.new_in_force) == ("", Limits(5000, 64), Limits(1000, 64))


def test_putting_back_leaves_alone_what_was_changed_again() -> None:
    done = LimitsLine(7, Limits(5000, 64), Limits(500, 64), Limits(1000, 64), Limits(500, 64))
    assert one(Operation("put_back"), (501, 64), 1000, done).skipped == CHANGED_SINCE
    assert one(Operation("put_back"), (5000, 64), 1000, done).skipped == SAME  # the owner was quicker


@given(st.lists(st.tuples(LIMITS, KBIT), max_size=8), st.sampled_from(["set", "cap", "scale"]), st.integers(0, 10_000))
def test_every_link_has_a_line_and_only_lines_that_change_differ(
    links: list[tuple[Limits, int]], kind: str, value: int
) -> None:
    present = [PresentLimits(pk, old, maximum) for pk, (old, maximum) in enumerate(links)]
    found = plan(present, Operation(kind, value), {})  # type: ignore[arg-type]  # one of the three
    assert [line.key for line in found] == [link.key for link in present]
    for link, line in zip(present, found, strict=True):
        assert line.is_change == (line.new != line.old)
        assert line.old == link.value
        assert line.new_in_force == line.new.clamped(link.maximum_kbit)
        assert all(new <= max(old, link.maximum_kbit) for old, new in zip(line.old, line.new, strict=True))
        assert read_line(line.stored()) == line
    assert differing(found, found) == []


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("scale", 10_001, "scale_range"),
        ("scale", -1, "scale_range"),
        ("set", -1, "bandwidth_negative"),
        ("set", MAX_BANDWIDTH_KBIT + 1, "bandwidth_too_high"),
    ],
)
def test_impossible_operations_are_refused(kind: str, value: int, code: str) -> None:
    with pytest.raises(RuleError) as refused:
        Operation(kind, value)  # type: ignore[arg-type]  # one of the kinds
    assert refused.value.code == code


def test_a_link_that_came_or_went_differs() -> None:
    line = LimitsLine(7, Limits(1, 1), Limits(2, 2), Limits(1, 1), Limits(2, 2))
    assert differing([line], []) == [7]
    assert differing([], [line]) == [7]


# --- defaults ---------------------------------------------------------------------------------------------------

SITE_KBIT = 1000


def default(own: int | None, operation: Operation, **more: DefaultLine) -> DefaultLine:
    targets = {7: more["target"]} if more else {}
    return plan_defaults([7], {7: own}, SITE_KBIT, operation, targets)[0]


@pytest.mark.parametrize(
    ("own", "operation", "new", "maximum"),
    [
        (None, Operation("set", 1000), 1000, 1000),  # from now on it does not follow the site's
        (500, Operation("set", 0), 0, 0),
        (None, Operation("cap", 400), 400, 400),
        (900, Operation("cap", 400), 400, 400),
        (None, Operation("scale", 50), 500, 500),
        (5, Operation("scale", 50), 3, 3),  # the nearest, a half up
        (1, Operation("scale", 1), 1, 1),
        (500, Operation("site"), None, 1000),
    ],
)
def test_new_default(own: int | None, operation: Operation, new: int | None, maximum: int) -> None:
    line = default(own, operation)
    is_same = new == own
    assert (line.new, line.new_in_force, line.skipped) == (new, maximum, SAME if is_same else "")
    assert (line.old, line.old_in_force) == (own, SITE_KBIT if own is None else own)


@pytest.mark.parametrize(
    ("own", "operation", "why"),
    [
        (500, Operation("set", 500), SAME),
        (None, Operation("cap", 1000), SAME),
        (300, Operation("cap", 400), SAME),
        (None, Operation("scale", 100), SAME),
        (None, Operation("site"), SAME),
        (MAX_BANDWIDTH_KBIT, Operation("scale", 101), TOO_HIGH),
    ],
)
def test_left_out_stays_as_it_is(own: int | None, operation: Operation, why: str) -> None:
    line = default(own, operation)
    assert (line.skipped, line.new, line.new_in_force) == (why, own, line.old_in_force)


def test_putting_a_default_back_leaves_alone_what_was_changed_since() -> None:
    done = DefaultLine(7, None, 400, 1000, 400)
    assert default(400, Operation("put_back"), target=done) == DefaultLine(7, 400, None, 400, 1000)
    assert default(300, Operation("put_back"), target=done) == DefaultLine(7, 300, 300, 300, 300, CHANGED_SINCE)


def test_another_site_default_is_a_difference_where_it_counts() -> None:
    operation = Operation("cap", 400)
    shown, now = (plan_defaults([7, 8], {7: None, 8: 500}, site, operation, {}) for site in (1000, 900))
    assert differing(shown, now) == [7]
    assert differing(shown, shown) == []
    assert [read_line(line.stored()) for line in shown] == shown


@pytest.mark.parametrize(
    ("operation", "target", "expected"),
    [
        (Operation("cap", 400), None, [DefaultLine(SITE, 1000, 400, 1000, 400), DefaultLine(8, None, None, 1000, 400)]),
        (Operation("set", 1000), None, [DefaultLine(SITE, 1000, 1000, 1000, 1000, SAME)]),
        (Operation("site"), None, [DefaultLine(SITE, 1000, 1000, 1000, 1000, SAME)]),  # it follows nothing
        (
            Operation("put_back"),
            DefaultLine(SITE, 3000, 1000, 3000, 1000),
            [DefaultLine(SITE, 1000, 3000, 1000, 3000), DefaultLine(8, None, None, 1000, 3000)],
        ),
        (
            Operation("put_back"),
            DefaultLine(SITE, 3000, 999, 3000, 999),
            [DefaultLine(SITE, 1000, 1000, 1000, 1000, CHANGED_SINCE)],
        ),
    ],
)
def test_the_sites_default_takes_along_who_follows_it(
    operation: Operation, target: DefaultLine | None, expected: list[DefaultLine]
) -> None:
    targets = {} if target is None else {SITE: target}
    assert plan_defaults([SITE], {7: 500, 8: None}, SITE_KBIT, operation, targets) == expected
