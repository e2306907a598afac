"""Encoding common to all rtnetlink messages: attributes and message headers. No sockets."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Message = tuple[int, int, bytes]  # type, flags, body

NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
ADD = NLM_F_CREATE | NLM_F_EXCL
PUT = NLM_F_CREATE | NLM_F_REPLACE  # created, or replaced
CHANGE = 0  # also for deletions

_ATTRIBUTE = struct.Struct("=HH")


def attribute(number: int, data: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(data)
    return _ATTRIBUTE.pack(length, number) + data + b"\0" * (-length % 4)


def u32(number: int, value: int) -> bytes:
    return attribute(number, struct.pack("=I", value))


def text(number: int, value: str) -> bytes:
    return attribute(number, value.encode() + b"\0")


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Iterate (number, data) over attributes; flag bits of the number are dropped."""
    position = 0
    while position + _ATTRIBUTE.size <= len(data):
        length, number = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size:
            return
        yield number & 0x3FFF, data[position + _ATTRIBUTE.size : position + length]
        position += (length + 3) & ~3


def text_of(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")


def number_of(data: bytes | None) -> int:
    """A 32-bit attribute; 0 if missing."""
    return int(struct.unpack_from("=I", data)[0]) if data and len(data) >= 4 else 0
