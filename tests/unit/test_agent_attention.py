"""How soon and how often events make the agent look."""

from __future__ import annotations

import itertools

import pytest

from ap_agent.limiter.attention import Attention
from ap_agent.limiter.events import Change, Heard

CLASS = Change("eth0", "class")
FILTER = Change("eth0", "filter")
ROUTE = Change("", "route")


def of(*changes: Change) -> Heard:
    return Heard(frozenset(changes), messages=len(changes))


def looked(
    attention: Attention, began: float, took: float = 0.01, written: tuple[str, ...] = (), *, is_finished: bool = True
) -> list[Change]:
    return attention.looked(began, began + took, written, is_finished=is_finished)


def test_nothing_heard_means_nothing_due() -> None:
    attention = Attention()
    attention.hear(Heard(messages=100), 10.0)
    assert attention.due is None


def test_a_look_is_due_shortly_after_the_first_event_and_later_ones_do_not_put_it_off() -> None:
    attention = Attention()
    for moment in (10.0, 10.01, 10.015):
        attention.hear(of(CLASS), moment)
    assert attention.due == pytest.approx(10.02)
    looked(attention, 10.02)
    assert attention.due is None


def test_lost_messages_are_an_occasion() -> None:
    attention = Attention()
    attention.hear(Heard(is_lost=True), 10.0)
    assert attention.due == pytest.approx(10.02)


def test_between_two_looks_is_a_rest_that_does_not_grow_with_a_long_first_build() -> None:
    attention = Attention()
    looked(attention, 10.0, took=5.0)
    attention.hear(of(CLASS), 15.0)
    assert attention.due == pytest.approx(15.1)


def test_looks_because_of_events_take_a_fifth_of_a_minute_and_not_more() -> None:
    attention = Attention()
    now, spent = 0.0, 0.0
    while now < 600:
        attention.hear(of(ROUTE), now)
        assert attention.due is not None
        now = attention.due
        looked(attention, now, took=0.4)
        now += 0.4
        spent += 0.4
    assert spent / now < 0.25


def test_even_then_no_rest_is_longer_than_ten_seconds() -> None:
    attention = Attention()
    for now in (100.0, 120.0, 140.0):
        attention.hear(of(ROUTE), now)
        looked(attention, now + 0.02, took=9.0)
    attention.hear(of(ROUTE), 149.1)
    assert attention.due == pytest.approx(159.02)


def test_a_look_that_could_not_be_finished_is_not_repeated_at_once() -> None:
    attention = Attention()
    looked(attention, 10.0, is_finished=False)
    attention.hear(of(CLASS), 10.1)
    assert attention.due == pytest.approx(15.01)


def test_what_was_put_right_is_named_and_what_was_not_is_not() -> None:
    attention = Attention()
    attention.hear(of(CLASS, Change("eth1", "qdisc")), 10.0)
    assert looked(attention, 10.02, written=("eth0",)) == [CLASS]
    attention.hear(of(ROUTE), 20.0)
    assert looked(attention, 20.02, written=("eth0", "eth1")) == [ROUTE]
    attention.hear(of(ROUTE), 30.0)
    assert looked(attention, 30.02) == []


def fight(attention: Attention, start: float, end: float, change: Change = CLASS) -> list[float]:
    """Somebody changes it again as soon as it was put right; when the repairs are."""
    now, repairs = start, []
    while True:
        attention.hear(of(change), now)
        assert attention.due is not None
        now = attention.due
        if now > end:
            looked(attention, now)
            return repairs
        looked(attention, now, written=("eth0",))
        repairs.append(now)
        now += 0.01


def test_five_repairs_of_a_device_are_as_quick_as_one() -> None:
    attention = Attention()
    repairs = fight(attention, 100.0, 100.55)
    assert len(repairs) == 5
    assert attention.problems(101.0) == ()


def test_a_fight_slows_down_and_has_a_name() -> None:
    attention = Attention()
    repairs = fight(attention, 100.0, 400.0)
    assert sum(moment > 340 for moment in repairs) == 6
    assert max(later - earlier for earlier, later in itertools.pairwise(repairs)) == pytest.approx(10.01)
    (problem,) = attention.problems(400.0)
    assert (problem.code, problem.subject) == ("repeatedly_changed", "eth0")
    assert "On eth0: class changed" in problem.message


def test_a_fight_over_routes_is_about_routing() -> None:
    attention = Attention()
    fight(attention, 100.0, 130.0, ROUTE)
    (problem,) = attention.problems(130.0)
    assert problem.subject == "routing"
    assert problem.message.startswith("The route of the links changed ")


def test_a_fight_is_over_a_minute_after_the_last_repair() -> None:
    attention = Attention()
    last = fight(attention, 100.0, 130.0)[-1]
    assert len(attention.problems(last + 59)) == 1
    assert attention.problems(last + 61) == ()
    attention.hear(of(FILTER), last + 100)
    assert attention.due == pytest.approx(last + 100.02)


def test_changes_without_a_repair_are_no_fight() -> None:
    """A busy neighbour on the same interface, whose filters do not touch ours."""
    attention = Attention()
    for moment in range(100, 160):
        attention.hear(of(FILTER), moment)
        looked(attention, moment + 0.02)
    assert attention.problems(160.0) == ()
