"""Sums in few bytes: what was put in comes out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.usage.compact import totals_pack, totals_unpack
from scionlab.usage.rows import Both
from scionlab.usage.totals import SLOT_MS, Totals

number = st.integers(0, 2**70) | st.integers(0, 300)
sums = st.just(Totals()) | st.builds(
    Totals,
    number,
    number,
    number,
    rated_bytes=number,
    covered_ms=number | st.just(SLOT_MS),
    at_limit_ms=number,
    limit_kbit=st.none() | number,
    backlog_bytes=number,
)
both = st.fixed_dictionaries(dict.fromkeys(DIRECTIONS, sums))


@settings(max_examples=100)
@given(both)
def test_sums_are_read_as_they_were_written(one: Both) -> None:
    assert totals_unpack(totals_pack(one)) == one


def test_a_usual_row_has_few_bytes() -> None:
    """A megabit in both directions for five minutes, at times at its limit."""
    rated = {"rated_bytes": 37_500_000, "covered_ms": 299_990, "at_limit_ms": 20_000}
    one = Totals(37_500_000, 30_000, 12, limit_kbit=1000, backlog_bytes=15_000, **rated)
    assert len(totals_pack({"to_user": one, "from_user": one})) == 35
    idle = Totals(24_000, 300, 0, rated_bytes=24_000, covered_ms=299_990, limit_kbit=1000)
    assert len(totals_pack({"to_user": idle, "from_user": idle})) == 19
