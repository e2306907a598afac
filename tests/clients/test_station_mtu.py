"""The search for the path MTU: it finds every size, within what it may send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from station.messages import DATA_HEAD_BYTES
from station.mtu import MtuSearch
from station.plan import LARGEST_MTU, MTU_PROBE_BYTES, MTU_SEARCH_BYTES, SMALLEST_MTU

HEADERS = 28  # of IPv4: its payload is the larger one


def find(mtu: int, *, told: bool) -> tuple[MtuSearch, int, int]:
    """The search, UDP payload sent and probes sent on a path of this MTU; `told`: by an answer of a router."""
    search, sent_bytes, probes = MtuSearch(), 0, 0
    known = LARGEST_MTU
    while not search.is_over:
        size = search.size
        if size > known:
            search.too_large()
            continue
        sent_bytes, probes = sent_bytes + size - HEADERS, probes + 1
        if size <= mtu:
            search.passes(size)
        else:
            known = mtu if told else known
            search.no_answer()
    return search, sent_bytes, probes


@pytest.mark.parametrize("told", [True, False], ids=["a router says so", "black hole"])
def test_every_mtu_is_found_within_the_bytes_and_the_time_of_the_phase(told: bool) -> None:
    for mtu in range(SMALLEST_MTU, LARGEST_MTU + 1):
        search, sent_bytes, probes = find(mtu, told=told)
        assert search.passed == mtu
        assert sent_bytes <= MTU_PROBE_BYTES, mtu
        assert probes <= 16, mtu
        assert search.is_refused == (told and mtu < LARGEST_MTU)


@given(st.integers(SMALLEST_MTU, LARGEST_MTU), st.sets(st.integers(0, 40), max_size=1))
def test_one_lost_probe_never_makes_it_larger_and_does_not_hide_a_clear_path(mtu: int, lost: set[int]) -> None:
    search, probes = MtuSearch(), 0
    while not search.is_over:
        (search.passes(search.size) if search.size <= mtu and probes not in lost else search.no_answer())
        probes += 1
    assert search.passed == mtu or (lost and mtu < LARGEST_MTU and SMALLEST_MTU <= search.passed < mtu)


@given(st.lists(st.booleans(), max_size=40))
def test_whatever_is_lost_the_bytes_are_bounded(passed: list[bool]) -> None:
    """With its answers to the other end: one of each probe, which has 576 bytes or more."""
    search, sent_bytes = MtuSearch(), 0
    while not search.is_over:
        sent_bytes += search.size
        search.passes(search.size) if passed and passed.pop() else search.no_answer()
    answers = MTU_PROBE_BYTES // SMALLEST_MTU
    assert sent_bytes - HEADERS + answers * DATA_HEAD_BYTES <= MTU_SEARCH_BYTES
