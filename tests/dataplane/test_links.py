"""Which link a packet belongs to, and what its lane does: blocked, observed, changed, heartbeats, the rest of an AP."""

from __future__ import annotations

import re
import socket
import time
from ipaddress import ip_address

import pytest

from ap_agent.dataplane.program import Key
from lab.frames.shape import DESTINATION
from tests.dataplane.bed import AP, AP6, AP_PORT, HEARTBEAT, OTHER, USER, USER6, USER_PORT, Bed
from tests.dataplane.frames import datagram, scion

pytestmark = pytest.mark.kernel

USER_ADDRESS, AP_ADDRESS = ip_address(USER), ip_address(AP)


def frame(port: int = USER_PORT, *, to: int = AP_PORT, user: str = USER, mark: int = 17, size: int = 200) -> bytes:
    return datagram(scion(mark, size), source=(user, port), destination=(AP, to))[0].frame


def counted(ap: Bed, *links: int) -> list[int]:
    """Packets from the user that each link has seen."""
    found = [ap.counters(one)[1] for one in links]
    return [one.passed_packets + one.refused_packets for one in found]


def test_the_key_that_says_most_wins(ap: Bed) -> None:
    keys = [
        Key(USER_ADDRESS, USER_PORT, AP_ADDRESS, AP_PORT),
        Key(USER_ADDRESS, USER_PORT),
        Key(USER_ADDRESS, local_port=AP_PORT + 2),
        Key(USER_ADDRESS),
    ]
    for number, key in enumerate(keys, start=10):
        ap.link(number, 10_000, 10_000, key)
    before = counted(ap, 10, 11, 12, 13)
    ap.send([frame(), frame(to=AP_PORT + 1), frame(9999, to=AP_PORT + 2), frame(9999), frame(user=OTHER)])
    assert [now - then for now, then in zip(counted(ap, 10, 11, 12, 13), before, strict=True)] == [1, 1, 1, 1]


@pytest.mark.parametrize("port", [None, USER_PORT], ids=["of the thesis' four keys", "of a port"])
def test_other_protocols_of_an_address_are_of_a_link_without_a_port_alone(ap: Bed, port: int | None) -> None:
    ap.link(7, 0, 0, Key(USER_ADDRESS, port))
    before = counted(ap, 7)[0]
    assert _pings(ap) is (port is not None)
    assert counted(ap, 7)[0] == before + (port is None)


def _pings(ap: Bed) -> bool:
    def ask() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as sock:
            sock.bind((USER, 0))
            sock.settimeout(0.5)
            sock.sendto(b"\x08\0\0\0\0\0\0\1", (AP, 0))
            try:
                return sock.recv(64)[:1] == b"\0"
            except TimeoutError:
                return False

    ap.user.sysctl({"net.ipv4.ping_group_range": 0})
    return ap.user.call(ask)


def test_a_limit_that_rises_holds_with_the_next_packet(ap: Bed) -> None:
    key = Key(USER_ADDRESS, USER_PORT)
    ap.link(7, 8, 8, key)
    ap.send([frame(size=1400)] * 30)  # 13 s of its room
    ap.link(7, 10_000, 10_000, key)
    time.sleep(0.2)
    before = ap.counters(7)[1]
    ap.send([frame(size=500)])
    assert ap.counters(7)[1].passed_packets == before.passed_packets + 1


@pytest.mark.parametrize("kbit", [32, 100, 2_000])
def test_heartbeats_arrive_at_twentyfold_overload(ap: Bed, kbit: int) -> None:
    ap.link(7, kbit, kbit, Key(USER_ADDRESS, USER_PORT))
    before = ap.counters(7)[1]
    data, beat = frame(size=458), frame(mark=HEARTBEAT, size=92)
    per_beat = max(1, kbit * 20 * 125 // 5 // len(data))
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        for _ in range(15):
            ap.send([beat])
            ap.pace([data] * per_beat, kbit=kbit * 20)
        found = receiver.received(quiet_s=1.0)[AP_PORT]
    after = ap.counters(7)[1]
    assert sum(one[4] == HEARTBEAT for one in found) == 15
    assert after.heartbeat_packets - before.heartbeat_packets == 15
    assert after.refused_packets - before.refused_packets > per_beat * 10


def test_a_hop_limit_of_neighbours_frees_nothing_else(ap: Bed) -> None:
    ap.link(1, 0, 0)  # everything: blocked
    ends = {"source": (USER6, USER_PORT), "destination": (AP6, AP_PORT), "hops": 255}
    sent = [
        datagram(**ends)[0].frame,
        datagram(**ends, extensions=(DESTINATION,) * 30)[0].frame,  # more than the program reads
        *(one.frame for one in datagram(scion(size=2000), piece=1000, **ends)),
    ]
    with ap.listen(ap.ap, AP6, AP_PORT) as receiver:
        ap.send(sent)
        assert len(receiver.received()[AP_PORT]) == 3  # so the kernel takes each of them
        ap.program.unmatched = 2
        ap.send(sent)
        assert receiver.received()[AP_PORT] == []


def test_a_cap_of_the_attachment_point_multiplies_every_charge(ap: Bed) -> None:
    ap.link(7, 500, 500, Key(USER_ADDRESS, USER_PORT))
    ap.program.set_factors(1.0, 4.0)
    before = ap.counters(7)[1]
    began = time.monotonic()
    ap.offer(frame(size=958), 4_000, 2.0)
    seconds = time.monotonic() - began
    passed = ap.counters(7)[1].passed_bytes - before.passed_bytes
    assert 0.7 * 125 * 125 * 2 <= passed <= 125 * 125 * seconds + 20_000 / 4 + 1_000


def test_packets_to_a_user_keep_their_priority_and_pass_once(ap: Bed) -> None:
    """The card's own qdisc, which has two classes, takes packets by the priority that their socket gave them."""
    ap.link(7, 50_000, 50_000, Key(USER_ADDRESS, USER_PORT))
    before = ap.counters(7)[0]
    ap.tc("qdisc", "add", "dev", "n0", "root", "handle", "1:", "htb", "default", "1")
    try:
        for minor in ("1", "6"):
            ap.tc("class", "add", "dev", "n0", "parent", "1:", "classid", f"1:{minor}", "htb", "rate", "1gbit")
        with ap.listen(ap.user, USER, USER_PORT) as receiver:

            def send() -> None:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 0x1_0006)  # class 1:6
                    sock.bind((AP, AP_PORT))
                    for _ in range(20):
                        sock.sendto(scion(), (USER, USER_PORT))

            ap.ap.call(send)
            assert len(receiver.received()[USER_PORT]) == 20
        assert ap.counters(7)[0].passed_packets - before.passed_packets == 20
        shown = ap.tc("-s", "class", "show", "dev", "n0")
        assert re.search(r"class htb 1:6 .*?Sent [0-9]+ bytes 20 pkt", shown, flags=re.DOTALL), shown
    finally:
        ap.tc("qdisc", "del", "dev", "n0", "root")
