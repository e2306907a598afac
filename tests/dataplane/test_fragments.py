"""Every fragment has the verdict and the link of its own datagram, in whatever order they come."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from ap_agent.dataplane.program import Key
from tests.dataplane.bed import AP, AP_PORT, USER, USER_PORT, Bed
from tests.dataplane.frames import Packet, datagram, scion

pytestmark = pytest.mark.kernel

BLOCKED_PORT, FREE_PORT = 50_002, 50_099
USER_ADDRESS = ip_address(USER)


def fragments(port: int, identification: int, size: int = 4000) -> list[Packet]:
    return datagram(
        scion(size=size), source=(USER, port), destination=(AP, AP_PORT), piece=1480, identification=identification
    )


def received(ap: Bed, packets: list[Packet]) -> int:
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        ap.send([one.frame for one in packets])
        return len(receiver.received()[AP_PORT])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)], ids=["in order", "last first", "mixed"])
def test_of_three_links_of_one_address_each_datagram_follows_its_own(ap: Bed, order: tuple[int, ...]) -> None:
    limited, other = USER_PORT, USER_PORT + 10
    ap.link(7, 10_000, 10_000, Key(USER_ADDRESS, limited))
    ap.link(8, 0, 0, Key(USER_ADDRESS, BLOCKED_PORT))
    ap.link(9, 20_000, 20_000, Key(USER_ADDRESS, other))
    before = [ap.counters(one)[1] for one in (7, 8, 9)]
    ports = (limited, BLOCKED_PORT, other, FREE_PORT)
    datagrams = [fragments(port, number) for port, number in zip(ports, ap.identifications(4), strict=True)]
    packets = [one[at] for one in datagrams for at in order]
    assert received(ap, packets) == 3
    counted = [ap.counters(one)[1] for one in (7, 8, 9)]
    passed = [now.passed_bytes - then.passed_bytes for now, then in zip(counted, before, strict=True)]
    refused = [now.refused_packets - then.refused_packets for now, then in zip(counted, before, strict=True)]
    wire = sum(len(one.frame) for one in datagrams[0])
    assert passed[0] == passed[2] == wire
    assert passed[1] < wire  # what came before the first fragment, and is worth nothing without it
    assert refused[0] == refused[2] == 0
    assert refused[1] >= 1


@pytest.mark.parametrize("size", [3000, 10_000, 65_507])
def test_under_fourfold_overload_datagrams_pass_whole_or_not_at_all(ap: Bed, size: int) -> None:
    """Of what was admitted every byte arrives, as a part of a whole datagram."""
    ap.link(7, 5_000, 5_000, Key(USER_ADDRESS, USER_PORT))
    before = ap.counters(7)[1]
    numbers = ap.identifications(max(8, 4 * 5_000 * 125 * 2 // size))
    datagrams = [fragments(USER_PORT, number, size) for number in numbers]
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        ap.pace([one.frame for each in datagrams for one in each], kbit=20_000)
        found = len(receiver.received(quiet_s=1.0)[AP_PORT])
    counted = ap.counters(7)[1]
    wire = sum(len(one.frame) for one in datagrams[0])
    assert found * wire == counted.passed_bytes - before.passed_bytes
    assert counted.refused_packets > before.refused_packets
