"""Parses batches of usage samples (docs/api.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from scionlab.delivery.host_api.bodies import TooLargeError
from scionlab.delivery.host_api.document_reader import DocumentError, DocumentReader, load, require_schema, time_of
from scionlab.enforcement.directions import DIRECTIONS, DirectionName
from scionlab.usage.batch import Batch, DirectionSamples, Sample
from scionlab.usage.models.usage import KEY_LENGTH, SEGMENT_LENGTH
from scionlab.usage.totals import to_ms

MAX_TIMES: Final = 60
MAX_COUNTER: Final = 2**60  # an exabyte: a month's sum over thousands of links must fit into 64 bits
MAX_RATE_KBIT: Final = 2**31 - 1
# Enough for 4094 links at 60 times. 32 MiB of brackets alone would take Python a gigabyte.
MAX_BRACKETS: Final = 100_000
MAX_COMMAS: Final = 3_000_000

_KEY = re.compile(rf"[0-9a-f]{{{KEY_LENGTH}}}", flags=re.ASCII)
_SEGMENT = re.compile(rf"[!-~]{{1,{SEGMENT_LENGTH}}}", flags=re.ASCII)

_COUNTERS: Final = ("bytes", "packets", "drops", "backlog_bytes")


def parse_usage(content: bytes) -> Batch:
    """Raises only `DocumentError`, for any bytes."""
    _check_size(content)
    document = load(content)
    if not isinstance(document, dict):
        raise DocumentError("usage_invalid", "The batch: send an object here.")
    require_schema(document)
    reader = _Reader()
    batch = _batch(reader, document)
    reader.refuse("usage_invalid", "The batch")
    return batch


def _check_size(content: bytes) -> None:
    """Before parsing creates objects. Raises `TooLargeError`."""
    if content.count(b"[") + content.count(b"{") > MAX_BRACKETS or content.count(b",") > MAX_COMMAS:
        text = (
            f"A batch has at most {MAX_BRACKETS} lists and objects, and {MAX_COMMAS} commas. Send fewer "
            "samples per batch."
        )
        raise TooLargeError("too_large", text)


class _Reader(DocumentReader):
    def column(self, value: object, place: str, n: int, high: int) -> list[int | None]:
        """Read a list of `n` integers or nulls. Optimized for valid input: 4000 links have 240 000 of them."""
        if isinstance(value, list) and len(value) == n:
            if all(type(one) is int and 0 <= one <= high for one in value):
                return value
            if all(one is None or (type(one) is int and 0 <= one <= high) for one in value):
                return value
        self.expect(False, place, f"{n} integers from 0 to {high}, or null,")
        return [None] * n


def _batch(reader: _Reader, document: dict[str, Any]) -> Batch:
    key = reader.matching(document.get("batch"), "batch", _KEY, f"{KEY_LENGTH} hexadecimal digits in lower case")
    agent = reader.text(document.get("agent_version"), "agent_version", 32)
    times = _times(reader, document.get("times"))
    links = {
        number: dict(_directions(reader, reader.mapping(value, place), place, times))
        for number, value, place in reader.links(document.get("links"))
    }
    version = reader.version(document.get("version"), 'a version like "1.18"') or (0, 0)
    return Batch(key=key, agent_version=agent, version=version, times_ms=times, links=links)


def _times(reader: _Reader, value: object) -> list[int]:
    times = []
    for index, one in enumerate(reader.listed(value, "times", MAX_TIMES, "times", least=1)):
        found = _moment(one)
        if reader.expect(found is not None, f"times.{index}", "a time in ISO 8601 with its zone from 1970 on", one):
            times.append(found or 0)
    ascend = all(before < after for before, after in pairwise(times))
    reader.expect(ascend, "times", "times that ascend, each later than the one before by a millisecond or more,")
    return times


def _moment(value: object) -> int | None:
    """Milliseconds since 1970; None if out of range."""
    found = time_of(value)
    return None if found is None or not 1970 <= found.year < 9999 else to_ms(found)  # room for shifting it


def _directions(
    reader: _Reader, link: dict[str, Any], place: str, times: Sequence[int]
) -> Iterator[tuple[DirectionName, DirectionSamples]]:
    for name in DIRECTIONS:
        if link.get(name) is None:  # the kernel had no class there at any of these times
            continue
        here = f"{place}.{name}"
        said = reader.mapping(link[name], here)
        wanted = f"1 to {SEGMENT_LENGTH} visible ASCII characters"
        segment = reader.matching(said.get("segment"), f"{here}.segment", _SEGMENT, wanted)
        found_wrong = len(reader.fields)
        limits = reader.column(said.get("rate_kbit"), f"{here}.rate_kbit", len(times), MAX_RATE_KBIT)
        columns = [reader.column(said.get(one), f"{here}.{one}", len(times), MAX_COUNTER) for one in _COUNTERS]
        rows = list(zip(times, limits, *columns, strict=True))
        whole = [Sample(*row) for row in rows if None not in row]
        halves = len(rows) - len(whole) - sum(row[1:].count(None) == 1 + len(_COUNTERS) for row in rows)
        is_whole = halves == 0 or len(reader.fields) > found_wrong  # errors are already reported
        reader.expect(is_whole, here, "null in all of its lists at a time at which the kernel had no class")
        if whole:
            yield name, DirectionSamples(segment, whole)
