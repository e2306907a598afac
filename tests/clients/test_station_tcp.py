"""When the rate of a phase of TCP is certain, and what is read of the kernel's struct."""

from __future__ import annotations

import struct

from station.tcp import Info, is_steady


def moments(*of_each_second: int) -> list[tuple[float, int]]:
    """Bytes until each quarter of a second, evenly within a second."""
    found = [(0.0, 0)]
    for count in of_each_second:
        found += [(found[-1][0] + part / 4, found[-1][1] + count * part // 4) for part in range(1, 5)]
    return found


def test_four_even_seconds_after_the_first_are_certain_and_not_before() -> None:
    assert is_steady(moments(9000, 1000, 1000, 1000, 1000))
    assert not is_steady(moments(1000, 1000, 1000, 1000))
    assert not is_steady(moments(1000, 1000, 1000, 1000, 1000)[:-1])


def test_a_second_that_differs_by_more_than_two_percent_of_the_mean_puts_it_off() -> None:
    assert is_steady(moments(0, 1000, 1000, 1020, 1000))
    assert not is_steady(moments(0, 1000, 1000, 1040, 1000))
    assert not is_steady(moments(0, 1000, 1000, 960, 1000))
    assert is_steady(moments(0, 960, 1000, 1000, 1000, 1000))


def test_the_kernels_struct_is_read_at_its_places_and_a_shorter_one_has_zeros() -> None:
    """Offsets of <linux/tcp.h>."""
    raw = bytearray(280)
    for offset, form, value in (
        (68, "@I", 38_000),
        (80, "@I", 12),
        (100, "@I", 3),
        (120, "@Q", 5_000_000_001),
        (160, "@Q", 239_000),
        (200, "@Q", 5_000_004_345),
        (208, "@Q", 4344),
    ):
        struct.pack_into(form, raw, offset, value)
    assert Info.read(bytes(raw)) == Info(5_000_000_001, 5_000_004_345, 4344, 38_000, 12, 3, 1912)
    assert Info.read(bytes(raw[:168])) == Info(5_000_000_001, 0, 0, 38_000, 12, 3, 1912)
