"""The table of targets says "held" only where the samples do."""

from __future__ import annotations

import pytest

from bench import targets
from bench.changes import ATTACH
from bench.core import Outcome
from bench.suites import install, packet, save, service
from bench.wires import FROM_USER, OURS, THESIS, TO_USER, UDP


def packet_outcome(hot_ns: float) -> Outcome:
    outcome = Outcome("packet")
    for size, cost in ((1000, 1000.0), (4000, hot_ns)):
        outcome.add(cost, "ns", traffic="hot", family=4, size=size, variant=packet.OURS)
        outcome.add(1000.0, "ns", traffic="hot", family=4, size=size, variant=packet.FLOOR)
    outcome.add(9999.0, "ns", traffic="hot", family=6, size=4000, variant=packet.OURS)
    return outcome


def test_the_cost_of_the_classes_themselves_is_told_beside_the_target() -> None:
    outcome = packet_outcome(1100.0)
    for variant, cost in ((packet.NO_LOOKUP, 1090.0), (packet.FLOOR_GIVEN, 1090.0)):
        outcome.add(cost, "ns", traffic="hot", family=4, size=4000, variant=variant)
    (verdict,) = targets.verdicts([outcome])
    assert verdict.measured == "1.10x (1,100 to 1,000 ns); 1.10x of the same classes without any lookup"


def install_outcome(*, writes: int = 0, sends: int = 2, until_s: float = 0.004) -> Outcome:
    outcome = Outcome("install")
    for what, ours, kernel in ((install.INSTALL, 12.9, 10.0), (install.NO_OP, 0.19, 0.1)):
        outcome.add(ours, "s", what=what, size=4000, variant=install.OURS)
        outcome.add(kernel, "s", what=what, size=4000, variant=install.KERNEL)
    outcome.add(writes, "writes", what="writes with nothing to do", size=4000, variant=install.OURS)
    outcome.add(until_s, "s", what=install.CHANGE, size=4000, variant=install.UNTIL)
    outcome.add(0.001, "s", what=install.CHANGE, size=4000, variant=install.APPLY)
    outcome.add(sends, "sends", what="change sends", size=4000, variant=install.OURS)
    return outcome


@pytest.mark.parametrize(("hot_ns", "is_held"), [(1099.0, True), (1101.0, False)])
def test_packet_cost_is_judged_at_the_largest_size_of_ipv4(hot_ns: float, is_held: bool) -> None:
    (verdict,) = targets.verdicts([packet_outcome(hot_ns)])
    assert "4000 links, hot" in verdict.target
    assert verdict.is_held is is_held
    assert verdict.measured == f"{hot_ns / 1000:.2f}x ({hot_ns:,.0f} to 1,000 ns)"


def test_install_no_op_and_change_are_held_within_their_factors() -> None:
    verdicts = targets.verdicts([install_outcome()])
    assert [one.is_held for one in verdicts] == [True, True, True]
    assert verdicts[0].measured == "1.29x (12,900 to 10,000 ms)"
    assert verdicts[1].measured == "0 writes, 1.90x (190 to 100 ms)"


@pytest.mark.parametrize("broken", [{"writes": 1}, {"sends": 3}, {"until_s": 0.006}])
def test_one_write_one_send_or_a_millisecond_too_many_misses_a_target(broken: dict[str, float]) -> None:
    verdicts = targets.verdicts([install_outcome(**broken)])  # type: ignore[arg-type]  # int or float by name
    assert [one.is_held for one in verdicts].count(False) == 1


def test_losses_count_only_where_something_was_changed_in_place() -> None:
    outcome = Outcome("hitless")
    for action, lost in (("ours: change B", 0), (ATTACH, 3), ("the thesis' sequence", 20)):
        outcome.add(5_000, "packets", what="sent", action=action, links=3, direction=TO_USER)
        outcome.add(lost, "packets", what="lost", action=action, links=3, direction=TO_USER)
    (verdict,) = targets.verdicts([outcome])
    assert (verdict.measured, verdict.is_held) == ("0 of 5,000 packets lost", True)
    outcome.add(1, "packets", what="lost", action="ours: add a link", links=3, direction=TO_USER)
    (verdict,) = targets.verdicts([outcome])
    assert (verdict.measured, verdict.is_held) == ("1 of 5,000 packets lost", False)


def accuracy_outcome(long_run: float, window: float, tool: str = OURS) -> Outcome:
    outcome = Outcome("accuracy")
    labels = {"tool": tool, "protocol": UDP, "kbit": 1000, "direction": TO_USER}
    outcome.add(long_run, "of the limit", what="long run", **labels)  # type: ignore[arg-type]  # labels are fine
    outcome.add(window, "of what may pass", what="window 10 ms", **labels)  # type: ignore[arg-type]
    return outcome


@pytest.mark.parametrize(
    ("long_run", "window", "held"),
    [(0.991, 1.0, [True, True]), (0.989, 0.9, [False, True]), (1.011, 0.9, [False, True]), (1.0, 1.01, [True, False])],
)
def test_accuracy_is_missed_on_either_side(long_run: float, window: float, held: list[bool]) -> None:
    assert [one.is_held for one in targets.verdicts([accuracy_outcome(long_run, window)])] == held


def test_the_worst_rate_is_the_farthest_from_its_limit() -> None:
    outcome = accuracy_outcome(1.002, 0.9)
    labels = {"tool": OURS, "protocol": UDP, "kbit": 500, "direction": FROM_USER}
    outcome.add(0.97, "of the limit", what="long run", **labels)  # type: ignore[arg-type]
    assert targets.verdicts([outcome])[0].measured == "worst -3.00%"


def test_a_peer_that_misses_is_no_miss_of_ours() -> None:
    assert targets.verdicts([accuracy_outcome(0.5, 9.0, tool=THESIS)]) == []


@pytest.mark.parametrize(("arrived", "down", "is_held"), [(40, 0, True), (39, 0, False), (40, 1, False)])
def test_one_missing_heartbeat_misses_the_target(arrived: int, down: int, is_held: bool) -> None:
    outcome = Outcome("heartbeats")
    for tool, count in ((OURS, arrived), (THESIS, 1)):
        for what, value in (("due", 40), ("arrived", count), ("down", down)):
            outcome.add(value, "packets", what=what, tool=tool, kbit=100, payload=200, direction="to user")
    (verdict,) = targets.verdicts([outcome])
    assert (verdict.measured, verdict.is_held) == (f"{arrived} of 40, {down} times down", is_held)


def test_the_slowest_repair_counts() -> None:
    outcome = Outcome("faults")
    outcome.add(50.0, "ms", what="healed", fault="a", left="no")
    assert targets.verdicts([outcome])[0].is_held
    outcome.add(1001.0, "ms", what="healed", fault="b", left="no")
    (verdict,) = targets.verdicts([outcome])
    assert (verdict.measured, verdict.is_held) == ("the slowest of 2 faults: 1 s", False)


def test_the_table_marks_what_was_missed() -> None:
    rows = targets.table([packet_outcome(1200.0)]).rows
    assert [row[2] for row in rows] == ["**no**"]


@pytest.mark.parametrize(
    ("samples_ms", "anew", "is_held"),
    [((400.0, 900.0, 5000.0), 0, True), ((900.0, 1000.0, 1000.0), 0, False), ((400.0,), 1, False)],
)
def test_save_is_held_by_its_median_below_a_second_while_nothing_is_restarted(
    samples_ms: tuple[float, ...], anew: int, is_held: bool
) -> None:
    outcome = Outcome("save")
    for sample in samples_ms:
        outcome.add(sample, "ms", what=save.FROM_REQUEST, setup=save.EMBEDDED, variant=save.OURS)
    outcome.add(5000.0, "ms", what=save.FROM_REQUEST, setup=save.EMBEDDED, variant=save.STOCK)
    outcome.add(anew, "attachment points", what=save.ANEW, setup=save.EMBEDDED)
    (verdict,) = targets.verdicts([outcome])
    assert verdict.is_held is is_held
    assert "polling every 10 s: 5 s" in verdict.measured


@pytest.mark.parametrize(("ours", "writes", "is_held"), [(500.0, 0.0, True), (499.0, 0.0, False), (900.0, 0.01, False)])
def test_polls_are_held_by_five_times_the_stock_way_and_no_row(ours: float, writes: float, is_held: bool) -> None:
    outcome = Outcome("service")
    for variant, answers in ((service.US, ours), (service.US_OFTEN, 9999.0), (service.PEER, 100.0)):
        outcome.add(answers, "answers/s", what="304 per processor", kind=service.POSTGRESQL, variant=variant)
    outcome.add(1.0, "statements", what="writes", variant=service.US, status=200, at_once=1)
    outcome.add(writes, "statements", what="writes", variant=service.US, status=304, at_once=1)
    outcome.add(0.0, "statements", what="writes", variant=service.US, status=304, at_once=32)
    (verdict,) = targets.verdicts([outcome])
    assert (verdict.measured, verdict.is_held) == (f"{writes:g} rows written, {ours / 100:.1f}x", is_held)
