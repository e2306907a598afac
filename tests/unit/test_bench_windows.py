"""What a window of traffic may carry, and what it carried."""

from __future__ import annotations

import pytest

from lab.bench.windows import allowed_bytes, busiest_window_bytes, long_run_kbit

MS = 1_000_000


def test_a_window_may_carry_its_rate_a_burst_and_two_frames() -> None:
    # 1 Gbit/s: 125 MB/s, a burst of 4 ms of it; one frame goes straight on, one begins on the last byte of the burst.
    assert allowed_bytes(1_000_000, 0.1) == 12_500_000 + 500_000 + 3028
    assert allowed_bytes(500) == 4000 + 3028
    assert allowed_bytes(500, has_heartbeats=True) == 4000 + 3028 + 20_000


def test_the_busiest_window_is_found_wherever_it_begins() -> None:
    times = [0, 40 * MS, 95 * MS, 99 * MS, 104 * MS, 300 * MS]
    assert busiest_window_bytes(times, [9, 1, 10, 10, 10, 25], 0.010) == 30
    assert busiest_window_bytes(times, [9, 1, 10, 10, 10, 25], 0.100) == 31
    assert busiest_window_bytes([], [], 0.010) == 0


def test_a_window_excludes_what_arrives_at_its_very_end() -> None:
    assert busiest_window_bytes([0, 10 * MS], [7, 7], 0.010) == 7
    assert busiest_window_bytes([0, 10 * MS - 1], [7, 7], 0.010) == 14


def test_a_steady_stream_has_its_rate_in_the_long_run() -> None:
    times = [index * 10 * MS for index in range(200)]  # 1250 bytes every 10 ms: 1000 kbit/s
    assert long_run_kbit(times, [1250] * 200, 500 * MS, 1500 * MS) == pytest.approx(1000)


def test_a_doubled_second_half_shows_in_the_long_run() -> None:
    times = [index * 10 * MS for index in range(101)]
    assert long_run_kbit(times, [1250] * 51 + [2500] * 50, 0, 1000 * MS) == pytest.approx(1500)


def test_two_packets_are_no_rate() -> None:
    assert long_run_kbit([0, MS], [1, 1], 0, MS) is None
