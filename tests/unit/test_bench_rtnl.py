"""A recording has what went to the kernel, and a replay sends that and nothing else."""

from __future__ import annotations

import socket
import struct

from lab.bench.rtnl import Message, Recorder, Recording, parse, pieces, read_dumps

HEADER = struct.Struct("=IHHII")
ADD_CLASS, GET_CLASS, GET_LINK = 40, 42, 18
ASK_DUMP = 0x301


def test_a_replay_packs_pieces_and_asks_once_for_an_answer() -> None:
    messages = [Message(ADD_CLASS, 0x5 | 0x600, bytes(84)) for _ in range(10)]
    packed = pieces(messages, piece_bytes=310)  # three messages of 100 bytes
    assert [len(one) for one in packed] == [300, 300, 300, 100]
    found = [one for piece in packed for one in parse(piece)]
    assert [one.flags & 0x4 for one in found] == [0] * 9 + [4]
    assert [one.body for one in found] == [bytes(84)] * 10
    assert pieces([]) == []


def test_a_recording_tells_writes_from_questions() -> None:
    record = Recording()
    question = HEADER.pack(20, GET_CLASS, 0x301, 1, 0) + b"abcd"
    assert record.sent(question, 1.0) is False
    assert record.sent(question, 2.0) is False
    assert record.sent(HEADER.pack(18, ADD_CLASS, 5, 2, 0) + b"xy\0\0" + question, 3.0) is True
    assert (record.write_sends, len(record.messages), len(record.writes)) == (1, 4, 1)
    assert record.dumps == [Message(GET_CLASS, 0x301, b"abcd")]
    assert record.first_write_s == 3.0


def ask_for_links() -> bytes:
    return HEADER.pack(32, GET_LINK, ASK_DUMP, 1, 0) + bytes(16)


def test_sockets_are_watched_for_their_life_and_others_are_left_alone() -> None:
    plain = socket.socket
    with Recorder() as recorder:
        first = recorder.start()
        asker = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        asker.send(ask_for_links())
        second = recorder.start()
        asker.recv(1 << 16)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", 0))
            other.sendto(b"not for the kernel", other.getsockname())
    assert socket.socket is plain
    asker.send(ask_for_links())  # still watched, though nobody looks any more
    asker.close()
    assert first.messages == [Message(GET_LINK, ASK_DUMP, bytes(16))]
    assert first.write_sends == 0
    assert first.kernel_s > 0
    assert second.kernel_s > 0
    assert second.messages == first.messages


def test_a_dump_is_read_to_its_end_without_being_parsed() -> None:
    question = Message(GET_LINK, ASK_DUMP, bytes(16))
    seconds, size = read_dumps([question])
    twice_seconds, twice_size = read_dumps([question, question])
    assert seconds > 0
    assert twice_seconds > 0
    assert size > 100  # this machine has a loopback
    assert twice_size == 2 * size
