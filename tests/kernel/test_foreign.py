"""What is not ours survives apply and reset, is reported, and never stops the rest from being enforced."""

from __future__ import annotations

import re

import pytest

from ap_agent.model import EngineSettings
from lab import witness
from tests.kernel.conftest import Host, entry, links
from tests.kernel.packets import Datagram, classified

pytestmark = pytest.mark.kernel

BOTH = links(l1=entry("192.0.2.11", 500), l2=entry("198.51.100.11", 600))
TO_U1 = Datagram(("192.0.2.1", 50100), ("192.0.2.11", 50000))


def shell(host: Host, command: str) -> None:
    host.ap.run(*command.split())


def root_of(host: Host, dev: str) -> str:
    return re.sub(r" direct_packets_stat \d+", "", host.tc("qdisc", "show", "dev", dev, "root"))


def codes(result: object) -> list[str]:
    return [one.code for one in result.problems]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "root",
    [
        pytest.param("root handle 1: htb default 9999", id="the thesis' program"),
        pytest.param("root handle 1: htb default 0x30", id="another htb with our handle"),
        pytest.param("root handle 3: htb default 0xfffe", id="htb with the IFB's handle"),
        pytest.param("root handle 8001: tbf rate 1mbit burst 5k latency 50ms", id="tbf"),
        pytest.param("root handle 7: pfifo limit 50", id="pfifo"),
    ],
)
def test_a_foreign_root_is_reported_and_the_other_interfaces_are_enforced(host: Host, root: str) -> None:
    host.tc("qdisc", "add", "dev", "eth1", *root.split())
    foreign = root_of(host, "eth1")

    result = host.reconcile(BOTH)

    assert codes(result) == ["foreign_root"]
    assert result.problems[0].subject == "eth1"
    assert not result.ok
    assert {one.interface_id: one.state for one in result.links} == {1: "enforced", 2: "error"}
    assert result.links[1].to_user is None
    assert result.links[1].problem is not None
    assert "eth1" in result.links[1].problem
    assert root_of(host, "eth1") == foreign
    assert host.reconcile(BOTH).writes == 0
    assert host.reset().ok
    assert root_of(host, "eth1") == foreign


@pytest.mark.parametrize("kind", ["clsact", "ingress"])
@pytest.mark.parametrize("has_filter", [False, True])
def test_a_foreign_ingress_hook_is_joined_and_left_behind(host: Host, kind: str, has_filter: bool) -> None:
    host.tc("qdisc", "add", "dev", "eth0", kind)
    if has_filter:
        shell(host, "tc filter add dev eth0 ingress pref 500 protocol ip u32 match ip dport 7 0xffff")
    before = host.snapshot()

    assert host.reconcile(BOTH).ok
    back = Datagram(TO_U1.destination, TO_U1.source)
    assert classified(host.ap, "slbw0", host.u1, back.send) == {"3:1001": 1}
    assert host.reconcile(BOTH).writes == 0

    result = host.reset()
    assert result.ok, result.problems
    assert host.snapshot() == before


@pytest.mark.parametrize("hook", ["ingress", "egress"])
def test_our_clsact_stays_while_a_foreign_filter_uses_it(host: Host, hook: str) -> None:
    host.reconcile(BOTH)
    shell(host, f"tc filter add dev eth0 {hook} pref 500 protocol ip u32 match ip dport 7 0xffff")
    result = host.reset()
    assert result.ok, result.problems
    assert "clsact" in host.tc("qdisc", "show", "dev", "eth0")
    assert "clsact" not in host.tc("qdisc", "show", "dev", "eth1")
    assert "slbw0" not in host.devices()
    left = [line for line in host.tc("filter", "show", "dev", "eth0", hook).splitlines() if " pref " in line]
    assert {" pref 500 " in line for line in left} == {True}
    assert host.reset().writes == 0


def test_foreign_classes_and_filters_in_our_root_survive(host: Host) -> None:
    host.reconcile(BOTH)
    for command in (
        "tc class add dev eth0 parent 1: classid 1:5abc htb rate 3mbit",
        "tc qdisc add dev eth0 parent 1:5abc handle 5abc: pfifo limit 33",
        "tc filter add dev eth0 parent 1: pref 500 protocol ip u32 match ip dst 192.0.2.99 flowid 1:5abc",
    ):
        shell(host, command)
    foreign = [line for line in host.snapshot() if "5abc" in line]
    assert len(foreign) == 3

    changed = host.reconcile(links(l1=entry("192.0.2.11", 700), l2=entry("198.51.100.11", 600)))
    assert changed.ok, changed.problems
    assert [line for line in host.snapshot() if "5abc" in line] == foreign

    result = host.reset()
    assert codes(result) == ["foreign_in_root"]
    assert not result.ok
    assert [line for line in host.snapshot() if "5abc" in line] == foreign
    assert set(witness.classes(host.ap, "eth0")) == {"1:5abc"}
    assert "htb" not in host.tc("qdisc", "show", "dev", "eth1")
    assert "slbw0" not in host.devices()
    assert host.reset().writes == 0


def test_a_foreign_filter_that_uses_our_class_keeps_it(host: Host) -> None:
    host.reconcile(BOTH)
    shell(host, "tc filter add dev eth0 parent 1: pref 500 protocol ip u32 match ip dst 192.0.2.99 flowid 1:1001")
    result = host.reconcile(links(l2=entry("198.51.100.11", 600)))
    assert "foreign_in_root" in codes(result)
    assert set(witness.classes(host.ap, "eth0")) == {"1:1", "1:1001"}
    assert {one.interface_id: one.state for one in result.links} == {2: "enforced"}


def test_other_ifb_devices_are_never_touched(host: Host) -> None:
    host.ap.ip("link", "add", "ifb7", "type", "ifb")
    host.tc("qdisc", "add", "dev", "ifb7", "root", "handle", "3:", "htb", "default", "0xfffe")
    before = host.snapshot()
    assert host.reconcile(BOTH).ok
    assert host.reset().ok
    assert host.snapshot() == before


THEIRS = "tc filter add dev eth0 parent 1: pref {} protocol ipv6 u32 match ip6 dst ::1 flowid 1:5000"


def with_our_root(host: Host) -> None:
    host.reconcile(links(l2=entry("198.51.100.11", 600)))
    host.tc("qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "0xfffe")


def test_filters_on_both_of_our_preferences_are_reported_and_not_deleted(host: Host) -> None:
    with_our_root(host)
    for pref in (112, 113):
        shell(host, THEIRS.format(pref))
    result = host.reconcile(BOTH)
    assert codes(result) == ["foreign_filter"]
    assert "preference 112 at 1: of eth0" in result.problems[0].message
    assert {one.interface_id: one.state for one in result.links} == {1: "error", 2: "enforced"}
    for pref in (112, 113):
        assert f"protocol ipv6 pref {pref}" in host.tc("filter", "show", "dev", "eth0")


@pytest.mark.parametrize("pref", [112, 113])
def test_a_filter_on_one_of_our_preferences_leaves_us_the_other(host: Host, pref: int) -> None:
    with_our_root(host)
    shell(host, THEIRS.format(pref))
    result = host.reconcile(BOTH)
    # It is in front of ours, or among them; that is all.
    assert codes(result) == ["foreign_filter_in_front"]
    assert result.ok
    assert {one.interface_id: one.state for one in result.links} == {1: "enforced", 2: "enforced"}
    shown = host.tc("filter", "show", "dev", "eth0")
    assert f"protocol ipv6 pref {pref}" in shown
    assert f"protocol ip pref {113 + 112 - pref}" in shown
    assert f"protocol ip pref {pref}" not in shown
    assert classified(host.ap, "eth0", host.ap, TO_U1.send) == {"1:1001": 1}
    assert host.reconcile(BOTH).writes == 0


def test_a_list_of_one_filter_after_the_other_is_reported_when_somebody_has_its_preference(host: Host) -> None:
    with_our_root(host)
    shell(host, THEIRS.format(101))
    host.settings = EngineSettings(unmatched="default")
    result = host.reconcile(BOTH)
    assert codes(result) == ["foreign_filter"]
    assert "preference 101 at 1: of eth0" in result.problems[0].message
    assert "protocol ipv6 pref 101" in host.tc("filter", "show", "dev", "eth0")


def test_a_filter_in_front_of_ours_is_a_warning(host: Host) -> None:
    host.tc("qdisc", "add", "dev", "eth0", "clsact")
    shell(host, "tc filter add dev eth0 ingress pref 7 protocol all u32 match u32 0 0 flowid :1")
    result = host.reconcile(BOTH)
    assert codes(result) == ["foreign_filter_in_front"]
    assert "eth0" in result.problems[0].message
    assert "(preference 7)" in result.problems[0].message
    assert result.ok  # nothing was left undone
    host.reset()
    assert "pref 7 " in host.tc("filter", "show", "dev", "eth0", "ingress")


def test_our_ifb_stays_while_somebody_else_redirects_to_it(host: Host) -> None:
    host.reconcile(BOTH)
    shell(
        host,
        "tc filter add dev eth1 ingress pref 500 protocol ip u32 match ip src 198.51.100.11 "
        "action mirred egress redirect dev slbw0",
    )
    result = host.reset()
    assert codes(result) == ["foreign_uses_ifb"]
    assert "slbw0" in host.devices()
    data = Datagram(("198.51.100.11", 40000), ("198.51.100.1", 40000))
    host.u2.call(data.send)  # passes through what is left of it, unlimited
    assert witness.classes(host.ap, "slbw0") == {}


def test_an_interface_that_is_no_longer_managed_is_cleaned(host: Host) -> None:
    host.reconcile(BOTH)
    result = host.reconcile(links(l2=entry("198.51.100.11", 600)))
    assert result.ok, result.problems
    assert host.tc("qdisc", "show", "dev", "eth0").split()[1] == "noqueue"
    assert "clsact" not in host.tc("qdisc", "show", "dev", "eth0")
