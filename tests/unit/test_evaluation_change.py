"""When does a changed limit hold? Arrivals made by hand, with the moment known."""

from __future__ import annotations

import pytest

from lab.bench.core import Outcome
from lab.evaluation.core import DIRECTIONS
from lab.evaluation.holding import Change, first_on_the_line, hold_after_s
from lab.evaluation.limiters import OURS, THESIS
from lab.evaluation.suites import change
from measuring.arrivals import Arrivals
from measuring.framing import Wire
from measuring.judge import NS

WIRE = Wire(4)
PAYLOAD = 1472  # 1514 bytes on the wire: 24.224 ms at 500 kbit/s
FRAME_S_AT_500 = 1514 * 8 / 500_000
LATE_S = 0.008


def at_rates(*phases: tuple[int, float]) -> Arrivals:
    """Full frames: so many kbit/s for so many seconds, one phase after the other, from 1 s on."""
    arrivals, now_s = Arrivals(), 1.0
    for kbit, lasts_s in phases:
        end_s = now_s + lasts_s
        step_s = 1514 * 8 / (kbit * 1000) if kbit else lasts_s
        while now_s + step_s <= end_s + 1e-9 and kbit:
            now_s += step_s
            arrivals.arrived_ns.append(round(now_s * NS))
            arrivals.payload_bytes.append(PAYLOAD)
            arrivals.sequence.append(len(arrivals.sequence))
            arrivals.sent_ns.append(round(now_s * NS))
        now_s = end_s
    return arrivals


def changed(old: int, new: int, *, after_s: float = 0.0, until_s: float = 3.0) -> Change:
    """Offered at 1 s + `after_s`."""
    return Change(1, old, new, round((1 + after_s) * NS), round((1 + until_s) * NS))


@pytest.mark.parametrize(("old", "new"), [(500, 1_000), (1_000, 250), (250, 500)])
@pytest.mark.parametrize("lag_s", [0.0, 0.2, 0.7])
def test_the_moment_from_which_a_rate_holds_is_found_and_never_too_early(old: int, new: int, lag_s: float) -> None:
    seen = at_rates((old, lag_s), (new, 3.0 - lag_s))
    found = hold_after_s(seen, WIRE, changed(old, new), LATE_S)
    assert found is not None
    unsure_s = (1514 + new * 125 * LATE_S) / (abs(new - old) * 125)
    frame_s = 1514 * 8 / (min(old, new) * 1000)
    assert lag_s - frame_s <= found <= lag_s + unsure_s + 2 * frame_s


def test_a_rate_that_never_comes_is_not_held() -> None:
    seen = at_rates((500, 3.0))
    assert hold_after_s(seen, WIRE, changed(500, 1_000), LATE_S) is None
    assert hold_after_s(seen, WIRE, changed(500, 250), LATE_S) is None


def test_a_rate_is_held_from_its_last_disturbance_on() -> None:
    seen = at_rates((1_000, 1.0), (4_000, 0.3), (1_000, 1.7))
    found = hold_after_s(seen, WIRE, changed(500, 1_000), LATE_S)
    assert found is not None
    assert 1.25 <= found <= 1.4


def test_a_rate_that_holds_only_at_the_very_end_does_not_count() -> None:
    seen = at_rates((500, 2.7), (1_000, 0.3))
    assert hold_after_s(seen, WIRE, changed(500, 1_000), LATE_S) is None


def test_a_blocked_link_holds_from_its_last_packet_on() -> None:
    assert hold_after_s(at_rates((250, 0.5), (0, 2.5)), WIRE, changed(250, 0), LATE_S) == pytest.approx(0.5, abs=0.05)
    assert hold_after_s(Arrivals(), WIRE, changed(250, 0), LATE_S) == 0.0
    assert hold_after_s(at_rates((250, 2.8)), WIRE, changed(250, 0), LATE_S) is None


def test_of_no_arrivals_nothing_is_on_a_line() -> None:
    assert first_on_the_line(Arrivals(), WIRE, 500, 1514.0) is None
    assert hold_after_s(Arrivals(), WIRE, changed(500, 1_000), LATE_S) is None


def an_outcome(*, lost: int = 0, holds_s: float | None = 0.1, too_much: float = 0.0, passed: int = 0) -> Outcome:
    """One repetition as the suite notes it; ours as given, the thesis' with losses."""
    outcome = Outcome(change.NAME)
    for limiter in (OURS, THESIS):
        is_ours = limiter == OURS
        for direction in DIRECTIONS:
            labels: dict[str, str | int] = {"experiment": change.NAME, "limiter": limiter, "direction": direction}
            row = {**labels, "change": "500 → 1000", "number": 1}
            if holds_s is not None:
                outcome.add(holds_s, "s", what="holds after", **row)
            outcome.add(holds_s is None, "times", what="never held", **row)
            outcome.add(too_much if is_ours else 9_000, "bytes", what="too much", **row)
            outcome.add(passed if is_ours else 90, "packets", what="passed at 0", **{**row, "change": "250 → 0"})
            outcome.add(1_000, "packets", what="sent", **labels)
            outcome.add(lost if is_ours else 70, "packets", what="lost", **labels)
            for number in range(4):
                outcome.add(500, "kbit/s", what="rate", bin=number, **labels)
    return outcome


def test_the_claims_hold_for_a_change_that_harms_nobody() -> None:
    assert [one.holds for one in change.claims(an_outcome())] == [True, True, True, True]


@pytest.mark.parametrize(
    ("outcome", "broken"),
    [
        (an_outcome(holds_s=1.2), 0),
        (an_outcome(holds_s=None), 0),
        (an_outcome(lost=1), 1),
        (an_outcome(too_much=1.0), 1),
        (an_outcome(passed=1), 2),
    ],
)
def test_a_claim_falls_with_what_it_says(outcome: Outcome, broken: int) -> None:
    assert [number for number, one in enumerate(change.claims(outcome)) if not one.holds] == [broken]


def test_nothing_measured_is_nothing_claimed() -> None:
    empty = Outcome(change.NAME)
    assert not any(one.holds for one in change.claims(empty))
    assert change.plots(empty) == []
