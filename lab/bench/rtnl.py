"""The kernel's own time for what the engine asks of it: record its messages, then send the same ones and nothing else.

`Recorder` watches the rtnetlink sockets of this process from outside.
A replay into a fresh namespace needs no translation: device numbers there are handed out in the same order.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

PIECE_BYTES = 64 * 1024
RTM_BASE = 16
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
REPLY_TIMEOUT_S = 120  # thousands of classes; the kernel answers after all of a piece is done
_HEADER = struct.Struct("=IHHII")


@dataclass(frozen=True)
class Message:
    """One request as it was sent."""

    kind: int
    flags: int
    body: bytes

    @property
    def is_dump(self) -> bool:
        return self.kind >= RTM_BASE and self.kind % 4 == 2 and self.flags & NLM_F_DUMP == NLM_F_DUMP

    @property
    def is_write(self) -> bool:
        """RTM_NEW…, RTM_DEL… and RTM_SET…; every fourth is RTM_GET…"""
        return self.kind >= RTM_BASE and self.kind % 4 != 2


@dataclass
class Recording:
    """What went to the kernel; taken apart when somebody asks, so that watching costs the watched little."""

    sends: list[bytes] = field(default_factory=list)

    @property
    def messages(self) -> list[Message]:
        return [one for data in self.sends for one in parse(data)]

    @property
    def writes(self) -> list[Message]:
        return [one for one in self.messages if one.is_write]

    @property
    def dumps(self) -> list[Message]:
        """Each different question once."""
        return list(dict.fromkeys(one for one in self.messages if one.is_dump))


def parse(data: bytes) -> Iterator[Message]:
    """The messages of one send."""
    position = 0
    while position + _HEADER.size <= len(data):
        length, kind, flags, _, _ = _HEADER.unpack_from(data, position)
        if length < _HEADER.size:
            return
        yield Message(kind, flags, bytes(data[position + _HEADER.size : position + length]))
        position += (length + 3) & ~3


class Recorder:
    """Watches every rtnetlink socket that is opened while it is entered, in any thread of this process, for its life.

    `start` begins a new recording; what the sockets do from then on belongs to it.
    """

    def __init__(self) -> None:
        self.current = Recording()
        self._original = socket.socket

    def __enter__(self) -> Recorder:
        socket.socket = _watched(self, self._original)  # type: ignore[misc]  # every module takes it from there
        return self

    def __exit__(self, *_: object) -> None:
        socket.socket = self._original  # type: ignore[misc]

    def start(self) -> Recording:
        self.current = Recording()
        return self.current


def _watched(recorder: Recorder, original: type[socket.socket]) -> type[socket.socket]:
    """A socket class that notes what it sends."""

    class Watched(original):  # type: ignore[misc, valid-type]  # a class made from a variable
        def send(self, data: Any, *arguments: Any) -> Any:
            """How the engine sends."""
            if (self.family, self.proto) == (socket.AF_NETLINK, socket.NETLINK_ROUTE):
                recorder.current.sends.append(bytes(data))
            return super().send(data, *arguments)

    return Watched


# --- the same again, and nothing else ---------------------------------------------------------------------------


class KernelError(RuntimeError):
    """The kernel refused a replayed message."""


def opened_socket() -> socket.socket:
    """An rtnetlink socket with room for much, in the namespace of the calling thread."""
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    opened.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 8 << 20)
    opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
    opened.settimeout(REPLY_TIMEOUT_S)
    opened.bind((0, 0))
    return opened


def pieces(messages: Sequence[Message]) -> list[bytes]:
    """Packed as large as a piece may be; only the very last message asks for an acknowledgement, numbered 1 upwards.

    A message that is larger than a piece stands alone.
    """
    packed: list[bytes] = []
    current = bytearray()
    for number, one in enumerate(messages, start=1):
        flags = (one.flags | NLM_F_REQUEST) & ~NLM_F_ACK | (NLM_F_ACK if number == len(messages) else 0)
        data = _HEADER.pack(_HEADER.size + len(one.body), one.kind, flags, number, 0) + one.body
        data += b"\0" * (-len(data) % 4)
        if current and len(current) + len(data) > PIECE_BYTES:
            packed.append(bytes(current))
            current.clear()
        current += data
    return [*packed, bytes(current)] if current else packed


def replay(messages: Sequence[Message]) -> float:
    """Send these writes in pieces of 64 kB; seconds until the kernel had done the last. Raises `KernelError`."""
    packed = pieces(messages)
    with opened_socket() as opened:
        began = time.perf_counter()
        for piece in packed:
            opened.send(piece)
        _await_last(opened, len(messages))
        return time.perf_counter() - began


def _await_last(opened: socket.socket, last: int) -> None:
    """Until the acknowledgement of the last message; an error of an earlier one comes before it."""
    while True:
        data = opened.recv(1 << 16)
        position = 0
        while position + _HEADER.size <= len(data):
            length, kind, _, number, _ = _HEADER.unpack_from(data, position)
            (code,) = struct.unpack_from("=i", data, position + _HEADER.size)
            if kind == NLMSG_ERROR and code:
                raise KernelError(f"message {number} of {last}: error {-code}")
            if kind == NLMSG_ERROR and number == last:
                return
            position += (length + 3) & ~3


def read_dumps(questions: Sequence[Message]) -> tuple[float, int]:
    """Ask for each dump and read it without looking into it: seconds, and bytes read."""
    buffer = bytearray(1 << 20)
    total = 0
    with opened_socket() as opened:
        began = time.perf_counter()
        for number, one in enumerate(questions, start=1):
            flags = NLM_F_REQUEST | NLM_F_DUMP
            opened.send(_HEADER.pack(_HEADER.size + len(one.body), one.kind, flags, number, 0) + one.body)
            while True:
                size = opened.recv_into(buffer)
                total += size
                if _ends(buffer, size):
                    break
        return time.perf_counter() - began, total


def _ends(buffer: bytearray, size: int) -> bool:
    """Whether a dump is over: its last message says so (or it is an error, which is one message alone)."""
    first = _HEADER.unpack_from(buffer)[1]
    if first in (NLMSG_DONE, NLMSG_ERROR):
        return True
    # NLMSG_DONE is the last of a read: a header, a code, and perhaps nothing more.
    tail = size - _HEADER.size - 4
    return tail >= 0 and _HEADER.unpack_from(buffer, tail)[:2] == (_HEADER.size + 4, NLMSG_DONE)
