"""What the thesis did not measure: the arithmetic of the suites, and that their claims can fail."""

from __future__ import annotations

import pytest

from lab.bench.core import Label, Outcome
from lab.bench.windows import FRAME_BYTES
from lab.evaluation import together
from lab.evaluation.core import DIRECTIONS
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WRONG, WRONG_SHARE
from lab.evaluation.suites import bystander, heartbeats, latency, protocols, rates, sharing
from measuring.arrivals import Arrivals
from measuring.judge import NS

SUITES = (rates, protocols, sharing, heartbeats, bystander, latency)


# --- what all share ---------------------------------------------------------------------------------------------


def test_the_bound_of_a_ratio_is_a_frame_and_what_is_sent_late() -> None:
    frame_s = FRAME_BYTES / (100 * 125)
    assert together.ratio_bound(100, 10) == pytest.approx((frame_s + 0.008) / 10)
    assert together.ratio_bound(100, 10, [(0, NS // 10), (NS, NS + NS // 20)]) == pytest.approx((frame_s + 0.158) / 10)


@pytest.mark.parametrize("seconds", [3, 10])
def test_the_wrong_limit_is_beyond_the_bound_at_every_rate_also_in_a_disturbed_run(seconds: int) -> None:
    """Or the control of `rates` could pass, and say nothing."""
    pause = (0, int(together.MOST_DISTURBED_S * NS))
    assert all(together.ratio_bound(kbit, seconds, [pause]) < WRONG_SHARE - 1 for kbit in rates.SLOW)


def test_a_disturbed_run_is_forgotten_and_made_once_more() -> None:
    runs = iter([(1.0, 0.5), (2.0, 0.5), (3.0, 0.0)])

    def measure(found: Outcome) -> float:
        value, lost_s = next(runs)
        found.add(value, "s", what="took")
        return lost_s

    outcome = Outcome("any")
    step = together.disturbable("a run", 1.0, measure)
    step.run(outcome)
    assert outcome.find(what="took")[0].samples == [2.0]  # the second one counts, however it went
    assert len(outcome.notes) == 1
    step.run(outcome)
    assert outcome.find(what="took")[0].samples == [2.0, 3.0]
    assert len(outcome.notes) == 1


def test_what_the_processors_did_is_read_from_the_kernel_and_noted() -> None:
    assert together.busy_share((100, 1_000), (150, 1_100)) == 0.5
    assert together.busy_share((100, 1_000), (100, 1_000)) == 0.0
    busy, passed = together.processor_ticks()
    assert 0 < busy <= passed
    outcome = Outcome("any")
    together.disturbable("a run", 1.0, lambda found: float(bool(found.add(1.0, "s", what="took")))).run(outcome)
    assert 0 <= outcome.find(what="busy")[0].samples[0] <= 1


@pytest.mark.parametrize("suite", SUITES)
def test_nothing_measured_is_nothing_claimed_and_nothing_drawn(suite: object) -> None:
    empty = Outcome("empty")
    assert not any(one.holds for one in suite.claims(empty))  # type: ignore[attr-defined]
    assert suite.plots(empty) == []  # type: ignore[attr-defined]


# --- rates ------------------------------------------------------------------------------------------------------


def measured_rates(ours: float = 1.0, wrong: float = 1.1, none: float = 2.0, window: float = 0.9) -> Outcome:
    outcome = Outcome(rates.NAME)
    for limiter, ratio in ((OURS, ours), (WRONG, wrong), (NO_LIMIT, none)):
        for direction in DIRECTIONS:
            labels: dict[str, Label] = {"limiter": limiter, "direction": direction, "kbit": 1_000}
            outcome.add(ratio, "of the limit", what="long run", **labels)
            outcome.add(0.01, "of the limit", what="bound", **labels)
            outcome.add(window, "of what may pass", what="window 10 ms", **labels)
    return outcome


def test_rates_within_the_bound_hold_and_both_controls_are_called_wrong() -> None:
    assert [one.holds for one in rates.claims(measured_rates())] == [True, True, True, True]


@pytest.mark.parametrize(
    ("outcome", "broken"),
    [
        (measured_rates(ours=1.011), 0),
        (measured_rates(ours=0.989), 0),
        (measured_rates(window=1.01), 1),
        (measured_rates(wrong=1.009), 2),
        (measured_rates(none=1.0), 3),
    ],
)
def test_a_rate_or_a_control_on_the_wrong_side_of_the_bound_breaks_its_claim(outcome: Outcome, broken: int) -> None:
    assert [number for number, one in enumerate(rates.claims(outcome)) if not one.holds] == [broken]


# --- sharing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "wanted"), [(2, 2), (15, 2), (100, 10), (4_000, 400)])
def test_a_random_tenth_is_busy_and_at_least_two(count: int, wanted: int) -> None:
    chosen = sharing.busy(count, seed=1)
    assert len(set(chosen)) == len(chosen) == wanted
    assert all(1 <= one <= count for one in chosen)
    assert chosen == sharing.busy(count, seed=1)
    assert count == wanted or chosen != sharing.busy(count, seed=2)


def test_every_user_of_a_crowd_has_an_address_of_its_own() -> None:
    addresses = [sharing.crowd_address(one) for one in range(1, max(map(max, sharing.CROWDS)) + 1)]
    assert len(set(addresses)) == len(addresses)
    assert all(0 < int(one.rsplit(".", 1)[1]) < 255 for one in addresses)


def measured_crowd(low: float, high: float, jain: float) -> Outcome:
    outcome = Outcome(sharing.NAME)
    labels: dict[str, Label] = {"experiment": sharing.CROWD, "limiter": OURS, "links": 100}
    outcome.add(1.0, "s", what="installed", direction="both", **labels)
    for direction in DIRECTIONS:
        for what, value in (("lowest", low), ("highest", high), ("jain", jain), ("bound", 0.02), ("busy", 10)):
            outcome.add(value, "of the limit", what=what, direction=direction, **labels)
    return outcome


@pytest.mark.parametrize(
    ("low", "high", "jain", "holds"),
    [(0.99, 1.01, 0.9999, True), (0.97, 1.0, 0.9999, False), (1.0, 1.03, 0.9999, False), (0.99, 1.01, 0.99, False)],
)
def test_a_crowd_is_judged_by_its_worst_link_and_by_jain(low: float, high: float, jain: float, holds: bool) -> None:
    outcome = measured_crowd(low, high, jain)
    assert [one.holds for one in sharing.claims(outcome)] == [False, False, holds]  # no pair was measured


# --- the others -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kbit", "bound_ms"),
    [
        (32, (14_000 + 2 * FRAME_BYTES) * 8 / 32),  # the room, the frame that was admitted last, one on its way
        (100, (20_000 + 2 * FRAME_BYTES) * 8 / 100),
        (10_000, 100 + 2 * FRAME_BYTES * 8 / 10_000),
    ],
)
def test_no_packet_may_wait_longer_than_a_full_queue_drains(kbit: int, bound_ms: float) -> None:
    assert latency.delay_bound_ms(kbit) == pytest.approx(bound_ms)


def test_only_questions_of_the_steady_state_count() -> None:
    answers = Arrivals()
    for asked_ns, took_ms in ((0, 1), (NS, 30), (2 * NS, 20)):
        answers.sent_ns.append(asked_ns)
        answers.arrived_ns.append(asked_ns + took_ms * 1_000_000)
    assert latency.round_trips_ms(answers, NS) == [20.0, 30.0]


@pytest.mark.parametrize(("late_ms", "holds"), [(0.0, True), (40.0, False)])
def test_a_packet_that_waited_longer_breaks_the_claim(late_ms: float, holds: bool) -> None:
    outcome = Outcome(latency.NAME)
    labels: dict[str, Label] = {"experiment": "data", "limiter": OURS, "direction": DIRECTIONS[0], "kbit": 500}
    outcome.add(latency.delay_bound_ms(500) + late_ms, "ms", what="99 %", **labels)
    outcome.add(900.0, "ms", what="worst", **labels)  # one packet: told, not judged
    outcome.add(20.0, "ms", what="longest pause", **labels)  # which is allowed, and 8 ms for late timers
    (claim,) = latency.claims(outcome)
    assert claim.holds == holds
    assert "worst packet" in claim.measured or not holds


@pytest.mark.parametrize(("arrived", "downs", "holds"), [(40, 0, True), (39, 0, False), (40, 1, False)])
def test_one_lost_heartbeat_breaks_the_claim(arrived: int, downs: int, holds: bool) -> None:
    outcome = Outcome(heartbeats.NAME)
    for limiter, seen, down in ((OURS, arrived, downs), (THESIS, 3, 2)):
        labels: dict[str, Label] = {"limiter": limiter, "direction": DIRECTIONS[0], "kbit": 32}
        outcome.add(40, "packets", what="due", **labels)
        outcome.add(seen, "packets", what="arrived", **labels)
        outcome.add(down, "times", what="down", **labels)
    assert [one.holds for one in heartbeats.claims(outcome)] == [holds, True]


@pytest.mark.parametrize(("answered", "lost", "holds"), [(20, 0, True), (19, 0, False), (20, 1, False)])
def test_one_lost_packet_of_a_bystander_breaks_the_claim(answered: int, lost: int, holds: bool) -> None:
    outcome = Outcome(bystander.NAME)
    for limiter, gone in ((OURS, lost), (THESIS, 900)):
        labels: dict[str, Label] = {"limiter": limiter, "target": bystander.SAME}
        outcome.add(20, "questions", what="asked", kind="udp", direction="both", **labels)
        outcome.add(answered, "questions", what="answered", kind="udp", direction="both", **labels)
        outcome.add(1_000, "packets", what="sent", direction=DIRECTIONS[0], **labels)
        outcome.add(gone, "packets", what="lost", direction=DIRECTIONS[0], **labels)
    assert [one.holds for one in bystander.claims(outcome)] == [holds, True]


def test_headers_leave_so_much_of_a_limit_for_payload() -> None:
    assert protocols.header_share(protocols.UDP6) == pytest.approx(1452 / 1514)
    assert protocols.header_share(protocols.TCP_8) == pytest.approx(1448 / 1514)
    assert protocols.header_share(protocols.TCP6_1) == pytest.approx(1428 / 1514)
    assert protocols.header_share(protocols.QUIC) == pytest.approx(1200 / 1242)


@pytest.mark.parametrize(("goodput", "holds"), [(1.0, True), (0.94, False), (1.06, False)])
def test_goodput_is_judged_on_both_sides(goodput: float, holds: bool) -> None:
    outcome = Outcome(protocols.NAME)
    for kind in protocols.KINDS:
        labels: dict[str, Label] = {"experiment": kind, "limiter": OURS, "direction": DIRECTIONS[0], "kbit": 500}
        outcome.add(goodput, "of what headers leave", what="goodput", **labels)
        outcome.add(0.05, "of what headers leave", what="bound", **labels)
    assert [one.holds for one in protocols.claims(outcome)] == [holds, holds]
