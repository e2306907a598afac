"""What a lane has in memory, and when. Numbers are those of docs/adr/0028, offsets those of limiter.bpf.c."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ap_agent.dataplane import lanes as module
from ap_agent.dataplane.lanes import Lane, Lanes, early_bytes, room_bytes
from ap_agent.document.state import Counters

LANE_BYTES, SEGMENT_AT, EMPTY_AT, COUNTERS_AT, QUEUED_UNTIL_AT = 136, 56, 64, 80, 128
NOW_NS = 5_000_000_000
A, B, BLOCKED = Lane(500, 7).packed(), Lane(32, 9).packed(), Lane(0, 7).packed()
ZERO = Counters(0, 0, 0, 0, 0, 0)


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lanes]:
    """16 of them in memory of this process."""
    fd = os.memfd_create("lanes")
    os.ftruncate(fd, 4096)
    monkeypatch.setattr(module, "map_sizes", lambda _: (LANE_BYTES, 16))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: NOW_NS))
    made = Lanes(fd)
    yield made
    made.close()


def number_at(lanes: Lanes, lane: int, at: int) -> int:
    return int(struct.unpack_from("=Q", lanes._memory, lane * LANE_BYTES + at)[0])


@pytest.mark.parametrize(
    ("kbit", "room", "early"),
    [
        *((32, 14_000, 14_000), (99, 14_000, 14_000), (100, 20_000, 15_200), (1_600, 20_000, 15_200)),
        *((1_601, 20_012, 15_200), (2_000, 25_000, 15_200), (100_000, 1_250_000, 250_000)),
    ],
)
def test_room_and_where_early_refusal_begins(kbit: int, room: int, early: int) -> None:
    assert (room_bytes(kbit), early_bytes(kbit)) == (room, early)
    assert isinstance(room_bytes(kbit), int)


@pytest.mark.parametrize(
    ("lane", "written"),
    [
        # 2^-20 ns a byte; room, early refusal, largest datagram and heartbeats in ns; class, flags, kbit/s
        (Lane(500, 7), (16_793_993_216, 320_320_000, 243_443_200, 1_121_120_000, 200_000_000, 0x51B0_0007, 0, 500)),
        (
            Lane(32, 0x1007, is_observed=True),
            (262_406_144_000, 3_503_500_000, 3_503_500_000, 17_517_500_000, 250_250_000, 0x51B0_1007, 2, 32),
        ),
        (Lane(100_000, 8), (83_969_966, 100_100_000, 20_020_000, 5_605_600, 200_000_000, 0x51B0_0008, 0, 100_000)),
        (Lane(0, 7), (0, 0, 0, 0, 0, 0x51B0_0007, 1, 0)),
        (Lane(0, 7, is_observed=True), (0, 0, 0, 0, 0, 0x51B0_0007, 3, 0)),
    ],
)
def test_what_the_program_reads_of_a_limit(lane: Lane, written: tuple[int, ...]) -> None:
    assert struct.unpack("=QQQQQIIQ", lane.packed()) == written


def test_a_lane_is_read_from_its_allocation_to_its_release(lanes: Lanes) -> None:
    assert (lanes.used(), lanes.counted(), lanes.counted_of([3]), lanes.ended([3])) == ({}, {}, {}, [])
    lanes.take(3, A)
    lanes.take(9, B)
    struct.pack_into("=6Q", lanes._memory, 3 * LANE_BYTES + COUNTERS_AT, 1, 2, 3, 4, 5, 6)
    segment, other = number_at(lanes, 3, SEGMENT_AT), number_at(lanes, 9, SEGMENT_AT)
    assert 0 not in (segment, other)
    assert segment != other
    counted = {3: (segment, Counters(1, 2, 3, 4, 5, 6)), 9: (other, ZERO)}
    assert (lanes.used(), lanes.counted()) == ({3: A, 9: B}, counted)
    assert lanes.counted_of([3, 4]) == {3: counted[3]}
    assert lanes.ended([3, 4]) == [(3, 500, *counted[3])]
    lanes.put(3, B)
    assert (lanes.used(), lanes.counted()) == ({3: B, 9: B}, counted), "counters go on"
    lanes.take(3, A)
    assert lanes.counted_of([3]) == {3: (number_at(lanes, 3, SEGMENT_AT), ZERO)}
    assert number_at(lanes, 3, SEGMENT_AT) not in (0, segment)
    lanes.forget(3)
    assert (lanes.used(), lanes.counted(), lanes.ended([3])) == ({9: B}, {9: counted[9]}, [])
    assert struct.unpack("=QQQQQIIQ", lanes.packed(3)) == (0, 0, 0, 0, 0, 0, 1, 0), "for packets in transit"
    for unused in (2, 4, 8, 10):
        assert lanes._memory[unused * LANE_BYTES : (unused + 1) * LANE_BYTES] == bytes(LANE_BYTES)


def test_a_lane_in_use_that_passes_nothing_is_blocked(lanes: Lanes) -> None:
    lanes.take(3, A)
    lanes.take(4, BLOCKED)
    lanes.forget(5)
    assert [lanes.is_blocked(one) for one in (3, 4, 5, 6)] == [False, True, False, False]


def test_what_waits_takes_as_much_longer_as_the_limit_is_lower(lanes: Lanes) -> None:
    """The leaf's 160,000 bytes at 500 kbit/s take 2.56256 s; a busy processor has a tenth of a second more."""
    lanes.take(3, A)
    assert number_at(lanes, 3, QUEUED_UNTIL_AT) == NOW_NS + 2_662_560_000
    struct.pack_into("=Q", lanes._memory, 3 * LANE_BYTES + EMPTY_AT, NOW_NS + 320_000_000)
    for packed, empty_ns, behind_ns in (
        (B, 5_000_000_000, 41_702_500_000),  # 500 to 32 kbit/s
        (A, 320_000_000, 2_768_960_000),
        (BLOCKED, 320_000_000, 2_768_960_000),
        (A, 0, 100_000_000),  # its queue was dropped
    ):
        lanes.put(3, packed)
        assert number_at(lanes, 3, EMPTY_AT) == NOW_NS + empty_ns
        assert number_at(lanes, 3, QUEUED_UNTIL_AT) == NOW_NS + behind_ns
    lanes.take(3, BLOCKED)
    assert number_at(lanes, 3, QUEUED_UNTIL_AT) == 0
