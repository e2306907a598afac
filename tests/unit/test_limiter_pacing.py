"""How soon and how often events make the limiter compare."""

from __future__ import annotations

import itertools

import pytest

from ap_agent.limiter.events import Change, Notifications
from ap_agent.limiter.pacing import Pacing

CLASS = Change("eth0", "class")
FILTER = Change("eth0", "filter")
ADDRESS = Change("", "address")


def of(*changes: Change) -> Notifications:
    return Notifications(frozenset(changes))


def compared(
    pacing: Pacing, began: float, took: float = 0.01, written: tuple[str, ...] = (), *, is_finished: bool = True
) -> list[Change]:
    return pacing.compared(began, began + took, written, is_finished=is_finished)


def test_nothing_heard_means_nothing_due() -> None:
    pacing = Pacing()
    pacing.note(Notifications(), 10.0)
    assert pacing.due is None


def test_a_comparison_is_due_shortly_after_the_first_event_and_later_ones_do_not_put_it_off() -> None:
    pacing = Pacing()
    for moment in (10.0, 10.01, 10.015):
        pacing.note(of(CLASS), moment)
    assert pacing.due == pytest.approx(10.02)
    compared(pacing, 10.02)
    assert pacing.due is None


def test_lost_messages_are_an_occasion() -> None:
    pacing = Pacing()
    pacing.note(Notifications(is_lost=True), 10.0)
    assert pacing.due == pytest.approx(10.02)


def test_between_two_comparisons_is_a_rest_that_does_not_grow_with_a_long_first_build() -> None:
    pacing = Pacing()
    compared(pacing, 10.0, took=5.0)
    pacing.note(of(CLASS), 15.0)
    assert pacing.due == pytest.approx(15.1)


def test_comparisons_because_of_events_take_a_fifth_of_a_minute_and_not_more() -> None:
    pacing = Pacing()
    now, spent = 0.0, 0.0
    while now < 600:
        pacing.note(of(ADDRESS), now)
        assert pacing.due is not None
        now = pacing.due
        compared(pacing, now, took=0.4)
        now += 0.4
        spent += 0.4
    assert spent / now < 0.25


def test_even_then_no_rest_is_longer_than_ten_seconds() -> None:
    pacing = Pacing()
    for now in (100.0, 120.0, 140.0):
        pacing.note(of(ADDRESS), now)
        compared(pacing, now + 0.02, took=9.0)
    pacing.note(of(ADDRESS), 149.1)
    assert pacing.due == pytest.approx(159.02)


def test_a_comparison_that_could_not_be_finished_is_not_repeated_at_once() -> None:
    pacing = Pacing()
    compared(pacing, 10.0, is_finished=False)
    pacing.note(of(CLASS), 10.1)
    assert pacing.due == pytest.approx(15.01)


def test_what_was_put_right_is_named_and_what_was_not_is_not() -> None:
    pacing = Pacing()
    pacing.note(of(CLASS, Change("eth1", "qdisc")), 10.0)
    assert compared(pacing, 10.02, written=("eth0",)) == [CLASS]
    pacing.note(of(ADDRESS), 20.0)
    assert compared(pacing, 20.02, written=("eth0", "eth1")) == [ADDRESS]
    pacing.note(of(ADDRESS), 30.0)
    assert compared(pacing, 30.02) == []


def fight(pacing: Pacing, start: float, end: float, change: Change = CLASS) -> list[float]:
    """Somebody changes it again as soon as it was repaired; when the repairs are."""
    now, repairs = start, []
    while True:
        pacing.note(of(change), now)
        assert pacing.due is not None
        now = pacing.due
        if now > end:
            compared(pacing, now)
            return repairs
        compared(pacing, now, written=("eth0",))
        repairs.append(now)
        now += 0.01


def test_five_repairs_of_a_device_are_as_quick_as_one() -> None:
    pacing = Pacing()
    repairs = fight(pacing, 100.0, 100.55)
    assert len(repairs) == 5
    assert pacing.problems(101.0) == ()


def test_a_fight_slows_down_and_has_a_name() -> None:
    pacing = Pacing()
    repairs = fight(pacing, 100.0, 400.0)
    assert sum(moment > 340 for moment in repairs) == 6
    assert max(later - earlier for earlier, later in itertools.pairwise(repairs)) == pytest.approx(10.01)
    (problem,) = pacing.problems(400.0)
    assert (problem.code, problem.subject) == ("repeatedly_changed", "eth0")
    assert "On eth0: class changed" in problem.message


def test_a_fight_over_addresses_is_about_addresses() -> None:
    pacing = Pacing()
    fight(pacing, 100.0, 130.0, ADDRESS)
    (problem,) = pacing.problems(130.0)
    assert problem.subject == "addresses"
    assert problem.message.startswith("The address of this host changed ")


def test_a_fight_is_over_a_minute_after_the_last_repair() -> None:
    pacing = Pacing()
    last = fight(pacing, 100.0, 130.0)[-1]
    assert len(pacing.problems(last + 59)) == 1
    assert pacing.problems(last + 61) == ()
    pacing.note(of(FILTER), last + 100)
    assert pacing.due == pytest.approx(last + 100.02)


def test_changes_without_a_repair_are_no_fight() -> None:
    """A busy neighbour on the same interface, whose filters do not touch ours."""
    pacing = Pacing()
    for moment in range(100, 160):
        pacing.note(of(FILTER), moment)
        compared(pacing, moment + 0.02)
    assert pacing.problems(160.0) == ()
