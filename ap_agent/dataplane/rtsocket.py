"""Requests, queries and dumps on an rtnetlink socket. Every message is accounted for.

The kernel processes a `send` synchronously, message by message, and continues after an error. So thousands of requests
are sent in pieces, only the last message of a piece asks for an acknowledgement, and errors come back with their
sequence number. No answer means success, unless answers were lost, which is reported.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ap_agent.common.errors import AgentError
from ap_agent.dataplane.attributes import Message, attributes, text_of

NLM_F_REQUEST, NLM_F_ACK, NLM_F_ECHO, NLM_F_DUMP, NLM_F_DUMP_INTR = 0x1, 0x4, 0x8, 0x300, 0x10
NLM_F_CAPPED, NLM_F_ACK_TLVS = 0x100, 0x200
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLMSGERR_ATTR_MSG = 1
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
MSG_DONTWAIT = int(socket.MSG_DONTWAIT)

PIECE_BYTES = 64 * 1024
BUFFER_BYTES = 8 * 1024 * 1024  # twice that is granted: enough for an error per message of a piece
DUMP_ATTEMPTS = 5  # of one that changes meanwhile
QUESTIONS_AT_ONCE = 32  # each answer takes a buffer of 4 kB or more, whatever its length
LOST = "the kernel's answer was lost, because the receive buffer was too small"
DUMP_NUMBER = 0xFFFF_FFFF  # used by no request
REPLY_TIMEOUT_S = 30  # the kernel answers immediately; thousands of classes on a slow machine take seconds
_RECEIVE_BYTES = 1 << 20  # dumps come in 32 kB; the maximum of a single answer

_HEADER = struct.Struct("=IHHII")
_Answer = tuple[int, int, bytes]  # type, flags, body


@dataclass(frozen=True)
class Refusal:
    """An error of the kernel, with its own text if any. `number` is a positive errno. ENOBUFS with the text `LOST`: the
    answer was lost, so it may have succeeded."""

    number: int
    text: str = ""

    def __str__(self) -> str:
        return f"{errno.errorcode.get(self.number, self.number)} ({self.text or os.strerror(self.number)})"


class RefusedError(Exception):
    """A dump was rejected."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.number = refusal.number


class RtSocket:
    """One socket in the network namespace of the creating thread; for one thread at a time."""

    def __init__(self, *, piece_bytes: int = PIECE_BYTES, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._piece_bytes = piece_bytes
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        for option in (NETLINK_EXT_ACK, NETLINK_CAP_ACK):
            self._socket.setsockopt(SOL_NETLINK, option, 1)
        enlarge(self._socket, SO_SNDBUFFORCE, max(buffer_bytes, 2 * piece_bytes))
        enlarge(self._socket, SO_RCVBUFFORCE, buffer_bytes)
        # The kernel's own timeout: Python's would cost a poll before each of thousands of receives.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", REPLY_TIMEOUT_S, 0))
        self._socket.bind((0, 0))
        self._count = itertools.count()
        self._dump_mark = struct.pack("=II", DUMP_NUMBER, self.port)
        self._buffer = bytearray(_RECEIVE_BYTES)

    @property
    def port(self) -> int:
        """The kernel puts it into the events that our requests cause."""
        return int(self._socket.getsockname()[0])

    def close(self) -> None:
        self._socket.close()

    # --- requests ---

    def send(self, groups: Sequence[Sequence[Message]]) -> list[Refusal | None]:
        """Send all messages in order. Return the first error of each group, None for success. The messages of a group
        are sent in one piece: the kernel processes them even if we are killed meanwhile."""
        refusals: list[Refusal | None] = []
        for piece in self._pieces(groups):
            refusals += self._send_piece(piece)
        return refusals

    def _pieces(self, groups: Iterable[Sequence[Message]]) -> Iterator[list[Sequence[Message]]]:
        piece: list[Sequence[Message]] = []
        size = 0
        for group in groups:
            length = sum(_HEADER.size + len(body) + 3 for _, _, body in group)
            if piece and size + length > self._piece_bytes:
                yield piece
                piece, size = [], 0
            piece.append(group)
            size += length
        if piece:
            yield piece

    def _send_piece(self, groups: list[Sequence[Message]]) -> list[Refusal | None]:
        messages = [message for group in groups for message in group]
        if not messages:
            return [None] * len(groups)
        messages[-1] = (messages[-1][0], messages[-1][1] | NLM_F_ACK, messages[-1][2])
        numbers = self._transmit(messages)
        said = self._collect({numbers[-1]})
        lost = None if numbers[-1] in said else Refusal(errno.ENOBUFS, LOST)
        errors = iter([_error(*said[one]) if one in said else lost for one in numbers])
        several = [list(itertools.islice(errors, len(group))) for group in groups]
        return [next((one for one in found if one is not None), None) for found in several]

    def _collect(self, awaited: set[int]) -> dict[int, _Answer]:
        """Collect expected answers by number. Some are missing if the receive buffer was too small; then it is emptied,
        so that nothing old is mixed with the next request."""
        found: dict[int, _Answer] = {}
        flags = 0
        while not awaited <= found.keys():
            try:
                data = self._receive(flags)
            except _OverrunError:
                flags = MSG_DONTWAIT
            except _EmptyError:
                break
            else:
                for kind, own, start, end in messages_of(data):
                    (number,) = struct.unpack_from("=I", data, start - 8)
                    found[number] = kind, own, data[start:end]
        return found

    # --- questions ---

    def query_all(self, kind: int, bodies: Sequence[bytes]) -> list[bytes]:
        """The answers to many queries of one kind, without those that the kernel refuses. Raises `AgentError`."""
        answers: list[bytes] = []
        for start in range(0, len(bodies), QUESTIONS_AT_ONCE):
            # Traffic control sends answers to all listeners, and to the requester only with the echo flag.
            numbers = self._transmit([(kind, NLM_F_ECHO, one) for one in bodies[start : start + QUESTIONS_AT_ONCE]])
            said = self._collect(set(numbers))
            if not said.keys() >= set(numbers):
                raise AgentError(f"{LOST.capitalize()}; try again.", retryable=True)
            answers += [said[one][2] for one in numbers if _error(*said[one]) is None]
        return answers

    # --- dumps ---

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """A consistent dump in pieces of some 32 kB with whole messages (see `messages_of`); the last piece ends with
        NLMSG_DONE. Raises `RefusedError`, `AgentError`. All dumps have the same sequence number, so that an unchanged
        one is identical byte for byte."""
        for _ in range(DUMP_ATTEMPTS):
            pieces = self._dumped(kind, body)
            if not any(_HEADER.unpack_from(piece)[2] & NLM_F_DUMP_INTR for piece in pieces):
                return pieces
        raise AgentError("The kernel's network changes faster than it can be read; try again.", retryable=True)

    def _dumped(self, kind: int, body: bytes) -> list[bytes]:
        self._socket.send(_packed(kind, NLM_F_REQUEST | NLM_F_DUMP, DUMP_NUMBER, body))
        pieces: list[bytes] = []
        while True:
            try:
                pieces.append(self._receive())
            except _OverrunError as exc:
                raise AgentError("The kernel could not return all that it read; try again.", retryable=True) from exc
            answer, flags, data = self._last_message(pieces[-1])
            if (refused := _error(answer, flags, data)) is not None:
                raise RefusedError(refused)
            if answer == NLMSG_DONE:
                return pieces

    def _last_message(self, piece: bytes) -> _Answer:
        """Found by our numbers in its header, without parsing the piece."""
        start = piece.rfind(self._dump_mark) - 8
        length, kind, flags, _, _ = _HEADER.unpack_from(piece, max(start, 0))
        is_last = start + (length + 3 & ~3) == len(piece)  # otherwise bytes of an attribute
        return (kind, flags, piece[start + _HEADER.size :]) if is_last else (0, 0, b"")

    # --- bytes ---

    def _transmit(self, messages: Sequence[Message]) -> list[int]:
        numbers = [1 + next(self._count) % (DUMP_NUMBER - 1) for _ in messages]
        packed = [
            _packed(kind, flags | NLM_F_REQUEST, number, body)
            for (kind, flags, body), number in zip(messages, numbers, strict=True)
        ]
        self._socket.send(b"".join(packed))
        return numbers

    def _receive(self, flags: int = 0) -> bytes:
        try:
            size = self._socket.recv_into(self._buffer, 0, flags | int(socket.MSG_TRUNC))
        except BlockingIOError as exc:
            if flags:
                raise _EmptyError from exc
            message = f"The kernel did not answer within {REPLY_TIMEOUT_S} s; try again."
            raise AgentError(message, retryable=True) from exc
        except OSError as exc:
            if exc.errno != errno.ENOBUFS:
                raise
            raise _OverrunError from exc
        if size > len(self._buffer):
            raise AgentError(f"The kernel sent {size} B in one answer, which is too large to read.", retryable=True)
        return bytes(memoryview(self._buffer)[:size])


class _OverrunError(Exception):
    """The receive buffer was too small, and answers are lost."""


class _EmptyError(Exception):
    """The receive buffer is empty."""


def enlarge(sock: socket.socket, buffer: int, size_bytes: int) -> None:
    """A buffer (`SO_SNDBUFFORCE`, `SO_RCVBUFFORCE`), beyond the system's maximum if allowed (CAP_NET_ADMIN in the first
    user namespace)."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, buffer, size_bytes)
    except PermissionError:
        polite = socket.SO_SNDBUF if buffer == SO_SNDBUFFORCE else socket.SO_RCVBUF
        sock.setsockopt(socket.SOL_SOCKET, polite, size_bytes)


def messages_of(piece: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Type, flags, start and end of the body."""
    position = 0
    while position + _HEADER.size <= len(piece):
        length, kind, flags, _, _ = _HEADER.unpack_from(piece, position)
        if length < _HEADER.size:
            return
        yield kind, flags, position + _HEADER.size, position + length
        position += length + 3 & ~3


def _packed(kind: int, flags: int, number: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, number, 0) + body + bytes(-len(body) % 4)


def _error(kind: int, flags: int, body: bytes) -> Refusal | None:
    """None for anything but an error."""
    code = struct.unpack_from("=i", body)[0] if kind in (NLMSG_ERROR, NLMSG_DONE) else 0
    if code == 0:
        return None
    text = b""
    if flags & NLM_F_ACK_TLVS:
        (length,) = struct.unpack_from("=I", body, 4)
        skipped = 4 + (_HEADER.size if flags & NLM_F_CAPPED else (length + 3) & ~3)
        text = dict(attributes(body[skipped:])).get(NLMSGERR_ATTR_MSG, b"")
    return Refusal(-code, text_of(text))
