"""The running agent hears what somebody does to the kernel: repaired, or reported, without any poll or comparison.

How long it takes is measured by the benchmark (`lab.faults`); here it must be seen within five seconds.
"""

from __future__ import annotations

import ipaddress
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from ap_agent.limiter.events import Change, Interest, Listener, Prefixes
from lab.fault_world import HOST_ID, IFB, FaultWorld
from lab.faults import FAULTS, HEAL_DEADLINE_S, Report, measure
from measuring.netns import available, cleanup_stale
from tests import agent_service as svc
from tests.kernel.conftest import Host

pytestmark = pytest.mark.kernel

PREFIX = "slevt"
QUIET_S = 1.0  # after this long without a cycle none is coming


@pytest.fixture(scope="session")
def _alone() -> None:
    missing = available()
    if missing is not None:
        pytest.skip(missing)
    cleanup_stale(PREFIX)


@pytest.fixture
def world(_alone: None) -> Iterator[FaultWorld]:
    with FaultWorld(PREFIX) as made:
        yield made


@pytest.fixture
def without_agent(_alone: None) -> Iterator[FaultWorld]:
    with FaultWorld(PREFIX, starts_agent=False) as made:
        yield made


# --- the kernel's own messages ----------------------------------------------------------------------------------------

ROUTE, ADDRESS, RULE = Change("", "route"), Change("", "address"), Change("", "routing rule")
SAID = {
    "an IPv4 route": (["ip route add 203.0.113.0/24 via 192.0.2.11"], {ROUTE}),
    "an IPv4 route in another table": (["ip route add 203.0.113.0/24 via 192.0.2.11 table 7"], {ROUTE}),
    "another IPv4 route": (["ip route add 10.0.0.0/8 via 192.0.2.11"], set()),
    "an IPv6 route": (["ip route add 2001:db8:7::/48 via 2001:db8:1::11"], {ROUTE}),
    "another IPv6 route": (["ip route add 2001:db8:8::/48 via 2001:db8:1::11"], set()),
    "the IPv6 default route": (["ip route add default via 2001:db8:1::11", "ip route del 2001:db8:1::/64"], {ROUTE}),
    "an IPv4 address": (["ip addr add 203.0.113.1/32 dev lo"], {ADDRESS, ROUTE}),
    "an IPv6 address": (["ip addr add 2001:db8:7::1/128 dev lo nodad"], {ADDRESS, ROUTE}),
    "another address": (["ip addr add 203.0.114.1/32 dev lo"], set()),
    "an IPv4 rule": (["ip rule add to 10.0.0.0/8 lookup 7"], {RULE}),
    "an IPv6 rule": (["ip -6 rule add to 2001:db8:8::/48 lookup 7"], {RULE}),
    "a nexthop": (["ip nexthop add id 7 via 192.0.2.11 dev eth0"], {Change("", "nexthop")}),
    "a qdisc on eth0": (["tc qdisc add dev eth0 root pfifo"], {Change("eth0", "qdisc")}),
    "a qdisc on eth1": (["tc qdisc add dev eth1 root pfifo"], set()),
    "eth0's MTU": (["ip link set eth0 mtu 1400"], {Change("eth0", "device")}),
    "eth1's MTU": (["ip link set eth1 mtu 1400"], set()),
    "a device of a configured name": (["ip link add wan0 type ifb"], {Change("wan0", "device")}),
    "another device": (["ip link add wan1 type ifb"], set()),
}


@pytest.mark.parametrize("what", SAID)
def test_what_the_kernel_says_is_understood(host: Host, what: str) -> None:
    commands, expected = SAID[what]
    addresses = [ipaddress.ip_address(one) for one in ("203.0.113.1", "2001:db8:7::1")]
    eth0 = host.inside(lambda: socket.if_nametoindex("eth0"))
    interest = Interest(frozenset({eth0}), frozenset({"wan0"}), None, Prefixes(addresses))
    with host.inside(Listener) as listener:
        for command in commands:
            host.ap.run(*command.split())
        heard = host.inside(lambda: listener.drain(interest))
    assert heard.messages > 0
    assert heard.changes == expected


# --- the agent --------------------------------------------------------------------------------------------------------


def cycles_when_quiet(world: FaultWorld) -> int:
    """How many cycles there were, once none has come for a while."""
    deadline = time.monotonic() + 20
    count, since = world.cycles(), time.monotonic()
    while time.monotonic() - since < QUIET_S:
        assert time.monotonic() < deadline, "the agent does not come to rest"
        time.sleep(0.05)
        if world.cycles() != count:
            count, since = world.cycles(), time.monotonic()
    return count


def show(report: Report) -> None:
    """For whoever runs this with -s."""
    print(f"\n{report.fault}: done after {report.cause_ms:.0f} ms, healed after {report.healed_ms:.0f} ms")
    for name, one in report.stretches.items():
        print(f"  {name}: unlimited {one.unlimited_ms:.0f} ms, silent {one.silent_ms:.0f} ms, lost {one.lost}")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_noticed_by_event_and_healed(world: FaultWorld, name: str) -> None:
    fault = FAULTS[name]
    report = measure(world, fault, name)
    show(report)

    world.until(lambda: world.planned_writes() == 0, HEAL_DEADLINE_S)
    for which, stretch in report.stretches.items():
        assert stretch.flows_at_end, which
        assert stretch.limited_at_end != (fault.leaves_unlimited and which == "link1 to the user"), which
    if not fault.leaves_unlimited:
        world.until(lambda: world.problems() == {}, HEAL_DEADLINE_S)


def test_without_anybody_listening_a_fault_would_stay(without_agent: FaultWorld) -> None:
    """So that the tests above say something: neither a poll nor a comparison comes to their help."""
    world = without_agent
    world.start_agent(first="from ap_agent import events\nevents.Listener.drain = lambda *_: events.Heard()")
    world.tc("qdisc", "del", "dev", "eth0", "root")
    time.sleep(QUIET_S)
    assert world.rate_kbit("eth0", "1:1") is None


def test_our_own_changes_make_no_further_cycle(world: FaultWorld) -> None:
    assert cycles_when_quiet(world) == 1
    world.agent.send_signal(signal.SIGHUP)
    assert cycles_when_quiet(world) == 2  # the configuration may be another one
    world.tc("qdisc", "del", "dev", "eth0", "root")
    assert cycles_when_quiet(world) == 3


def test_a_flood_of_routes_that_lead_to_no_link_makes_no_cycle(world: FaultWorld) -> None:
    before = cycles_when_quiet(world)
    world.ap.ip_batch(
        f"route {what} 10.{number >> 16}.{number >> 8 & 255}.{number & 255}/32 via 192.0.2.11"
        for what in ("add", "del")
        for number in range(50_000)
    )
    after = cycles_when_quiet(world)
    lost = sum(line.startswith("kernel.events_lost") for line in world.log())  # where the agent got no processor
    assert after - before <= lost
    world.tc("qdisc", "del", "dev", "eth0", "root")  # and nothing was slept through
    world.until(lambda: world.is_limited_on("eth0", 1), HEAL_DEADLINE_S)


def test_a_default_route_that_flaps_thousands_of_times_makes_few_cycles(world: FaultWorld) -> None:
    before = cycles_when_quiet(world)
    began = time.monotonic()
    world.ap.ip_batch(
        f"route replace default via {gateway}" for _ in range(5000) for gateway in ("192.0.2.11", "198.51.100.11")
    )
    took_s = time.monotonic() - began
    assert 1 <= cycles_when_quiet(world) - before <= took_s / 0.1 + 3


def test_lost_messages_mean_that_everything_is_looked_at(without_agent: FaultWorld) -> None:
    world = without_agent
    world.start_agent(first="from ap_agent import events\nevents.RECEIVE_BUFFER_BYTES = 4096")
    lines = [f"class change dev eth0 classid 1:1 htb rate {2000 + number}kbit quantum 1514" for number in range(20_000)]
    world.ap.run("tc", "-batch", "-", stdin="\n".join(lines) + "\n")
    world.until(lambda: world.is_limited_on("eth0", 1), HEAL_DEADLINE_S)
    world.until(lambda: world.planned_writes() == 0, HEAL_DEADLINE_S)
    assert any(line.startswith("kernel.events_lost") for line in world.log())


def test_a_fight_with_another_tool_is_reported_by_name(world: FaultWorld) -> None:
    def change() -> None:
        world.tc("class", "change", "dev", "eth0", "classid", "1:1", "htb", "rate", "9mbit", "ceil", "9mbit")

    for _ in range(6):
        change()
        world.until(lambda: world.is_limited_on("eth0", 1), HEAL_DEADLINE_S)
    world.until(lambda: world.problems() == {"repeatedly_changed": "eth0"}, HEAL_DEADLINE_S)
    (problem,) = world.health()["problems"]
    assert "On eth0: class changed 6 times" in problem["message"]


def test_a_link_stays_limited_while_its_route_is_gone(world: FaultWorld) -> None:
    """Its own address is on lo, which says nothing about the interface."""
    world.ap.ip("route", "del", "203.0.113.11")
    world.until(lambda: world.problems() == {"no_route": "link 1"}, HEAL_DEADLINE_S)
    assert world.is_limited_on("eth0", 1)
    world.route_over("198.51.100")
    world.until(lambda: world.is_limited_on("eth1", 1) and world.problems() == {}, HEAL_DEADLINE_S)


def test_a_request_that_hangs_delays_neither_a_repair_nor_the_end(without_agent: FaultWorld) -> None:
    world = without_agent
    manager = svc.service()
    service = world.ap.call(manager.__enter__)
    try:
        service.answers[f"/api/v4/host/{HOST_ID}/config"] = svc.never()
        world.configure(
            f'url = "{service.url}"\nhost_id = "{HOST_ID}"\nhost_secret = "none"\nread_timeout_s = 300\n'
            "fetch_deadline_s = 300\n"
        )
        world.start_agent()
        world.until(lambda: len(service.asked("/config")) == 1, HEAL_DEADLINE_S)
        world.ap.ip("link", "del", IFB)
        world.until(lambda: world.is_limited_on("eth0", 1), HEAL_DEADLINE_S)
        world.agent.send_signal(signal.SIGTERM)
        assert world.agent.wait(HEAL_DEADLINE_S) == 0
        assert len(service.asked("/config")) == 1
        assert world.is_limited_on("eth0", 1)
    finally:
        manager.__exit__(None, None, None)
