"""Counters out of the kernel's messages, as `tests/kernel/test_usage.py` finds them in a real one."""

from __future__ import annotations

import pytest

from ap_agent.usage.reading import Counted, Farewell, Layouts, decode, farewell
from tests.usage_classes import Class, link, piece

MARK = 0x5EADBEEF


def test_links_classes_are_found_with_what_their_leaves_dropped_and_hold() -> None:
    pieces = [piece(1, link(5, mark=MARK, size=4000, drops=3, backlog=700)), piece(1, link(0xFFE, mark=7, size=1))]

    assert decode(pieces, 1, Layouts()) == {
        5: Counted(MARK, 125_000, 4000, 4, 0, 3, 700),
        0xFFE: Counted(7, 125_000, 1, 0, 0, 0, 0),
    }


def test_leaf_that_is_not_there_has_no_drops() -> None:
    assert decode([piece(1, [Class(5, MARK)])], 1, Layouts())[5][4:7] == (None, None, 0)


def test_classes_of_nobody_and_of_another_tree_are_left_out() -> None:
    others = [Class(0xFFFE), Class(0xFFFD), Class(0x1005), Class(0x3005)]

    assert decode([piece(1, others), piece(3, link(5, mark=MARK, size=1))], 1, Layouts()) == {}


def test_numbers_beyond_32_bits_are_read_whole_beside_small_ones() -> None:
    fast = Class(5, MARK, bytes=2**50, packets=2**40, rate=12_500_000_000)
    found = decode([piece(1, [Class(4, 1, packets=9), fast, Class(6, 2, packets=8)])], 1, Layouts())

    assert found[5][1:4] == (12_500_000_000, 2**50, 2**40)
    assert (found[4].packets, found[6].packets) == (9, 8)


@pytest.mark.parametrize(
    ("minor", "part"), [(5, "inner"), (0x1005, "data"), (0x2005, "heartbeat")], ids=["inner", "data", "heartbeat"]
)
def test_farewell_says_whose_class_it_was_and_what_it_had_counted(minor: int, part: str) -> None:
    body = Class(minor, MARK, bytes=900, packets=3, drops=2).body(3)

    assert farewell(body, Layouts()) == Farewell(7, (5, "from_user"), part, MARK, 125_000, 900, 3, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [b"", bytes(20), Class(0xFFFE).body(1), Class(5).body(2), Class(5).body(1)[:40]])
def test_what_is_no_link_s_class_is_no_farewell(body: bytes) -> None:
    assert farewell(body, Layouts()) is None


@pytest.mark.parametrize("cut", range(0, 130, 7))
def test_torn_message_is_never_more_than_left_out(cut: int) -> None:
    whole = piece(1, link(5, mark=MARK, size=4000))

    assert set(decode([whole[: len(whole) - cut]], 1, Layouts())) <= {5}
