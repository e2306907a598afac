"""The engine builds its tree, keeps it, repairs it, changes one limit in it, and leaves nothing."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from ap_agent.dataplane.outcome import LinkChange, Readback
from ap_agent.dataplane.program import Program
from ap_agent.dataplane.wanted import Wanted
from bandwidth_config import Limits
from measuring.iproute import available
from tests.kernel.engine_bed import U2, USER_PORT, EngineBed, engine_bed, link, wanted

pytestmark = pytest.mark.kernel
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


def test_limits_hold_in_both_directions_and_nobody_else_is_limited(bed: EngineBed) -> None:
    bed.enforce(TWO)
    assert bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)  # the room of 20 kB comes on top
    assert bed.received_kbit(to_user=False) == pytest.approx(1000, abs=220)
    assert bed.received_kbit(to_user=True, user=U2) == 0
    assert bed.received_kbit(to_user=False, user=U2) == pytest.approx(2000, abs=300)
    assert bed.received_kbit(to_user=True, port=40_000) == pytest.approx(4000, rel=0.1)
    counters = bed.engine.counters()
    segment, found = counters[8, "to_user"]
    assert segment != 0
    assert found.passed_packets == 0
    assert found.refused_packets > 200
    assert set(counters) == {(one, way) for one in (7, 8) for way in ("to_user", "from_user")}


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


def test_a_restarted_engine_goes_on_with_everything_and_writes_nothing(bed: EngineBed) -> None:
    bed.enforce(TWO)
    bed.received_kbit(to_user=False, seconds=0.3)
    before = bed.engine.counters()
    bed.restart()
    assert bed.enforce(TWO).writes == 0
    assert bed.engine.counters() == before


def test_a_link_that_goes_is_closed_with_its_last_counters(bed: EngineBed) -> None:
    bed.enforce(TWO)
    bed.received_kbit(to_user=False, seconds=0.3)
    segment, counters = bed.engine.counters()[7, "from_user"]
    outcome = bed.enforce(wanted(TWO.links[8]))
    assert list(outcome.closed) == bed.closed
    assert [(one.interface_id, one.direction, one.rate_kbit) for one in outcome.closed] == [
        (7, "to_user", 500),
        (7, "from_user", 1000),
    ]
    assert (outcome.closed[1].segment, outcome.closed[1].counters) == (segment, counters)
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


BREAKAGES = {
    "a class is gone": ["tc class del dev slbw0 classid 51b0:7"],
    "a class has another rate": ["tc class change dev slbw1 parent 51b0: classid 51b0:1007 htb rate 9mbit"],
    "a class too many": ["tc class add dev slbw0 parent 51b0: classid 51b0:77 htb rate 9mbit"],
    "another kind of leaf": ["tc qdisc replace dev slbw0 parent 51b0:7 handle 99: pfifo limit 3"],
    "another kind of leaf of the same handle": [
        "tc qdisc replace dev slbw0 parent 51b0:7 handle 99: pfifo limit 3",
        "tc qdisc replace dev slbw0 parent 51b0:7 handle 7: pfifo limit 3",
    ],
    "another limit of a leaf": ["tc qdisc change dev slbw0 parent 51b0:7 handle 7: bfifo limit 3000"],
    "the root is gone": ["tc qdisc del dev slbw0 root"],
    "another root": ["tc qdisc replace dev slbw1 root handle 5: tbf rate 1mbit burst 5k latency 5ms"],
    "an IFB is gone": ["ip link del slbw0"],
    "an IFB is down": ["ip link set slbw1 down"],
    "an IFB is renamed": ["ip link set slbw1 down", "ip link set slbw1 name renamed", "ip link set renamed up"],
    "clsact is gone": ["tc qdisc del dev eth0 clsact"],
    "the program's filter is gone": ["tc filter del dev eth0 egress pref 20"],
    "the redirecting filter is gone": ["tc filter del dev eth0 ingress pref 21"],
    "both filters are gone": ["tc filter del dev eth1 ingress pref 20", "tc filter del dev eth1 ingress pref 21"],
}


@pytest.fixture(scope="module")
def shared_bed() -> Iterator[EngineBed]:
    if (missing := available()) is not None:
        pytest.skip(missing)
    with engine_bed("slbwes") as made:
        yield made


@pytest.mark.parametrize("name", BREAKAGES)
def test_what_is_broken_by_hand_is_repaired(shared_bed: EngineBed, name: str) -> None:
    bed = shared_bed
    bed.reset()
    bed.enforce(TWO)
    whole = bed.snapshot()
    for command in BREAKAGES[name]:
        program, *arguments = command.split()
        if program == "tc":
            bed.tc(*arguments)
        else:
            bed.ap.ip(*arguments)
    assert bed.snapshot() != whole
    outcome = bed.enforce(TWO)
    assert (outcome.is_ok, outcome.problems) == (True, ())
    assert bed.snapshot() == whole
    assert outcome.writes == len(outcome.plan.operations) > 0
    assert bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)
    assert bed.received_kbit(to_user=False) == pytest.approx(1000, abs=220)


def test_entries_of_the_maps_that_are_gone_come_back(bed: EngineBed) -> None:
    bed.enforce(TWO)
    bed.engine._claim.close()  # another limiter's; nothing keeps it out
    other = bed.new_engine()
    other.enforce(wanted(link(7, 500, 1000)))
    other.close()
    assert bed.enforce(TWO).is_ok
    assert bed.received_kbit(to_user=True, user=U2) == 0
    assert not _arrives_in_fragments(bed)


def _arrives_in_fragments(bed: EngineBed) -> bool:
    """A datagram to link 8's user."""
    with bed.u2.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sink:
        bed.u2.call(lambda: sink.bind((U2, USER_PORT)))
        sink.settimeout(0.5)
        with bed.ap.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as source:
            with contextlib.suppress(OSError):  # refused at the hook
                source.sendto(bytes(4000), (U2, USER_PORT))
            try:
                return len(sink.recv(5000)) == 4000
            except TimeoutError:
                return False


def test_a_program_that_does_not_know_our_ifb_is_told_again(bed: EngineBed) -> None:
    bed.enforce(wanted(link(7, 500)))
    program = Program.opened(bed.maps_dir, may_make=False)
    assert program is not None
    program.ifb = 0
    assert [str(one) for one in bed.plan(wanted(link(7, 500))).plan.operations] == [
        "eth0: change filters at egress",
        "eth1: change filters at egress",
    ]
    assert bed.enforce(wanted(link(7, 500))).writes == 2
    assert program.ifb == bed.ap.call(lambda: socket.if_nametoindex("slbw0"))
    program.close()
    assert bed.received_kbit(to_user=True, kbit=300) == pytest.approx(300, rel=0.1)
    assert bed.engine.counters()[7, "to_user"][1].refused_packets == 0
