"""The table of targets says "held" only where the samples do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab.bench import targets
from lab.bench.changes import ATTACH
from lab.bench.core import Outcome
from lab.bench.suites import accuracy, datagrams, fairness, hitless, install, packet, save, service, total
from lab.bench.wires import FROM_USER, OURS, THESIS, TO_USER, UDP

INSTALLED = {
    (install.INSTALL, OURS): 2.5,
    (install.INSTALL, install.KERNEL): 2.0,
    (install.CHANGE, OURS): 0.0019,
    (install.NO_OP, OURS): 0.040,
    (install.NO_OP, install.KERNEL): 0.025,
}


def held(outcome: Outcome) -> list[bool]:
    return [one.is_held for one in targets.verdicts([outcome])]


def install_outcome(
    more: Mapping[tuple[str, str], float], *, kb: float = 8.0, dumps: int = 0, writes: int = 0
) -> Outcome:
    outcome = Outcome(install.NAME)
    for (what, variant), seconds in {**INSTALLED, **more}.items():
        outcome.add(seconds, "s", what=what, size=4000, variant=variant)
        outcome.add(seconds * 9, "s", what=what, size=1000, variant=variant)  # the largest size is judged
    outcome.add(kb * 4_000_000, "bytes", what=install.MEMORY, part="all", size=4000, variant=OURS)
    outcome.add(dumps, "dumps", what=install.DUMPED, size=4000, variant=OURS)
    outcome.add(writes, "writes", what=install.WRITES, size=4000, variant=OURS)
    return outcome


def test_installing_is_judged_at_the_largest_size_beside_the_kernel() -> None:
    verdicts = targets.verdicts([install_outcome({})])
    assert [one.is_held for one in verdicts] == [True] * 5
    assert verdicts[0].measured == "2.5 s"
    assert verdicts[1].measured == "1.25x (2,500 to 2,000 ms)"
    assert verdicts[2].measured == "8 kB"
    assert verdicts[4].measured == "0 writes, 1.60x (40 to 25 ms)"


@pytest.mark.parametrize(
    ("more", "missed"),
    [
        ({(install.INSTALL, OURS): 3.01, (install.INSTALL, install.KERNEL): 2.9}, 0),
        ({(install.INSTALL, OURS): 2.9}, 1),
        ({(install.CHANGE, OURS): 0.0021}, 3),
        ({(install.NO_OP, OURS): 0.051, (install.NO_OP, install.KERNEL): 0.05}, 4),
        ({(install.NO_OP, install.KERNEL): 0.019}, 4),
    ],
)
def test_a_little_too_slow_misses(more: Mapping[tuple[str, str], float], missed: int) -> None:
    assert [number for number, one in enumerate(held(install_outcome(more))) if not one] == [missed]


def test_too_much_memory_a_dump_or_a_write_misses() -> None:
    assert held(install_outcome({}, kb=10.1)) == [True, True, False, True, True]
    assert held(install_outcome({}, dumps=1)) == [True, True, True, False, True]
    assert held(install_outcome({}, writes=1)) == [True, True, True, True, False]


PACKETS = {
    (packet.INSTANT, packet.NOBODY, TO_USER): 1300.0,
    (packet.INSTANT, packet.NOBODY, FROM_USER): 1300.0,
    (OURS, packet.NOBODY, TO_USER): 1420.0,
    (OURS, packet.NOBODY, FROM_USER): 1420.0,
    (OURS, packet.RANDOM, TO_USER): 3300.0,
    (OURS, packet.RANDOM, FROM_USER): 3000.0,
    (OURS, packet.HOT, TO_USER): 1800.0,
    (OURS, packet.HOT, FROM_USER): 1850.0,
    (THESIS, packet.HOT, TO_USER): 1800.0,
    (THESIS, packet.HOT, FROM_USER): 1850.0,
}


def packet_outcome(more: Mapping[tuple[str, str, str], float], flooded: float = 1.05) -> Outcome:
    outcome = Outcome(packet.NAME)
    for (variant, traffic, way), ns in {**PACKETS, **more}.items():
        outcome.add(ns, "ns", variant=variant, traffic=traffic, direction=way, size=4000, family=4)
    for variant, factor in ((OURS, flooded), (packet.INSTANT, 1.01)):
        for traffic, ns in ((packet.NOBODY, 1000.0), (packet.FLOODED, 1000.0 * factor)):
            labels = {"variant": variant, "direction": TO_USER, "size": 4000, "family": 4, "part": "flood"}
            outcome.add(ns, "ns", traffic=traffic, **labels)  # type: ignore[arg-type]  # labels are fine
    return outcome


def test_packets_at_their_bounds_are_held() -> None:
    assert held(packet_outcome({})) == [True] * 6


@pytest.mark.parametrize(
    ("more", "flooded", "missed"),
    [
        ({(OURS, packet.NOBODY, TO_USER): 1421.0}, 1.0, [0]),
        ({}, 1.051, [1]),
        ({(OURS, packet.NOBODY, FROM_USER): 1421.0}, 1.0, [2]),
        ({(OURS, packet.HOT, TO_USER): 1801.0}, 1.0, [3]),
        ({(THESIS, packet.HOT, FROM_USER): 1849.0}, 1.0, [4]),
        ({(OURS, packet.RANDOM, FROM_USER): 2990.0}, 1.0, [5]),
    ],
)
def test_a_packet_that_costs_a_little_too_much_misses(
    more: Mapping[tuple[str, str, str], float], flooded: float, missed: list[int]
) -> None:
    assert [number for number, one in enumerate(held(packet_outcome(more, flooded))) if not one] == missed


def test_only_what_ours_loses_is_a_loss() -> None:
    outcome = Outcome(hitless.NAME)
    for action, lost in (("ours: change B", 0), ("ours: nothing", 2), (ATTACH, 3), ("the thesis' sequence", 20)):
        outcome.add(5_000, "packets", what="sent", action=action, links=3, direction=TO_USER)
        outcome.add(lost, "packets", what="lost", action=action, links=3, direction=TO_USER)
    (verdict,) = targets.verdicts([outcome])
    assert (verdict.measured, verdict.is_held) == (
        "0 of 5,000 packets lost; when the clsact comes or goes 3 of 5,000",
        True,
    )
    outcome.add(1, "packets", what="lost", action="ours: add a link", links=3, direction=TO_USER)
    assert held(outcome) == [False]


def accuracy_outcome(slope: float, window: float, *, kbit: int = 1000, tool: str = OURS) -> Outcome:
    outcome = Outcome(accuracy.NAME)
    labels = {"tool": tool, "protocol": UDP, "kbit": kbit, "direction": TO_USER}
    outcome.add(slope, "of the limit", what="slope", **labels)  # type: ignore[arg-type]  # labels are fine
    outcome.add(window, "of what may pass", what="window", **labels)  # type: ignore[arg-type]
    return outcome


@pytest.mark.parametrize(
    ("slope", "window", "expected"),
    [
        (0.9981, 1.0, [True, True]),
        (0.9979, 0.9, [False, True]),
        (1.0021, 0.9, [False, True]),
        (1.0, 1.01, [True, False]),
    ],
)
def test_accuracy_is_missed_on_either_side(slope: float, window: float, expected: list[bool]) -> None:
    assert held(accuracy_outcome(slope, window)) == expected


def test_a_slow_link_may_be_half_a_per_cent_off() -> None:
    assert held(accuracy_outcome(1.0049, 0.5, kbit=32)) == [True, True]
    assert held(accuracy_outcome(1.0051, 0.5, kbit=32)) == [False, True]


def test_a_peer_that_misses_is_no_miss_of_ours() -> None:
    assert targets.verdicts([accuracy_outcome(0.5, 9.0, tool=THESIS)]) == []


@pytest.mark.parametrize(("share", "gap", "expected"), [(0.99, 1.0, [True, True]), (0.98, 1.01, [False, False])])
def test_one_size_that_does_not_arrive_misses(share: float, gap: float, expected: list[bool]) -> None:
    outcome = Outcome(datagrams.NAME)
    for size, here, longest in ((1_000, 1.0, 0.5), (65_507, share, gap)):
        labels = {"tool": OURS, "kbit": 500, "payload": size, "direction": TO_USER}
        outcome.add(here, "", what="share", **labels)  # type: ignore[arg-type]  # labels are fine
        outcome.add(longest, "", what="gap share", **labels)  # type: ignore[arg-type]
    assert held(outcome) == expected


def fairness_outcome(jain: float, delay: float, lost: int) -> Outcome:
    outcome = Outcome(fairness.NAME)
    for kbit, index in ((500, jain), (5_000, 0.98)):
        for way in (TO_USER, FROM_USER):
            value = index if way == FROM_USER else 1.0
            outcome.add(value, "index", what="jain", tool=OURS, kbit=kbit, direction=way)
            outcome.add(delay, "ms", what="delay", tool=OURS, kbit=kbit, direction=way)
    for what, value in (("sent", 100), ("lost", lost)):
        outcome.add(value, "packets", what=what, tool=OURS, kbit=32, direction=TO_USER, payload=1200)
    return outcome


def test_fairness_is_judged_in_the_worse_direction() -> None:
    verdicts = targets.verdicts([fairness_outcome(0.9, 500, 0)])
    assert verdicts[0].measured == "0.900, 500 ms"
    assert [one.is_held for one in verdicts] == [True, True, True]
    assert held(fairness_outcome(0.89, 500, 0)) == [False, True, True]
    assert held(fairness_outcome(0.9, 501, 0)) == [False, True, True]
    assert held(fairness_outcome(0.9, 500, 1)) == [True, True, False]


@pytest.mark.parametrize(
    ("off", "large", "together", "expected"),
    [(-0.03, 0.97, 1.03, [True, True, True]), (0.031, 0.96, 1.031, [False, False, False])],
)
def test_a_cap_is_judged_by_its_worst_link(off: float, large: float, together: float, expected: list[bool]) -> None:
    outcome = Outcome(total.NAME)
    for place, value in enumerate((0.001, off)):
        outcome.add(value, "", what="off", case="2 links", link=place, direction=TO_USER)
    outcome.add(large, "", what="large", case="large", direction=TO_USER)
    outcome.add(together, "", what="all", case="2 links", direction=TO_USER)
    assert held(outcome) == expected


def test_the_slowest_repair_counts() -> None:
    outcome = Outcome("faults")
    outcome.add(50.0, "ms", what="healed", fault="a", left="no")
    assert targets.verdicts([outcome])[0].is_held
    outcome.add(1001.0, "ms", what="healed", fault="b", left="no")
    (verdict,) = targets.verdicts([outcome])
    assert (verdict.measured, verdict.is_held) == ("the slowest of 2 faults: 1 s", False)


def test_the_table_marks_what_was_missed() -> None:
    rows = targets.table([accuracy_outcome(1.0, 1.2)]).rows
    assert [row[2] for row in rows] == ["yes", "**no**"]


@pytest.mark.parametrize(
    ("samples_ms", "anew", "is_held"),
    [((100.0, 290.0, 5000.0), 0, True), ((290.0, 300.0, 300.0), 0, False), ((100.0,), 1, False)],
)
def test_save_is_held_by_its_median_below_three_tenths_of_a_second_while_nothing_is_restarted(
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
