"""What a bulk change makes of defaults: of an attachment point's own, and of the site's."""

from __future__ import annotations

import pytest

from bandwidth_config import MAX_BANDWIDTH_KBIT, RuleError
from scionlab.links.bulk_plan import CHANGED_SINCE, SAME, TOO_HIGH
from scionlab.links.default_plan import DefaultLine, DefaultOperation, differing_defaults, plan_defaults

SITE = 1000


def one(own: int | None, operation: DefaultOperation, **more: DefaultLine) -> DefaultLine:
    targets = {7: more["target"]} if more else {}
    return plan_defaults({7: own}, SITE, operation, targets)[0]


@pytest.mark.parametrize(
    ("own", "operation", "new", "maximum"),
    [
        (None, DefaultOperation("set", 1000), 1000, 1000),  # from now on it does not follow the site's
        (500, DefaultOperation("set", 0), 0, 0),
        (None, DefaultOperation("cap", 400), 400, 400),
        (900, DefaultOperation("cap", 400), 400, 400),
        (None, DefaultOperation("scale", 50), 500, 500),
        (5, DefaultOperation("scale", 50), 3, 3),  # the nearest, a half up
        (1, DefaultOperation("scale", 1), 1, 1),
        (500, DefaultOperation("site"), None, 1000),
    ],
)
def test_new_default(own: int | None, operation: DefaultOperation, new: int | None, maximum: int) -> None:
    line = one(own, operation)
    is_same = new == own
    assert (line.new_kbit, line.new_maximum_kbit, line.skipped) == (new, maximum, SAME if is_same else "")
    assert (line.old_kbit, line.old_maximum_kbit) == (own, SITE if own is None else own)


@pytest.mark.parametrize(
    ("own", "operation", "why"),
    [
        (500, DefaultOperation("set", 500), SAME),
        (None, DefaultOperation("cap", 1000), SAME),
        (300, DefaultOperation("cap", 400), SAME),
        (None, DefaultOperation("scale", 100), SAME),
        (None, DefaultOperation("site"), SAME),
        (MAX_BANDWIDTH_KBIT, DefaultOperation("scale", 101), TOO_HIGH),
    ],
)
def test_left_out_stays_as_it_is(own: int | None, operation: DefaultOperation, why: str) -> None:
    line = one(own, operation)
    assert (line.skipped, line.new_kbit, line.new_maximum_kbit) == (why, own, line.old_maximum_kbit)
    assert line.why_skipped != why


def test_putting_back_leaves_alone_what_was_changed_since() -> None:
    done = DefaultLine(7, None, 400, 1000, 400)
    assert one(400, DefaultOperation("put_back"), target=done) == DefaultLine(7, 400, None, 400, 1000)
    assert one(300, DefaultOperation("put_back"), target=done) == DefaultLine(7, 300, 300, 300, 300, CHANGED_SINCE)


def test_another_site_default_is_a_difference_where_it_counts() -> None:
    operation = DefaultOperation("cap", 400)
    shown, now = (plan_defaults({7: None, 8: 500}, site, operation, {}) for site in (1000, 900))
    assert differing_defaults(shown, now) == [7]
    assert differing_defaults(shown, shown) == []
    assert [DefaultLine.read(line.stored()) for line in shown] == shown


def test_what_no_default_can_be_is_refused() -> None:
    for operation, code in (
        (("scale", 20_000), "scale_range"),
        (("set", MAX_BANDWIDTH_KBIT + 1), "bandwidth_too_high"),
    ):
        with pytest.raises(RuleError) as refused:
            DefaultOperation(*operation)  # type: ignore[arg-type]  # one of the kinds
        assert refused.value.code == code
