"""Every fragment has the verdict and the link of its own datagram, in whatever order they come."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
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


def in_order(packets: list[Packet]) -> list[Packet]:
    return packets


def last_first(packets: list[Packet]) -> list[Packet]:
    return packets[::-1]


def shuffled(packets: list[Packet]) -> list[Packet]:
    return random.Random(7).sample(packets, len(packets))  # noqa: S311  a repeatable order


ORDERS = [in_order, last_first, shuffled]


@pytest.mark.parametrize("order", ORDERS)
def test_of_three_links_of_one_address_each_datagram_follows_its_own(
    ap: Bed, order: Callable[[list[Packet]], list[Packet]]
) -> None:
    limited, other = USER_PORT, USER_PORT + 10
    ap.link(7, 10_000, 10_000, Key(USER_ADDRESS, limited))
    ap.link(8, 0, 0, Key(USER_ADDRESS, BLOCKED_PORT))
    ap.link(9, 20_000, 20_000, Key(USER_ADDRESS, other))
    before = [ap.counters(one)[1] for one in (7, 8, 9)]
    ports = (limited, BLOCKED_PORT, other, FREE_PORT)
    datagrams = [fragments(port, number) for port, number in zip(ports, ap.identifications(4), strict=True)]
    packets = [packet for one in datagrams for packet in order(one)]
    assert received(ap, packets) == 3
    counted = [ap.counters(one)[1] for one in (7, 8, 9)]
    passed = [now.passed_bytes - then.passed_bytes for now, then in zip(counted, before, strict=True)]
    refused = [now.refused_packets - then.refused_packets for now, then in zip(counted, before, strict=True)]
    wire = sum(len(one.frame) for one in datagrams[0])
    assert passed[0] == passed[2] == wire
    assert passed[1] < wire  # what came before the first fragment, and is worth nothing without it
    assert refused[0] == refused[2] == 0
    assert refused[1] >= 1


def test_fragments_without_a_first_one_pass_only_within_the_bucket_of_their_address(ap: Bed) -> None:
    ap.link(7, 500, 500, Key(USER_ADDRESS, USER_PORT))
    before = ap.ap.run("cat", "/proc/net/snmp")
    followers = [one for number in ap.identifications(400) for one in fragments(USER_PORT, number)[1:]]
    assert received(ap, followers) == 0
    after = ap.ap.run("cat", "/proc/net/snmp")
    sent_bytes = sum(len(one.frame) for one in followers)
    passed_bytes = (_reassembly_requests(after) - _reassembly_requests(before)) * sent_bytes / len(followers)
    assert sent_bytes > 1_000_000
    assert passed_bytes <= 140_000 + 4_000 * 5 + 1514  # the bucket, what flows into it in 5 s, a frame
    # And nobody else has less: another port of the same address, whole.
    assert received(ap, datagram(source=(USER, FREE_PORT))) == 1


def _reassembly_requests(text: str) -> int:
    names, values = (line.split() for line in text.splitlines() if line.startswith("Ip:"))
    return int(values[names.index("ReasmReqds")])


def test_a_first_fragment_without_ports_is_dropped(ap: Bed) -> None:
    ap.link(7, 500, 500, Key(ip_address("2001:db8::11"), USER_PORT))
    source, destination = ("2001:db8::11", USER_PORT), ("2001:db8::1", AP_PORT)
    whole = datagram(scion(size=600), source=source, destination=destination, extensions=(60,))[0]
    # The first eight bytes behind the fragment header are an extension header, the ports come in the second fragment.
    chain = bytes([17, 0, 1, 4, 0, 0, 0, 0])
    hidden = replace(whole, body=chain + whole.body, protocol=60, extensions=())
    (number,) = ap.identifications()
    first = replace(hidden, body=hidden.body[:8], more=True, identification=number)
    second = replace(hidden, body=hidden.body[8:], offset=8, identification=number)
    with ap.listen(ap.ap, "2001:db8::1", AP_PORT) as receiver:
        ap.send([first.frame, second.frame])
        assert len(receiver.received()[AP_PORT]) == 0
        ap.send([whole.frame])
        assert len(receiver.received()[AP_PORT]) == 1


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
