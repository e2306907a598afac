"""What a lane lets pass, byte by byte, against numbers of docs/adr/0028: none is taken from the limiter.

Frames run through BPF_PROG_TEST_RUN: no device, no queue behind, and nothing else of the machine's.
"""

from __future__ import annotations

import ctypes
import random
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

import pytest

from ap_agent.dataplane.lanes import Lane
from ap_agent.dataplane.program import OBJECT, Key, Program, _load
from ap_agent.document.state import Counters
from lab.frames import shape
from lab.frames.replay import Runner
from lab.frames.shape import AP4, AP6, AP_PORT, DESTINATION, TAG, USER4, USER6, Frame
from measuring.iproute import available

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(available() is not None, reason=str(available()))]

PORT, BLOCKED_PORT, FREE_PORT = 50_001, 50_002, 50_099
DATA, HEARTBEAT = 17, 203
LINK, BLOCKED, UNMATCHED = 7, 8, 1
KBITS = (8, 500, 5_000, 100_000)
LONGEST_CALL_S = 0.0001
LANE_BYTES, EMPTY_AT, QUEUED_UNTIL_AT = 136, 64, 128  # struct lane of limiter.bpf.c
FRAGMENTS_BYTES, FROM_USER_SLOTS_AT, SLOT_BYTES = 1960, 1000, 20  # struct fragments of limiter.bpf.c


@dataclass
class World:
    program: Program
    runner: Runner

    def link(self, number: int, kbit: int, *ports: int) -> None:
        """From empty queues."""
        keys = [Key(ip_address(USER4), port).packed() for port in ports]
        for key in keys:
            self.program.remove_link(key)
        self.program.finish((), None)
        for way in (0, 1):
            self.program.lanes.forget(2 * number + way)
            self.program.lanes.take(2 * number + way, Lane(kbit, number | 0x1000 * way).packed())
        for key in keys:
            self.program.put_link(key, 2 * number)

    def change(self, kbit: int) -> None:
        for way in (0, 1):
            self.program.lanes.put(2 * LINK + way, Lane(kbit, LINK | 0x1000 * way).packed())

    def run(self, frame: bytes, repeat: int = 1) -> bool:
        """From the user; whether the last one passed."""
        return self.runner.run(self.program.fds["from_user"], frame, repeat)

    def counted(self, number: int = LINK) -> Counters:
        return self.program.lanes.counted_of([2 * number + 1])[2 * number + 1][1]


@pytest.fixture
def world() -> Iterator[World]:
    program = Program(_load(OBJECT, {}))
    yield World(program, Runner())
    program.close()


def frame(size: int, mark: int = DATA, port: int = PORT) -> bytes:
    payload = (bytes(4) + bytes([mark])).ljust(size - 42, b"\0")
    return bytes(Frame(USER4, AP4, shape.udp(port, AP_PORT, payload), from_user=True).encoded()[0])


def fragment(port: int, *, is_first: bool, identification: int = 7) -> bytes:
    body = shape.udp(port, AP_PORT, bytes(56))
    part = body[:32] if is_first else body[32:]
    place = (identification, 0 if is_first else 32, is_first)
    return bytes(Frame(USER4, AP4, part, from_user=True, fragment=place).encoded()[0])


@pytest.mark.parametrize(
    ("kbit", "room"),
    [(32, 14_000), (99, 14_000), (100, 20_000), (500, 20_000), (1_600, 20_000), (2_000, 25_000), (100_000, 1_250_000)],
)
def test_a_burst_gets_its_room(world: World, kbit: int, room: int) -> None:
    world.link(LINK, kbit, PORT)
    began = time.monotonic()
    world.run(frame(100), 4 * room // 100)
    drained = (time.monotonic() - began) * kbit * 125
    assert room <= world.counted().passed_bytes <= room + 200 + drained


def test_what_was_queued_may_still_be_behind_for_a_tenth_of_a_second(world: World) -> None:
    """A busy processor hands on late what the queue has sent, and nothing may overtake it."""
    world.link(LINK, 100_000, PORT)
    at = (2 * LINK + 1) * LANE_BYTES + QUEUED_UNTIL_AT
    queued_until_ns = set_ns = 0
    while queued_until_ns == set_ns:  # again if this process stood still: then the packet did not queue
        began_ns = time.monotonic_ns()
        set_ns = began_ns + 50_000_000
        struct.pack_into("=Q", world.program.lanes._memory, at, set_ns)
        world.run(frame(100))
        (queued_until_ns,) = struct.unpack_from("=Q", world.program.lanes._memory, at)
    assert began_ns + 100_000_000 <= queued_until_ns <= time.monotonic_ns() + 100_000_000


@pytest.mark.parametrize(("was", "kbit", "queue_s", "behind_s"), [(100_000, 500, 10.0, 30.1), (8, 800, 0.0005, 0.1015)])
def test_what_waits_takes_longer_at_a_lower_limit(
    world: World, was: int, kbit: int, queue_s: float, behind_s: float
) -> None:
    """0.05 s in the queue, and 0.15 s until nothing can be behind, become 10 and 30 at a two-hundredth of the limit; a
    busy processor has a tenth of a second more."""
    world.link(LINK, was, PORT)
    memory, at = world.program.lanes._memory, (2 * LINK + 1) * LANE_BYTES
    began_ns = time.monotonic_ns()
    struct.pack_into("=Q", memory, at + EMPTY_AT, began_ns + 50_000_000)
    struct.pack_into("=Q", memory, at + QUEUED_UNTIL_AT, began_ns + 150_000_000)
    world.change(kbit)
    late_s = (time.monotonic_ns() - began_ns) / 1e9
    for place, seconds in ((EMPTY_AT, queue_s), (QUEUED_UNTIL_AT, behind_s)):
        (until_ns,) = struct.unpack_from("=Q", memory, at + place)
        assert seconds - late_s * max(1, was / kbit) <= (until_ns - began_ns) / 1e9 <= seconds + late_s, place


def test_heartbeats_pass_what_waits_of_a_higher_limit(world: World) -> None:
    world.link(LINK, 100_000, PORT)
    world.run(frame(1_000), 200)  # 16 ms of it, 3.2 s of 500 kbit/s
    world.change(500)
    before = world.counted()
    world.run(frame(100), 20)
    world.run(frame(100, mark=HEARTBEAT))
    after = world.counted()
    assert after.refused_packets - before.refused_packets == 20
    assert after.heartbeat_packets - before.heartbeat_packets == 1


def test_no_heartbeat_has_a_place_behind_a_full_queue(world: World) -> None:
    """Room and one largest datagram, 20,000 + 70,000 bytes, take 1.44 s at 500 kbit/s."""
    world.link(LINK, 500, PORT)
    at = (2 * LINK + 1) * LANE_BYTES + EMPTY_AT
    for waits_ns, is_admitted in ((1_400_000_000, True), (1_600_000_000, False)):
        struct.pack_into("=Q", world.program.lanes._memory, at, time.monotonic_ns() + waits_ns)
        assert world.run(frame(100, mark=HEARTBEAT)) is is_admitted


@pytest.mark.parametrize("seed", range(8))
def test_what_is_admitted_fits_into_the_queue_behind_whatever_the_limit_becomes(world: World, seed: int) -> None:
    """HTB here: what waits leaves at the limit of the moment, and 140,000 bytes above the room may wait."""
    chance = random.Random(seed)  # noqa: S311  a test
    kbit = chance.choice(KBITS)
    world.link(LINK, kbit, PORT)
    waits, at, before = 0.0, time.monotonic(), 0
    for _ in range(60):
        if chance.random() < 0.15:
            now = time.monotonic()
            waits, at = max(0.0, waits - (now - at) * kbit * 125), now
            kbit = chance.choice(KBITS)
            world.change(kbit)
        one = frame(chance.choice((100, 1_000, 1_500)), chance.choice((DATA, DATA, HEARTBEAT)))
        world.run(one, chance.randrange(900))
        now = time.monotonic()
        counted = world.counted()
        queued = counted.passed_bytes - counted.heartbeat_bytes
        admitted, before = queued - before, queued
        waits, at = max(0.0, waits - (now - at) * kbit * 125) + admitted, now
        room = 14_000 if kbit < 100 else max(20_000, kbit * 12.5)
        assert not admitted or waits <= room + 140_000, (kbit, waits)
        time.sleep(chance.random() / 100)


def test_what_waits_may_be_behind_for_as_long_as_a_full_queue_takes(world: World) -> None:
    """20,000 bytes of room and two of the largest datagrams, 70,000 each, at 500 kbit/s, and a tenth of a second."""
    world.link(LINK, 500, PORT)
    at = (2 * LINK + 1) * LANE_BYTES + QUEUED_UNTIL_AT
    struct.pack_into("=Q", world.program.lanes._memory, at, 0)
    began_ns = time.monotonic_ns()
    world.run(frame(1_000), 15)
    (queued_until_ns,) = struct.unpack_from("=Q", world.program.lanes._memory, at)
    assert began_ns + 2_660_000_000 <= queued_until_ns <= time.monotonic_ns() + 2_664_000_000


def test_under_a_cap_of_all_links_the_largest_datagram_passes_whole(world: World) -> None:
    """Each byte is charged twice: half of 20,000 bytes of room, and 70,000."""
    world.link(LINK, 500, PORT)
    world.program.set_factors(2.0, 2.0)
    assert world.run(fragment(PORT, is_first=True))
    assert [world.run(follower(994)) for _ in range(70)] == [True] * 70


def test_heartbeats_have_a_place_behind_the_largest_datagram(world: World) -> None:
    """A sixty-fourth of 70,000 bytes."""
    world.link(LINK, 32, PORT)
    assert world.run(fragment(PORT, is_first=True))
    assert world.run(follower(98), 3_000) is False
    assert [world.run(frame(100, HEARTBEAT)) for _ in range(8)] == [True] * 8


def follower(size: int, identification: int = 7) -> bytes:
    """A frame in the middle of the datagram of `fragment`, again and again."""
    place = (identification, 32, True)
    return bytes(Frame(USER4, AP4, bytes(size - 34), from_user=True, fragment=place).encoded()[0])


@pytest.mark.parametrize(("is_full", "owed_ns"), [(False, 630_000_000), (True, 2_040_000_000)])
def test_a_link_owes_what_passed_before_its_first_fragment_also_when_that_is_refused(
    world: World, is_full: bool, owed_ns: int
) -> None:
    """40 frames of 994 bytes at 500 kbit/s, behind nothing or 88,000 of another datagram."""
    world.link(LINK, 500, PORT)
    began_ns = time.monotonic_ns()
    if is_full:
        assert world.run(fragment(PORT, is_first=True, identification=8))
        assert world.run(follower(994, 8), 200) is False
    before = world.counted().passed_bytes
    assert [world.run(follower(994)) for _ in range(40)] == [True] * 40
    assert world.run(fragment(PORT, is_first=True)) is not is_full
    assert world.counted().passed_bytes - before == (40 * 994 if is_full else 40 * 994 + 66)
    at = (2 * LINK + 1) * LANE_BYTES + EMPTY_AT
    assert struct.unpack_from("=Q", world.program.lanes._memory, at)[0] >= began_ns + owed_ns


@pytest.mark.parametrize(
    ("at", "size", "more", "passes"),
    [
        *((64, 16, True, True), (64, 13, True, False), (64, 13, False, True), (64, 0, False, False)),
        *((65_512, 16, False, True), (65_520, 16, False, False)),
    ],
)
def test_what_no_host_takes_for_a_fragment_is_refused(
    world: World, at: int, size: int, more: bool, passes: bool
) -> None:
    """But for the last one they are multiples of 8 bytes; all of them end below 65,536, and have some."""
    world.link(LINK, 500, PORT)
    one = bytes(Frame(USER4, AP4, bytes(size), from_user=True, fragment=(7, at, more)).encoded()[0])
    assert world.run(one.ljust(60, b"\0")) is passes


def test_what_a_link_has_taken_over_its_address_may_have_again(world: World) -> None:
    """60 fragments of 994 bytes and 448 each of 90,000, five times."""
    world.link(LINK, 100_000, PORT)
    for number in range(5):
        assert [world.run(follower(994, number)) for _ in range(60)] == [True] * 60
        assert world.run(fragment(PORT, is_first=True, identification=number)) is True


def test_control_traffic_of_the_network_has_256_kbit_s(world: World) -> None:
    """16,000 bytes at once, here 129 frames of LLDP, and 32,000 a second; `test_properties.py` has the upper bound."""
    world.link(UNMATCHED, 100_000)
    world.program.unmatched = 2 * UNMATCHED
    lldp = bytes(12) + b"\x88\xcc" + bytes(110)
    world.run(lldp, 1_000)
    began, first = time.monotonic(), world.counted(UNMATCHED).heartbeat_bytes
    time.sleep(0.3)
    passed_s = time.monotonic() - began
    world.run(lldp, 1_000)
    assert first >= 129 * 124
    assert world.counted(UNMATCHED).heartbeat_bytes - first >= min(32_000 * passed_s, 16_000) - 2 * 124


def test_fragments_without_a_first_one_have_a_thousand_bytes_a_second(world: World) -> None:
    """After 90,000; each takes 448 bytes beside its own 60."""
    world.link(LINK, 500, PORT)
    one = bytes(Frame(USER4, AP4, bytes(8), from_user=True, fragment=(7, 64, True)).encoded()[0]).ljust(60, b"\0")
    while world.run(one):
        pass
    began = time.monotonic()
    time.sleep(1.1)
    passed = sum(world.run(one) for _ in range(30))
    assert 2 <= passed <= (time.monotonic() - began) * 1_000 / 508 + 1


@pytest.mark.parametrize(
    ("tags", "extensions", "passes"), [(8, 0, True), (9, 0, False), (0, 24, True), (0, 25, False), (8, 24, True)]
)
def test_as_many_headers_are_read_as_the_guide_says(world: World, tags: int, extensions: int, passes: bool) -> None:
    """docs/agent.md: 8 tags of VLAN id 0, 24 extension headers. What has more is refused, not nobody's."""
    world.link(LINK, 500)
    world.program.put_link(Key(ip_address(USER6), PORT).packed(), 2 * LINK)
    body = shape.udp(PORT, AP_PORT, bytes(64))
    one = Frame(USER6, AP6, body, from_user=True, tags=[(TAG, 0)] * tags, extensions=[DESTINATION] * extensions)
    assert world.run(bytes(one.encoded()[0])) is passes
    assert world.counted().passed_packets == passes


def test_bytes_pass_at_the_limit_less_a_thousandth(world: World) -> None:
    """A thousandth more or less is red: 100 Mbit/s are 12,500,000 bytes a second, and 1.25 MB are the room."""
    for _ in range(300):
        measured = passed_in(world, 0.8)
        if measured is not None:
            break
    else:
        pytest.fail("this machine never let a process run for 0.8 s without a pause")
    passed, at_least_s, at_most_s = measured
    assert 1_250_000 - 1_100 + 12_487_512 * at_least_s <= passed <= 1_250_000 + 1_100 + 12_487_512 * at_most_s


def passed_in(world: World, seconds: float) -> tuple[int, float, float] | None:
    """Bytes of a link whose queue never became empty, and the bounds of the time; None: this process stood still."""
    world.link(LINK, 100_000, PORT)
    one = frame(1_000)
    began = time.monotonic()
    world.run(one, 1_500)  # fills the room; while that is empty no pause is short
    begun = last = former = time.monotonic()
    while True:
        world.run(one, 1_500)
        before = time.monotonic()
        world.run(one, 100)  # 8 ms: as many as a pause of 5 ms behind the last of the others has room for
        now = time.monotonic()
        # A pause may lie across two rounds; early refusal keeps the room 76 % full, which is 0.076 s.
        if now - former > 0.07 or begun - began > 0.001:
            return None
        if now > begun + seconds and now - before < LONGEST_CALL_S and before - last < 0.005:
            return world.counted().passed_bytes, before - begun, now - began
        former, last = last, now


def test_a_burst_of_ten_frames_passes_whole_and_later_ones_lose_a_few(world: World) -> None:
    """Early refusal begins at 15,200 bytes, and takes at most one in eight until the room is full."""
    lost_of_ten = lost_of_twenty = 0
    for _ in range(200):
        for size, count in ((1_514, 10), (100, 152)):
            world.link(LINK, 500, PORT)
            world.run(frame(size), count)
            lost_of_ten += world.counted().refused_packets
        world.link(LINK, 500, PORT)
        world.run(frame(1_000), 20)
        lost_of_twenty += world.counted().refused_packets
    assert lost_of_ten == 0
    assert 10 <= lost_of_twenty <= 200 * 4 / 8


@pytest.mark.parametrize(("kbit", "beats"), [(32, 1_000), (500, 12_500), (2_000, 50_000)])
def test_heartbeats_have_a_fifth_of_a_second_of_their_own(world: World, kbit: int, beats: int) -> None:
    world.link(LINK, kbit, PORT)
    world.run(frame(500), 8 * max(20_000, kbit * 125 // 10) // 500)
    assert world.run(frame(500), 50) is False
    began = time.monotonic()
    world.run(frame(100, HEARTBEAT), 4 * beats // 100)
    drained = (time.monotonic() - began) * kbit * 125
    assert beats - 200 <= world.counted().heartbeat_bytes <= beats + 200 + drained


def test_heartbeats_are_inside_the_limit(world: World) -> None:
    world.link(LINK, 32, PORT)
    began = time.monotonic()
    assert world.run(frame(100, HEARTBEAT), 8)
    world.run(frame(100), 4 * 140)
    drained = (time.monotonic() - began) * 32 * 125
    assert world.counted().passed_bytes <= 14_000 + 200 + drained


def test_neither_a_blocked_link_nor_a_fragment_has_heartbeats(world: World) -> None:
    world.link(LINK, 500, PORT)
    world.link(BLOCKED, 0, BLOCKED_PORT)
    world.program.put_link(Key(ip_address(USER4), PORT).packed(), 2 * LINK)
    assert world.run(frame(100, HEARTBEAT, BLOCKED_PORT)) is False
    body = shape.udp(PORT, AP_PORT, (bytes(4) + bytes([HEARTBEAT])).ljust(56, b"\0"))
    one = Frame(USER4, AP4, body, from_user=True, fragment=(7, 0, True))
    assert world.run(bytes(one.encoded()[0]))
    assert (world.counted().passed_packets, world.counted().heartbeat_packets) == (1, 0)


def test_what_looks_like_ports_behind_a_first_fragment_is_not_read(world: World) -> None:
    """Its IPv6 header says that it ends in front of them, as the frame of a short packet goes on behind it."""
    world.link(LINK, 500)
    world.program.put_link(Key(ip_address(USER6), PORT).packed(), 2 * LINK)
    options = bytes([17, 0, 1, 4, 0, 0, 0, 0])
    one = Frame(USER6, AP6, options, from_user=True, protocol=DESTINATION, fragment=(7, 0, True))
    assert world.run(bytes(one.encoded()[0]) + shape.udp(FREE_PORT, AP_PORT, bytes(16))) is False


def test_what_a_user_sends_to_somebody_else_is_not_redirected_again(world: World) -> None:
    """It comes with the class of its link as its priority, by which the next filter sends packets to the IFB."""
    context = (ctypes.c_uint32 * 48)()  # struct __sk_buff
    context[8] = 0x51B0_1007
    attributes = world.runner._attributes  # BPF_PROG_TEST_RUN: sizes and addresses of the context, in and out
    attributes[10] = attributes[11] = ctypes.sizeof(context)
    for at in (48, 56):
        ctypes.c_uint64.from_buffer(attributes, at).value = ctypes.addressof(context)
    assert world.runner.run(world.program.fds["to_user"], frame(100))
    assert context[8] == 0


def test_a_lane_has_its_values_before_it_has_a_segment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill in between leaves a lane that nobody reads."""
    packed, seen = Lane(500, LINK).packed(), []

    def segment(size: int) -> bytes:
        lanes = world.program.lanes
        seen.append((lanes.packed(2 * LINK), lanes.used()))
        return b"\1" * size

    monkeypatch.setattr("ap_agent.dataplane.lanes.os.urandom", segment)
    world.program.lanes.take(2 * LINK, packed)
    assert seen == [(packed, {})]


@pytest.mark.parametrize("kind", range(131, 140))
def test_of_icmpv6_neighbours_and_routers_alone_need_no_room(world: World, kind: int) -> None:
    """133 to 137: router and neighbour solicitation and advertisement, and redirect (RFC 4861)."""
    world.link(UNMATCHED, 0)
    world.program.unmatched = 2 * UNMATCHED
    body = struct.pack("!BBHI", kind, 0, 0, 0) + bytes(16)
    one = Frame(USER6, AP6, body, from_user=True, protocol=58, changes={"ipv6.hops": 255})
    assert world.run(bytes(one.encoded()[0])) is (133 <= kind <= 137)
    one.changes["ipv6.hops"] = 254
    assert world.run(bytes(one.encoded()[0])) is False
    part = Frame(USER6, AP6, body, from_user=True, protocol=58, changes={"ipv6.hops": 255}, fragment=(7, 0, True))
    assert world.run(bytes(part.encoded()[0])) is False  # RFC 6980


def test_a_datagram_that_is_whole_is_forgotten_since_identifications_come_again(world: World) -> None:
    world.link(BLOCKED, 0, BLOCKED_PORT)
    assert world.run(fragment(BLOCKED_PORT, is_first=True)) is False
    assert world.run(fragment(FREE_PORT, is_first=False)) is False
    assert world.run(fragment(FREE_PORT, is_first=False)) is True


def test_a_datagram_of_which_a_link_had_a_part_stays_the_links_also_when_the_rest_is_refused(world: World) -> None:
    """A blocked link's first fragments take its slot, and then another port's first one comes, which Linux drops."""
    world.link(LINK, 500, PORT)
    world.link(BLOCKED, 0, BLOCKED_PORT)
    assert world.run(fragment(PORT, is_first=True)) is True
    world.program.lanes.put(2 * LINK + 1, Lane(0, LINK | 0x1000).packed())
    assert world.run(fragment(PORT, is_first=False)) is False
    for number in range(100, 300):
        assert world.run(fragment(BLOCKED_PORT, is_first=True, identification=number)) is False
    assert world.run(fragment(FREE_PORT, is_first=True)) is False
    assert world.run(fragment(FREE_PORT, is_first=True, identification=8)) is True


def test_nobody_pays_for_fragments_of_a_link_that_had_his_number_before(world: World) -> None:
    """Interface ids come again: link 7 goes from an address that keeps another link, and is then somebody else's."""
    world.link(LINK, 500, PORT, BLOCKED_PORT)
    program = world.program
    assert [world.run(fragment(PORT, is_first=True, identification=one)) for one in (7, 8)] == [True, True]
    program.remove_link(Key(ip_address(USER4), PORT).packed())
    for lane in (2 * LINK, 2 * LINK + 1):
        program.lanes.forget(lane)
        program.lanes.take(lane, Lane(500, LINK | 0x1000 * (lane % 2)).packed())
    assert [world.run(fragment(PORT, is_first=False, identification=7)) for _ in range(2)] == [False, False]
    assert (world.counted().passed_bytes, world.counted().refused_bytes) == (0, 0)
    assert world.run(fragment(BLOCKED_PORT, is_first=True, identification=8)) is True  # of the same address again
    assert world.run(fragment(BLOCKED_PORT, is_first=False, identification=8)) is True
    assert world.counted().passed_packets == 2


def test_a_datagram_that_unmatched_traffic_had_no_room_for_stays_refused(world: World) -> None:
    world.link(LINK, 500, PORT)
    world.link(UNMATCHED, 0)
    world.program.unmatched = 2 * UNMATCHED
    assert world.run(fragment(FREE_PORT, is_first=True)) is False
    world.program.lanes.put(2 * UNMATCHED + 1, Lane(500, UNMATCHED | 0x1000).packed())
    assert world.run(fragment(FREE_PORT, is_first=False)) is False
    assert world.run(fragment(FREE_PORT, is_first=True, identification=8)) is True
    assert world.run(fragment(FREE_PORT, is_first=False, identification=8)) is True


def test_a_datagram_that_unmatched_traffic_paid_stays_nobodys(world: World) -> None:
    """160 others take its slot, and the limit of unmatched traffic is taken away."""
    world.link(LINK, 500, PORT)
    world.link(UNMATCHED, 500)
    world.program.unmatched = 2 * UNMATCHED
    assert world.run(fragment(FREE_PORT, is_first=True)) is True
    assert world.run(bytes(Frame(USER4, AP4, bytes(32), from_user=True, fragment=(7, 32, True)).encoded()[0])) is True
    assert all(world.run(fragment(FREE_PORT, is_first=True, identification=number)) for number in range(100, 260))
    world.program.unmatched = None
    assert world.run(fragment(PORT, is_first=True)) is False
    assert world.run(fragment(FREE_PORT, is_first=True)) is True


@pytest.mark.parametrize(("age_s", "passes"), [(-0.5, False), (0, False), (60, False), (70, True)])
def test_a_verdict_is_forgotten_when_no_host_has_the_datagram_any_more(
    world: World, age_s: float, passes: bool
) -> None:
    """Linux waits half a minute for the rest, others a whole one; after 67 s (64,000 times 2^20 ns) it is over.
    -0.5: another processor wrote it after this one had read the clock."""
    world.link(BLOCKED, 0, BLOCKED_PORT)
    assert world.run(fragment(BLOCKED_PORT, is_first=True)) is False
    let_pass(world, age_s)
    assert world.run(fragment(FREE_PORT, is_first=False)) is passes


def let_pass(world: World, seconds: float) -> None:
    """Makes what is remembered of fragments from the user older: each slot has its time in 2^14 ns behind 4 bytes."""
    memory = world.program.fragments
    address = bytes(10) + b"\xff\xff" + USER4 + bytes(4)
    value = ctypes.create_string_buffer(FRAGMENTS_BYTES)
    assert ctypes.CDLL("libbpf.so.1").bpf_map_lookup_elem(memory._fd, address, value) == 0
    for at in range(FROM_USER_SLOTS_AT + 4, FRAGMENTS_BYTES, SLOT_BYTES):
        struct.pack_into(
            "=I", value, at, struct.unpack_from("=I", value, at)[0] - int(seconds * 10**9 / 2**14) & 0xFFFFFFFF
        )
    memory.put(address, value.raw)
