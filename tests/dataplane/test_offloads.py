"""Super-packets, as a host with offloads sends them; and addresses that mean something on one interface alone."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from ap_agent.dataplane.program import Key
from tests.dataplane.bed import AP, AP6, AP_PORT, USER, USER6, USER_PORT, Bed
from tests.dataplane.frames import datagram

pytestmark = pytest.mark.kernel

UDP_SEGMENT = 103  # linux/udp.h
SEGMENT_BYTES, SEGMENTS = 1_000, 10
LINK_LOCAL = "fe80::11"


@pytest.fixture
def offloads(ap: Bed) -> Iterator[Bed]:
    for host, dev in ((ap.ap, "n0"), (ap.user, "u0")):
        host.ip("link", "set", dev, "gso_max_segs", "65535")
    yield ap
    for host, dev in ((ap.ap, "n0"), (ap.user, "u0")):
        host.ip("link", "set", dev, "gso_max_segs", "1")


@pytest.mark.parametrize("to_user", [True, False], ids=["to the user", "from the user"])
@pytest.mark.parametrize(
    ("address", "own", "wire_bytes"), [(USER, AP, 10_420), (USER6, AP6, 10_620)], ids=["IPv4", "IPv6"]
)
def test_each_segment_of_a_super_packet_is_charged_with_its_headers(
    offloads: Bed, address: str, own: str, wire_bytes: int, to_user: bool
) -> None:
    """10 segments of 1000 bytes, each with 42 bytes of headers, 62 of IPv6."""
    offloads.link(7, 10_000, 10_000, Key(ip_address(address), USER_PORT))
    before = offloads.counters(7)[not to_user]
    ends = ((own, AP_PORT), (address, USER_PORT))
    source, destination = ends if to_user else ends[::-1]

    def send() -> None:
        with socket.socket(socket.AF_INET6 if ":" in own else socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, SEGMENT_BYTES)
            sock.bind(source)
            sock.sendto(bytes(SEGMENT_BYTES * SEGMENTS), destination)

    receiver_host = offloads.user if to_user else offloads.ap
    with offloads.listen(receiver_host, destination[0], destination[1]) as receiver:
        (offloads.ap if to_user else offloads.user).call(send)
        assert [len(one) for one in receiver.received()[destination[1]]] == [SEGMENT_BYTES] * SEGMENTS
    after = offloads.counters(7)[not to_user]
    assert after.passed_packets - before.passed_packets == SEGMENTS
    assert after.passed_bytes - before.passed_bytes == wire_bytes


def test_a_link_local_address_is_a_links_on_its_own_interface_alone(ap: Bed) -> None:
    here = ap.ap.call(lambda: socket.if_nametoindex("n0"))
    ap.link(7, 0, 0, Key(ip_address(LINK_LOCAL), USER_PORT, ifindex=here))
    ap.link(8, 0, 0, Key(ip_address(LINK_LOCAL), USER_PORT + 1, ifindex=here + 1000))
    frames = [
        datagram(source=(LINK_LOCAL, port), destination=(AP6, AP_PORT))[0].frame for port in (USER_PORT, USER_PORT + 1)
    ]
    before = [ap.counters(one)[1].refused_packets for one in (7, 8)]
    with ap.ap.call(lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_UDP)) as raw:
        raw.settimeout(1.0)
        ap.send(frames)
        ports = {struct.unpack_from("!H", raw.recv(2_000))[0]}
        raw.settimeout(0.2)
        with pytest.raises(TimeoutError):
            raw.recv(2_000)
    assert ports == {USER_PORT + 1}
    assert [ap.counters(one)[1].refused_packets for one in (7, 8)] == [before[0] + 1, before[1]]
