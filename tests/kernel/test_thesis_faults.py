"""What the thesis' own program gets wrong (DOMAIN section 6), one test per line that is not proven elsewhere here.

Elsewhere: a limit of 0 and two ASes behind one address (test_classification), the redirect to a deleted device and the
foreign IFBs (test_repair, test_foreign), nothing torn down for a change (test_change).
"""

from __future__ import annotations

import pytest

from bandwidth_config import LinkInfoError, check_link_info
from lab import witness
from tests.kernel.conftest import Host, entry, links
from tests.kernel.packets import Datagram, arrivals, classified, is_reachable

pytestmark = pytest.mark.kernel

U1, U2 = "192.0.2.11", "198.51.100.11"


def test_removing_the_last_user_does_not_black_hole_the_host(host: Host) -> None:
    host.reconcile(links(l1=entry(U1, 500)))
    host.reconcile({})
    assert "slbw0" not in host.devices()
    assert "mirred" not in str(host.snapshot())
    assert is_reachable(host.u1, "192.0.2.1")
    back = Datagram((U1, 50000), ("192.0.2.1", 50100))
    assert arrivals(host.ap, back.destination, lambda: host.u1.call(lambda: back.send(3))) == 3


def test_other_traffic_of_the_interface_does_not_share_a_default_class(host: Host) -> None:
    host.reconcile(links(l1=entry(U1, 500)))
    assert set(witness.classes(host.ap, "eth0")) == {"1:1", "1:1001", "1:2001"}
    other = Datagram(("192.0.2.1", 40000), (U1, 40000), bytes(1000))
    before = _passed_directly(host)
    # 80 kB, as much as the receiver's buffer takes at once
    assert arrivals(host.u1, other.destination, lambda: host.ap.call(lambda: other.send(80))) == 80
    assert _passed_directly(host) - before >= 80


def _passed_directly(host: Host) -> int:
    """Packets that HTB sent without any class, as it counts them."""
    return int(host.tc("qdisc", "show", "dev", "eth0", "root").partition("direct_packets_stat ")[2].split()[0])


def test_two_links_of_one_as_do_not_collide(host: Host) -> None:
    """The same AS_ID at both: class ids come from the interface."""
    host.reconcile(links(l1=entry(U1, 500, AS_ID=0xB6), l2=entry(U1, 700, 50001, AS_ID=0xB6)))
    found = witness.classes(host.ap, "eth0")
    assert (found["1:1"].rate_bits, found["1:2"].rate_bits) == (500_000, 700_000)


@pytest.mark.parametrize("as_id", [9999, 0x9999, 0xFFFE, 0xFFFF])
def test_no_as_id_collides_with_a_class_of_ours(host: Host, as_id: int) -> None:
    result = host.reconcile(links(l1=entry(U1, 500, AS_ID=as_id)))
    assert result.ok, result.problems
    assert set(witness.classes(host.ap, "eth0")) == {"1:1", "1:1001", "1:2001"}


def test_a_shell_command_in_an_address_is_refused_and_runs_nowhere(host: Host) -> None:
    with pytest.raises(LinkInfoError) as refused:
        check_link_info({"1": entry("192.0.2.11; touch /tmp/owned", 500)})
    assert refused.value.code == "address_invalid"


def test_three_hundred_links_are_one_cycle_and_the_second_writes_nothing(host: Host) -> None:
    host.ap.ip("addr", "add", "10.77.0.1/16", "dev", "eth0")
    many = links(**{f"l{n}": entry(f"10.77.{1 + n // 200}.{1 + n % 200}", 100 + n) for n in range(1, 301)})
    result = host.reconcile(many)
    assert result.ok, result.problems
    assert len(result.links) == 300
    assert {one.state for one in result.links} == {"enforced"}
    found = witness.classes(host.ap, "slbw0")
    assert len(found) == 900
    assert found["3:12c"].rate_bits == 400_000
    assert host.reconcile(many).writes == 0


def test_what_was_not_done_is_said(host: Host) -> None:
    """The thesis' program exits 0 whatever happened."""
    host.tc("qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "9999")
    result = host.reconcile(links(l1=entry(U1, 500), l2=entry(U2, 500)))
    assert not result.ok
    assert result.problems[0].message.startswith("eth0 has the root qdisc htb 1: that is not ours")


def test_a_flood_of_one_link_does_not_block_the_routers_socket_for_the_others(host: Host) -> None:
    """Bounded queues: the thesis' queue takes 1000 packets, more than a socket's send buffer."""
    host.reconcile(links(l1=entry(U1, 100), l2=entry(U1, 100_000, 50001)))
    flood = Datagram(("192.0.2.1", 50100), (U1, 50000), bytes(1000))
    host.ap.call(lambda: flood.send(500))
    class_ = witness.classes(host.ap, "eth0")["1:1001"]
    assert class_.backlog_bytes <= 4 * 1514
    assert class_.drops > 400
    other = Datagram(("192.0.2.1", 50100), (U1, 50001))
    # The flood's own backlog goes on leaving meanwhile, a packet each 83 ms.
    assert classified(host.ap, "eth0", host.ap, lambda: other.send(5))["1:1002"] == 5
