"""When a packet is due, and the bounds that hold whatever an end is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from station.pacing import MAX_BEHIND_S, Guard, Pacer


@given(st.floats(0.0005, 0.2), st.lists(st.floats(0.0001, 0.04), min_size=1, max_size=300))
def test_a_sender_that_wakes_often_enough_sends_at_an_even_pace(interval_s: float, sleeps: list[float]) -> None:
    pacer, now, sent = Pacer(0.0, 5.0, interval_s), 0.0, 0
    for sleep in sleeps:
        sent += pacer.due(now)
        assert abs(sent - 1 - min(now, 5.0) / interval_s) <= 1
        now += sleep


def test_a_sender_that_stood_still_gives_up_what_it_is_behind_with() -> None:
    pacer = Pacer(0.0, 10.0, 0.001)
    assert pacer.due(0.0) == 1
    assert pacer.due(5.0) == pytest.approx(MAX_BEHIND_S / 0.001, abs=2)
    assert pacer.due(5.0105) == pytest.approx(10, abs=1)
    assert pacer.due(11.0) <= MAX_BEHIND_S / 0.001 + 2
    assert pacer.is_over


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 0.3), st.integers(500, 10_000)), min_size=1, max_size=20), st.integers(8, 2000))
def test_no_window_has_more_than_the_rate_100_ms_and_two_packets(steps: list[tuple[float, int]], kbit: int) -> None:
    """Whoever asks as fast as he can."""
    guard = Guard(until=1e9, max_bytes=10**7, max_kbit=kbit, heard_at=0.0)
    now, taken = 0.0, [(0.0, 0)]
    for wait_s, size in steps:
        now += wait_s
        guard.heard_at = now
        before = guard.sent_bytes
        while guard.denies(now, size, size) is None:
            guard.took(size, size)
        taken.append((now, guard.sent_bytes - before))
    for index, (began, _) in enumerate(taken):
        carried = 0
        for at, size in taken[index:]:
            carried += size
            assert carried <= (at - began) * kbit * 125 + kbit * 12.5 + 2 * 10_000 + 1


def test_a_guard_says_which_bound_was_met() -> None:
    guard = Guard(until=100.0, max_bytes=1000, max_kbit=8, heard_at=10.0)
    assert guard.denies(10.0, 500, 542) is None
    guard.took(500, 542)
    assert guard.denies(10.0, 501, 543) == "1000 bytes, the maximum that this test may send, were reached"
    assert guard.denies(12.0, 500, 542) is None
    assert guard.denies(12.001, 500, 542) == "no report arrived for 2 s"
    assert guard.denies(100.0, 500, 542) == "the time of the test has ended"
    assert Guard(100.0, 10**6, 8, heard_at=10.0).denies(10.0, 9_000, 9_300) is None
    spent = Guard(100.0, 10**5, 8, heard_at=10.0)
    while spent.denies(10.0, 1000, 1042) is None:
        spent.took(1000, 1042)
    assert (spent.sent_bytes, spent.denies(10.0, 1000, 1042), spent.denies(11.1, 1000, 1042)) == (3000, "", None)
