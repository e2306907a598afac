"""What must hold for any sequence of frames: the scenes of real packets that once broke it, one by one.

Numbers are those of the specification: a room of 20,000 bytes from 100 kbit/s on (14,000 below), one largest datagram
of 70,000 with its headers, heartbeats inside the limit.
"""

from __future__ import annotations

import functools
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address

import pytest

from ap_agent.dataplane.program import Key
from lab.frames.replay import Runner, on_two_processors
from lab.frames.shape import OUTER_TAG, TAG, mend_checksum
from tests.dataplane.bed import AP, AP6, AP_PORT, HEARTBEAT, OTHER, USER, USER6, USER_PORT, Bed
from tests.dataplane.frames import Packet, checksum, datagram, mac, pieces, scion

pytestmark = pytest.mark.kernel

ROOM_BYTES, DATAGRAM_BYTES = 20_000, 70_000
OTHER_PORT = 50_099  # of the user, without a link
USER_ADDRESS, USER6_ADDRESS = ip_address(USER), ip_address(USER6)
run = Runner().run


def allowed_bytes(kbit: int, seconds: float) -> float:
    return kbit * 125 * seconds + ROOM_BYTES + DATAGRAM_BYTES


# --- 1: the limit, whatever came before the first fragment ---------------------------------------------------------


def contradicting(number: int, family: int, first_bytes: int, size: int = 60_000) -> list[bytes]:
    """A first fragment of another port that Linux does not take, the later ones, and then the real first one, which
    says with a UDP length of 0 that all of it is the datagram."""
    ends = (USER6, AP6) if family == 6 else (USER, AP)
    whole = datagram(
        scion(size=size), source=(ends[0], USER_PORT), destination=(ends[1], AP_PORT), identification=number
    )[0]
    if family == 6:
        length, right = struct.unpack_from("!HH", whole.body, 4)
        sum_without_length = right + length
        sum_without_length = (sum_without_length & 0xFFFF) + (sum_without_length >> 16)
        whole = replace(whole, body=whole.body[:4] + struct.pack("!HH", 0, sum_without_length) + whole.body[8:])
    real, *later = [replace(whole, body=whole.body[:8], more=True), *_later(whole, 8, 1400)]
    lure = struct.pack("!HHHH", OTHER_PORT, AP_PORT, 5000, 0) + b"x" * 40
    return [one.frame for one in (replace(real, body=lure[:first_bytes]), *later, real)]


def _later(whole: Packet, start: int, size: int) -> Iterator[Packet]:
    for one in pieces(replace(whole, body=whole.body[start:]), size):
        yield replace(one, offset=one.offset + start)


@pytest.mark.parametrize(("family", "first_bytes"), [(6, 13), (6, 8), (6, 16), (4, 8), (4, 16)])
def test_a_first_fragment_of_another_port_frees_no_datagram_of_a_link(ap: Bed, family: int, first_bytes: int) -> None:
    address, here = (USER6_ADDRESS, AP6) if family == 6 else (USER_ADDRESS, AP)
    ap.link(7, 500, 500, Key(address, USER_PORT))
    ap.ap.sysctl({"net.ipv4.ipfrag_high_thresh": 1 << 28, "net.ipv6.ip6frag_high_thresh": 1 << 28})
    frames = [one for number in ap.identifications(100) for one in contradicting(number, family, first_bytes)]
    before, began = ap.counters(7)[1], time.monotonic()
    with ap.listen(ap.ap, here, AP_PORT) as receiver:
        ap.send(frames)
        found = receiver.received(other_port=True).get(USER_PORT, [])
    after, seconds = ap.counters(7)[1], time.monotonic() - began
    assert sum(map(len, found)) <= allowed_bytes(500, seconds)
    assert sum(map(len, found)) <= after.passed_bytes - before.passed_bytes  # what arrived was counted


@pytest.mark.parametrize("is_links_first", [True, False])
def test_a_second_first_fragment_is_refused(ap: Bed, is_links_first: bool) -> None:
    ap.link(7, 500, 500, Key(USER_ADDRESS, USER_PORT))
    lure, *_, real = contradicting(2500, 4, 16)
    first, second = (real, lure) if is_links_first else (lure, real)
    from_user = ap.program.fds["from_user"]
    assert [run(from_user, one) for one in (first, second)] == [True, False]


def test_an_identification_stays_nobodys_also_when_its_slot_is_needed(ap: Bed) -> None:
    """Later fragments of a nobody's datagram pass free; then as many others come as push its verdict out, and then a
    first fragment of the link: Linux may have dropped the one before, but we have let its bytes pass."""
    ap.link(7, 500, 500, Key(USER_ADDRESS, USER_PORT))
    passed = 0
    from_user = ap.program.fds["from_user"]
    for number in range(20):
        lure, *later, real = contradicting(3000 + number, 4, 16)
        lure = lure[:24] + bytes(2) + lure[26:]  # a wrong checksum: Linux drops it
        others = [contradicting(10_000 + number * 300 + one, 4, 16, 64)[0] for one in range(300)]
        for frame in (lure, *later, *others):
            run(from_user, frame)
        passed += run(from_user, real)
    assert passed == 0


@pytest.mark.parametrize("why", ["long ago", "far behind", "another host's", "few hops"])
def test_a_first_fragment_that_linux_may_not_have_frees_no_datagram_of_a_link(ap: Bed, why: str) -> None:
    """Linux forgets it after a time, and when 64 other fragments of its sender came; others it never takes."""
    ap.link(7, 500, 500, Key(USER_ADDRESS, USER_PORT))
    defaults = {"net.ipv4.ipfrag_max_dist": 0, "net.ipv4.ipfrag_time": 30}
    ap.ap.sysctl(defaults | {"net.ipv4.ipfrag_max_dist": 64 if why == "far behind" else 0, "net.ipv4.ipfrag_time": 5})
    lures, rests, reals = [], [], []
    for number in ap.identifications(20):
        lure, *later, real = contradicting(number, 4, 8, 6000)
        lures.append(mac("02:00:00:00:00:99") + lure[6:] if why == "another host's" else lure)
        rests += later
        reals.append(real)
    head = bytearray(lures[0])
    if why == "few hops":  # the sum is right, and a router behind us may drop it
        head[22], head[24:26] = 1, bytes(2)
        head[24:26] = struct.pack("!H", checksum(bytes(head[14:34])))
        assert run(ap.program.fds["from_user"], bytes(head)) is True
        assert run(ap.program.fds["from_user"], reals[0]) is False
        return
    before, began = ap.counters(7)[1], time.monotonic()
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        ap.send(lures)
        if why == "long ago":
            time.sleep(5.5)
        if why == "far behind":
            one = Packet(
                struct.pack("!HHHH", OTHER_PORT, AP_PORT, 5000, 0), more=True, identification=ap.identifications()[0]
            )
            ap.send([replace(one, offset=8 * step).frame for step in range(70)])
        ap.send([*rests, *reals])
        found = receiver.received(other_port=True).get(USER_PORT, [])
    after, seconds = ap.counters(7)[1], time.monotonic() - began
    ap.ap.sysctl(defaults)
    assert sum(map(len, found)) <= allowed_bytes(500, seconds)
    assert sum(map(len, found)) <= after.passed_bytes - before.passed_bytes


# --- 2: exact charges, from all processors at once -----------------------------------------------------------------


@pytest.mark.parametrize(("kbit", "room"), [(5_000, 62_500), (50_000, 625_000)])
@pytest.mark.parametrize("mark", [HEARTBEAT, 17], ids=["like heartbeats", "data"])
def test_processors_that_charge_at_the_same_time_pass_no_more(ap: Bed, mark: int, kbit: int, room: int) -> None:
    ap.link(7, kbit, kbit, Key(USER_ADDRESS, USER_PORT))
    frame = datagram(scion(mark, 40), source=(USER, USER_PORT), destination=(AP, AP_PORT))[0].frame
    for _ in range(20):
        before = ap.counters(7)[1]
        seconds = on_two_processors(lambda _: Runner().run(ap.program.fds["from_user"], frame, 1_000_000))
        after = ap.counters(7)[1]
        passed = after.passed_bytes - before.passed_bytes
        assert passed <= kbit * 125 * seconds + room + DATAGRAM_BYTES
        seen = after.passed_packets + after.refused_packets - before.passed_packets - before.refused_packets
        assert seen == 2 * 1_000_000
        if passed >= kbit * 125 * seconds * 0.9:
            return
    pytest.fail("less passed each time, also when neither processor stood still for 0.1 s")


# --- 3: nothing that carries the address of a link is nobody's -----------------------------------------------------


@pytest.mark.parametrize("kinds", [(TAG,), (OUTER_TAG,), (OUTER_TAG, TAG)], ids=["802.1Q", "802.1ad", "both"])
def test_no_number_of_tags_leads_past_a_blocked_link(ap: Bed, kinds: tuple[int, ...]) -> None:
    """As long as each payload is the number of its tags."""
    ap.link(7, 0, 0, Key(USER_ADDRESS, USER_PORT))
    ap.user.ip("link", "set", "u0", "mtu", "3000")
    frames = [
        datagram(scion(size=tags), tags=[(kinds[one % len(kinds)], 0) for one in range(tags)])[0].frame
        for tags in (1, 4, 5, 6, 7, 8, 9, 16, 17, 40, 200)
    ]
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        ap.send(frames * 5)
        assert [len(one) for one in receiver.received()[AP_PORT]] == []
    ap.user.ip("link", "set", "u0", "mtu", "1500")


# --- 4: nobody pays for a claim ------------------------------------------------------------------------------------


def test_a_claimed_length_costs_the_user_nothing(ap: Bed) -> None:
    """First fragments of 66 bytes, two a second, which say that 65,515 follow."""
    ap.link(7, 1_000, 1_000, Key(USER_ADDRESS, USER_PORT))
    body = struct.pack("!HHHH", USER_PORT, AP_PORT, 65_515, 0) + bytes(24)
    spoofed = [Packet(body, more=True, identification=number).frame for number in ap.identifications(8)]
    sent = datagram(scion(size=458))[0].frame
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        count = 0
        for one in spoofed:
            ap.send([one])
            count += ap.offer(sent, 300, 0.5)
        assert len(receiver.received()[AP_PORT]) == count


# --- 5: what the counters of an observed link say passed is what passed ---------------------------------------------


def test_of_an_observed_link_all_that_passes_is_counted(ap: Bed) -> None:
    ap.link(7, 500, 500, Key(USER_ADDRESS, USER_PORT), observed=True)
    frame = datagram(scion(size=958))[0].frame
    (number,) = ap.identifications()
    pieces_of_three = [one.frame for one in datagram(scion(size=4000), piece=1480, identification=number)]
    before = ap.counters(7)[1]
    with ap.listen(ap.ap, AP, AP_PORT) as receiver:
        ap.send([frame] * 100 + pieces_of_three)
        assert len(receiver.received()[AP_PORT]) == 101
    after = ap.counters(7)[1]
    assert after.passed_bytes - before.passed_bytes == 100 * len(frame) + sum(map(len, pieces_of_three))
    assert after.passed_packets - before.passed_packets == 103
    assert after.refused_packets - before.refused_packets > 60


# --- 6: no harm ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_limited", [False, True], ids=["unlimited", "limited"])
@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "first fragments alone"])
def test_fragmented_traffic_of_a_port_without_a_link_harms_no_link(ap: Bed, is_whole: bool, is_limited: bool) -> None:
    """Also when unmatched traffic has a limit: 1 Gbit/s."""
    ap.link(1, 1_000_000, 1_000_000)
    ap.program.unmatched = 2 if is_limited else None
    ap.link(7, 500, 500, Key(USER_ADDRESS, USER_PORT))
    ap.link(8, 1_000_000, 1_000_000, Key(ip_address(OTHER), USER_PORT))
    from_user = ap.program.fds["from_user"]
    first, last = datagram(scion(size=24), source=(USER, OTHER_PORT), piece=16)
    for number in range(30_000, 60_000):
        assert run(from_user, identified(first, number))
        if is_whole:
            assert run(from_user, identified(last, number))
    other = datagram(scion(size=24), source=(OTHER, USER_PORT), piece=16)[0]
    assert all(run(from_user, identified(other, number)) for number in range(5_000))


def test_unfinished_datagrams_of_one_address_refuse_none_of_another(ap: Bed) -> None:
    """200,000 of nobody's beside 65,536 of a link: three pairs are the same in 32 bits of any number."""
    ap.link(7, 500, 500, Key(USER_ADDRESS, USER_PORT))
    ap.link(8, 1_000_000, 1_000_000, Key(ip_address(OTHER), USER_PORT))
    from_user = ap.program.fds["from_user"]
    for protocol in (47, 50, 89, 132):
        first = Packet(bytes(24), source=USER, protocol=protocol, more=True)
        for number in range(50_000):
            assert run(from_user, identified(first, number))
    other = datagram(scion(size=24), source=(OTHER, USER_PORT), piece=16)[0]
    assert [number for number in range(65_536) if not run(from_user, identified(other, number))] == []


@functools.cache
def _unidentified(one: Packet) -> bytes:
    return one.frame


def identified(one: Packet, number: int) -> bytes:
    """Its frame, of IPv4 without tags, with another identification."""
    frame = bytearray(_unidentified(one))
    frame[18:20] = number.to_bytes(2, "big")
    mend_checksum(frame, 14)
    return bytes(frame)


def test_first_fragments_that_linux_may_not_take_harm_no_link(ap: Bed) -> None:
    """They pass within a bucket of their address: of 90,000 bytes and 1,000 a second."""
    ap.link(7, 500, 500, Key(USER_ADDRESS, USER_PORT))
    first = datagram(scion(size=24), source=(USER, OTHER_PORT), piece=16, options=bytes([1]) * 4)[0]
    from_user = ap.program.fds["from_user"]
    assert (
        100
        <= sum(run(from_user, replace(first, identification=one).frame) for one in range(5_000))
        <= 90_000 // 448 + 30
    )


CONTROL = {
    "LACP": (0x8809, "01:80:c2:00:00:02"),
    "LLDP": (0x88CC, "01:80:c2:00:00:0e"),
    "EAPOL": (0x888E, "01:80:c2:00:00:03"),
}


def control_frames(kind: str) -> bytes:
    if kind in CONTROL:
        ethertype, group = CONTROL[kind]
        return (mac(group) + mac("02:00:00:00:00:02") + struct.pack("!H", ethertype)).ljust(124, b"\0")
    quoted = datagram()[0].frame[14:42]
    bgp = struct.pack("!HHIIBBHHH", 40_000, 179, 1, 0, 5 << 4, 0x18, 1000, 0, 0)
    return {
        "OSPF": Packet(bytes(60), source=OTHER, destination="224.0.0.5", protocol=89),
        "OSPF, unicast": Packet(bytes(60), source=OTHER, protocol=89),
        "RIP": datagram(source=(OTHER, 520), destination=("224.0.0.9", 520))[0],
        "too big": Packet(struct.pack("!BBHHH", 3, 4, 0, 0, 1280) + quoted, source=OTHER, protocol=1),
        "too big, IPv6": Packet(struct.pack("!BBHI", 2, 0, 0, 1280) + bytes(48), "2001:db8::12", AP6, 58),
        "multicast, IPv6": Packet(bytes(60), "fe80::12", "ff02::5", 89),
        "BGP": Packet(bgp, source=OTHER, protocol=6),
        "BGP, IPv6": Packet(bgp, "2001:db8::12", AP6, 6),
    }[kind].frame


@pytest.mark.parametrize(
    "kind",
    [*CONTROL, "OSPF", "OSPF, unicast", "RIP", "too big", "too big, IPv6", "multicast, IPv6", "BGP", "BGP, IPv6"],
)
def test_control_traffic_of_the_network_has_a_class_of_its_own(ap: Bed, kind: str) -> None:
    """Unmatched traffic is limited to 1 Mbit/s, and 20 times that is offered."""
    ap.link(1, 1_000, 1_000)
    ap.program.unmatched = 2
    from_user, frame = ap.program.fds["from_user"], control_frames(kind)
    flood = datagram(scion(size=958), source=(OTHER, 9))[0].frame
    passed = 0
    for _ in range(60):
        run(from_user, flood, 50)
        passed += run(from_user, frame)
        time.sleep(0.01)
    assert passed == 60


def test_control_traffic_is_bounded(ap: Bed) -> None:
    """At most 256 kbit/s with a room of 16,000 bytes beside what unmatched traffic has."""
    ap.link(1, 1_000, 1_000)
    ap.program.unmatched = 2
    frame = control_frames("LLDP")
    before, began = ap.counters(1)[1], time.monotonic()
    run(ap.program.fds["from_user"], frame, 500_000)
    seconds, after = time.monotonic() - began, ap.counters(1)[1]
    passed = after.passed_bytes - before.passed_bytes
    assert passed <= 1_000 * 125 * seconds + ROOM_BYTES + DATAGRAM_BYTES
    assert after.heartbeat_bytes - before.heartbeat_bytes <= 256 * 125 * seconds + 16_000 + 124
