"""What an operation makes of defaults: pure arithmetic."""

from __future__ import annotations

import pytest

from bandwidth_config import RuleError
from scionlab.limits.default_plan import CHANGED_SINCE, SAME, SITE, TOO_HIGH, Line, Operation, differing, plan

MAX_KBIT = 100_000_000


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("scale", 10_001, "scale_range"),
        ("scale", -1, "scale_range"),
        ("set", -1, "bandwidth_negative"),
        ("set", MAX_KBIT + 1, "bandwidth_too_high"),
    ],
)
def test_impossible_operations_are_refused(kind: str, value: int, code: str) -> None:
    with pytest.raises(RuleError) as refused:
        Operation(kind, value)  # type: ignore[arg-type]  # one of the kinds
    assert refused.value.code == code


def test_an_attachment_point_that_came_or_went_differs() -> None:
    line = Line(7, None, 2, 1, 2)
    assert differing([line], []) == differing([], [line]) == [7]
    operation = Operation("cap", 400)
    shown, now = (plan([7, 8], {7: None, 8: 500}, site, operation, {}) for site in (1000, 900))
    assert differing(shown, now) == [7], "another site default is a difference where it counts"


SITE_KBIT = 1000


def default(own: int | None, operation: Operation, **more: Line) -> Line:
    targets = {7: more["target"]} if more else {}
    return plan([7], {7: own}, SITE_KBIT, operation, targets)[0]


@pytest.mark.parametrize(
    ("own", "operation", "new", "maximum"),
    [
        (None, Operation("set", 1000), 1000, 1000),  # from now on it does not follow the site's
        (500, Operation("set", 0), 0, 0),
        (None, Operation("cap", 400), 400, 400),
        (5, Operation("scale", 50), 3, 3),  # the nearest, a half up
        (1, Operation("scale", 1), 1, 1),  # rounding alone blocks nobody
        (0, Operation("scale", 1), 0, 0),  # and frees nobody
        (None, Operation("scale", 150), 1500, 1500),
        (500, Operation("site"), None, 1000),
    ],
)
def test_new_default(own: int | None, operation: Operation, new: int | None, maximum: int) -> None:
    line = default(own, operation)
    assert (line.new, line.new_in_force, line.skipped) == (new, maximum, SAME if new == own else "")
    assert (line.old, line.old_in_force) == (own, SITE_KBIT if own is None else own)


@pytest.mark.parametrize(
    ("own", "operation", "why"),
    [
        (500, Operation("set", 500), SAME),
        (None, Operation("cap", 1000), SAME),
        (300, Operation("cap", 400), SAME),
        (None, Operation("site"), SAME),
        (MAX_KBIT, Operation("scale", 101), TOO_HIGH),
    ],
)
def test_left_out_stays_as_it_is(own: int | None, operation: Operation, why: str) -> None:
    line = default(own, operation)
    assert (line.skipped, line.new, line.new_in_force) == (why, own, line.old_in_force)


def test_putting_a_default_back_leaves_alone_what_was_changed_since() -> None:
    done = Line(7, None, 400, 1000, 400)
    assert default(400, Operation("put_back"), target=done) == Line(7, 400, None, 400, 1000)
    assert default(300, Operation("put_back"), target=done) == Line(7, 300, 300, 300, 300, CHANGED_SINCE)


@pytest.mark.parametrize(
    ("operation", "target", "expected"),
    [
        (Operation("cap", 400), None, [Line(SITE, 1000, 400, 1000, 400), Line(8, None, None, 1000, 400)]),
        (Operation("site"), None, [Line(SITE, 1000, 1000, 1000, 1000, SAME)]),  # it follows nothing
        (
            Operation("put_back"),
            Line(SITE, 3000, 1000, 3000, 1000),
            [Line(SITE, 1000, 3000, 1000, 3000), Line(8, None, None, 1000, 3000)],
        ),
        (
            Operation("put_back"),
            Line(SITE, 3000, 999, 3000, 999),
            [Line(SITE, 1000, 1000, 1000, 1000, CHANGED_SINCE)],
        ),
    ],
)
def test_the_sites_default_takes_along_who_follows_it(
    operation: Operation, target: Line | None, expected: list[Line]
) -> None:
    targets = {} if target is None else {SITE: target}
    assert plan([SITE], {7: 500, 8: None}, SITE_KBIT, operation, targets) == expected
