"""The admission program in the real kernel, packet by packet: who is let through, who is refused, what is charged.

Rates are 1 kbit/s: a byte drains in 8 ms, so no verdict here depends on how fast the machine is. `room` is what the
queue may hold when something is admitted.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.model import Direction
from ap_agent.whole.admission import Admission, Entry, Refused
from ap_agent.whole.assembler import Assembler
from ap_agent.whole.bpf import BpfUnavailableError, load_program
from ap_agent.whole.layout import Queue
from ap_agent.whole.program import TC_ACT_SHOT, TC_ACT_UNSPEC
from tests.kernel.whole_packets import (
    AP,
    AP6,
    AP_PORT,
    HEARTBEAT_MARK,
    OTHER_USER,
    USER,
    USER6,
    USER_PORT,
    Packet,
    fragments,
    run,
    udp,
)

PASSED, REFUSED = TC_ACT_UNSPEC, TC_ACT_SHOT
FULL_FRAME = 1514
FULL = Packet(udp(1472))
FULL6 = Packet(udp(1452), source=USER6, destination=AP6)
SMALL = Packet(udp(20))
ROOM = 3000  # two full frames are admitted behind each other, the third is not
DEPTH = 100_000
IPPROTO_HOPOPTS, IPPROTO_DSTOPTS, IPPROTO_ROUTING = 0, 60, 43


class Case:
    """One direction's program with its entries; packets are written as from the user and turned where needed."""

    def __init__(self, direction: Direction) -> None:
        self.direction: Direction = direction
        self.admission = Admission(direction, capacity=4)

    def limit(self, address: str = USER, **what: object) -> None:
        found = {"kbit": 1, "room_bytes": ROOM, "depth_bytes": DEPTH, "remote_port": USER_PORT, "local_port": AP_PORT}
        entry = Entry(**(found | what))  # type: ignore[arg-type]
        self.admission.set({ip_address(address): entry})

    def send(self, *packets: Packet, **how: int) -> list[int]:
        turned = [one.back() if self.direction == "to_user" else one for one in packets]
        return [run(self.admission.program_fd, one.frame, **how) for one in turned]

    def fill(self) -> None:
        """Nothing new is admitted for the next 24 s."""
        self.send(FULL, FULL)
        assert self.send(FULL) == [REFUSED]

    def refused(self, address: str = USER) -> Refused:
        return self.admission.refused()[ip_address(address)]


@pytest.fixture(params=["from_user", "to_user"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    one = Case(request.param)
    yield one
    one.admission.close()


# --- whole packets ----------------------------------------------------------------------------------------------


def test_packets_of_the_link_are_admitted_while_the_queue_is_within_its_room(case: Case) -> None:
    case.limit()
    assert case.send(FULL, FULL, FULL, SMALL) == [PASSED, PASSED, REFUSED, REFUSED]
    assert case.refused() == Refused(2, FULL_FRAME + 14 + 20 + 8 + 20)


@pytest.mark.parametrize("name", ["another port", "another local port", "another address", "TCP", "ICMP", "ARP"])
def test_what_is_not_the_links_is_never_touched(case: Case, name: str) -> None:
    other = {
        "another port": replace(FULL, body=udp(1472, source=USER_PORT + 1)),
        "another local port": replace(FULL, body=udp(1472, destination=AP_PORT + 1)),
        "another address": replace(FULL, source=OTHER_USER),
        "TCP": replace(FULL, protocol=socket.IPPROTO_TCP),
        "ICMP": replace(FULL, protocol=socket.IPPROTO_ICMP),
    }
    case.limit()
    case.fill()
    before = case.refused()
    if name == "ARP":
        frame = bytes(12) + b"\x08\x06" + FULL.frame[14:]
        assert run(case.admission.program_fd, frame) == PASSED
    else:
        assert case.send(*[other[name]] * 3) == [PASSED] * 3
    assert case.refused() == before
    assert case.send(SMALL) == [REFUSED]  # and the link itself is still full


def test_what_is_not_the_links_is_not_charged(case: Case) -> None:
    case.limit()
    case.send(*[replace(FULL, body=udp(1472, source=USER_PORT + 1))] * 5)
    assert case.send(FULL, FULL, FULL) == [PASSED, PASSED, REFUSED]


def test_a_link_that_says_its_local_address_has_only_packets_to_it(case: Case) -> None:
    case.limit(local_ip=ip_address(AP))
    case.fill()
    assert case.send(replace(FULL, destination="192.0.2.2"), FULL) == [PASSED, REFUSED]


def test_a_link_without_a_local_port_has_packets_to_all(case: Case) -> None:
    case.limit(local_port=None)
    case.fill()
    assert case.send(replace(FULL, body=udp(1472, destination=9))) == [REFUSED]


def test_an_entry_without_a_port_owns_its_address(case: Case) -> None:
    case.limit(remote_port=None, local_port=None)
    case.fill()
    others = [replace(FULL, body=udp(1472, source=9)), *(replace(FULL, protocol=one) for one in (6, 1, 47))]
    assert case.send(*others) == [REFUSED] * 4
    assert case.send(replace(FULL, source=OTHER_USER)) == [PASSED]


def test_ipv6_has_the_same_rules(case: Case) -> None:
    case.limit(USER6, local_ip=ip_address(AP6))
    assert case.send(FULL6, FULL6, FULL6) == [PASSED, PASSED, REFUSED]
    others = [
        replace(FULL6, body=udp(1452, source=9)),
        replace(FULL6, destination="2001:db8::2"),
        replace(FULL6, source="2001:db8::12"),
        replace(FULL6, protocol=socket.IPPROTO_TCP),
    ]
    assert case.send(*others) == [PASSED] * 4
    assert case.refused(USER6) == Refused(1, FULL_FRAME)


def test_packets_whose_ports_cannot_be_seen_count_as_the_links(case: Case) -> None:
    """As `classify` puts them into its class: IPv4 options, IPv6 extension headers, too short for ports."""
    case.limit()
    case.fill()
    with_options = replace(FULL, options=bytes([1, 1, 1, 0]), body=udp(1000, source=9))
    assert case.send(with_options, replace(FULL, body=b"xy")) == [REFUSED] * 2
    case.limit(USER6)
    case.send(FULL6, FULL6)
    extension = bytes([socket.IPPROTO_UDP, 0, 1, 4, 0, 0, 0, 0])
    for header in (IPPROTO_HOPOPTS, IPPROTO_DSTOPTS, IPPROTO_ROUTING):
        assert case.send(replace(FULL6, protocol=header, options=extension)) == [REFUSED]


def test_reports_of_multicast_listeners_are_nobodys_data(case: Case) -> None:
    case.limit(USER6)
    case.send(FULL6, FULL6)
    hop_by_hop = bytes([socket.IPPROTO_ICMPV6, 0, 5, 2, 0, 0, 1, 0])
    assert case.send(replace(FULL6, protocol=IPPROTO_HOPOPTS, options=hop_by_hop, body=bytes(28))) == [PASSED]
    case.limit(USER6, remote_port=None)
    case.send(FULL6, FULL6)
    assert case.send(replace(FULL6, protocol=IPPROTO_HOPOPTS, options=hop_by_hop, body=bytes(28))) == [REFUSED]


def test_an_address_that_is_owned_can_still_be_found(case: Case) -> None:
    """Neighbour discovery has a class of its own with `unmatched = "default"`: see `classify.exempt_filters`."""
    case.limit(USER6, remote_port=None)
    case.send(FULL6, FULL6)
    messages = {
        kind: replace(FULL6, protocol=socket.IPPROTO_ICMPV6, body=bytes([kind, *bytes(23)])) for kind in range(256)
    }
    assert {kind for kind, one in messages.items() if case.send(one) == [PASSED]} == {133, 134, 135, 136, 137}


# --- heartbeats -------------------------------------------------------------------------------------------------


def beat(payload_bytes: int = 92, **what: object) -> Packet:
    return replace(Packet(udp(payload_bytes, mark=HEARTBEAT_MARK)), **what)  # type: ignore[arg-type]


def test_heartbeats_are_never_refused(case: Case) -> None:
    case.limit()
    case.fill()
    assert case.send(*[beat()] * 20) == [PASSED] * 20
    assert case.send(beat(5)) == [PASSED]  # the shortest that one can be
    assert case.refused().packets == 1


def test_heartbeats_are_charged_as_data_of_the_same_limit(case: Case) -> None:
    """The heartbeat leaf of 1 kbit/s passes 62 byte/s: the first heartbeat counts, at most 1 s of them waits."""
    case.limit(room_bytes=100)
    assert case.send(beat(), SMALL) == [PASSED, REFUSED]


def test_a_flood_of_heartbeats_charges_no_more_than_their_own_leaf_lets_through(case: Case) -> None:
    """Otherwise whoever marks data as heartbeats blocks the link for long after he stops."""
    case.limit(room_bytes=1000)
    case.send(*[beat(1472)] * 200)
    assert case.send(SMALL) == [REFUSED]  # one of them was charged: 1514 > 1000
    case.limit(room_bytes=2 * FULL_FRAME)
    assert case.send(SMALL) == [PASSED]  # and not two, nor 200


def test_a_heartbeat_to_another_port_is_not_the_links(case: Case) -> None:
    case.limit(room_bytes=100)
    body = udp(92, mark=HEARTBEAT_MARK, source=9)
    assert case.send(replace(beat(), body=body), SMALL) == [PASSED, PASSED]


def test_a_fragment_cannot_pose_as_a_heartbeat(case: Case) -> None:
    case.limit()
    case.fill()
    assert case.send(replace(beat(1472), more=True)) == [REFUSED]


# --- datagrams in fragments -------------------------------------------------------------------------------------


@pytest.fixture(params=[4, 6])
def way(request: pytest.FixtureRequest, case: Case) -> dict[str, object]:
    """Addresses of either family, with a limit on the user's."""
    if request.param == 4:
        case.limit()
        return {"source": USER, "destination": AP}
    case.limit(USER6)
    return {"source": USER6, "destination": AP6}


def full(way: dict[str, object]) -> Packet:
    return FULL if way["source"] == USER else FULL6


def big(way: dict[str, object], identification: int) -> list[Packet]:
    return list(fragments(udp(10_000), identification=identification, **way))


def test_a_datagram_gets_one_verdict_for_all_its_fragments(case: Case, way: dict[str, object]) -> None:
    first, second = big(way, 1), big(way, 2)
    assert len(first) == 7
    assert case.send(*first) == [PASSED] * 7  # although the queue was above its room after the second
    assert case.send(*second) == [REFUSED] * 7


def test_fragments_of_other_datagrams_between_do_not_change_it(case: Case, way: dict[str, object]) -> None:
    admitted, refused = big(way, 1), big(way, 2)
    answers = [case.send(admitted[0]), case.send(full(way), full(way))]
    assert answers == [[PASSED], [PASSED, REFUSED]]
    for one, other in zip(admitted[1:], refused[1:], strict=True):
        assert case.send(other, one) == [REFUSED, PASSED]


def test_the_last_fragment_may_come_first(case: Case, way: dict[str, object]) -> None:
    assert case.send(*reversed(big(way, 1))) == [PASSED] * 7
    assert case.send(*reversed(big(way, 2))) == [REFUSED] * 7


def test_the_next_datagram_with_the_same_identification_is_judged_anew(case: Case, way: dict[str, object]) -> None:
    """Some senders number nothing, and 65 536 numbers come around."""
    assert case.send(*big(way, 1)) == [PASSED] * 7
    assert case.send(*big(way, 1)) == [REFUSED] * 7


def test_a_datagram_that_came_last_fragment_first_is_over_with_its_first_one(
    case: Case, way: dict[str, object]
) -> None:
    assert case.send(*reversed(big(way, 1))) == [PASSED] * 7
    assert case.send(*big(way, 1)) == [REFUSED] * 7


def test_a_refused_identification_does_not_refuse_the_next_datagram(case: Case, way: dict[str, object]) -> None:
    case.send(*big(way, 1), *big(way, 2))
    address = str(way["source"])
    case.limit(address, room_bytes=DEPTH)  # now there is room again
    assert case.send(*big(way, 2)) == [PASSED] * 7


def test_a_verdict_ends_after_a_while(case: Case, way: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """A later fragment whose first one is long gone is judged anew; the program's clock is real, so the wait is cut."""
    monkeypatch.setattr("ap_agent.whole.program.SLOT_TICKS", 1)
    short = Case(case.direction)
    short.limit(str(way["source"]))
    short.send(full(way), full(way))
    datagram = big(way, 1)
    assert short.send(datagram[0]) == [REFUSED]
    short.limit(str(way["source"]), room_bytes=DEPTH)
    subprocess.run(["sleep", "0.05"], check=True)
    assert short.send(datagram[1]) == [PASSED]
    short.admission.close()


def test_datagrams_that_share_a_slot_do_not_share_a_verdict(case: Case, way: dict[str, object]) -> None:
    admitted, same_slot = big(way, 1), big(way, 1 + 64)
    case.send(admitted[0], full(way))
    assert case.send(same_slot[1]) == [REFUSED]


def test_the_same_identification_between_other_addresses_is_another_datagram(
    case: Case, way: dict[str, object]
) -> None:
    elsewhere = way | {"destination": "192.0.2.2" if way["source"] == USER else "2001:db8::2"}
    case.send(big(way, 1)[0], full(way))
    assert case.send(big(elsewhere, 1)[1], big(way, 1)[1]) == [REFUSED, PASSED]


def test_whole_packets_of_the_link_have_a_room_of_their_own(case: Case, way: dict[str, object]) -> None:
    """Others behind the same address send fragments into this class; they must not crowd out whose class it is."""
    case.limit(str(way["source"]), own_room_bytes=3 * FULL_FRAME)
    assert case.send(*[full(way)] * 3, *big(way, 1), *[full(way)] * 2) == [PASSED] * 3 + [REFUSED] * 7 + [
        PASSED,
        REFUSED,
    ]
    extension = bytes([1, 1, 1, 0]) if way["source"] == USER else bytes([17, 0, 1, 4, 0, 0, 0, 0])
    protocol = socket.IPPROTO_UDP if way["source"] == USER else IPPROTO_DSTOPTS
    case.limit(str(way["source"]), own_room_bytes=100 * FULL_FRAME)
    assert case.send(replace(full(way), protocol=protocol, options=extension)) == [REFUSED]  # it may be anybody's


def test_fragments_are_charged(case: Case, way: dict[str, object]) -> None:
    case.limit(str(way["source"]), room_bytes=9000)
    assert case.send(*big(way, 1), *big(way, 2)) == [PASSED] * 7 + [REFUSED] * 7


def test_endless_fragments_of_one_datagram_are_charged_up_to_the_leafs_depth(
    case: Case, way: dict[str, object]
) -> None:
    """What is above finds no place in the leaf; charging it would block the link for long after the sender stops."""
    case.limit(str(way["source"]), depth_bytes=20_000)
    middle = big(way, 1)[1]
    answers = case.send(*[middle] * 100)
    assert answers.count(PASSED) == 20_000 // len(middle.frame) + 1
    assert answers.index(REFUSED) == answers.count(PASSED)


def test_fragments_of_other_protocols_are_not_the_links(case: Case) -> None:
    """Of IPv4: they go past the limit. All fragments of IPv6 look alike, and `classify` limits them all."""
    case.limit()
    case.fill()
    icmp = list(fragments(bytes(3000), protocol=socket.IPPROTO_ICMP))
    assert case.send(*icmp) == [PASSED] * 3
    case.limit(remote_port=None)
    assert case.send(*icmp) == [REFUSED] * 3


def test_a_flood_of_first_fragments_from_one_address_changes_nothing_for_another(case: Case) -> None:
    limit = Entry(1, ROOM, DEPTH, USER_PORT, AP_PORT)
    case.admission.set({ip_address(USER): limit, ip_address(OTHER_USER): limit})
    victim = list(fragments(udp(10_000), source=OTHER_USER))
    assert case.send(victim[0]) == [PASSED]
    for number in range(2000):
        case.send(Packet(udp(8), identification=number, more=True))
    assert case.send(*victim[1:]) == [PASSED] * 6
    assert case.refused(OTHER_USER) == Refused(0, 0)


def test_super_packets_to_the_user_count_as_htb_counts_them() -> None:
    case = Case("to_user")
    case.limit(room_bytes=0)
    case.send(FULL)
    assert case.send(FULL, wire_bytes=5000) == [REFUSED]
    assert case.refused() == Refused(1, 5000)
    case.admission.close()


# --- the maps ---------------------------------------------------------------------------------------------------


def test_set_writes_only_what_differs(case: Case) -> None:
    entries = {ip_address(one): Entry(1, ROOM, DEPTH, USER_PORT) for one in (USER, OTHER_USER, USER6)}
    assert case.admission.set(entries) == 3
    assert case.admission.set(dict(entries)) == 0
    assert case.admission.set(entries | {ip_address(USER): Entry(2, ROOM, DEPTH, USER_PORT)}) == 1
    assert case.admission.set({ip_address(USER6): entries[ip_address(USER6)]}) == 2
    assert list(case.admission.refused()) == [ip_address(USER6)]
    assert case.admission.set({}) == 1


def test_one_address_can_be_put_alone(case: Case) -> None:
    limit, other = Entry(1, ROOM, DEPTH, USER_PORT), Entry(2, ROOM, DEPTH, USER_PORT)
    case.admission.set({ip_address(USER): limit, ip_address(OTHER_USER): limit})
    assert case.admission.put(ip_address(USER), other)
    assert not case.admission.put(ip_address(USER), other)
    assert set(case.admission.refused()) == {ip_address(USER), ip_address(OTHER_USER)}
    closed = replace(other, kbit=0)
    assert [case.admission.put(ip_address(USER), closed) for _ in range(2)] == [True, False]
    assert case.admission.set({ip_address(OTHER_USER): limit, ip_address(USER): closed}) == 0


def test_an_address_that_left_is_not_judged_and_starts_anew_when_it_returns(case: Case) -> None:
    case.limit()
    case.fill()
    case.admission.set({})
    assert case.send(FULL) == [PASSED]
    case.limit()
    assert case.refused() == Refused(0, 0)
    assert case.send(FULL) == [PASSED]


def test_a_limit_of_0_is_left_to_the_closed_leaf(case: Case) -> None:
    case.limit(kbit=0)
    assert case.admission.refused() == {}
    assert case.send(FULL, FULL, FULL) == [PASSED] * 3


def test_a_changed_limit_keeps_the_bytes_in_the_queue(case: Case) -> None:
    case.limit()
    case.fill()
    case.limit(room_bytes=2 * FULL_FRAME + 100)
    assert case.send(SMALL) == [PASSED]  # nothing was forgotten: 3028 bytes
    case.limit(kbit=100)  # and they last a hundredth of the time: 0.24 s
    assert case.send(SMALL) == [REFUSED]
    subprocess.run(["sleep", "0.3"], check=True)
    assert case.send(SMALL) == [PASSED]


def test_a_changed_limit_begins_with_what_the_leaf_has(case: Case) -> None:
    """After a lasting overload the virtual queue is at its room and the leaf, which drains faster, nearly empty."""
    case.limit()
    case.send(SMALL)
    place, later_ns = case.admission._places[ip_address(USER)], time.monotonic_ns() + 100 * 1_000_000_000
    case.admission._loaded.queues.write(place, Queue.EMPTY_AT_NS, later_ns)
    assert case.send(SMALL) == [REFUSED]
    case.limit(kbit=2)
    assert case.send(SMALL) == [PASSED]


@pytest.mark.parametrize("offset_s", [-1_000_000, 1_000_000])
def test_a_changed_limit_blocks_nobody_where_our_clock_is_another(
    case: Case, offset_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a time namespace CLOCK_MONOTONIC is another one than the program's."""
    case.limit()
    case.fill()
    here_ns = time.monotonic_ns
    monkeypatch.setattr(time, "monotonic_ns", lambda: here_ns() + offset_s * 1_000_000_000)
    case.limit(kbit=2, room_bytes=10 * ROOM)
    assert case.send(FULL) == [PASSED]


def test_more_addresses_than_places_are_an_error_that_says_so(case: Case) -> None:
    entries = {ip_address(f"192.0.2.{number}"): Entry(1, ROOM, DEPTH, 1) for number in range(5)}
    with pytest.raises(OSError, match=r"no place for 192\.0\.2\.4 beside 4"):
        case.admission.set(entries)


def test_a_closed_admission_says_so(case: Case) -> None:
    case.admission.close()
    with pytest.raises(ValueError, match="closed"):
        _ = case.admission.program_fd
    with pytest.raises(ValueError, match="closed"):
        case.limit()


@pytest.mark.parametrize(
    ("capabilities", "words"),
    [("+bpf,+net_admin", "loaded"), ("+net_admin", "CAP_BPF"), ("+bpf", "CAP_BPF beside CAP_NET_ADMIN")],
)
def test_it_needs_two_capabilities_and_says_which_is_missing(capabilities: str, words: str) -> None:
    program = (
        "from ap_agent.whole.admission import Admission, BpfUnavailableError\n"
        "try: Admission('to_user'); print('loaded')\n"
        "except BpfUnavailableError as exc: print(exc)\n"
    )
    done = subprocess.run(
        ["setpriv", "--bounding-set", f"-all,{capabilities}", "--inh-caps", "-all", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert words in done.stdout


def test_what_the_verifier_refuses_is_told_in_its_words() -> None:
    code = Assembler()
    code.exit()  # without an answer
    with pytest.raises(BpfUnavailableError, match=r"refuses the program wrong: .*R0 !read_ok"):
        load_program("wrong", code.assemble())


# --- the queue, beside a model of it -----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 20_000),
    st.lists(st.integers(0, 1472), min_size=1, max_size=40),
    st.sampled_from(["from_user", "to_user"]),
)
def test_the_queue_is_that_of_the_model(room: int, payloads: list[int], direction: Direction) -> None:
    """ITU-T I.371's virtual scheduling with a clock that stands still; the kernel's goes on by a byte in 8 ms."""
    case = MODELLED[direction]
    case.admission.set({})
    case.limit(room_bytes=room)
    queue, expected = 0, []
    for payload in payloads:
        if abs(queue - room) < 200 and queue != 0:
            return  # too near for a clock that moves
        expected.append(queue <= room)
        queue += (14 + 20 + 8 + payload) if expected[-1] else 0
    answers = case.send(*(Packet(udp(one)) for one in payloads))
    assert [one == PASSED for one in answers] == expected


MODELLED: dict[str, Case] = {}


@pytest.fixture(autouse=True, scope="module")
def _modelled() -> Iterator[None]:
    MODELLED.update({direction: Case(direction) for direction in ("from_user", "to_user")})  # type: ignore[arg-type]
    yield
    for one in MODELLED.values():
        one.admission.close()
    MODELLED.clear()
