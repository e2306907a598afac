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
    Totals, number, number, number, number, number | st.just(SLOT_MS), number, st.none() | number, number
)
both = st.fixed_dictionaries(dict.fromkeys(DIRECTIONS, sums))


@settings(max_examples=100)
@given(both)
def test_sums_are_read_as_they_were_written(one: Both) -> None:
    assert totals_unpack(totals_pack(one)) == one


def test_a_usual_row_has_few_bytes() -> None:
    """A megabit in both directions for five minutes, at times at its limit."""
    one = Totals(37_500_000, 30_000, 12, 37_500_000, 299_990, 20_000, 1000, 15_000)
    assert len(totals_pack({"to_user": one, "from_user": one})) == 35
    idle = Totals(24_000, 300, 0, 24_000, 299_990, 0, 1000, 0)
    assert len(totals_pack({"to_user": idle, "from_user": idle})) == 19
