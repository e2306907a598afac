"""How soon and how often events make the limiter compare."""

from __future__ import annotations

import itertools

import pytest

from ap_agent.limiter.events import Change, Notifications
from ap_agent.limiter.pacing import Pacing

CLASS = Change("eth0", "class", is_undoing=True)
FILTER = Change("eth0", "filter")
ADDRESS = Change("", "address")
OURS = ("eth0", "slbw0")


def of(*changes: Change) -> Notifications:
    return Notifications(frozenset(changes))


def compared(
    pacing: Pacing, began: float, took: float = 0.01, written: tuple[str, ...] = (), *, is_finished: bool = True
) -> list[Change]:
    return pacing.compared(began, began + took, written, is_finished=is_finished)


def test_a_comparison_is_due_shortly_after_the_first_event_and_later_ones_do_not_put_it_off() -> None:
    pacing = Pacing()
    for moment in (10.0, 10.01, 10.015):
        pacing.note(of(CLASS), moment, OURS)
    assert pacing.due == pytest.approx(10.02)
    compared(pacing, 10.02)
    assert pacing.due is None


def test_between_two_comparisons_is_a_rest_that_does_not_grow_with_a_long_first_build() -> None:
    pacing = Pacing()
    compared(pacing, 10.0, took=5.0)
    pacing.note(of(CLASS), 15.0, OURS)
    assert pacing.due == pytest.approx(15.1)


def test_comparisons_because_of_events_take_a_fifth_of_a_minute_and_not_more() -> None:
    pacing = Pacing()
    now, spent = 0.0, 0.0
    while now < 600:
        pacing.note(of(ADDRESS), now, OURS)
        assert pacing.due is not None
        now = pacing.due
        compared(pacing, now, took=0.4)
        now += 0.4
        spent += 0.4
    assert spent / now < 0.25


def test_only_what_was_undone_and_put_right_is_named() -> None:
    pacing = Pacing()
    pacing.note(of(CLASS, FILTER, ADDRESS, Change("eth1", "qdisc", is_undoing=True)), 10.0, OURS)
    assert pacing.drift == {CLASS}  # eth1 has nothing of ours
    assert compared(pacing, 10.02, written=("eth0", "eth1")) == [CLASS]
    assert pacing.drift == frozenset()
    pacing.note(of(CLASS), 20.0, OURS)
    assert compared(pacing, 20.02) == []


def test_a_comparison_that_could_not_be_finished_rests_and_its_drift_stays_known() -> None:
    pacing = Pacing()
    pacing.note(of(CLASS), 10.0, OURS)
    compared(pacing, 10.02, is_finished=False)
    assert pacing.drift == {CLASS}
    pacing.note(of(FILTER), 10.1, OURS)
    assert pacing.due == pytest.approx(15.03)
    compared(pacing, 15.03)
    assert pacing.drift == frozenset()


def fight(pacing: Pacing, start: float, end: float, change: Change = CLASS) -> list[float]:
    """Somebody changes it again as soon as it was repaired; when the repairs are."""
    now, repairs = start, []
    while True:
        pacing.note(of(change), now, OURS)
        assert pacing.due is not None
        now = pacing.due
        if now > end:
            compared(pacing, now)
            return repairs
        compared(pacing, now, written=("eth0",))
        repairs.append(now)
        now += 0.01


def test_a_fight_has_a_name_and_no_repair_waits_longer_than_another() -> None:
    pacing = Pacing()
    repairs = fight(pacing, 100.0, 400.0)
    assert max(later - earlier for earlier, later in itertools.pairwise(repairs)) < 0.15
    (problem,) = pacing.problems(400.0)
    assert (problem.code, problem.subject) == ("repeatedly_changed", "eth0")
    assert "On eth0: class changed" in problem.message


def test_whatever_else_changes_slows_down_no_repair() -> None:
    """Comparisons of half a second because of addresses rest longer and longer; the drift does not wait for them."""
    pacing = Pacing()
    now = 0.0
    for _ in range(60):
        pacing.note(of(ADDRESS), now, OURS)
        assert pacing.due is not None
        now = pacing.due
        compared(pacing, now, took=0.5)
        now += 0.5
    pacing.note(of(ADDRESS), now, OURS)
    assert pacing.due > now + 1.9
    for change in (of(CLASS), Notifications(is_lost=True)):
        pacing.note(change, now + 0.2, OURS)
        assert pacing.due < now + 0.2 + 0.15
    compared(pacing, now + 0.22, took=0.5, written=("eth0",))
    assert pacing.problems(now + 1) == ()


def test_containers_that_come_and_go_are_no_fight() -> None:
    """New devices get hooks, addresses come, all in the same comparison."""
    pacing = Pacing()
    for number in range(30):
        now = 100.0 + 2 * number
        pacing.note(of(ADDRESS, Change(f"veth{number}", "device")), now, OURS)
        assert compared(pacing, now + 0.02, written=(f"veth{number}",)) == []
    assert pacing.problems(160.0) == ()


def test_a_fight_is_over_a_minute_after_the_last_repair() -> None:
    pacing = Pacing()
    last = fight(pacing, 100.0, 130.0)[-1]
    assert len(pacing.problems(last + 59)) == 1
    assert pacing.problems(last + 61) == ()
    pacing.note(of(FILTER), last + 100, OURS)
    assert pacing.due == pytest.approx(last + 100.02)
