"""Whom whole datagrams touch: what is sent beside fragments, the price's table, and verdicts that can fail."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench.core import Outcome
from evaluation import beside
from evaluation.beside import CASES, LARGE, LAXER, MIXED, NEIGHBOUR, ONLY_LARGE, ONLY_SMALL, SMALL, STRICTER
from evaluation.core import DIRECTIONS
from evaluation.limiters import OURS, WHOLE
from evaluation.suites import whole
from evaluation.whole_cost import EXPERIMENT, WITH, WITHOUT

GOOD: Mapping[tuple[str, str, str], float] = {  # what, limiter, case: value
    ("share", WHOLE, MIXED): 0.25,
    ("share", OURS, ONLY_LARGE): 0.0,
    ("down", WHOLE, MIXED): 0,
    ("lost", WHOLE, NEIGHBOUR): 0.0,
    ("lost", WHOLE, LAXER): 0.0,
    ("lost", WHOLE, STRICTER): 0.0,
    ("lost", OURS, STRICTER): 0.2,
    ("delay", WHOLE, ONLY_SMALL): 60.0,
}


def test_every_case_has_a_wire_and_floods_or_is_a_neighbour_below_its_limit() -> None:
    for case in CASES:
        offered = sum(one.kbit for one in case.streams) / case.kbit
        assert offered == (0.6 if case.name == NEIGHBOUR else beside.OVERLOAD)
        if case.second_kbit:
            assert sum(one.kbit for one in case.second_streams) == pytest.approx(0.6 * case.second_kbit)


def test_fragments_end_in_the_stricter_link_in_one_case_only() -> None:
    stricter = [case.name for case in CASES if 0 < case.second_kbit < case.kbit]
    assert stricter == [STRICTER]


def test_both_kinds_offer_the_same() -> None:
    (mixed,) = (case for case in CASES if case.name == MIXED)
    small, large = mixed.streams
    assert (small.kbit, small.payload_bytes, large.kbit, large.payload_bytes) == (1000, 1000, 1000, 10_000)


def test_a_queue_of_room_a_datagram_and_two_frames_is_175_ms() -> None:
    assert whole.allowed_delay_ms() == pytest.approx((6250 + 1042 + 2 * 1514) * 8 / 500 + 8)


def outcome_of(values: Mapping[tuple[str, str, str], float]) -> Outcome:
    found = Outcome("whole")
    for (what, limiter, case), value in values.items():
        for direction in DIRECTIONS:
            for kind in (SMALL, LARGE):
                found.add(
                    value, "", what=what, experiment="beside", limiter=limiter, case=case, direction=direction,
                    kind=kind,
                )  # fmt: skip
    return found


def failing(values: Mapping[tuple[str, str, str], float]) -> list[int]:
    """Which claims fail: 0 proportion, 1 heartbeats, 2 neighbours, 3 delay, 4 the control."""
    return [number for number, one in enumerate(whole.claims(outcome_of(values))) if not one.holds]


def test_good_figures_hold() -> None:
    assert failing(GOOD) == []


@pytest.mark.parametrize(
    ("key", "bad", "claim"),
    [
        (("share", WHOLE, MIXED), 0.12, 0),
        (("down", WHOLE, MIXED), 1, 1),
        (("lost", WHOLE, NEIGHBOUR), 0.001, 2),
        (("lost", WHOLE, LAXER), 0.001, 2),
        (("delay", WHOLE, ONLY_SMALL), 174.0, 3),
        (("share", OURS, ONLY_LARGE), 0.2, 4),
        (("lost", WHOLE, STRICTER), 0.001, 2),
        (("lost", OURS, STRICTER), 0.0, 4),
    ],
)
def test_each_harm_fails_its_claim(key: tuple[str, str, str], bad: float, claim: int) -> None:
    assert failing({**GOOD, key: bad}) == [claim]


def test_one_kind_starved_fails_although_the_other_is_well() -> None:
    outcome = outcome_of(GOOD)
    outcome.find(what="share", limiter=WHOLE, kind=LARGE)[0].samples[:] = [0.1]
    assert not whole.claims(outcome)[0].holds


def test_nothing_measured_proves_nothing() -> None:
    assert failing({}) == [0, 1, 2, 3, 4]


def test_the_price_is_the_difference_of_medians() -> None:
    outcome = Outcome("whole")
    for limiter, value in ((WITHOUT, 568.0), (WITH, 670.0)):
        outcome.add(value, "ns", experiment=EXPERIMENT, limiter=limiter, direction="to user", size=4000, traffic="hot")
    *_, price = whole.tables(outcome)
    assert [list(row) for row in price.rows] == [["to user, 4,000 addresses, hot", "568", "670", "+102"]]
