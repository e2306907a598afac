"""What others and a blocked user do to the host's reassembly (property 6). Each test has namespaces of its own: Linux
keeps what is incomplete for 30 s, and drops what comes while that is more than `ipfrag_high_thresh`."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from ap_agent.dataplane.program import Key
from tests.dataplane.bed import AP, AP_PORT, OTHER, USER, USER_PORT, Bed, bed
from tests.dataplane.conftest import MISSING
from tests.dataplane.frames import Packet, datagram, scion

pytestmark = pytest.mark.kernel

USER_ADDRESS = ip_address(USER)


@pytest.fixture
def ap() -> Iterator[Bed]:
    if MISSING:
        pytest.skip(MISSING)
    with bed() as made:
        yield made


def reassembly(ap: Bed, name: str = "ReasmReqds") -> int:
    lines = [one.split() for one in ap.ap.run("cat", "/proc/net/snmp").splitlines() if one.startswith("Ip:")]
    return int(lines[1][lines[0].index(name)])


def test_fragments_of_strangers_take_nothing_from_datagrams_to_the_user(ap: Bed) -> None:
    """Later fragments with new identifications and the user's address: 20 beside each datagram of three fragments."""
    ap.link(7, 100_000, 100_000, Key(USER_ADDRESS, USER_PORT))
    stranger = [Packet(bytes(32), offset=800, more=True, identification=number).frame for number in range(4000)]
    with ap.listen(ap.user, USER, USER_PORT) as receiver:
        for number in range(200):
            ends = {"source": (AP, AP_PORT), "destination": (USER, USER_PORT), "from_user": False}
            first, *rest = datagram(scion(size=4000), piece=1480, identification=number, **ends)
            ap.send([first.frame], from_ap=True)
            ap.send(stranger[number * 20 : number * 20 + 20])
            ap.send([one.frame for one in rest], from_ap=True)
        assert len(receiver.received()[USER_PORT]) >= 199


def test_later_fragments_of_strangers_take_nothing_from_datagrams_of_the_user(ap: Bed) -> None:
    ap.link(7, 100_000, 100_000, Key(USER_ADDRESS, USER_PORT))
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        for number in range(200):
            first, *rest = datagram(scion(size=4000), piece=1480, identification=20_000 + number)
            strangers = [
                Packet(bytes(32), offset=800, more=True, identification=30_000 + number * 20 + one).frame
                for one in range(20)
            ]
            ap.send([first.frame, *strangers, *(one.frame for one in rest)])
        assert ap.counters(7)[1].refused_packets == 0, ap.counters(7)
        assert len(receiver.received()[AP_PORT]) >= 199


def test_a_blocked_user_does_not_fill_the_reassembly(ap: Bed) -> None:
    """Each datagram's first fragment last: 5400 later fragments, and somebody else's datagrams beside them."""
    ap.link(7, 0, 0, Key(USER_ADDRESS, USER_PORT))
    ap.ap.sysctl({"net.ipv4.ipfrag_high_thresh": 4 << 20})
    before = reassembly(ap)
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        for number in range(50):
            for one in range(9):
                first, *later = datagram(scion(size=1000), piece=80, identification=1000 + number * 9 + one)
                ap.send([*(one.frame for one in later), first.frame])
            ap.send(
                [one.frame for one in datagram(scion(size=3000), source=(OTHER, 5), piece=1480, identification=number)]
            )
        assert len(receiver.received()[AP_PORT]) == 50
    assert reassembly(ap) - before - 150 <= 300
