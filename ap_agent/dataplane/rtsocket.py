"""Requests, questions and dumps on a plain rtnetlink socket. Bytes out, bytes in; every answer is accounted for.

The kernel works through what one `send` brings while we wait in it, message by message, and goes on after a refusal. So
thousands of requests travel in pieces, only the last message of a piece asks for an acknowledgement, and whatever was
refused comes back with its own number. What is not answered was done: unless answers were lost, which is said.
"""

from __future__ import annotations

import errno
import itertools
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ap_agent.common.errors import AgentError
from ap_agent.dataplane.attributes import Message, attributes

NLM_F_REQUEST, NLM_F_ACK, NLM_F_ECHO, NLM_F_DUMP, NLM_F_DUMP_INTR = 0x1, 0x4, 0x8, 0x300, 0x10
NLM_F_CAPPED, NLM_F_ACK_TLVS = 0x100, 0x200
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLMSGERR_ATTR_MSG = 1
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
MSG_TRUNC, MSG_DONTWAIT = int(socket.MSG_TRUNC), int(socket.MSG_DONTWAIT)  # Python's enums are slow to combine

PIECE_BYTES = 64 * 1024
BUFFER_BYTES = 8 * 1024 * 1024  # twice that is granted: enough for a refusal of every message of a piece
QUESTIONS_AT_ONCE = 256  # each answer takes a buffer of 4 kB or more, whatever its length
LOST = "the kernel's answer was lost, because the receive buffer was too small"
DUMP_NUMBER = 0xFFFF_FFFF  # no request has it
REPLY_TIMEOUT_S = 30  # the kernel answers at once; thousands of classes on a slow machine take seconds
_RECEIVE_BYTES = 1 << 20  # dumps come in 32 kB; more than this no single answer has

_HEADER = struct.Struct("=IHHII")
_NUMBER = struct.Struct("=8xI")
_Answer = tuple[int, int, int, bytes]  # type, flags, number, body


@dataclass(frozen=True)
class Refusal:
    """The kernel's no: to which message of its group, why, and its own words if it had any.

    `number` is a positive errno. ENOBUFS with the text `LOST`: there is no answer, so it may have been a yes.
    """

    index: int
    number: int
    text: str = ""


class RefusedError(Exception):
    """A question or a dump was refused."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.number, self.text = refusal.number, refusal.text


class RtSocket:
    """One socket in the network namespace of the thread that makes it; for one thread at a time."""

    def __init__(self, *, piece_bytes: int = PIECE_BYTES, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._piece_bytes = piece_bytes
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        for option in (NETLINK_EXT_ACK, NETLINK_CAP_ACK):
            self._socket.setsockopt(SOL_NETLINK, option, 1)
        self._enlarge(SO_SNDBUFFORCE, socket.SO_SNDBUF, max(buffer_bytes, 2 * piece_bytes))
        self._enlarge(SO_RCVBUFFORCE, socket.SO_RCVBUF, buffer_bytes)
        # The kernel's own timeout: Python's would cost a poll before each of thousands of receives.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", REPLY_TIMEOUT_S, 0))
        self._socket.bind((0, 0))
        self._numbers = itertools.count()
        self._dump_mark = struct.pack("=II", DUMP_NUMBER, self.port)
        self._buffer = bytearray(_RECEIVE_BYTES)

    def _enlarge(self, forced: int, polite: int, size: int) -> None:
        """Beyond the system's maximum if we may (CAP_NET_ADMIN in the first user namespace)."""
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, forced, size)
        except PermissionError:
            self._socket.setsockopt(socket.SOL_SOCKET, polite, size)

    @property
    def port(self) -> int:
        """The kernel writes it into the events that our requests cause."""
        return int(self._socket.getsockname()[0])

    def close(self) -> None:
        self._socket.close()

    # --- requests ---

    def send(self, groups: Sequence[Sequence[Message]]) -> list[Refusal | None]:
        """Carry out all messages in order. For each group its first refusal, None if all of it was done.

        The messages of a group travel in one piece: the kernel works through them even if we are killed meanwhile.
        """
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
        flat = [message for group in groups for message in group]
        if not flat:
            return [None] * len(groups)
        numbers = [self._next_number() for _ in flat]
        flags = [NLM_F_REQUEST] * (len(flat) - 1) + [NLM_F_REQUEST | NLM_F_ACK]
        self._transmit(
            _pack(kind, own | more, number, body)
            for (kind, own, body), more, number in zip(flat, flags, numbers, strict=True)
        )
        errors, is_complete = self._collect(numbers)
        lost = None if is_complete else (errno.ENOBUFS, LOST)
        answers = iter([errors.get(number, lost) for number in numbers])
        return [_first([next(answers) for _ in group]) for group in groups]

    def _collect(self, numbers: list[int]) -> tuple[dict[int, tuple[int, str] | None], bool]:
        """What the kernel said, by message number (None: done), and whether that is all.

        It has said everything by the time `send` returns. Where the receive buffer was too small the acknowledgement at
        the end is among what is missing, so nobody waits for that.
        """
        last, wanted = numbers[-1], set(numbers)
        said: dict[int, tuple[int, str] | None] = {}
        is_complete = True
        while last not in said:
            try:
                answers = self._receive() if is_complete else self._left_over()
            except _OverrunError:
                is_complete = False
                continue
            said.update(
                {
                    number: _error(flags, body)
                    for kind, flags, number, body in answers
                    if kind == NLMSG_ERROR and number in wanted
                }
            )
            if not is_complete:
                break
        return said, is_complete

    def _left_over(self) -> list[_Answer]:
        """What is in the receive buffer now; it is empty afterwards, so that nothing old meets the next request."""
        found: list[_Answer] = []
        while True:
            try:
                found += self._receive(MSG_DONTWAIT)
            except _NothingThereError:
                return found
            except _OverrunError:
                continue

    # --- questions ---

    def ask(self, kind: int, body: bytes) -> bytes:
        """One question with one answer. Raises `RefusedError`."""
        (answer,) = self.ask_all(kind, [body])
        if isinstance(answer, Refusal):
            raise RefusedError(answer)
        return answer

    def ask_all(self, kind: int, bodies: Sequence[bytes]) -> list[bytes | Refusal]:
        """Many questions of one kind, each with its answer, in order."""
        answers: list[bytes | Refusal] = []
        for start in range(0, len(bodies), QUESTIONS_AT_ONCE):
            answers += self._ask_some(kind, bodies[start : start + QUESTIONS_AT_ONCE])
        return answers

    def _ask_some(self, kind: int, bodies: Sequence[bytes]) -> list[bytes | Refusal]:
        numbers = [self._next_number() for _ in bodies]
        # Traffic control answers everybody who listens to it, and the one who asks only if he wants the echo.
        flags = NLM_F_REQUEST | NLM_F_ECHO
        self._transmit(_pack(kind, flags, number, body) for number, body in zip(numbers, bodies, strict=True))
        answers: dict[int, bytes | Refusal] = {}
        wanted = set(numbers)
        try:
            while len(answers) < len(numbers):
                for answer, flags, number, data in self._receive():
                    if number in wanted:
                        refused = _error(flags, data) if answer == NLMSG_ERROR else None
                        answers[number] = data if refused is None else Refusal(0, *refused)
        except _OverrunError as exc:
            self._left_over()
            if len(bodies) == 1:
                raise AgentError(
                    "The kernel's answer does not fit into our buffer; try again.", retryable=True
                ) from exc
            half = len(bodies) // 2
            return [*self._ask_some(kind, bodies[:half]), *self._ask_some(kind, bodies[half:])]
        return [answers[number] for number in numbers]

    # --- dumps ---

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """The kernel's answer as it comes, in pieces of some 32 kB with whole messages (see `messages_of`); the last
        piece ends with the word that this is all. Raises `RefusedError`.

        All dumps have the same number: then an unchanged one is equal to the one before, byte for byte.
        """
        self._transmit([_pack(kind, NLM_F_REQUEST | NLM_F_DUMP, DUMP_NUMBER, body)])
        pieces: list[bytes] = []
        while True:
            try:
                pieces.append(self._receive_bytes())
            except _OverrunError as exc:
                raise AgentError("The kernel could not hand over all that it read; try again.", retryable=True) from exc
            answer, flags, data = self._last_message(pieces[-1])
            if answer in (NLMSG_DONE, NLMSG_ERROR) and (refused := _error(flags, data)) is not None:
                raise RefusedError(Refusal(0, *refused))
            if answer == NLMSG_DONE:
                return pieces

    def _last_message(self, piece: bytes) -> tuple[int, int, bytes]:
        """Type, flags and body. Found by our numbers in its header, without a walk through the piece."""
        start = piece.rfind(self._dump_mark) - 8
        if start >= 0:
            length, kind, flags, _, _ = _HEADER.unpack_from(piece, start)
            if start + (length + 3 & ~3) == len(piece):
                return kind, flags, piece[start + _HEADER.size :]
        last = (NLMSG_DONE, 0, b"\0\0\0\0")  # of an empty piece, which the kernel does not send
        for kind, flags, position, end in messages_of(piece):
            last = kind, flags, piece[position:end]
        return last

    # --- bytes ---

    def _next_number(self) -> int:
        return 1 + next(self._numbers) % (DUMP_NUMBER - 1)

    def _transmit(self, messages: Iterable[bytes]) -> None:
        self._socket.send(b"".join(messages))

    def _receive(self, flags: int = 0) -> list[_Answer]:
        data = self._receive_bytes(flags)
        return [
            (kind, own_flags, _NUMBER.unpack_from(data, start - _HEADER.size)[0], data[start:end])
            for kind, own_flags, start, end in messages_of(data)
        ]

    def _receive_bytes(self, flags: int = 0) -> bytes:
        try:
            size = self._socket.recv_into(self._buffer, 0, flags | MSG_TRUNC)
        except BlockingIOError as exc:
            if flags & MSG_DONTWAIT:
                raise _NothingThereError from exc
            message = f"The kernel did not answer within {REPLY_TIMEOUT_S} s; try again."
            raise AgentError(message, retryable=True) from exc
        except OSError as exc:
            if exc.errno != errno.ENOBUFS:
                raise
            raise _OverrunError from exc
        if size > len(self._buffer):
            raise AgentError(f"The kernel sent {size} B in one answer, more than the agent reads.", retryable=True)
        return bytes(memoryview(self._buffer)[:size])


class _OverrunError(Exception):
    """The receive buffer was too small, and answers are lost."""


class _NothingThereError(Exception):
    """The receive buffer is empty."""


def messages_of(piece: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Type, flags, where the body begins and where it ends."""
    position = 0
    while position + _HEADER.size <= len(piece):
        length, kind, flags, _, _ = _HEADER.unpack_from(piece, position)
        if length < _HEADER.size:
            return
        yield kind, flags, position + _HEADER.size, position + length
        position += length + 3 & ~3


def _pack(kind: int, flags: int, number: int, body: bytes) -> bytes:
    packed = _HEADER.pack(_HEADER.size + len(body), kind, flags, number, 0) + body
    return packed + b"\0" * (-len(packed) % 4)


def _first(answers: list[tuple[int, str] | None]) -> Refusal | None:
    return next((Refusal(index, *one) for index, one in enumerate(answers) if one is not None), None)


def _error(flags: int, body: bytes) -> tuple[int, str] | None:
    """(positive errno, the kernel's own sentence); None for an acknowledgement."""
    (code,) = struct.unpack_from("=i", body)
    if code == 0:
        return None
    text = ""
    if flags & NLM_F_ACK_TLVS:
        (length,) = struct.unpack_from("=I", body, 4)
        skipped = 4 + (_HEADER.size if flags & NLM_F_CAPPED else (length + 3) & ~3)
        message = dict(attributes(body[skipped:])).get(NLMSGERR_ATTR_MSG, b"")
        text = message.rstrip(b"\0").decode(errors="replace")
    return -code, text
