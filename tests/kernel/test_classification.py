"""Which packets a real kernel puts into which class: DOMAIN section 2, both directions, both families."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ap_agent.model import EngineSettings
from tests.kernel.conftest import Host, entry, links
from tests.kernel.packets import (
    IPV6_DSTOPTS,
    IPV6_HOPOPTS,
    NO_OPERATION_OPTIONS,
    SCION_DATA,
    SCION_HEARTBEAT,
    Datagram,
    arrivals,
    classified,
    connect,
    is_reachable,
    ping,
)

pytestmark = pytest.mark.kernel

AP4, U4 = "192.0.2.1", "192.0.2.11"
AP6, U6 = "2001:db8:1::1", "2001:db8:1::11"
OTHER4 = "198.51.100.11"

# Link 1 says everything, link 2 (the strictest of this address) only its port; 3 and 4 are IPv6; link 5 has no port.
LINKS = links(
    l1=entry(U4, 100_000, 50000, **{"Local-IP": AP4, "Local-Port": 50100}),
    l2=entry(U4, 40_000, 50001),
    l3=entry(U6, 100_000, 50000, **{"Local-IP": AP6, "Local-Port": 50100}),
    l4=entry(U6, 40_000, 50001),
    l5=entry(OTHER4, 80_000, None),
)

BIG = SCION_DATA + b"x" * 2936  # 3000 bytes: three fragments at an MTU of 1500


def reversed_(one: Datagram) -> Datagram:
    return Datagram(one.destination, one.source, one.payload, one.options, one.extension)


V4 = ((AP4, 50100), (U4, 50000))
V6 = ((AP6, 50100), (U6, 50000))

DATAGRAMS = {
    "data": (Datagram(*V4), {"1001": 1}),
    "heartbeat": (Datagram(*V4, SCION_HEARTBEAT), {"2001": 1}),
    "too short for the heartbeat's byte": (Datagram(*V4, b"abc"), {"1001": 1}),
    "empty": (Datagram(*V4, b""), {"1001": 1}),
    "marked as heartbeat, of full size": (Datagram(*V4, SCION_HEARTBEAT + b"x" * 1300), {"2001": 1}),
    "the other link of the address": (Datagram((AP4, 50199), (U4, 50001)), {"1002": 1}),
    "heartbeat of the other link": (Datagram((AP4, 50199), (U4, 50001), SCION_HEARTBEAT), {"2002": 1}),
    "the link's remote port, another local port": (Datagram((AP4, 50199), (U4, 50000)), {}),
    "another UDP port": (Datagram((AP4, 50100), (U4, 40000)), {}),
    "with IP options": (Datagram(*V4, options=NO_OPERATION_OPTIONS), {"1002": 1}),
    "in three fragments": (Datagram(*V4, BIG), {"1001": 1, "1002": 2}),
    "IPv6 data": (Datagram(*V6), {"1003": 1}),
    "IPv6 heartbeat": (Datagram(*V6, SCION_HEARTBEAT), {"2003": 1}),
    "IPv6, too short": (Datagram(*V6, b"abc"), {"1003": 1}),
    "IPv6, the other link": (Datagram((AP6, 50199), (U6, 50001)), {"1004": 1}),
    "IPv6, another UDP port": (Datagram((AP6, 50100), (U6, 40000)), {}),
    "IPv6 in three fragments": (Datagram(*V6, BIG), {"1004": 3}),
    "IPv6 behind destination options": (Datagram(*V6, extension=IPV6_DSTOPTS), {"1004": 1}),
    "IPv6 behind a hop-by-hop header": (Datagram(*V6, extension=IPV6_HOPOPTS), {"1004": 1}),
}


@pytest.fixture
def enforced(host: Host) -> Host:
    result = host.reconcile(LINKS)
    assert result.ok, result.problems
    return host


def test_every_kind_of_datagram_meets_its_class_in_both_directions(enforced: Host) -> None:
    host, wrong = enforced, {}
    for name, (datagram, wanted) in DATAGRAMS.items():
        there = classified(host.ap, "eth0", host.ap, datagram.send)
        back = classified(host.ap, "slbw0", host.u1, reversed_(datagram).send)
        if there != {f"1:{minor}": count for minor, count in wanted.items()}:
            wrong[f"{name}, to the user AS"] = there
        if back != {f"3:{minor}": count for minor, count in wanted.items()}:
            wrong[f"{name}, from the user AS"] = back
    assert wrong == {}


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(ping(U4), id="ping"),
        pytest.param(ping(U6), id="ping6"),
        pytest.param(ping(U6, IPV6_HOPOPTS), id="ICMPv6 behind a hop-by-hop header, like MLD"),
        pytest.param(connect((U4, 50000)), id="TCP on the link's port"),
        pytest.param(connect((U6, 50000)), id="TCP on the link's port, IPv6"),
    ],
)
def test_other_protocols_of_a_limited_address_are_not_touched(enforced: Host, send: Callable[[], None]) -> None:
    assert classified(enforced.ap, "eth0", enforced.ap, send) == {}
    assert classified(enforced.ap, "slbw0", enforced.ap, send) == {}  # the answers come back from that address


def test_an_entry_without_a_port_owns_its_address(enforced: Host) -> None:
    host, here = enforced, ("198.51.100.1", 40000)
    data = Datagram(here, (OTHER4, 12345))
    beat = Datagram(here, (OTHER4, 12345), SCION_HEARTBEAT)
    assert classified(host.ap, "eth1", host.ap, data.send) == {"1:1005": 1}
    assert classified(host.ap, "eth1", host.ap, beat.send) == {"1:2005": 1}
    assert classified(host.ap, "slbw0", host.u2, reversed_(data).send) == {"3:1005": 1}
    assert classified(host.ap, "slbw0", host.u2, reversed_(beat).send) == {"3:2005": 1}
    assert classified(host.ap, "eth1", host.ap, ping(OTHER4)) == {"1:1005": 1}
    assert classified(host.ap, "eth1", host.ap, connect((OTHER4, 22)))["1:1005"] >= 1


def test_exact_links_win_over_an_entry_without_a_port(host: Host) -> None:
    both = links(l1=entry(U4, 100_000, 50000), l2=entry(U4, 200_000, None))
    assert host.reconcile(both).ok
    exact, rest = Datagram((AP4, 50100), (U4, 50000)), Datagram((AP4, 50100), (U4, 50001))
    assert classified(host.ap, "eth0", host.ap, exact.send) == {"1:1001": 1}
    assert classified(host.ap, "eth0", host.ap, rest.send) == {"1:1002": 1}
    assert classified(host.ap, "eth0", host.ap, ping(U4)) == {"1:1002": 1}
    # Later fragments of either might belong to the stricter one.
    assert classified(host.ap, "eth0", host.ap, Datagram((AP4, 50100), (U4, 50001), BIG).send) == {
        "1:1002": 1,
        "1:1001": 2,
    }


@pytest.mark.parametrize("family", [4, 6])
def test_zero_blocks_the_link_and_nothing_else_of_its_address(host: Host, family: int) -> None:
    ap, user = (AP4, U4) if family == 4 else (AP6, U6)
    blocked = links(l1=entry(user, 0, 50000), l2=entry(user, 10_000, 50001))
    assert host.reconcile(blocked).ok

    def passed(port: int, size: int = 64) -> tuple[int, int]:
        there = Datagram((ap, 50100), (user, port), SCION_DATA[:64].ljust(size))
        back = reversed_(there)
        return (
            arrivals(host.u1, there.destination, lambda: host.ap.call(lambda: there.send(5))),
            arrivals(host.ap, back.destination, lambda: host.u1.call(lambda: back.send(5))),
        )

    assert passed(50000) == (0, 0)
    assert passed(50001) == (5, 5)
    assert passed(40000) == (5, 5)
    # A blocked link does not decide about fragments that it may have nothing to do with.
    assert passed(50001, size=3000) == (5, 5)
    assert is_reachable(host.ap, user)


def test_with_unmatched_default_everything_else_shares_one_class_and_neighbours_are_exempt(host: Host) -> None:
    host.settings = EngineSettings(unmatched="default", default_bandwidth_kbit=20_000)
    result = host.reconcile(LINKS)
    assert result.ok, result.problems
    other = Datagram((AP4, 50100), (U4, 40000))
    for dev, major, sender, send in (
        ("eth0", 1, host.ap, other.send),
        ("slbw0", 3, host.u1, reversed_(other).send),
        ("eth0", 1, host.ap, ping(U4)),
    ):
        seen = classified(host.ap, dev, sender, send)
        assert seen.pop(f"{major}:fffe") in {1, 2}  # the kernel may report its multicast groups at that moment
        assert set(seen) <= {f"{major}:fffd"}  # neighbour discovery may go on beside it
    assert classified(host.ap, "eth0", host.ap, Datagram(*V4).send)["1:1001"] == 1

    host.ap.ip("neigh", "flush", "dev", "eth0")
    assert classified(host.ap, "eth0", host.ap, ping(U4), wait_s=0.1)["1:fffd"] >= 1  # ARP
    host.ap.ip("-6", "neigh", "flush", "dev", "eth0")
    assert classified(host.ap, "eth0", host.ap, ping(U6), wait_s=0.1)["1:fffd"] >= 1  # neighbour solicitation
    discover = Datagram((AP4, 68), (U4, 67))
    assert classified(host.ap, "eth0", host.ap, discover.send)["1:fffd"] >= 1
    solicit = Datagram((AP6, 546), (U6, 547))
    assert classified(host.ap, "eth0", host.ap, solicit.send)["1:fffd"] >= 1
