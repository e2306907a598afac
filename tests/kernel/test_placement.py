"""Which interface a link is enforced on: routes, policy rules, local addresses, tun devices, link-local addresses."""

from __future__ import annotations

import time

import pytest

from ap_agent.model import EngineSettings
from tests.kernel.conftest import Host, entry, links
from tests.kernel.packets import Datagram, classified

pytestmark = pytest.mark.kernel


def problems(result: object) -> dict[str, str]:
    return {one.subject: one.code for one in result.problems}  # type: ignore[attr-defined]


def homes(result: object) -> dict[int, str | None]:
    return {one.interface_id: one.to_user.dev if one.to_user else None for one in result.links}  # type: ignore[attr-defined]


def test_each_link_is_limited_on_the_interface_of_its_route(host: Host) -> None:
    result = host.reconcile(links(l1=entry("192.0.2.11", 500), l2=entry("2001:db8:2::11", 600)))
    assert result.ok, result.problems
    assert homes(result) == {1: "eth0", 2: "eth1"}


def test_every_managed_interface_redirects_every_limited_source(host: Host) -> None:
    """A packet may arrive by another interface than the answer leaves by."""
    host.reconcile(links(l1=entry("192.0.2.11", 500), l2=entry("198.51.100.11", 600)))
    host.ap.sysctl({"net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.eth1.rp_filter": 0})
    host.u2.ip("addr", "add", "192.0.2.11/32", "dev", "eth0")
    astray = Datagram(("192.0.2.11", 50000), ("198.51.100.1", 50100))
    assert classified(host.ap, "slbw0", host.u2, astray.send) == {"3:1001": 1}


def test_a_policy_rule_for_the_local_address_decides(host: Host) -> None:
    host.ap.ip("addr", "add", "203.0.113.1/32", "dev", "lo")
    for table, dev, gateway in (("101", "eth0", "192.0.2.11"), ("102", "eth1", "198.51.100.11")):
        host.ap.ip("route", "add", "default", "via", gateway, "dev", dev, "table", table)
    host.ap.ip("rule", "add", "from", "203.0.113.1", "table", "102")
    host.ap.ip("route", "add", "default", "via", "192.0.2.11")
    result = host.reconcile(
        links(
            l1=entry("203.0.113.77", 500, **{"Local-IP": "203.0.113.1"}),
            l2=entry("203.0.113.77", 500, 50001, **{"Local-IP": "192.0.2.1"}),
        )
    )
    assert result.ok, result.problems
    assert homes(result) == {1: "eth1", 2: "eth0"}


def test_a_link_over_a_tun_device_counts_ip_bytes(host: Host) -> None:
    host.lab.tun(host.ap.nic("tun0", "10.10.1.1/24"))
    result = host.reconcile(links(l1=entry("10.10.1.2", 500, VPN=True)))
    assert result.ok, result.problems
    assert homes(result) == {1: "tun0"}
    assert "burst 3000b" in host.tc("class", "show", "dev", "tun0")  # two packets of 1500, no Ethernet header
    assert host.reconcile(links(l1=entry("10.10.1.2", 500, VPN=True))).writes == 0


def test_a_local_address_that_the_host_does_not_have_does_not_let_everything_pass(host: Host) -> None:
    """Behind a NAT the service knows the public address, and packets carry the private one."""
    nat = {"Local-IP": "203.0.113.1", "Local-Port": 50100}
    wanted = links(l1=entry("192.0.2.11", 500, **nat))
    out, other = (
        Datagram(("192.0.2.1", 50100), ("192.0.2.11", 50000)),
        Datagram(("192.0.2.1", 7), ("192.0.2.11", 50000)),
    )

    assert host.reconcile(wanted).ok
    assert classified(host.ap, "eth0", host.ap, out.send) == {"1:1001": 1}
    assert classified(host.ap, "slbw0", host.u1, Datagram(out.destination, out.source).send) == {"3:1001": 1}
    assert classified(host.ap, "eth0", host.ap, other.send) == {}
    assert host.reconcile(wanted).writes == 0

    host.ap.ip("addr", "add", "203.0.113.1/32", "dev", "lo")
    assert host.reconcile(wanted).ok
    assert classified(host.ap, "eth0", host.ap, out.send) == {}  # now it is known exactly
    assert classified(host.ap, "eth0", host.ap, Datagram(("203.0.113.1", 50100), out.destination).send) == {"1:1001": 1}


def test_links_that_only_an_absent_local_address_tells_apart_are_named_and_block_nobody(host: Host) -> None:
    """An interface that went down loses its IPv6 addresses; a link at 0 must not take its neighbour's packets then."""
    wanted = links(
        l1=entry("192.0.2.11", 500, **{"Local-IP": "203.0.113.1"}),
        l2=entry("192.0.2.11", 0, **{"Local-IP": "203.0.113.2"}),
        l3=entry("192.0.2.11", 700, **{"Local-IP": "192.0.2.1"}),
    )
    result = host.reconcile(wanted)
    assert problems(result) == {"link 1": "local_address_missing", "link 2": "local_address_missing"}
    assert [one.state for one in result.links] == ["error", "error", "enforced"]
    out = Datagram(("192.0.2.1", 50100), ("192.0.2.11", 50000))
    assert classified(host.ap, "eth0", host.ap, out.send) == {"1:1003": 1}
    for number in (1, 2):
        host.ap.ip("addr", "add", f"203.0.113.{number}/32", "dev", "lo")
    assert host.reconcile(wanted).ok


def test_a_link_local_address_is_placed_by_the_local_address(host: Host) -> None:
    for number, dev in ((1, "eth0"), (2, "eth1")):
        host.ap.ip("addr", "add", f"fe80::{number}/64", "dev", dev, "nodad")
    wanted = links(
        l1=entry("fe80::11", 500, **{"Local-IP": "fe80::2"}),
        l2=entry("fe80::12", 500),
        l3=entry("192.0.2.11", 700),
        l4=entry("169.254.7.7", 500, **{"Local-IP": "192.0.2.1"}),
    )
    result = host.reconcile(wanted)
    assert problems(result) == {"link 2": "ambiguous_interface"}
    assert homes(result) == {1: "eth1", 2: None, 3: "eth0", 4: "eth0"}
    assert {one.interface_id: one.state for one in result.links} == {
        1: "enforced",
        2: "error",
        3: "enforced",
        4: "enforced",
    }
    host.settings = EngineSettings(interfaces=("eth1",))
    single = host.reconcile(links(l2=entry("fe80::12", 500)))
    assert single.ok, single.problems
    assert homes(single) == {2: "eth1"}


def test_links_that_cannot_be_placed_are_named_and_the_others_enforced(host: Host) -> None:
    host.ap.ip("route", "add", "blackhole", "203.0.113.5/32")
    host.ap.ip("route", "add", "unreachable", "203.0.113.6/32")
    host.ap.ip("route", "add", "203.0.113.7/32", "dev", "lo")
    host.ap.ip("route", "add", "local", "203.0.113.8/32", "dev", "lo")
    result = host.reconcile(
        links(
            l1=entry("192.0.2.11", 500),
            l2=entry("198.51.100.1", 500),
            l3=entry("203.0.113.4", 500),
            l4=entry("203.0.113.5", 500),
            l5=entry("203.0.113.6", 500),
            l6=entry("203.0.113.7", 500),
            l7=entry("203.0.113.8", 500),
        )
    )
    assert problems(result) == {
        "link 2": "own_address",
        "link 3": "no_route",
        "link 4": "route_blackhole",
        "link 5": "route_blackhole",
        "link 6": "route_loopback",
        "link 7": "own_address",
    }
    assert not result.ok
    assert [one.state for one in result.links] == ["enforced", *["error"] * 6]
    assert all(one.problem for one in result.links[1:])


def test_only_configured_interfaces_are_managed(host: Host) -> None:
    host.settings = EngineSettings(interfaces=("eth0", "eth9"))
    result = host.reconcile(links(l1=entry("192.0.2.11", 500), l2=entry("198.51.100.11", 600)))
    assert problems(result) == {"eth9": "interface_missing", "link 2": "unmanaged_interface"}
    assert homes(result) == {1: "eth0", 2: None}
    assert "clsact" not in host.tc("qdisc", "show", "dev", "eth1")


def test_a_configured_interface_without_links_gets_redirects_but_no_root(host: Host) -> None:
    host.settings = EngineSettings(interfaces=("eth0", "eth1"))
    assert host.reconcile(links(l1=entry("192.0.2.11", 500))).ok
    assert "clsact" in host.tc("qdisc", "show", "dev", "eth1")
    assert "htb" not in host.tc("qdisc", "show", "dev", "eth1")


def test_an_interface_that_goes_down_keeps_its_limits(host: Host) -> None:
    """Its routes vanish with it; when it comes back, packets must not meet an unlimited interface."""
    wanted = links(l1=entry("192.0.2.11", 500), l2=entry("198.51.100.11", 600))
    host.reconcile(wanted)
    whole = host.snapshot()
    host.ap.ip("link", "set", "eth0", "down")

    result = host.reconcile(wanted)

    assert problems(result) == {"link 1": "no_route"}
    assert result.writes == 0
    assert host.snapshot() == whole
    host.ap.ip("link", "set", "eth0", "up")
    _wait_for_carrier(host)
    assert host.reconcile(wanted).ok


def _wait_for_carrier(host: Host) -> None:
    deadline = time.monotonic() + 5
    while "LOWER_UP" not in host.ap.ip("link", "show", "eth0"):
        assert time.monotonic() < deadline, "eth0 does not come up again"
        time.sleep(0.02)  # the kernel's link watch runs on its own


def test_an_interface_that_was_deleted_and_made_again_is_built_again(host: Host) -> None:
    wanted = links(l1=entry("192.0.2.11", 500))
    host.reconcile(wanted)
    host.ap.ip("link", "del", "eth0")
    gone = host.reconcile(wanted)
    assert not gone.ok
    host.lab.veth(host.ap.nic("eth0", "192.0.2.1/24"), host.u1.nic("eth0", "192.0.2.11/24"))
    assert host.reconcile(wanted).ok
    data = Datagram(("192.0.2.1", 50100), ("192.0.2.11", 50000))
    assert classified(host.ap, "eth0", host.ap, data.send) == {"1:1001": 1}


def test_two_links_that_match_the_same_packets_get_the_stricter_limit(host: Host) -> None:
    result = host.reconcile(
        links(l1=entry("192.0.2.11", 500), l2=entry("192.0.2.11", 300), l3=entry("192.0.2.11", 900))
    )
    assert problems(result) == {"link 2": "ambiguous_match", "link 3": "ambiguous_match"}
    assert [one.state for one in result.links] == ["error"] * 3
    assert "link 2" in result.problems[0].message
    data = Datagram(("192.0.2.1", 50100), ("192.0.2.11", 50000))
    assert classified(host.ap, "eth0", host.ap, data.send) == {"1:1002": 1}
