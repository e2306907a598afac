"""Whom large datagrams touch: what is sent beside fragments, and verdicts that can fail."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab.bench.core import Outcome
from lab.evaluation import beside
from lab.evaluation.beside import CASES, LARGE, LAXER, MIXED, NEIGHBOUR, ONLY_LARGE, ONLY_SMALL, SMALL, STRICTER
from lab.evaluation.core import DIRECTIONS
from lab.evaluation.limiters import OURS, THESIS
from lab.evaluation.suites import beside as suite

GOOD: Mapping[tuple[str, str, str], float] = {  # what, limiter, case: value
    ("share", OURS, MIXED): 0.25,
    ("share", THESIS, ONLY_LARGE): 0.0,
    ("down", OURS, MIXED): 0,
    ("lost", OURS, NEIGHBOUR): 0.0,
    ("lost", OURS, LAXER): 0.0,
    ("lost", OURS, STRICTER): 0.0,
    ("lost", THESIS, STRICTER): 0.2,
    ("delay", OURS, ONLY_SMALL): 60.0,
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


def test_a_queue_of_room_a_datagram_and_a_frame_is_369_ms() -> None:
    assert suite.allowed_delay_ms() == pytest.approx((20_000 + 1042 + 1514) * 8 / 500 + 8)


def outcome_of(values: Mapping[tuple[str, str, str], float]) -> Outcome:
    found = Outcome("beside")
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
    return [number for number, one in enumerate(suite.claims(outcome_of(values))) if not one.holds]


def test_good_figures_hold() -> None:
    assert failing(GOOD) == []


@pytest.mark.parametrize(
    ("key", "bad", "claim"),
    [
        (("share", OURS, MIXED), 0.12, 0),
        (("down", OURS, MIXED), 1, 1),
        (("lost", OURS, NEIGHBOUR), 0.001, 2),
        (("lost", OURS, LAXER), 0.001, 2),
        (("delay", OURS, ONLY_SMALL), 370.0, 3),
        (("share", THESIS, ONLY_LARGE), 0.2, 4),
        (("lost", OURS, STRICTER), 0.001, 2),
        (("lost", THESIS, STRICTER), 0.0, 4),
    ],
)
def test_each_harm_fails_its_claim(key: tuple[str, str, str], bad: float, claim: int) -> None:
    assert failing({**GOOD, key: bad}) == [claim]


def test_one_kind_starved_fails_although_the_other_is_well() -> None:
    outcome = outcome_of(GOOD)
    outcome.find(what="share", limiter=OURS, kind=LARGE)[0].samples[:] = [0.1]
    assert not suite.claims(outcome)[0].holds


def test_nothing_measured_proves_nothing() -> None:
    assert failing({}) == [0, 1, 2, 3, 4]
