"""Sums in few bytes, and the 95th percentile of a window: what was put in comes out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.usage import rank
from scionlab.usage.compact import numbers_unpack, totals_pack, totals_unpack
from scionlab.usage.rank import OutsideError, Window, place_of, window_unpack
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


@settings(max_examples=100)
@given(st.lists(st.integers(0, 40), max_size=30), st.lists(st.integers(0, 40), max_size=60))
def test_a_window_says_the_percentile_of_all_values_or_that_it_does_not_know(first: list[int], more: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rank, "HALF", 3)
        patched.setattr(rank, "MOST", 9)
        window, known = Window.of(first), [*first]
        for value in more:
            known.append(value)
            window.add(value)
            expected = sorted(known)[place_of(len(known))]
            try:
                assert window.percentile() == expected
                window.trim()
            except OutsideError:
                window = Window.of(known)
            assert (window.count, window.percentile()) == (len(known), expected)
            assert window_unpack(numbers_unpack(window.pack())) == window
            assert len(window.values) <= 9


def test_a_window_of_real_size_is_seldom_left() -> None:
    """A month in which every day is busier than the one before, quiet at night: 8928 values, and the window is made
    anew less than once in 40 of them."""
    kbits = [(slot // 288 + 1) * abs(144 - slot % 288) for slot in range(8928)]
    window, left = Window.of([]), 0
    for count, kbit in enumerate(kbits, 1):
        window.add(kbit)
        try:
            window.percentile()
            window.trim()
        except OutsideError:
            left += 1
            window = Window.of(kbits[:count])
    assert window.percentile() == sorted(kbits)[place_of(8928)]
    assert 0 < left < 8928 // 40
