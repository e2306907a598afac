"""Samples, and the upload document (docs/api.md). Pure."""

from __future__ import annotations

import gzip
import json
import secrets
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ap_agent import __version__
from ap_agent.common.times import time_text
from ap_agent.document.state import Direction

SCHEMA = 1
MAX_TIMES = 60
MINUTE_MS = 60_000
Key = tuple[int, Direction]  # interface id, direction

_DIRECTIONS: tuple[Direction, Direction] = ("to_user", "from_user")
_PACKED = struct.Struct("<HBQIQQQQ")
_MAX_PACKED_BYTES = 2 * 4096 * _PACKED.size


class Row(NamedTuple):
    """One direction of a link at one time. Counters are since the start of the segment."""

    segment: int
    rate_kbit: int
    bytes: int
    packets: int
    drops: int
    backlog_bytes: int


def segment_text(segment: int) -> str:
    """16 hexadecimal digits."""
    return f"{segment:016x}"


_COLUMNS = Row._fields[1:]
_NOTHING = (None,) * len(Row._fields)


class Sample(NamedTuple):
    """All links at one time (Unix time in ms). `version` (G.H) is the configuration of the interface ids."""

    at_ms: int
    version: str | None
    rows: Mapping[Key, Row]


def new_batch_id() -> str:
    return secrets.token_hex(16)


def fits(samples: Sequence[Sample], one: Sample) -> bool:
    """Whether `one` fits into the batch of `samples`: same minute, configuration, and segment of each direction."""
    if not samples:
        return True
    last = samples[-1]
    return (
        one.version == last.version
        and one.at_ms > last.at_ms
        and one.at_ms // MINUTE_MS == samples[0].at_ms // MINUTE_MS
        and len(samples) < MAX_TIMES
        and not any(_is_other_segment(samples, key, row) for key, row in one.rows.items())
    )


def _is_other_segment(samples: Sequence[Sample], key: Key, row: Row) -> bool:
    for sample in reversed(samples):
        found = sample.rows.get(key)
        if found is not None:
            return found.segment != row.segment
    return False


def body(batch_id: str, samples: Sequence[Sample]) -> bytes:
    """Gzipped JSON of samples that fit together."""
    head = {
        "schema": SCHEMA,
        "batch": batch_id,
        "agent_version": __version__,
        "version": samples[0].version,
        "times": [ms_text(one.at_ms) for one in samples],
    }
    columns = _columns(samples, sorted({key for one in samples for key in one.rows}))
    # Link by link: one call for 4000 of them would block all other threads for 60 ms.
    links = b",".join(_compact({number: said})[1:-1] for number, said in columns.items())
    return gzip.compress(_compact(head)[:-1] + b',"links":{' + links + b"}}", 4, mtime=0)


def _columns(samples: Sequence[Sample], keys: Iterable[Key]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for key in keys:
        rows = [one.rows.get(key) for one in samples]
        segment = next(row.segment for row in rows if row is not None)
        columns = zip(*[_NOTHING if row is None else row for row in rows], strict=True)
        said = dict(zip(Row._fields, columns, strict=True))
        found.setdefault(str(key[0]), {})[key[1]] = {**said, "segment": segment_text(segment)}
    return found


def ms_text(at_ms: int) -> str:
    """`2026-11-21T06:00:00.000Z`."""
    return time_text(datetime.fromtimestamp(at_ms / 1000, UTC), "milliseconds")


def last_values(data: bytes, living: frozenset[str]) -> bytes | None:
    """A reduced batch (gzipped) with only the newest values of ended segments, under another id; None if there are
    none. Raises `ValueError`, `OSError`, `EOFError`, `KeyError` for an invalid batch."""
    document = json.loads(gzip.decompress(data))
    links: dict[str, dict[str, Any]] = {}
    for number, directions in document["links"].items():
        for direction, said in directions.items():
            if said is None or said["segment"] in living:
                continue
            known = [place for place, value in enumerate(said["bytes"]) if value is not None]
            if known:
                newest = {name: [said[name][known[-1]]] for name in _COLUMNS}
                links.setdefault(number, {})[direction] = {"segment": said["segment"], **newest}
    if not links:
        return None
    short = {**document, "batch": new_batch_id(), "times": document["times"][-1:], "links": links}
    return gzip.compress(_compact(short), mtime=0)


def _compact(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


# --- on the disk ----------------------------------------------------------------------------------------------------


def packed_rows(rows: Mapping[Key, Row]) -> bytes:
    entries = (_PACKED.pack(number, direction == "from_user", *row) for (number, direction), row in rows.items())
    return zlib.compress(b"".join(entries), 1)


def rows_of(data: bytes) -> dict[Key, Row]:
    """Inverse of `body`. Raises `ValueError`."""
    try:
        entries = _PACKED.iter_unpack(zlib.decompressobj().decompress(data, _MAX_PACKED_BYTES))
        return {(number, _DIRECTIONS[side]): Row(*values) for number, side, *values in entries}
    except (zlib.error, struct.error, IndexError) as exc:
        raise ValueError("no rows of a sample") from exc
