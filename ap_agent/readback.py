"""What the kernel's dumps said, kept from one cycle to the next, so that only news is parsed. No sockets here.

A dump of 4000 links has 70 000 messages. From one cycle to the next they are the same but for counters and clocks. So
each message is read under a mask that leaves these out: a piece of the dump that is equal under its mask to the piece
before is taken as read, a message that is equal to one seen before needs no parsing. Nothing is believed that was not
read in this cycle; counters are decoded when somebody asks for them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from ap_agent.dataplane.rtsocket import NLM_F_DUMP_INTR, messages_of
from ap_agent.model import Counters, Handle
from ap_agent.tcmsg import (
    TCA_HTB_INIT,
    TCA_KIND,
    TCA_OPTIONS,
    TCA_STATS,
    TCA_STATS2,
    TCA_STATS_BASIC,
    TCA_STATS_QUEUE,
    TCA_XSTATS,
    text_of,
)

T = TypeVar("T")

NLMSG_MIN_TYPE = 0x10  # below are the protocol's own messages
TCA_U32_ACT, TCA_U32_PCNT = 7, 9
TCA_ACT_KIND, TCA_ACT_OPTIONS, TCA_ACT_STATS, TCA_MIRRED_TM = 1, 2, 4, 1
_HTB_DIRECT_PACKETS = slice(16, 20)  # of tc_htb_glob: what passed without a class

_HEADER_BYTES, _TCMSG_BYTES = 16, 20
_REQUEST = (8, 16)  # number and port of the request, in the header
_ATTRIBUTE = struct.Struct("=HH")
_BASIC = struct.Struct("=QI")
_QUEUE = struct.Struct("=4xII")  # after the length of the queue: its bytes, what was dropped
_NOWHERE = (0, 0, 0)
_SPARE = 4096  # messages that are remembered although they are gone, besides as many as there are


class InterruptedDumpError(Exception):
    """The list changed under the kernel's eyes; read it again."""


# --- the layout of one message ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """Messages of one layout: `frame` is 0xff where their attributes' headers and kinds are, `framed` what is there.

    `mask` is 0 where counters and clocks are; `basic` and `queue` are the places of the counters of what passed and of
    what waits (0: there are none).
    """

    mask: bytes
    frame: bytes = b""
    framed: int = 0
    basic: int = 0
    queue: int = 0

    @classmethod
    def of(cls, message: bytes) -> Shape:
        """Of a message of traffic control, with its header. What it does not know is taken for constant, and then
        such a message is parsed whenever it changed."""
        mask = bytearray(b"\xff" * len(message))
        _hide(mask, *_REQUEST)
        frame = bytearray(len(message))
        places = {TCA_STATS_BASIC: 0, TCA_STATS_QUEUE: 0}
        top = list(_attributes(message, _HEADER_BYTES + _TCMSG_BYTES, len(message), frame))
        kind = _kind(message, top, TCA_KIND, frame)
        for number, start, end in top:
            if number in (TCA_STATS, TCA_XSTATS):
                _hide(mask, start, end)
            elif number == TCA_STATS2:
                for inner, inner_start, inner_end in _attributes(message, start, end, frame):
                    _hide(mask, inner_start, inner_end)
                    places[inner] = inner_start
            elif number == TCA_OPTIONS:
                for hidden in _hidden_options(message, kind, start, end, frame):
                    _hide(mask, *hidden)
        framed = _number(message) & _number(bytes(frame))
        return cls(bytes(mask), bytes(frame), framed, places[TCA_STATS_BASIC], places[TCA_STATS_QUEUE])


def _hide(mask: bytearray, start: int, end: int) -> None:
    mask[start:end] = bytes(end - start)


def _attributes(data: bytes, position: int, end: int, frame: bytearray) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of each; their headers belong to the frame."""
    while position + _ATTRIBUTE.size <= end:
        length, number = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size or position + length > end:
            return
        frame[position : position + _ATTRIBUTE.size] = b"\xff" * _ATTRIBUTE.size
        yield number & 0x3FFF, position + _ATTRIBUTE.size, position + length
        position += length + 3 & ~3


def _kind(data: bytes, among: Iterable[tuple[int, int, int]], wanted: int, frame: bytearray) -> str:
    """The text of the attribute that says what the others mean; so it belongs to the frame."""
    for number, start, end in among:
        if number == wanted:
            frame[start:end] = b"\xff" * (end - start)
            return text_of(data[start:end])
    return ""


def _hidden_options(data: bytes, kind: str, start: int, end: int, frame: bytearray) -> Iterator[tuple[int, int]]:
    for number, inner, inner_end in _attributes(data, start, end, frame):
        if kind == "htb" and number == TCA_HTB_INIT and inner_end - inner >= _HTB_DIRECT_PACKETS.stop:
            yield inner + _HTB_DIRECT_PACKETS.start, inner + _HTB_DIRECT_PACKETS.stop
        if kind == "u32" and number == TCA_U32_PCNT:
            yield inner, inner_end
        if kind == "u32" and number == TCA_U32_ACT:
            for _, action, action_end in _attributes(data, inner, inner_end, frame):
                yield from _hidden_in_action(data, action, action_end, frame)


def _hidden_in_action(data: bytes, start: int, end: int, frame: bytearray) -> Iterator[tuple[int, int]]:
    parts = list(_attributes(data, start, end, frame))
    kind = _kind(data, parts, TCA_ACT_KIND, frame)
    for number, inner, inner_end in parts:
        if number == TCA_ACT_STATS:
            yield inner, inner_end
        elif number == TCA_ACT_OPTIONS and kind == "mirred":
            for option, option_start, option_end in _attributes(data, inner, inner_end, frame):
                if option == TCA_MIRRED_TM:
                    yield option_start, option_end


def _number(data: bytes) -> int:
    """As an integer: Python masks and compares these far faster than it can walk through bytes."""
    return int.from_bytes(data, "little")


# --- one dump --------------------------------------------------------------------------------------------------


class _Piece(Generic[T]):
    """One piece of a dump, parsed: what each message means, and where it keeps its counters."""

    def __init__(self, raw: bytes, shapes: list[Shape], objects: list[T], spots: list[tuple[int, int]]) -> None:
        self.raw, self.objects, self.spots = raw, objects, spots
        self._shapes: list[Shape] = shapes
        self._mask = self._stable = 0

    def says(self, raw: bytes) -> bool:
        """Whether another piece says the same but for counters."""
        if raw == self.raw:
            return True
        if len(raw) != len(self.raw):
            return False
        if not self._mask:
            self._mask = _number(b"".join(shape.mask for shape in self._shapes))
            self._stable = _number(self.raw) & self._mask
        return _number(raw) & self._mask == self._stable


class DumpMemory(Generic[T]):
    """The messages of one dump, parsed by `parse` from their bodies; None is left out.

    `parse` must not look at counters.
    """

    def __init__(self, parse: Callable[[bytes], T | None]) -> None:
        self._parse = parse
        self._pieces: list[_Piece[T]] = []
        self._shapes: dict[int, list[tuple[Shape, int, int]]] = {}
        self._known: dict[int, tuple[T | None, Shape]] = {}
        self._places: Places[T] | None = None
        self.objects: tuple[T, ...] = ()

    def take(self, raws: Sequence[bytes]) -> tuple[T, ...]:
        """The objects of this dump: the very tuple of the last one where nothing but counters changed.

        Raises `InterruptedDumpError`.
        """
        pieces = [self._piece(number, raw) for number, raw in enumerate(raws)]
        is_known = len(pieces) == len(self._pieces) and all(map(_is, pieces, self._pieces))
        self._pieces = pieces
        if not is_known or self._places is None:
            objects = tuple(chain.from_iterable(piece.objects for piece in pieces))
            self.objects = self.objects if objects == self.objects else objects
            self._places = Places(pieces)
        if len(self._known) > 2 * len(self.objects) + _SPARE:
            self._known.clear()
        return self.objects

    @property
    def places(self) -> Places[T]:
        """Where the counters of the last dump are."""
        return self._places if self._places is not None else Places([])

    @property
    def raws(self) -> tuple[bytes, ...]:
        return tuple(piece.raw for piece in self._pieces)

    def _piece(self, number: int, raw: bytes) -> _Piece[T]:
        old = self._pieces[number] if number < len(self._pieces) else None
        if old is None or not old.says(raw):
            return self._walk(raw)
        old.raw = raw
        return old

    def _walk(self, raw: bytes) -> _Piece[T]:
        shapes: list[Shape] = []
        objects: list[T] = []
        spots: list[tuple[int, int]] = []
        for kind, flags, body, end in messages_of(raw):
            if flags & NLM_F_DUMP_INTR:
                raise InterruptedDumpError
            start = body - _HEADER_BYTES
            message = raw[start : end + 3 & ~3]
            if kind < NLMSG_MIN_TYPE:
                shapes.append(Shape(b"\xff" * len(message)))
                continue
            one, shape = self._message(message)
            shapes.append(shape)
            if one is None:
                continue
            objects.append(one)
            spots.append((start + shape.basic if shape.basic else 0, start + shape.queue if shape.queue else 0))
        return _Piece(raw, shapes, objects, spots)

    def _message(self, message: bytes) -> tuple[T | None, Shape]:
        number = _number(message)
        for _, mask, _ in self._shapes.get(len(message), ()):
            found = self._known.get(number & mask)
            if found is not None:
                return found
        shape, mask = self._shape(message, number)
        found = self._parse(message[_HEADER_BYTES:]), shape
        self._known[number & mask] = found
        return found

    def _shape(self, message: bytes, number: int) -> tuple[Shape, int]:
        shapes = self._shapes.setdefault(len(message), [])
        for shape, mask, frame in shapes:
            if number & frame == shape.framed:
                return shape, mask
        shape = Shape.of(message)
        mask = _number(shape.mask)
        shapes.append((shape, mask, _number(shape.frame)))
        return shape, mask


def _is(one: object, other: object) -> bool:
    return one is other


# --- counters --------------------------------------------------------------------------------------------------


class Places(Generic[T]):
    """Where in the pieces of a dump the counters of each object are: (piece, of what passed, of what waits)."""

    def __init__(self, pieces: Sequence[_Piece[T]]) -> None:
        self._spots = [(piece.objects, piece.spots) for piece in pieces]
        self._by_handle: dict[Handle, tuple[int, int, int]] | None = None

    def by_handle(self, handle_of: Callable[[T], Handle]) -> dict[Handle, tuple[int, int, int]]:
        if self._by_handle is None:
            self._by_handle = {
                handle_of(one): (number, basic, queue)
                for number, (objects, spots) in enumerate(self._spots)
                for one, (basic, queue) in zip(objects, spots, strict=True)
            }
        return self._by_handle


def counters_of(body: bytes) -> Counters:
    """Of a single message of traffic control, without its header."""
    shape = Shape.of(bytes(_HEADER_BYTES) + body)
    return _decoded(body, shape.basic - _HEADER_BYTES, shape.queue - _HEADER_BYTES)


def _decoded(data: bytes, basic: int, queue: int) -> Counters:
    """From these places; there is nothing at 0 and below."""
    size, packets = _BASIC.unpack_from(data, basic) if basic > 0 else (0, 0)
    backlog, drops = _QUEUE.unpack_from(data, queue) if queue > 0 else (0, 0)
    return Counters(size, packets, drops, backlog)


class DumpCounters(Mapping[Handle, Counters], Generic[T]):
    """The counters of one dump, decoded when asked for."""

    def __init__(self, places: Places[T], raws: Sequence[bytes], handle_of: Callable[[T], Handle]) -> None:
        self._places, self._raws, self._handle_of = places, raws, handle_of

    def __getitem__(self, handle: Handle) -> Counters:
        piece, basic, queue = self._places.by_handle(self._handle_of)[handle]
        return _decoded(self._raws[piece], basic, queue)

    def sums(self, inner: Handle, leaves: Iterable[Handle]) -> tuple[int, int, int, int]:
        """As the function of this name, without making thousands of objects."""
        where = self._places.by_handle(self._handle_of)
        piece, basic, _ = where.get(inner, _NOWHERE)
        size, packets = _BASIC.unpack_from(self._raws[piece], basic) if basic else (0, 0)
        drops = backlog = 0
        for leaf in leaves:
            piece, _, queue = where.get(leaf, _NOWHERE)
            if queue:
                waiting, dropped = _QUEUE.unpack_from(self._raws[piece], queue)
                drops, backlog = drops + dropped, backlog + waiting
        return size, packets, drops, backlog

    def __iter__(self) -> Iterator[Handle]:
        return iter(self._places.by_handle(self._handle_of))

    def __len__(self) -> int:
        return len(self._places.by_handle(self._handle_of))


def sums(counters: Mapping[Handle, Counters], inner: Handle, leaves: Iterable[Handle]) -> tuple[int, int, int, int]:
    """Bytes and packets of a class, drops and backlog of its leaves together; 0 for what is not there."""
    if isinstance(counters, DumpCounters):
        return counters.sums(inner, leaves)
    nothing = Counters()
    passed, queues = counters.get(inner, nothing), [counters.get(leaf, nothing) for leaf in leaves]
    return (
        passed.bytes,
        passed.packets,
        sum(one.drops for one in queues),
        sum(one.backlog_bytes for one in queues),
    )


def is_uncounted(one: Mapping[Handle, Counters], other: Mapping[Handle, Counters]) -> bool:
    """Whether nothing was counted between two dumps, judged by their bytes; false where that is not cheap to say."""
    if isinstance(one, DumpCounters) and isinstance(other, DumpCounters):
        return one._places is other._places and one._raws == other._raws
    return not one and not other
