"""What a window of traffic may carry, and what it carried."""

from __future__ import annotations

from lab.bench.windows import allowed_bytes, busiest_window_bytes

MS = 1_000_000


def test_a_window_may_carry_its_rate_a_burst_and_two_frames() -> None:
    # 1 Gbit/s: 125 MB/s, a burst of 4 ms of it; one frame goes straight on, one begins on the last byte of the burst.
    assert allowed_bytes(1_000_000, 0.1) == 12_500_000 + 500_000 + 3028
    assert allowed_bytes(500) == 4000 + 3028


def test_the_busiest_window_is_found_wherever_it_begins() -> None:
    times = [0, 40 * MS, 95 * MS, 99 * MS, 104 * MS, 300 * MS]
    assert busiest_window_bytes(times, [9, 1, 10, 10, 10, 25], 0.010) == 30
    assert busiest_window_bytes(times, [9, 1, 10, 10, 10, 25], 0.100) == 31
    assert busiest_window_bytes([], [], 0.010) == 0


def test_a_window_excludes_what_arrives_at_its_very_end() -> None:
    assert busiest_window_bytes([0, 10 * MS], [7, 7], 0.010) == 7
    assert busiest_window_bytes([0, 10 * MS - 1], [7, 7], 0.010) == 14
