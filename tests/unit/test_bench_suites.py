"""What the suites send, and the arithmetic of what arrived."""

from __future__ import annotations

import pytest

from bandwidth_config import Limits
from lab.bench.core import Outcome
from lab.bench.engines import entries_of
from lab.bench.rtnl import Message, Recording
from lab.bench.suites import accuracy, datagrams, total
from lab.bench.suites.install import memory_per_link, writes_again
from lab.bench.world import make_links
from measuring.arrivals import Arrivals
from measuring.framing import goodput_bound, wire_bytes

MS = 1_000_000


def test_goodput_counts_from_the_first_datagram_to_the_last() -> None:
    apart_ns = round(wire_bytes(10_000, family=4) * 8 / 500 * MS)
    arrivals = Arrivals()
    for number in range(5):
        arrivals.arrived_ns.append(7 * MS + number * apart_ns)
        arrivals.payload_bytes.append(10_000)
        arrivals.sequence.append(number)
        arrivals.sent_ns.append(0)
    assert datagrams.share_of(arrivals, 500, 10_000) == pytest.approx(1.0, rel=1e-6)
    assert datagrams.share_of(Arrivals(), 500, 10_000) == 0.0
    assert goodput_bound(500, 10_000) == pytest.approx(488, abs=0.1)


def test_the_largest_datagram_takes_a_second_at_500_kbit() -> None:
    assert datagrams.datagram_ms(500, 65_507) == pytest.approx(1072.5, abs=1)


def test_links_share_a_cap_as_their_limits_and_silent_ones_leave_theirs() -> None:
    by_name = {case.name: case.shares() for case in total.CASES}
    assert by_name["2 links, 1:10"] == pytest.approx({0: 1000 / 11, 1: 10_000 / 11})
    assert by_name["3 links, one silent"] == pytest.approx({0: 200, 2: 800})
    assert by_name["3 links below the cap"] == {0: 500, 1: 1_000, 2: 2_000}
    assert all(sum(one.shares().values()) <= one.cap_kbit + 0.001 for one in total.CASES)


def test_the_slope_begins_when_the_burst_is_spent() -> None:
    assert accuracy.warm_up_s(32) == pytest.approx(0.5 + 1.0)  # 4000 bytes at 4000 bytes/s beyond the limit
    assert accuracy.warm_up_s(100_000) == pytest.approx(0.5 + 0.004 / 0.3)


def test_a_gigabit_is_judged_where_no_limit_moves_twice_as_much() -> None:
    outcome = Outcome("accuracy")
    for way, free in (("to user", 1.9), ("from user", 2.0)):
        for tool, share in ((accuracy.OURS, 1.001), (accuracy.NO_LIMIT, free)):
            labels = {"tool": tool, "protocol": "TCP", "kbit": accuracy.GIGABIT, "direction": way}
            outcome.add(share, "of the limit", what="slope", **labels)
    assert accuracy.gigabit_deviations(outcome) == {"1 Gbit/s from user": pytest.approx(0.001)}


def test_filters_are_not_sent_again_since_their_program_belongs_to_another_process() -> None:
    recording = Recording()
    for kind in (40, 44, 36):
        recording.sends.append(b"".join(Message(kind, 5, b"").body for _ in ()) + packed(kind))
    assert [one.kind for one in writes_again(recording)] == [40, 36]


def packed(kind: int) -> bytes:
    return (16).to_bytes(4, "little") + kind.to_bytes(2, "little") + bytes(10)


def test_memory_is_told_for_each_link() -> None:
    outcome = Outcome("install")
    outcome.add(4_000_000, "bytes", what="kernel memory", part="all", size=400, variant="ours")
    assert memory_per_link(outcome, 400, "ours") == 10_000
    assert memory_per_link(outcome, 400, "tc -batch") is None


def test_an_entry_has_both_limits_only_where_they_differ() -> None:
    links = make_links(2, kbit=500)
    links[2] = links[2].with_limits(Limits(700, 300))
    entries = entries_of(links)
    assert entries["1"]["Bandwidth"] == 500
    assert "Bandwidth-To-User" not in entries["1"]
    assert (entries["2"]["Bandwidth"], entries["2"]["Bandwidth-To-User"]) == (300, 700)
