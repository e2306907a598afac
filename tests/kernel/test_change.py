"""Changes of the wanted state: in place where that is possible, in a safe order, without touching anybody else."""

from __future__ import annotations

import time

import pytest

from ap_agent.model import EngineSettings
from lab import witness
from tests.kernel.conftest import Host, entry, links
from tests.kernel.packets import SCION_DATA, Datagram, arrivals, classified, is_reachable

pytestmark = pytest.mark.kernel

U1, U2 = "192.0.2.11", "198.51.100.11"


def flood(host: Host, port: int = 50000, count: int = 30) -> None:
    """1000 bytes of payload each, all at once."""
    data = Datagram(("192.0.2.1", 50100), (U1, port), SCION_DATA.ljust(1000))
    host.ap.call(lambda: data.send(count))


def kinds(result: object) -> set[str]:
    return {op.kind for op in result.plan.ops}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("before", "after"), [(500, 800), (800, 500), (100_000, 1), (1, 100_000_000), (16, 17)])
def test_a_new_rate_changes_classes_in_place(host: Host, before: int, after: int) -> None:
    host.reconcile(links(l1=entry(U1, before), l2=entry(U2, 700)))
    data = Datagram(("192.0.2.1", 50100), (U1, 50000))
    host.ap.call(data.send)
    sent = witness.classes(host.ap, "eth0")["1:1"].sent_packets

    result = host.reconcile(links(l1=entry(U1, after), l2=entry(U2, 700)))

    assert result.ok, result.problems
    assert kinds(result) <= {"class-change", "leaf-change"}
    assert {op.links for op in result.plan.ops} == {frozenset({1})}
    assert {one.interface_id: one.to_user and one.to_user.rate_kbit for one in result.links} == {1: after, 2: 700}
    assert sent == 1
    assert witness.classes(host.ap, "eth0")["1:1"].sent_packets == 1  # the same class: its counter went on
    assert host.reconcile(links(l1=entry(U1, after), l2=entry(U2, 700))).writes == 0


def test_rates_rise_parent_first_and_fall_child_first(host: Host) -> None:
    def order(result: object) -> list[str]:
        ops = result.plan.ops  # type: ignore[attr-defined]
        return [str(op.new.handle) for op in ops if op.kind == "class-change" and op.device.name == "eth0"]

    host.reconcile(links(l1=entry(U1, 10)))
    assert order(host.reconcile(links(l1=entry(U1, 20)))) == ["1:1", "1:2001", "1:1001"]
    assert order(host.reconcile(links(l1=entry(U1, 12)))) == ["1:2001", "1:1001", "1:1"]


def test_blocking_drops_what_waits_and_unblocking_lets_through_again(host: Host) -> None:
    host.reconcile(links(l1=entry(U1, 2000)))
    flood(host)
    assert witness.classes(host.ap, "eth0")["1:1001"].backlog_bytes > 5000

    result = host.reconcile(links(l1=entry(U1, 0)))

    assert result.ok, result.problems
    assert result.links[0].to_user is not None
    assert (result.links[0].to_user.rate_kbit, result.links[0].to_user.backlog_bytes) == (0, 0)
    sent = witness.classes(host.ap, "eth0")["1:1"].sent_packets
    flood(host)
    time.sleep(0.3)  # what waited would leave at 8 kbit/s, one packet a second and the first at once
    assert witness.classes(host.ap, "eth0")["1:1"].sent_packets == sent

    assert host.reconcile(links(l1=entry(U1, 2000))).ok
    data = Datagram(("192.0.2.1", 50100), (U1, 50000))
    assert arrivals(host.u1, data.destination, lambda: host.ap.call(lambda: data.send(4))) == 4


def test_a_link_that_moves_to_another_address_and_interface_takes_its_limit_along(host: Host) -> None:
    host.reconcile(links(l1=entry(U1, 500)))
    result = host.reconcile(links(l1=entry(U2, 500, 50007)))
    assert result.ok, result.problems
    assert result.links[0].to_user is not None
    assert result.links[0].to_user.dev == "eth1"
    assert "htb" not in host.tc("qdisc", "show", "dev", "eth0")
    assert "clsact" not in host.tc("qdisc", "show", "dev", "eth0")
    moved = Datagram(("198.51.100.1", 50100), (U2, 50007))
    assert classified(host.ap, "eth1", host.ap, moved.send) == {"1:1001": 1}


def test_a_port_change_adds_the_new_filter_before_the_old_one_goes(host: Host) -> None:
    host.reconcile(links(l1=entry(U1, 500, 50000), l2=entry(U1, 600, 50001)))
    result = host.reconcile(links(l1=entry(U1, 500, 50009), l2=entry(U1, 600, 50001)))
    assert result.ok, result.problems
    for dev in ("eth0", "slbw0"):
        own = [op.kind for op in result.plan.ops if op.device.name == dev]
        assert own == ["filter-add", "filter-add", "filter-del", "filter-del"]


def test_links_that_swap_their_ports_are_never_without_a_filter(host: Host) -> None:
    host.reconcile(links(l1=entry(U1, 500, 50000), l2=entry(U1, 600, 50001)))
    result = host.reconcile(links(l1=entry(U1, 500, 50001), l2=entry(U1, 600, 50000)))
    assert result.ok, result.problems
    data = Datagram(("192.0.2.1", 50100), (U1, 50000))
    assert classified(host.ap, "eth0", host.ap, data.send) == {"1:1002": 1}


def test_removing_one_of_two_links_leaves_the_other_alone(host: Host) -> None:
    both = links(l1=entry(U1, 500, 50000), l2=entry(U1, 600, 50001))
    host.reconcile(links(l2=entry(U1, 600, 50001)))
    alone = host.snapshot()
    host.reset()
    host.reconcile(both)

    result = host.reconcile(links(l2=entry(U1, 600, 50001)))

    assert result.ok, result.problems
    assert host.snapshot() == alone


def test_removing_the_last_user_leaves_the_host_reachable_and_clean(host: Host) -> None:
    before = host.snapshot()
    host.reconcile(links(l1=entry(U1, 0), l2=entry(U2, 600, None)))
    infrastructure = {**entry(U1, 1000), "IsUserAS": False}

    result = host.reconcile(links(l3=infrastructure))

    assert result.ok, result.problems
    assert result.links == ()
    assert host.snapshot() == before
    assert is_reachable(host.ap, U1)
    back = Datagram((U1, 50000), ("192.0.2.1", 50100))
    assert arrivals(host.ap, back.destination, lambda: host.u1.call(lambda: back.send(3))) == 3


def test_infrastructure_links_are_never_limited(host: Host) -> None:
    before = host.snapshot()
    result = host.reconcile(links(l3={**entry(U1, 1000), "IsUserAS": False}))
    assert (result.writes, result.links, result.ok) == (0, (), True)
    assert host.snapshot() == before


def test_switching_what_happens_to_unmatched_traffic_and_back(host: Host) -> None:
    wanted = links(l1=entry(U1, 500), l2=entry("2001:db8:1::11", 600))
    host.reconcile(wanted)
    unlimited = host.snapshot()
    host.settings = EngineSettings(unmatched="default", default_bandwidth_kbit=1000)
    assert host.reconcile(wanted).ok
    limited = host.snapshot()
    assert any("1:fffe" in line for line in limited)

    host.settings = EngineSettings(unmatched="default", default_bandwidth_kbit=2000)
    changed = host.reconcile(wanted)
    assert changed.ok, changed.problems
    assert kinds(changed) <= {"class-change", "leaf-change"}

    host.settings = EngineSettings()
    assert host.reconcile(wanted).ok
    assert host.snapshot() == unlimited


def test_rates_from_1_kbit_to_100_gbit_come_back_exactly(host: Host) -> None:
    rates = [1, 2, 15, 16, 31, 32, 33, 999, 123_457, 34_359_738, 34_359_739, 99_999_999, 100_000_000]
    wanted = links(**{f"l{number}": entry(U1, rate, 50000 + number) for number, rate in enumerate(rates, 1)})
    result = host.reconcile(wanted)
    assert result.ok, result.problems
    assert [one.to_user.rate_kbit for one in result.links if one.to_user] == rates
    assert [one.from_user.rate_kbit for one in result.links if one.from_user] == rates
    assert host.reconcile(wanted).writes == 0
    assert witness.classes(host.ap, "eth0")["1:d"].rate_bits == 100_000_000_000


def test_the_greatest_mtu_and_the_smallest_rate_fit_into_the_kernels_ticks(host: Host) -> None:
    host.ap.ip("link", "set", "eth0", "mtu", "65535")
    wanted = links(l1=entry(U1, 1), l2=entry(U1, 0, 50001))
    result = host.reconcile(wanted)
    assert result.ok, result.problems
    assert host.reconcile(wanted).writes == 0
