"""Fragments: what is sent behind whom, how candidates are built, and verdicts that can fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import pytest

from lab.bench.core import Label, Outcome
from lab.evaluation import candidates, taps
from lab.evaluation.bed import Bed, Wire
from lab.evaluation.core import DIRECTIONS, EvaluationScale
from lab.evaluation.fragment_runs import LARGEST_BYTES, SIZES, all_slots, sizes_slots, usable_candidates
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WRONG
from lab.evaluation.suites import fragments

FULL, QUICK = EvaluationScale(quick=False), EvaluationScale(quick=True)


def test_all_sizes_and_the_largest_have_a_wire_each() -> None:
    assert [one.payload_bytes for one in sizes_slots(FULL)] == [*SIZES, LARGEST_BYTES]
    assert [one.wire for one in all_slots(FULL)] == list(range(1, 18))


def test_quick_leaves_out_sizes_not_experiments() -> None:
    assert len(sizes_slots(QUICK)) < len(sizes_slots(FULL))
    assert {one.experiment for one in all_slots(QUICK)} == {"sizes", "limits", "IPv6"}


def test_no_link_is_offered_more_than_the_machine_carries_for_all() -> None:
    assert max(one.kbit * one.overload for one in all_slots(FULL)) == 20_000


def test_headers_and_fragments_leave_97_6_per_cent_for_10_000_bytes() -> None:
    slot = next(one for one in sizes_slots(FULL) if one.payload_bytes == 10_000)
    assert slot.bound_kbit == pytest.approx(500 * 10_000 / 10_246)


# --- candidates ---------------------------------------------------------------------------------------------------


class Machine:
    """Takes down what it is told to run."""

    def __init__(self) -> None:
        self.ap, self.said = self, list[str]()

    def run(self, *argv: str, stdin: str = "") -> None:
        self.said += [" ".join(argv), *stdin.splitlines()]

    def ip_batch(self, lines: Iterable[str]) -> None:
        self.said += lines

    def wire(self, number: int) -> Wire:
        return Wire(1, number)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def install(name: str, machine: Machine) -> list[str]:
    candidate = next(one for one in candidates.CANDIDATES if one.name == name)
    candidate.install(cast(Bed, machine), {1: 500})
    return machine.said


def test_a_leaf_hangs_below_one_class_for_each_wire_and_direction(machine: Machine) -> None:
    said = install(candidates.depth_name(64), machine)
    rate = "rate 500kbit ceil 500kbit burst 4000 cburst 4000 quantum 1514"
    for dev in ("eth1", "ifb1"):
        assert f"class add dev {dev} parent 1: classid 1:1 htb {rate}" in said
        assert f"qdisc add dev {dev} parent 1:1 handle 11: bfifo limit 64000" in said
    assert said[-1].endswith("action mirred egress redirect dev ifb1")


def test_a_leaf_may_drop_at_its_head(machine: Machine) -> None:
    dropping = "qdisc add dev ifb1 parent 1:1 handle 11: pfifo_head_drop limit 42"
    assert dropping in install(candidates.HEAD_DROP, machine)


def test_nftables_limits_whole_datagrams_in_both_directions(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "nft_missing", lambda: None)
    rules = [one for one in install(candidates.NFT, machine) if "limit rate" in one]
    over = "limit rate over 62500 bytes/second drop"
    assert rules == [
        f"ip saddr 10.1.1.2 udp sport 50001 udp dport 51001 ip daddr 10.1.1.1 {over}",
        f"ip daddr 10.1.1.2 udp dport 50001 udp sport 51001 ip saddr 10.1.1.1 {over}",
    ]
    assert any("ct state" in one for one in machine.said)  # without it nobody puts fragments together


def test_without_nftables_the_others_are_measured_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.evaluation.fragment_runs.nft_missing", lambda: "nft is missing")
    outcome = Outcome("fragments")
    names = [one.name for one in usable_candidates(outcome)]
    assert candidates.NFT not in names
    assert len(names) == len(candidates.CANDIDATES) - 1
    assert outcome.notes == ["nft is missing"]


# --- taps ---------------------------------------------------------------------------------------------------------


def test_packets_come_out_of_the_ifb_behind_ours_and_out_of_the_wire_behind_nobody() -> None:
    wire = Wire(1, 3)
    assert [taps.device_behind(one, wire) for one in (OURS, WRONG, THESIS, NO_LIMIT)] == [
        "slbw1", "slbw1", "ifb3", "eth3",
    ]  # fmt: skip


def test_excess_is_what_a_bucket_that_leaks_at_the_rate_held_at_most() -> None:
    ms = 1_000_000
    at_the_rate = range(0, 1000 * ms, 24 * ms)  # 1500 bytes every 24 ms are 500 kbit/s
    assert taps.excess_bytes(at_the_rate, [1500] * len(at_the_rate), 500) == 1500
    assert taps.excess_bytes([0, 0, 0, 24 * ms], [1500] * 4, 500) == 4500
    assert taps.excess_bytes([0, 1000 * ms, 1000 * ms], [1500] * 3, 500) == 3000
    assert taps.excess_bytes([], [], 500) == 0


# --- verdicts -----------------------------------------------------------------------------------------------------

GOOD: Mapping[str, tuple[float, float, float]] = {  # share within the MTU, share above it, excess
    OURS: (1.0, 0.97, 5514),
    THESIS: (1.0, 0.1, 3013),
    WRONG: (1.1, 0.0, 70_000),
    NO_LIMIT: (4.0, 4.0, 0),
}


def outcome_of(values: Mapping[str, tuple[float, float, float]], zeros: int = 0) -> Outcome:
    found = Outcome("fragments")
    for limiter, (within, above, excess) in values.items():
        for direction in DIRECTIONS:
            for size in (1000, 2000, 10_000, LARGEST_BYTES):
                labels: dict[str, Label] = {
                    "experiment": "sizes", "limiter": limiter, "direction": direction, "payload": size, "kbit": 500
                }  # fmt: skip
                share = within if size == 1000 else above
                for _ in range(10):
                    found.add(share * 488, "kbit/s", what="sample", repetition=1, **labels)
                found.add(share, "of what headers leave", what="share", **labels)
                found.add(zeros, "samples", what="zeros", **labels)
            if excess:
                found.add(excess, "bytes", what="excess", **labels)
    return found


def failing(values: Mapping[str, tuple[float, float, float]], zeros: int = 0) -> list[str]:
    return [one.sentence for one in fragments.claims(outcome_of(values, zeros)) if not one.holds]


def test_good_figures_hold() -> None:
    assert failing(GOOD) == []


def test_less_than_95_per_cent_in_the_mean_fails() -> None:
    (mean,) = failing(GOOD | {OURS: (0.9495, 0.9495, 4542)})
    assert "in the mean" in mean


def test_a_single_size_far_below_fails_although_the_mean_is_well() -> None:
    found = outcome_of(GOOD)
    series = found.find(limiter=OURS, what="share", payload=2000, direction=DIRECTIONS[1])
    series[0].samples[:] = [0.9]
    assert ["by itself" in one.sentence for one in fragments.claims(found) if not one.holds] == [True]


def test_one_zero_sample_fails() -> None:
    (zero,) = failing(GOOD, zeros=1)
    assert "zero" in zero


def test_a_window_above_the_limit_fails() -> None:
    (window,) = failing(GOOD | {OURS: (1.0, 0.97, 7029)})
    assert "window" in window


def test_a_judge_that_lets_a_control_pass_fails() -> None:
    assert len(failing(GOOD | {WRONG: (1.0, 0.0, 4542)})) == 2  # the mean, and windows
    assert failing(GOOD | {NO_LIMIT: (1.0, 1.0, 0)}) == ["The judge calls no limit wrong."]


def test_a_thesis_that_does_not_fail_is_not_what_the_thesis_saw() -> None:
    (seen,) = failing(GOOD | {THESIS: (1.0, 0.96, 3013)})
    assert "6.3.3" in seen


def test_nothing_measured_proves_nothing() -> None:
    assert not any(one.holds for one in fragments.claims(Outcome("fragments")))


def test_the_plot_shows_who_was_measured() -> None:
    outcome = outcome_of(GOOD)
    (plot,) = fragments.plots(outcome)
    assert sorted(plot.lines) == sorted(f"{who}, {way}" for who in (OURS, THESIS) for way in DIRECTIONS)
