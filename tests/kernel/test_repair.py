"""Whatever somebody changed by hand, the next cycle finds it and puts it right."""

from __future__ import annotations

import pytest

from ap_agent.reconcile import ifb_in_service
from tests.kernel.conftest import Host, entry, links
from tests.kernel.packets import SCION_DATA, Datagram, arrivals, classified

pytestmark = pytest.mark.kernel

WANTED = links(l1=entry("192.0.2.11", 500), l2=entry("2001:db8:1::11", 800), l3=entry("198.51.100.11", 0, None))

BREAKS = {
    "a class has another rate": ["tc class change dev eth0 parent 1: classid 1:1 htb rate 9mbit ceil 9mbit"],
    "a leaf class may borrow more": [
        "tc class change dev eth0 parent 1:1 classid 1:1001 htb rate 484kbit ceil 9mbit burst 3028 cburst 3028 prio 1"
    ],
    "packets are charged too much": [
        "tc class change dev slbw0 parent 3:1 classid 3:1001 htb rate 484kbit ceil 500kbit burst 3028 cburst 3028 "
        "prio 1 quantum 1514 overhead 100"
    ],
    "a queue is longer": ["tc qdisc change dev eth0 parent 1:1001 handle 1001: bfifo limit 900000"],
    "a queue is of another kind": ["tc qdisc replace dev slbw0 parent 3:1001 handle 99: pfifo limit 500"],
    "a queue of another kind has our handle": [
        "tc qdisc replace dev eth0 parent 1:1001 handle 99: pfifo limit 500",
        "tc qdisc replace dev eth0 parent 1:1001 handle 1001: pfifo limit 500",
    ],
    "a queue is missing": ["tc qdisc del dev eth0 parent 1:2001"],
    "a blocked link's queue lets packets through": [
        "tc qdisc change dev eth1 parent 1:1003 handle 1003: bfifo limit 9000"
    ],
    "filters are missing, and their tables cannot be seen": ["tc filter del dev eth0 parent 1: pref 112 protocol ip"],
    "the redirects are missing, and their tables cannot be seen": ["tc filter del dev eth0 ingress pref 130"],
    "nothing leads into an index": ["tc filter del dev eth0 parent 1: pref 112 protocol ip handle 801::800 u32"],
    "something else leads into an index": [
        "tc filter add dev eth0 parent 1: pref 112 protocol ip u32 match u8 0 0 link 1:"
    ],
    "one rule of an index is missing": ["tc filter del dev eth0 parent 1: pref 112 protocol ip handle 4:b:600 u32"],
    "one redirect is missing": ["tc filter del dev eth0 ingress pref 110 protocol ip handle 4:2:10 u32"],
    "a table is not led to": ["tc filter del dev slbw0 parent 3: pref 112 protocol ip handle 3:2:1 u32"],
    "there is a table that nobody needs": [
        "tc filter add dev eth0 parent 1: pref 112 protocol ip handle 77: u32 divisor 256"
    ],
    "there is an index that nobody needs": [
        "tc filter add dev eth0 parent 1: pref 119 protocol ip handle 78: u32 divisor 16",
        "tc filter add dev eth0 parent 1: pref 119 protocol ip u32 ht 78:3: match ip dst 192.0.2.11 flowid 1:1001",
        "tc filter add dev eth0 parent 1: pref 119 protocol ip u32 match u8 0 0 link 78:",
    ],
    "filters are missing on the IFB": ["tc filter del dev slbw0 parent 3:"],
    "a filter is there twice": [
        "tc filter add dev eth0 parent 1: pref 112 protocol ip u32 ht 4:b: match ip dst 192.0.2.11 "
        "match u8 17 0xff at 9 flowid 1:1001"
    ],
    "a filter of ours leads elsewhere": [
        "tc filter add dev eth0 parent 1: pref 112 protocol ip u32 match ip dst 192.0.2.77 flowid 1:1001"
    ],
    "a rule of ours is where nobody looks for it": [
        "tc filter add dev eth0 parent 1: pref 112 protocol ip u32 ht 4:c: match ip dst 192.0.2.77 flowid 1:1001"
    ],
    "the root is missing": ["tc qdisc del dev eth0 root"],
    "the root of the IFB is missing": ["tc qdisc del dev slbw0 root"],
    "the redirects are missing": ["tc filter del dev eth1 ingress"],
    "the clsact is missing": ["tc qdisc del dev eth0 clsact"],
    "the IFB is gone": ["ip link del slbw0"],
    "the IFB is down": ["ip link set slbw0 down"],
    "a class hangs under the root": [
        "tc filter del dev eth0 parent 1:",
        "tc class del dev eth0 classid 1:1001",
        "tc class add dev eth0 parent 1: classid 1:1001 htb rate 484kbit ceil 500kbit",
        "tc filter add dev eth0 parent 1: pref 112 protocol ip u32 match ip dst 192.0.2.11 flowid 1:1001",
    ],
    "a link that nobody has": [
        "tc class add dev eth0 parent 1: classid 1:77 htb rate 1mbit",
        "tc class add dev eth0 parent 1:77 classid 1:1077 htb rate 1mbit",
        "tc filter add dev eth0 parent 1: pref 112 protocol ip u32 match ip dst 192.0.2.77 flowid 1:1077",
    ],
}


@pytest.mark.parametrize("commands", BREAKS.values(), ids=BREAKS.keys())
def test_what_was_changed_by_hand_is_put_right(host: Host, commands: list[str]) -> None:
    assert host.reconcile(WANTED).ok
    whole = host.snapshot(has_tables=True)
    for command in commands:
        host.ap.run(*command.split())
    assert host.snapshot(has_tables=True) != whole or "down" in commands[0]
    assert not host.plan(WANTED).plan.is_empty

    result = host.reconcile(WANTED)

    assert result.ok, result.problems
    assert result.writes > 0
    assert host.snapshot(has_tables=True) == whole
    assert host.reconcile(WANTED).writes == 0


def test_a_plan_says_that_a_broken_link_is_not_enforced(host: Host) -> None:
    host.reconcile(WANTED)
    host.tc("class", "change", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", "rate", "9mbit")
    result = host.plan(WANTED)
    assert result.writes == 0
    states = {one.interface_id: one for one in result.links}
    assert states[1].state == "error"
    assert states[1].to_user is not None
    assert states[1].to_user.rate_kbit == 9000
    assert (states[2].state, states[3].state) == ("enforced", "enforced")
    assert "eth0: class 1:1 rate 9000 -> 500 kbit/s" in result.plan.render_text()


def test_after_the_ifb_was_deleted_packets_arrive_again_and_are_limited(host: Host) -> None:
    back = Datagram(("192.0.2.11", 50000), ("192.0.2.1", 50100))
    host.reconcile(WANTED)
    host.ap.ip("link", "del", "slbw0")
    assert arrivals(host.ap, back.destination, lambda: host.u1.call(lambda: back.send(3))) == 0  # the black hole

    result = host.reconcile(WANTED)

    assert result.ok, result.problems
    texts = [str(op) for op in result.plan.ops]
    dead = [number for number, text in enumerate(texts) if text.endswith("redirect to *")]
    alive = [number for number, text in enumerate(texts) if text.endswith("redirect to slbw0")]
    built = [number for number, text in enumerate(texts) if text.startswith("slbw0: ")]
    # On each of two interfaces: UDP, all of an address, and of IPv6 UDP and the four headers that may hide it.
    assert len(alive) == len(dead) == 2 * (1 + 1 + 5)
    assert max(dead) < min(built) < max(built) < min(alive)
    assert arrivals(host.ap, back.destination, lambda: host.u1.call(lambda: back.send(3))) == 3
    assert classified(host.ap, "slbw0", host.u1, back.send) == {"3:1001": 1}


def test_a_glance_sees_whether_our_ifb_is_there_and_up(host: Host) -> None:
    assert host.inside(ifb_in_service) is None
    first = host.reconcile(WANTED).ifb
    assert first is not None
    assert host.inside(ifb_in_service) == first
    host.ap.ip("link", "set", "slbw0", "down")
    assert host.inside(ifb_in_service) is None
    assert host.plan(WANTED).ifb is None
    assert host.reconcile(WANTED).ifb == first
    host.ap.ip("link", "del", "slbw0")
    assert host.inside(ifb_in_service) is None
    host.ap.ip("link", "add", "slbw0", "type", "ifb")
    host.ap.ip("link", "set", "slbw0", "up")
    assert host.inside(ifb_in_service) is None  # somebody's
    host.ap.ip("link", "set", "slbw0", "alias", "scionlab-bw")
    assert host.inside(ifb_in_service) not in (None, first)  # of our name and mark, but no redirect leads to it


def test_a_renamed_ifb_that_still_gets_our_packets_is_reported(host: Host) -> None:
    """Its redirect looks like somebody else's, on our preference and in front of ours."""
    host.reconcile(links(l1=entry("192.0.2.11", 500)))
    host.ap.ip_batch(["link set slbw0 down", "link set slbw0 name other0", "link set other0 up"])
    result = host.reconcile(links(l1=entry("192.0.2.11", 500)))
    assert [(one.code, one.subject) for one in result.problems] == [("foreign_filter_in_front", "eth0")]


def test_an_ifb_that_somebody_made_under_our_name_is_not_taken_over(host: Host) -> None:
    host.ap.ip("link", "add", "slbw0", "type", "ifb")
    result = host.reconcile(WANTED)
    assert [one.code for one in result.problems] == ["foreign_device"]
    assert not result.ok
    assert {one.state for one in result.links} == {"error"}
    assert {one.to_user is not None and one.from_user is None for one in result.links} == {True}
    assert "htb" not in host.tc("qdisc", "show", "dev", "slbw0")
    data = Datagram(("192.0.2.11", 50000), ("192.0.2.1", 50100), SCION_DATA)
    assert arrivals(host.ap, data.destination, lambda: host.u1.call(lambda: data.send(3))) == 3
    host.reset()
    assert "slbw0" in host.devices()


def test_an_mtu_change_changes_bursts_and_queues_in_place(host: Host) -> None:
    host.reconcile(WANTED)
    host.ap.ip("link", "set", "eth0", "mtu", "1400")
    result = host.reconcile(WANTED)
    assert result.ok, result.problems
    assert {op.kind for op in result.plan.ops} == {"class-change", "leaf-change"}
    assert host.reconcile(WANTED).writes == 0


def test_an_interface_that_is_renamed_keeps_everything(host: Host) -> None:
    host.reconcile(WANTED)
    host.ap.ip("link", "set", "eth0", "name", "uplink")
    result = host.reconcile(WANTED)
    assert result.writes == 0
    assert {one.to_user.dev for one in result.links if one.to_user} == {"uplink", "eth1"}
