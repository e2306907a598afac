"""The engine builds its tree, keeps it, repairs it, changes one limit in it, and leaves nothing."""

from __future__ import annotations

import pytest

from ap_agent.dataplane.outcome import LinkChange, Readback
from ap_agent.dataplane.wanted import Wanted
from bandwidth_config import Limits
from tests.kernel.engine_bed import U2, EngineBed, link, wanted

TWO = wanted(link(7, 500, 1000), link(8, 0, 2000, ip=U2))


def classes(bed: EngineBed, dev: str) -> list[str]:
    """`51b0:7 500Kbit` of each class."""
    lines = bed.tc("class", "show", "dev", dev).splitlines()
    return sorted(f"{line.split()[2]} {line.split()[line.split().index('rate') + 1]}" for line in lines)


def test_a_first_pass_builds_all_of_it_and_a_second_writes_nothing(bed: EngineBed) -> None:
    first = bed.enforce(TWO)
    assert (first.is_ok, first.problems, first.failed) == (True, (), {})
    assert first.devices == ("eth0", "eth1")
    assert first.readback == {
        7: (Readback(500, 0, 0), Readback(1000, 0, 0)),
        8: (Readback(0, 0, 0), Readback(2000, 0, 0)),
    }
    assert classes(bed, "slbw0") == ["51b0:7 500Kbit"]
    assert classes(bed, "slbw1") == ["51b0:1007 1Mbit", "51b0:1008 2Mbit"]
    second = bed.enforce(TWO)
    assert (second.writes, second.plan.is_empty, second.readback) == (0, True, first.readback)


def test_a_plan_changes_nothing_and_says_what_a_pass_would_do(bed: EngineBed) -> None:
    before = bed.snapshot()
    planned = bed.plan(TWO)
    assert bed.snapshot() == before
    assert not bed.maps_dir.exists()
    assert planned.plan.links == (LinkChange(7, None, Limits(500, 1000)), LinkChange(8, None, Limits(0, 2000)))
    done = bed.enforce(TWO)
    assert [str(one) for one in done.plan.operations] == [str(one) for one in planned.plan.operations]
    assert done.writes == len(planned.plan.operations)


def test_one_changed_limit_is_two_writes_of_which_packets_see_nothing(bed: EngineBed) -> None:
    bed.enforce(TWO)
    segments = {name: one[0] for name, one in bed.engine.counters().items()}
    changed = wanted(link(7, 600, 1000), TWO.links[8])
    outcome = bed.enforce(changed, is_settled=True)
    assert [str(one) for one in outcome.plan.operations] == [
        "slbw0: change class 51b0:7, 600\N{NO-BREAK SPACE}kbit/s",
        "change limit of link 7 to the user, 600\N{NO-BREAK SPACE}kbit/s",
    ]
    assert outcome.plan.links == (LinkChange(7, Limits(500, 1000), Limits(600, 1000)),)
    assert outcome.readback == {7: (Readback(600, 0, 0), Readback(1000, 0, 0))}
    assert classes(bed, "slbw0") == ["51b0:7 600Kbit"]
    assert {name: one[0] for name, one in bed.engine.counters().items()} == segments
    assert bed.enforce(changed).writes == 0


def test_a_link_that_goes_is_closed_with_its_last_counters(bed: EngineBed) -> None:
    bed.enforce(TWO)
    bed.received_kbit(to_user=False, seconds=0.3)
    segment, counters = bed.engine.counters()[7, "from_user"]
    bed.enforce(wanted(TWO.links[8]))
    assert [(one.interface_id, one.direction, one.rate_kbit) for one in bed.closed] == [
        (7, "to_user", 500),
        (7, "from_user", 1000),
    ]
    assert (bed.closed[1].segment, bed.closed[1].counters) == (segment, counters)
    assert counters.passed_packets > 10
    again = bed.enforce(TWO)
    assert again.is_ok
    segment_after, counters_after = bed.engine.counters()[7, "from_user"]
    assert segment_after != segment
    assert counters_after.passed_packets == 0


def test_nothing_is_left_after_a_reset(bed: EngineBed) -> None:
    before = bed.snapshot()
    bed.enforce(TWO)
    outcome = bed.reset()
    assert (outcome.is_ok, outcome.problems) == (True, ())
    assert bed.snapshot() == before
    assert not any("." not in one.name for one in bed.maps_dir.iterdir())
    assert {(one.interface_id, one.direction) for one in bed.closed} == {
        (one, way) for one in (7, 8) for way in ("to_user", "from_user")
    }
    assert bed.enforce(Wanted()).writes == 0


# Others, under traffic: tests/faults/agent/test_broken_by_hand.py.
BREAKAGES = {
    "a class is gone": ["tc class del dev slbw0 classid 51b0:7"],
    "a class too many": ["tc class add dev slbw0 parent 51b0: classid 51b0:77 htb rate 9mbit"],
    "another kind of leaf": ["tc qdisc replace dev slbw0 parent 51b0:7 handle 99: pfifo limit 3"],
    "another kind of leaf of the same handle": [
        "tc qdisc replace dev slbw0 parent 51b0:7 handle 99: pfifo limit 3",
        "tc qdisc replace dev slbw0 parent 51b0:7 handle 7: pfifo limit 3",
    ],
    "another root": ["tc qdisc replace dev slbw1 root handle 5: tbf rate 1mbit burst 5k latency 5ms"],
    "the program's filter is gone": ["tc filter del dev eth0 egress pref 20"],
    "both filters are gone": ["tc filter del dev eth1 ingress pref 20", "tc filter del dev eth1 ingress pref 21"],
}


def test_what_is_broken_by_hand_is_repaired(bed: EngineBed, subtests: pytest.Subtests) -> None:
    bed.enforce(TWO)
    whole = bed.snapshot()
    for name, commands in BREAKAGES.items():
        with subtests.test(name):
            for command in commands:
                bed.ap.run(*command.split())
            assert bed.snapshot() != whole
            outcome = bed.enforce(TWO)
            assert (outcome.is_ok, outcome.problems) == (True, ())
            assert bed.snapshot() == whole
            assert outcome.writes == len(outcome.plan.operations) > 0
