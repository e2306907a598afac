"""Variable-length encoding of numbers, and of the sums of both directions. Pure.

A number has seven bits per byte, lowest first; the highest bit means that more follow (LEB128). The first one says the
version and which directions are known. A direction has one byte that says which numbers are not 0, followed by those.
Values of any size are preserved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from scionlab.enforcement.counters import VERSION, counts_of, kept_in
from scionlab.enforcement.directions import DIRECTIONS, DirectionName
from scionlab.usage.rows import Both, nothing
from scionlab.usage.totals import SLOT_MS, Totals

_KNOWN: Final[dict[DirectionName, int]] = {
    "to_user": 1,
    "from_user": 2,
}  # bits of the first number
_VERSION_BIT: Final = 4  # its version is what is above them


def numbers_pack(numbers: Iterable[int]) -> bytes:
    """Numbers from 0 on."""
    packed = bytearray()
    for number in numbers:
        while number > 0x7F:
            packed.append(number & 0x7F | 0x80)
            number >>= 7  # noqa: PLW2901  what is left of it
        packed.append(number)
    return bytes(packed)


def numbers_unpack(packed: bytes | memoryview) -> Iterator[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            yield number
            number = shift = 0


def totals_pack(both: Both) -> bytes:
    known = sum(_KNOWN[name] for name in DIRECTIONS if both[name] != Totals())
    numbers: list[int] = [VERSION * _VERSION_BIT + known]
    for name in DIRECTIONS:
        one = both[name]
        if one != Totals():
            # Defaults that are encoded as 0: all bytes have a rate, and all of the time is covered, but for some
            # milliseconds.
            values = (
                *counts_of(one),
                _unsigned(SLOT_MS - one.covered_ms),
                one.at_limit_ms,
                0 if one.limit_kbit is None else one.limit_kbit + 1,
                one.backlog_bytes,
                _unsigned(one.bytes - one.rated_bytes),  # last: its bit alone needs a second byte
            )
            numbers.append(sum(1 << place for place, value in enumerate(values) if value))
            numbers += [value for value in values if value]
    return numbers_pack(numbers)


def totals_unpack(packed: bytes | memoryview) -> Both:
    numbers = numbers_unpack(packed)
    both = nothing()
    version, known = divmod(next(numbers), _VERSION_BIT)
    kept = kept_in(version)
    for name in DIRECTIONS:
        if known & _KNOWN[name]:
            there = next(numbers)
            values = [next(numbers) if there >> place & 1 else 0 for place in range(kept + 5)]
            uncovered_ms, at_limit_ms, limit_kbit, backlog_bytes, unrated_bytes = values[kept:]
            both[name] = Totals(
                *values[:kept],
                rated_bytes=values[0] - _signed(unrated_bytes),
                covered_ms=SLOT_MS - _signed(uncovered_ms),
                at_limit_ms=at_limit_ms,
                limit_kbit=limit_kbit - 1 if limit_kbit else None,
                backlog_bytes=backlog_bytes,
            )
    return both


def _unsigned(number: int) -> int:
    """0, -1, 1, -2, ... as 0, 1, 2, 3, ..."""
    return 2 * number if number >= 0 else -2 * number - 1


def _signed(number: int) -> int:
    return number // 2 if number % 2 == 0 else -(number + 1) // 2
