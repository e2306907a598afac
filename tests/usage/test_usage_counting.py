"""From counters to differences: every byte once and no rate that was none, in whatever order batches come."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.usage.batch import Sample
from scionlab.usage.compact import totals_pack, totals_unpack
from scionlab.usage.counting import Known, count
from scionlab.usage.packing import LONGEST_ROW_MS, pack, unpack
from scionlab.usage.rows import Both
from scionlab.usage.totals import DAY_MS, SLOT_MS, Interval, Totals, of_ms, to_ms
from tests.usage_world import total

T0 = to_ms(datetime(2026, 11, 21, 6, 0, tzinfo=UTC))


def at(seconds: float) -> int:
    return T0 + int(seconds * 1000)


def sample(seconds: float, count_bytes: int, packets: int = 0, drops: int = 0, limit_kbit: int = 1000) -> Sample:
    return Sample(count_bytes, packets, drops, at_ms=at(seconds), limit_kbit=limit_kbit, backlog_bytes=0)


def test_first_sample_of_a_segment_counts_from_zero_and_is_no_rate() -> None:
    (only,) = count([sample(0, 5000, 5)], None).intervals
    assert (only.bytes, only.packets, only.covered_ms, only.kbit) == (5000, 5, 0, None)


def test_neighbours_of_thirty_seconds_give_a_rate_and_of_more_give_bytes_alone() -> None:
    _, second, third = count([sample(0, 0), sample(30, 300), sample(60.001, 600)], None).intervals
    assert (second.bytes, second.covered_ms) == (300, 30_000)
    assert (third.bytes, third.covered_ms, third.kbit) == (300, 0, None)


def test_counter_that_goes_back_counts_from_zero_and_is_no_rate() -> None:
    counted = count([sample(0, 900), sample(10, 1000), sample(20, 40), sample(30, 50)], None)
    assert [one.bytes for one in counted.intervals] == [900, 100, 40, 10]
    assert [one.covered_ms for one in counted.intervals] == [0, 10_000, 0, 10_000]
    assert counted.restarts == 1


def test_bytes_or_packets_that_go_back_are_a_new_life() -> None:
    known = Known(100, 10, 5, at_ms=at(0))
    for after in (sample(10, 99, 10, 5), sample(10, 100, 9, 5)):
        assert count([after], known).restarts == 1


def test_fewer_drops_alone_count_no_byte_twice() -> None:
    """An agent that lost its memory says what the kernel's leaf has now, of a class that it has counted for days."""
    known = Known(10**12, 10**9, 2**32 + 5, at_ms=at(0))
    counted = count([sample(10, 10**12 + 300, 10**9 + 3, 7), sample(20, 10**12 + 600, 10**9 + 6, 9)], known)
    assert [(one.bytes, one.packets, one.drops, one.covered_ms) for one in counted.intervals] == [
        (300, 3, 0, 10_000),
        (300, 3, 2, 10_000),
    ]
    assert counted.restarts == 0
    assert count([sample(0, 10**12, 10**9, 4)], known) == count([], known)


def test_time_of_an_idle_link_is_covered_once() -> None:
    batch = [sample(seconds, 1000, 10) for seconds in (0, 10, 20)]
    counted = count(batch, None)
    assert sum(one.covered_ms for one in counted.intervals) == 20_000
    assert count(batch, counted.known) == count([], counted.known)


def test_clock_that_was_set_back_costs_the_rate_and_no_byte() -> None:
    """The counter went on, so it is what comes after, whatever the clock says."""
    counted = count([sample(-200, 1500, 15), sample(-190, 1600, 16)], Known(1000, 10, 0, at_ms=at(60)))
    assert [(one.bytes, one.covered_ms) for one in counted.intervals] == [(500, 0), (100, 10_000)]
    assert counted.restarts == 0


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 10**9), st.integers(0, 9)), min_size=1, max_size=40),
    st.data(),
)
def test_sum_is_the_highest_counter_in_any_order_of_arrival(
    steps: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    samples, seconds, carried, drops = [], 0, 0, 0
    for pause, count_bytes, dropped in steps:
        seconds, carried, drops = seconds + pause, carried + count_bytes, drops + dropped
        samples.append(sample(seconds, carried, carried // 7, drops))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(samples)), max_size=6)))
    batches = [samples[a:b] for a, b in zip([0, *cuts], [*cuts, len(samples)], strict=True)]
    arrivals = data.draw(st.permutations(batches + data.draw(st.lists(st.sampled_from(batches), max_size=3))))
    known, found = None, Totals()
    for batch in arrivals:
        counted = count(batch, known)
        known = counted.known
        found.merge(total(counted.intervals))
        assert counted.restarts == 0
    assert (found.bytes, found.packets, found.drops) == (carried, carried // 7, drops)
    assert found.covered_ms <= (samples[-1].at_ms - samples[0].at_ms)
    assert found.rated_bytes <= found.bytes


# --- at the limit ---------------------------------------------------------------------------------------------


def interval(count_bytes: int, drops: int = 0, limit_kbit: int = 1000, **more: int) -> Interval:
    usual = {"packets": 1, "ends_at_ms": at(10), "covered_ms": 10_000, "backlog_bytes": 0}
    return Interval(bytes=count_bytes, drops=drops, limit_kbit=limit_kbit, **{**usual, **more})


def test_at_the_limit_from_95_percent_of_it_on() -> None:
    assert interval(1_187_500).is_at_limit  # 950 kbit/s
    assert not interval(1_187_499).is_at_limit


def test_a_blocked_link_is_at_its_limit_while_it_drops() -> None:
    assert interval(0, drops=1, limit_kbit=0).is_at_limit
    assert not interval(0, drops=0, limit_kbit=0).is_at_limit


def test_a_bucket_is_where_most_of_the_interval_is() -> None:
    """Samples are due at 06:05:00 and come some milliseconds before or after."""
    for jitter in (-0.1, 0, 0.003, 0.4):
        assert interval(1, ends_at_ms=at(300 + jitter)).bucket(SLOT_MS) == T0
        assert interval(1, ends_at_ms=at(310 + jitter)).bucket(SLOT_MS) == at(300)


def test_what_is_no_rate_counts_at_the_sample_that_found_it() -> None:
    assert interval(1, covered_ms=0, ends_at_ms=at(300)).bucket(SLOT_MS) == T0
    assert interval(1, covered_ms=0, ends_at_ms=at(300.001)).bucket(SLOT_MS) == at(300)
    assert of_ms(interval(1).bucket(DAY_MS)) == datetime(2026, 11, 21, tzinfo=UTC)


def test_limit_of_a_time_is_its_mean_over_what_is_covered() -> None:
    found = total([interval(0, limit_kbit=1000), interval(0, limit_kbit=3000, covered_ms=30_000)])
    assert found.limit_kbit == 2500
    assert total([interval(0, covered_ms=0)]).limit_kbit == 1000
    assert Totals().limit_kbit is None


# --- stored rows ----------------------------------------------------------------------------------------------

intervals = st.lists(
    st.builds(
        Interval,
        st.integers(0, 2**60),
        st.integers(0, 2**60),
        st.integers(0, 3),
        ends_at_ms=st.integers(T0, T0 + 2_000_000),
        covered_ms=st.sampled_from([0, 10_000, 9_998]),
        limit_kbit=st.sampled_from([0, 500, 10**8]),
        backlog_bytes=st.integers(0, 10**9),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(intervals, intervals)
@example([interval(1)], [])
def test_what_is_packed_is_unpacked(to_user: list[Interval], from_user: list[Interval]) -> None:
    found: tuple[list[Interval], list[Interval]] = ([], [])
    for begins_at, packed in pack(to_user, from_user):
        for direction, part in zip(found, unpack(begins_at, packed), strict=True):
            assert all(begins_at <= one.ends_at_ms <= begins_at + LONGEST_ROW_MS for one in part)
            direction.extend(part)
    for one, put_in in zip(found, (to_user, from_user), strict=True):
        assert sorted(one, key=astuple) == sorted(put_in, key=astuple)


def test_rows_say_their_version_and_another_one_is_refused() -> None:
    """The version says how many counters a row has."""
    ((begins_at, packed),) = pack([interval(5)], [])
    assert json.loads(packed)[0] == 1
    with pytest.raises(ValueError, match="version 2"):
        unpack(begins_at, packed.replace("[1,", "[2,", 1))
    row = totals_pack({"to_user": Totals(5), "from_user": Totals()})
    assert row[0] == 0b101, "version 1, and the first direction alone"
    with pytest.raises(ValueError, match="version 2"):
        totals_unpack(bytes([0b1001]) + row[1:])


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
