"""Timed limits mean the same to the service that writes them and to the agent that reads them, at every second.

Times here are seconds after T0, when clocks in Europe begin an hour that they show twice: limits are UTC, whatever a
clock on a wall says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.document.timetable import Timetable, next_change
from bandwidth_config import Limits, LinkStep, RuleError, TimedLimits, generate_link_info
from contract.link_info import LinkInfo, parse_link_info
from contract.link_rules import MAX_STEPS, check_steps, parse_ip
from contract.link_tests import UDP, WATCH, LinkTest
from scionlab.limits import profiles
from tests.contract.test_link_info import End, OneHost

T0 = datetime(2026, 10, 25, 0, 0, tzinfo=UTC)
ZURICH = ZoneInfo("Europe/Zurich")  # 02:00 to 03:00 there happens twice, from T0 on
LAST_S = 400

some_limits = st.builds(Limits, st.integers(0, 5), st.integers(0, 5))


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@st.composite
def timed_lists(draw: st.DrawFn) -> tuple[TimedLimits, ...]:
    """In order, not overlapping, some without a gap between them."""
    edges = sorted(draw(st.sets(st.integers(0, LAST_S), max_size=8)))
    made = []
    for begin, end in pairwise(edges):
        if draw(st.booleans()):
            more = draw(st.sets(st.integers(1, max(1, end - begin - 1)), max_size=4))
            offsets = sorted({0, *more} & {*range(end - begin)})
            steps = tuple(LinkStep(offset, draw(some_limits)) for offset in offsets)
            made.append(TimedLimits(at(begin), at(end), steps))
    return tuple(made)


def link(standing: Limits, timed: tuple[TimedLimits, ...], number: int = 1) -> LinkInfo:
    plain = LinkInfo(number, 182, True, standing.lowest_kbit, parse_ip("192.0.2.7"))
    return replace(plain.with_limits(standing), timed=timed)


def by_hand(standing: Limits, timed: tuple[TimedLimits, ...], second: int) -> Limits:
    """What holds in this second: everything written down second by second."""
    table = dict.fromkeys(range(-1, LAST_S + 2), standing)
    for one in timed:
        begin, end = (round((moment - T0).total_seconds()) for moment in (one.begins_at, one.ends_at))
        for offset_s, limits in one.steps:
            table |= dict.fromkeys(range(begin + offset_s, end), limits)
    return table[second]


@given(some_limits, timed_lists(), st.integers(-1, LAST_S + 1), st.sampled_from([0.0, 0.25, 0.999_999]))
def test_limits_are_those_of_the_step_that_runs(
    standing: Limits, timed: tuple[TimedLimits, ...], second: int, fraction: float
) -> None:
    one = link(standing, timed)
    wanted = by_hand(standing, timed, second)
    assert one.limits_at(at(second + fraction)) == wanted
    assert one.limits_at(at(second + fraction).astimezone(ZURICH)) == wanted


@given(some_limits, timed_lists())
def test_between_two_changes_nothing_changes_and_none_is_left_out(
    standing: Limits, timed: tuple[TimedLimits, ...]
) -> None:
    one = link(standing, timed)
    moments = [at(-1)]
    while (following := one.next_change(moments[-1])) is not None:
        assert following > moments[-1]
        assert following.microsecond == 0
        moments.append(following)
    assert len(moments) <= 1 + sum(len(each.steps) + 1 for each in timed)
    for each in timed:
        assert each.next_change(each.ends_at) is None
        assert each.last_change(each.ends_at) == each.ends_at
    for second in range(LAST_S + 1):
        if one.limits_at(at(second)) != one.limits_at(at(second - 1)):
            assert at(second) in moments


@pytest.mark.parametrize(("second", "last"), [(9, None), (10, 10), (14.5, 10), (15, 15), (19, 15), (20, 20), (99, 20)])
def test_last_change_is_the_beginning_of_the_step_that_runs_or_the_end(second: float, last: int | None) -> None:
    one = TimedLimits(at(10), at(20), (LinkStep(0, Limits(1, 1)), LinkStep(5, Limits(2, 2))))
    assert one.last_change(at(second)) == (None if last is None else at(last))


@given(some_limits, timed_lists(), st.integers(0, 6))
def test_document_says_what_was_asked_for_clamped_to_the_maximum(
    standing: Limits, timed: tuple[TimedLimits, ...], maximum: int
) -> None:
    end = End(
        bandwidth_kbit=standing.to_user_kbit,
        from_user_kbit=standing.from_user_kbit,
        maximum_kbit=maximum,
        timed=tuple(reversed(timed)),
    )
    document = generate_link_info(OneHost([end]))
    read = parse_link_info(json.dumps(document))[1]
    for second in range(-1, LAST_S + 2, 7):
        assert read.limits_at(at(second)) == by_hand(standing, timed, second).clamped(maximum)
    assert document["1"]["Bandwidth"] == min(*standing, maximum)
    assert ("Bandwidth-To-User" in document["1"]) == (not standing.clamped(maximum).is_symmetric)
    assert ("Timed" in document["1"]) == bool(timed)


def limits_in(links: Mapping[int, LinkInfo]) -> dict[int, Limits]:
    return {number: one.limits for number, one in links.items()}


def limits_at(links: Mapping[int, LinkInfo], when: datetime) -> dict[int, Limits]:
    return {number: one.limits_at(when) for number, one in links.items()}


@settings(max_examples=60)
@given(
    st.lists(st.tuples(some_limits, timed_lists()), min_size=1, max_size=4),
    st.lists(st.integers(-5, LAST_S + 5), min_size=1, max_size=12),
)
def test_timetable_is_right_however_the_clock_is_set(
    several: list[tuple[Limits, tuple[TimedLimits, ...]]], seconds: list[int]
) -> None:
    links = {number: link(*one, number=number) for number, one in enumerate(several, 1)}
    timetable = Timetable(links)
    before = None
    for second in seconds:
        found = timetable.at(at(second))
        assert limits_in(found) == limits_at(links, at(second))
        assert timetable.next_change(at(second)) == next_change(links, at(second))
        if before is not None:
            same = {number for number in found if found[number].limits == before[number].limits}
            assert all(found[number] is before[number] for number in same), "who did not change is the same object"
            assert (found is before) == (len(same) == len(found))
        before = found
    moment: datetime | None = at(-1)
    while moment is not None:  # and exactly at each change, one after the other
        assert limits_in(timetable.at(moment)) == limits_at(links, moment)
        following = timetable.next_change(moment)
        assert following is None or following > moment
        moment = following


@st.composite
def test_lists(draw: st.DrawFn) -> tuple[LinkTest, ...]:
    spans = draw(st.lists(st.tuples(st.integers(0, LAST_S), st.integers(1, 60), st.booleans()), max_size=3))
    return tuple(
        LinkTest(at(begin), at(begin + length), f"{number:032x}", UDP if sends else WATCH, 30_300 if sends else None)
        for number, (begin, length, sends) in enumerate(spans)
    )


test_lists.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for one of its own


@settings(max_examples=60)
@given(
    timed_lists(),
    test_lists(),
    st.lists(st.tuples(st.integers(-40, LAST_S + 70), st.booleans()), min_size=1, max_size=12),
)
def test_tests_that_send_hold_from_30_s_before_until_their_end_however_the_clock_is_set(
    timed: tuple[TimedLimits, ...], tests: tuple[LinkTest, ...], looks: list[tuple[int, bool]]
) -> None:
    def held(second: float) -> tuple[LinkTest, ...]:
        span = timedelta(seconds=30)
        return tuple(one for one in tests if one.kind == UDP and one.begins_at - span <= at(second) < one.ends_at)

    links = {1: replace(link(Limits(3, 3), timed), tests=tests), 2: link(Limits(4, 4), ())}
    timetable = Timetable(links)
    before = timetable.at(at(-100))
    for second, may_send in looks:
        found = timetable.at(at(second), may_send=may_send)
        assert found[1].tests == (held(second) if may_send else ())
        assert limits_in(found) == limits_at(links, at(second))
        assert found[2] is before[2]
        assert timetable.next_limits(at(second)) == next_change(links, at(second))
        following = timetable.next_change(at(second))
        until = (following - T0).total_seconds() if following is not None else LAST_S + 100
        assert all(held(one) == held(second) for one in range(second, int(until)))
        assert (found is before) == (found[1] == before[1])
        before = found


# --- profiles ----------------------------------------------------------------------------------------------------


THIRTY_DAYS_S = 2_592_000  # the longest temporary limit


def changes(profile: profiles.Profile) -> list[tuple[int, Limits]]:
    return [(step.offset_s, step.limits) for step in profile.steps]


def test_a_temporary_limit_may_last_exactly_30_days() -> None:
    assert profiles.constant(Limits(1, 1), THIRTY_DAYS_S).duration_s == THIRTY_DAYS_S
    profiles.square_wave(Limits(1, 1), Limits(9, 9), THIRTY_DAYS_S // 4, 2)


def test_profiles_are_what_their_names_say() -> None:
    low, high = Limits(200, 100), Limits(1000, 500)
    assert changes(profiles.constant(low, 7200)) == [(0, low)]
    assert changes(profiles.outage(5)) == [(0, Limits(0, 0))]
    wave = profiles.square_wave(low, high, 30, 2)
    assert (changes(wave), wave.duration_s) == ([(0, low), (30, high), (60, low), (90, high)], 120)
    stair = profiles.stair(low, high, 5, 10)
    rising = [Limits(200, 100), Limits(400, 200), Limits(600, 300), Limits(800, 400), Limits(1000, 500)]
    assert (changes(stair), stair.duration_s) == ([(10 * n, one) for n, one in enumerate(rising)], 50)


@given(
    st.builds(Limits, st.integers(0, 10**8), st.integers(0, 10**8)),
    st.builds(Limits, st.integers(0, 10**8), st.integers(0, 10**8)),
    st.integers(2, MAX_STEPS),
    st.integers(1, 100),
)
def test_a_stair_goes_one_way_from_its_start_to_its_end(start: Limits, end: Limits, count: int, step_s: int) -> None:
    profile = profiles.stair(start, end, count, step_s)
    assert (profile.steps[0].limits, profile.steps[-1].limits) == (start, end)
    assert len(profile.steps) == count
    for direction in (0, 1):
        levels = [step.limits[direction] for step in profile.steps]
        assert levels == sorted(levels, reverse=start[direction] > end[direction])
    check_steps(profile.steps, profile.duration_s)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: profiles.constant(Limits(1, 1), 0), "timed_step_short"),
        (lambda: profiles.constant(Limits(1, 1), THIRTY_DAYS_S + 1), "timed_long"),
        (lambda: profiles.constant(Limits(-1, 1), 60), "bandwidth_negative"),
        (lambda: profiles.constant(Limits(1, 100_000_001), 60), "bandwidth_too_high"),
        (lambda: profiles.stair(Limits(1, 1), Limits(9, 10**400), 3, 1), "bandwidth_too_high"),
        (lambda: profiles.stair(Limits(1, 1), Limits(9, 9), 1, 1), "timed_steps"),
        (lambda: profiles.stair(Limits(1, 1), Limits(9, 9), MAX_STEPS + 1, 1), "timed_steps"),
        (lambda: profiles.square_wave(Limits(1, 1), Limits(9, 9), 0, 3), "timed_step_short"),
        (lambda: profiles.square_wave(Limits(1, 1), Limits(9, 9), 1, MAX_STEPS // 2 + 1), "timed_steps"),
        (lambda: profiles.square_wave(Limits(1, 1), Limits(9, 9), THIRTY_DAYS_S // 2, 2), "timed_long"),
    ],
)
def test_profiles_that_are_none_are_refused(make: object, code: str) -> None:
    assert callable(make)
    with pytest.raises(RuleError) as refused:
        make()
    assert refused.value.code == code


# --- documents that must not be enforced ---------------------------------------------------------------------------

GOOD = {"From": "2026-11-21T23:00:00Z", "Until": "2026-11-21T23:02:00Z", "Steps": [[0, 200, 100], [60, 1000, 500]]}
FOUR = {"AS_ID": 182, "IsUserAS": True, "Bandwidth": 500, "IP-Address": "192.0.2.7"}


def code_of(**changed: object) -> str | None:
    try:
        parse_link_info(json.dumps({"1": {**FOUR, **changed}}))
    except RuleError as exc:
        return exc.code
    return None


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, None),
        ({"Bandwidth-To-User": 500, "Bandwidth-From-User": 2000}, None),
        ({"Bandwidth-To-User": 500}, "wrong_type"),
        ({"Bandwidth-To-User": 600, "Bandwidth-From-User": 2000}, "bandwidth_mismatch"),
        ({"Bandwidth-To-User": 500, "Bandwidth-From-User": 10**9}, "out_of_range"),
        ({"Timed": [GOOD]}, None),
        ({"Timed": None}, None),
        ({"Timed": {}}, "wrong_type"),
        ({"Timed": [1]}, "wrong_type"),
        ({"Timed": [GOOD, GOOD]}, "timed_overlap"),
        ({"Timed": [GOOD, {**GOOD, "From": "2026-11-20T23:00:00Z", "Until": "2026-11-20T23:02:00Z"}]}, "timed_overlap"),
        ({"Timed": [{**GOOD, "Until": GOOD["From"]}]}, "timed_step_short"),
        ({"Timed": [{**GOOD, "Until": "2026-12-25T23:00:00Z"}]}, "timed_long"),
        ({"Timed": [{**GOOD, "Until": "2026-11-31T23:00:00Z"}]}, "wrong_type"),
        ({"Timed": [{**GOOD, "From": "2026-11-21T23:00:00+01:00"}]}, "wrong_type"),
        ({"Timed": [{**GOOD, "From": None}]}, "wrong_type"),
        ({"Timed": [{**GOOD, "Steps": [[1, 5, 5]]}]}, "timed_steps"),
        ({"Timed": [{**GOOD, "Steps": [[0, 5, 5], [0, 5, 5]]}]}, "timed_step_short"),
        ({"Timed": [{**GOOD, "Steps": [[0, 5]]}]}, "wrong_type"),
        ({"Timed": [{**GOOD, "Steps": [[0, 5, True]]}]}, "wrong_type"),
        ({"Timed": [{**GOOD, "Steps": [[0, 5, -1]]}]}, "bandwidth_negative"),
        ({"Timed": [{**GOOD, "Steps": [[n, 5, 5] for n in range(1000)]}]}, "timed_steps"),
        ({"Timed": [GOOD] * 21}, "timed_many"),
    ],
)
def test_limits_that_are_not_understood_refuse_the_document(changed: dict[str, object], code: str | None) -> None:
    assert code_of(**changed) == code
