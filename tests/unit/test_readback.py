"""Dumps under their masks: counters and clocks are no news, everything else is."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ap_agent import tcmsg
from ap_agent.dataplane.rtsocket import NLM_F_DUMP_INTR
from ap_agent.model import Counters, Handle, HtbClass
from ap_agent.readback import DumpCounters, DumpMemory, InterruptedDumpError, Shape, sums

RTM_NEWTCLASS, NLMSG_DONE = 40, 3


def class_message(minor: int, rate: int, counters: Counters, *, flags: int = 2, port: int = 77) -> bytes:
    """As the kernel dumps a class: parameters, then counters in both of their forms."""
    one = HtbClass(Handle(1, minor), Handle(1), rate, rate, 3028, 3028)
    basic = tcmsg.attribute(1, struct.pack("=QI4x", counters.bytes, counters.packets))
    queue = tcmsg.attribute(3, struct.pack("=IIIII", 1, counters.backlog_bytes, counters.drops, 0, 0))
    body = tcmsg.pack_class(2, one) + tcmsg.attribute(7, basic + queue)
    body += tcmsg.attribute(3, struct.pack("=QI24x", counters.bytes, counters.packets))
    return struct.pack("=IHHII", 16 + len(body), RTM_NEWTCLASS, flags, 0xFFFFFFFF, port) + body


def piece(messages: Iterable[bytes], *, is_last: bool = True) -> bytes:
    done = struct.pack("=IHHIIi", 20, NLMSG_DONE, 2, 0xFFFFFFFF, 77, 0) if is_last else b""
    return b"".join(messages) + done


class Reader:
    """A memory that counts what it parses."""

    def __init__(self) -> None:
        self.parsed = 0
        self.memory = DumpMemory(self.parse)

    def parse(self, body: bytes) -> HtbClass | None:
        self.parsed += 1
        return tcmsg.parse_class(body)

    def counters(self) -> DumpCounters[HtbClass]:
        return DumpCounters(self.memory.places, self.memory.raws, lambda one: one.handle)


IDLE = Counters()
BUSY = Counters(bytes=123_456_789_012, packets=77, drops=5, backlog_bytes=4242)


def test_moving_counters_are_no_news_and_are_read_all_the_same() -> None:
    reader = Reader()
    first = reader.memory.take([piece([class_message(1, 500, IDLE), class_message(2, 700, IDLE)])])
    second = reader.memory.take([piece([class_message(1, 500, IDLE), class_message(2, 700, BUSY)])])
    assert second is first
    assert reader.parsed == 2
    assert reader.counters()[Handle(1, 1)] == IDLE
    assert reader.counters()[Handle(1, 2)] == BUSY
    assert len(reader.counters()) == 2


def test_what_a_link_passed_and_what_waits_in_its_leaves() -> None:
    reader = Reader()
    counted = {1: Counters(10, 1, 900, 901), 2: Counters(20, 2, 3, 400), 3: BUSY}
    reader.memory.take([piece([class_message(minor, 500, one) for minor, one in counted.items()])])
    inner, leaves = Handle(1, 1), (Handle(1, 2), Handle(1, 3), Handle(1, 4))
    plain = {Handle(1, minor): one for minor, one in counted.items()}
    assert sums(reader.counters(), inner, leaves) == sums(plain, inner, leaves) == (10, 1, 8, 4642)
    assert sums(reader.counters(), Handle(1, 9), ()) == sums({}, Handle(1, 9), ()) == (0, 0, 0, 0)


def test_a_changed_rate_is_news_of_one_message() -> None:
    reader = Reader()
    reader.memory.take([piece([class_message(1, 500, IDLE), class_message(2, 700, BUSY)])])
    second = reader.memory.take([piece([class_message(1, 501, IDLE), class_message(2, 700, IDLE)])])
    assert [one.rate_bytes_s for one in second] == [501, 700]
    assert reader.parsed == 3


def test_messages_that_moved_to_another_place_are_not_parsed_again() -> None:
    reader = Reader()
    one, two, three = (class_message(minor, 500, BUSY) for minor in (1, 2, 3))
    reader.memory.take([piece([one, two], is_last=False), piece([three])])
    found = reader.memory.take([piece([two], is_last=False), piece([three, one])])
    assert [each.handle.minor for each in found] == [2, 3, 1]
    assert reader.parsed == 3
    assert reader.counters()[Handle(1, 1)] == BUSY


def test_another_socket_and_another_request_change_nothing() -> None:
    reader = Reader()
    first = reader.memory.take([class_message(1, 500, IDLE, port=1)])
    assert reader.memory.take([class_message(1, 500, IDLE, port=2)]) is first
    assert reader.parsed == 1


def test_fewer_and_more_pieces_are_news() -> None:
    reader = Reader()
    pieces = [piece([class_message(minor, 500, IDLE)], is_last=minor == 3) for minor in (1, 2, 3)]
    assert len(reader.memory.take(pieces)) == 3
    assert len(reader.memory.take(pieces[1:])) == 2
    assert len(reader.memory.take([])) == 0
    assert len(reader.memory.take(pieces)) == 3


def test_an_interrupted_dump_is_not_believed() -> None:
    reader = Reader()
    with pytest.raises(InterruptedDumpError):
        reader.memory.take([class_message(1, 500, IDLE, flags=2 | NLM_F_DUMP_INTR)])
    reader.memory.take([class_message(1, 500, IDLE)])
    with pytest.raises(InterruptedDumpError):
        reader.memory.take([class_message(1, 500, IDLE, flags=2 | NLM_F_DUMP_INTR)])


def test_what_is_remembered_of_messages_that_are_gone_is_bounded() -> None:
    reader = Reader()
    for rate in range(500, 25_000):
        reader.memory.take([class_message(1, rate, IDLE)])
    assert len(reader.memory._known) < 10_000


MESSAGES = st.lists(
    st.tuples(st.integers(1, 4094), st.integers(1000, 1 << 33), st.integers(0, 1 << 40)), min_size=0, max_size=30
)


@given(MESSAGES, MESSAGES, st.data())
def test_a_memory_says_what_a_fresh_reader_says(
    before: list[tuple[int, int, int]], after: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Whatever it read before, and however the kernel cut the dump into pieces."""

    def pieces(found: list[tuple[int, int, int]]) -> list[bytes]:
        packed = [class_message(minor, rate, Counters(size, size & 0xFFFF)) for minor, rate, size in found]
        cut = data.draw(st.integers(0, len(packed)))
        return [piece(packed[:cut], is_last=False), piece(packed[cut:])]

    reader, fresh = Reader(), Reader()
    reader.memory.take(pieces(before))
    shared = before[: len(before) // 2] + after
    now = pieces(shared)
    assert reader.memory.take(now) == fresh.memory.take(now)
    for minor, _, size in {minor: (minor, rate, size) for minor, rate, size in shared}.values():
        assert reader.counters()[Handle(1, minor)].bytes == size


@given(st.binary(max_size=120))
def test_any_message_has_a_shape(data: bytes) -> None:
    message = struct.pack("=IHHII", 16 + len(data), RTM_NEWTCLASS, 2, 0, 0) + data
    assert len(Shape.of(message).mask) == len(message)
