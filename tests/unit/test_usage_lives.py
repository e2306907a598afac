"""Which segment a counter belongs to, and what ends one."""

from __future__ import annotations

from ap_agent.usage.lives import Lives, Row
from ap_agent.usage.reading import Counted, Farewell, Key

KEY: Key = (5, "to_user")
MARK, OTHER = 0x41414141, 0x42424242


def counted(size: int, *, mark: int = MARK, data: int | None = 0, beats: int | None = 0, packets: int = 0) -> Counted:
    return Counted(mark, 125_000, size, packets, beats, data, 0)


def farewell(size: int, *, mark: int = MARK, part: str = "inner", drops: int = 0) -> Farewell:
    return Farewell(7, KEY, part, mark, 125_000, size, 0, drops)  # type: ignore[arg-type]


def test_what_was_refused_in_front_of_the_leaves_is_added_to_their_drops() -> None:
    lives = Lives()
    readings = [counted(size, data=data)._replace(refused=refused) for size, data, refused in ((0, 1, 4), (9, 2, 6))]

    assert [lives.count(KEY, one, "1.18").drops for one in readings] == [5, 8]
    assert lives.count(KEY, counted(0, mark=OTHER, data=1)._replace(refused=7), "1.18").drops == 2  # 1 since then


def test_what_the_agent_before_counted_as_refused_stays_counted() -> None:
    before, after = Lives(), Lives()
    last = before.count(KEY, counted(100, data=2)._replace(refused=6), "1.18")
    after.remember({KEY: last}, "1.18")

    # Its successor has a program of its own, which begins with 0; the class goes on.
    assert [after.count(KEY, counted(200, data=3)._replace(refused=one), "1.18").drops for one in (0, 5)] == [9, 14]


def sizes(lives: Lives, *readings: Counted) -> list[tuple[str, int]]:
    rows = [lives.count(KEY, one, "1.18") for one in readings]
    return [(row.segment, row.bytes) for row in rows]


def test_growing_counters_of_one_mark_are_one_segment_named_by_it() -> None:
    assert sizes(Lives(), counted(0), counted(700), counted(700)) == [
        ("41414141", 0),
        ("41414141", 700),
        ("41414141", 700),
    ]


def test_another_mark_is_another_segment_also_where_the_counters_grew() -> None:
    assert sizes(Lives(), counted(700), counted(9000, mark=OTHER)) == [("41414141", 700), ("42424242", 9000)]


def test_counters_that_went_backwards_under_one_mark_begin_another_segment() -> None:
    found = sizes(Lives(), counted(700), counted(300), counted(400))

    assert [size for _, size in found] == [700, 300, 400]
    assert found[0][0] == "41414141"
    assert found[1][0].startswith("41414141-")
    assert found[2][0] == found[1][0]


def test_agent_that_forgot_everything_goes_on_with_the_segments_of_the_one_before() -> None:
    assert sizes(Lives(), counted(700)) == sizes(Lives(), counted(700))


def test_agent_that_remembers_sees_a_class_that_was_made_anew_with_the_same_mark() -> None:
    lives = Lives()
    lives.remember({KEY: Row("41414141", 1000, 700, 0, 3, 0, 0, 3)}, "1.18")

    assert sizes(lives, counted(500))[0][0].startswith("41414141-")


def test_agent_that_remembers_goes_on_with_a_segment_whatever_it_is_called() -> None:
    lives = Lives()
    lives.remember({KEY: Row("41414141-0badcafe", 1000, 700, 0, 3, 0, 0, 3)}, "1.18")

    assert sizes(lives, counted(700, data=3)) == [("41414141-0badcafe", 700)]


# --- the last word of a class -----------------------------------------------------------------------------------------


def test_farewell_ends_a_segment_with_the_counters_of_that_moment() -> None:
    lives = Lives()
    lives.count(KEY, counted(700, data=2), "1.18")

    lives.end(farewell(0, part="data", drops=5), "1.19")
    row, version = lives.end(farewell(950), "1.19") or (None, None)

    assert row == Row("41414141", 1000, 950, 0, 5, 0, 0, 0)
    assert version == "1.18"  # that of its last sample


def test_class_made_by_hand_with_the_same_mark_after_a_farewell_is_another_segment() -> None:
    lives = Lives()
    lives.count(KEY, counted(700), "1.18")
    lives.end(farewell(700), "1.18")

    assert sizes(lives, counted(900))[0][0].startswith("41414141-")


def test_farewell_that_comes_after_the_next_class_was_seen_still_ends_the_one_before() -> None:
    lives = Lives()
    lives.count(KEY, counted(700, data=1), "1.18")
    lives.count(KEY, counted(10, mark=OTHER), "1.19")

    lives.end(farewell(0, part="data", drops=4), "1.19")
    row, version = lives.end(farewell(800), "1.19") or (None, None)

    assert row is not None
    assert (row.segment, row.bytes, row.drops, version) == ("41414141", 800, 4, "1.18")
    assert sizes(lives, counted(20, mark=OTHER)) == [("42424242", 20)]


def test_class_that_lived_between_two_samples_is_a_segment_of_its_own() -> None:
    lives = Lives()
    lives.count(KEY, counted(700), "1.18")
    lives.end(farewell(700), "1.18")
    lives.end(farewell(0, mark=OTHER, part="heartbeat", drops=1), "1.18")
    lives.end(farewell(0, mark=OTHER, part="data", drops=2), "1.18")

    row, version = lives.end(farewell(60, mark=OTHER), "1.18") or (None, None)

    assert row is not None
    assert (row.segment, row.bytes, row.drops, version) == ("42424242", 60, 3, "1.18")


def test_farewell_of_a_class_that_nobody_waits_for_any_longer_is_no_end_of_the_present_one() -> None:
    lives = Lives()
    lives.count(KEY, counted(700), "1.18")

    lives.end(farewell(5, mark=OTHER), "1.18")

    assert sizes(lives, counted(800)) == [("41414141", 800)]


def test_leaf_of_the_class_before_is_forgotten_after_two_samples_without_its_farewell() -> None:
    lives = Lives()
    lives.count(KEY, counted(700), "1.18")
    lives.count(KEY, counted(1, mark=OTHER), "1.18")
    for _ in range(3):
        lives.tick()

    lives.end(farewell(0, mark=OTHER, part="data", drops=9), "1.18")

    assert lives.count(KEY, counted(2, mark=OTHER, data=0), "1.18").drops == 9


# --- drops of leaf classes --------------------------------------------------------------------------------------------


def drops(lives: Lives, *readings: Counted) -> list[int]:
    return [lives.count(KEY, one, "1.18").drops for one in readings]


def test_leaf_that_was_made_anew_alone_takes_no_drops_away() -> None:
    assert drops(Lives(), counted(0, data=7), counted(1, data=None), counted(2, data=3)) == [7, 7, 10]


def test_last_word_of_a_leaf_counts_once_whenever_it_comes() -> None:
    early, late = Lives(), Lives()
    drops(early, counted(0, data=7))
    early.end(farewell(0, part="data", drops=9), "1.18")
    assert drops(early, counted(1, data=3)) == [12]

    drops(late, counted(0, data=7), counted(1, data=3))
    late.end(farewell(0, part="data", drops=9), "1.18")
    assert drops(late, counted(2, data=4)) == [13]


def test_drops_that_wrapped_at_32_bits_go_on() -> None:
    assert drops(Lives(), counted(0, data=2**32 - 10), counted(1, data=5)) == [2**32 - 10, 2**32 + 5]


def test_drops_of_both_leaves_are_added_and_remembered() -> None:
    lives = Lives()
    first = lives.count(KEY, counted(1, data=4, beats=2), "1.18")
    drops(lives, counted(2, data=1, beats=2))
    last = lives.count(KEY, counted(3, data=2, beats=3), "1.18")
    assert (first.drops, last.drops) == (6, 9)

    again = Lives()
    again.remember({KEY: last}, "1.18")

    assert drops(again, counted(4, data=5, beats=3)) == [12]
