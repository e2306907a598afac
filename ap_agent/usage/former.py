"""Moves unsent usage of previous agents, a folder of files, into the spool once.

    <state_dir>/usage/1763704800000-<batch>.json.gz      closed: moved unchanged
    <state_dir>/usage/1763704800000-<batch>.open         records of samples; reading ends at an incomplete one
    <state_dir>/usage/1763704800000-<batch>.refused      rejected by the service: deleted

Remove this module when upgrades from 0.1 are no longer supported.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ap_agent import __version__
from ap_agent.common.errors import StoreError
from ap_agent.common.files import parse_json, read_plain
from ap_agent.usage.batch import SCHEMA, ms_text
from ap_agent.usage.spool import MAX_BYTES, Spool

FOLDER = "usage"
_NAME = re.compile(r"([0-9]{13})-([0-9a-f]{32})\.(open|json\.gz|refused)(\.new)?", flags=re.ASCII)
_RECORD = struct.Struct(">II")  # length and CRC-32 of the following zlib data
_MAX_RECORD_BYTES = 64 * 1024 * 1024
_COLUMNS = ("rate_kbit", "bytes", "packets", "drops", "backlog_bytes")


def take_over(folder: Path, spool: Spool) -> int:
    """Return the number of moved batches; 0 without a folder. Continues after a kill. Raises `StoreError`."""
    taken = 0
    try:
        if folder.is_symlink() or not folder.is_dir():
            return 0
        for path in sorted(folder.iterdir()):
            name = _NAME.fullmatch(path.name)
            if name is None or path.is_symlink() or not path.is_file():
                continue
            began_ms, batch_id, kind = int(name[1]), name[2], name[3] if name[4] is None else "unfinished"
            data = _content(path, batch_id, kind)
            if data is not None:
                with spool.changes():
                    spool.add_body(batch_id, began_ms, data)
                taken += 1
            path.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
    except OSError as exc:
        raise StoreError(f"The unsent usage in {folder} cannot be taken over: {exc.strerror}. Repair that.") from exc
    return taken


def _content(path: Path, batch_id: str, kind: str) -> bytes | None:
    if kind == "json.gz":
        return read_plain(path, MAX_BYTES)[0]
    if kind != "open":
        return None
    document = _document(batch_id, list(_records(read_plain(path, MAX_BYTES)[0])))
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0) if document else None


def _records(data: bytes) -> Iterator[Any]:
    position = 0
    while position + _RECORD.size <= len(data):
        length, checksum = _RECORD.unpack_from(data, position)
        packed = data[position + _RECORD.size : position + _RECORD.size + length]
        if len(packed) < length or zlib.crc32(packed) != checksum:
            return
        try:
            yield parse_json(zlib.decompressobj().decompress(packed, _MAX_RECORD_BYTES))
        except (zlib.error, ValueError):
            return
        position += _RECORD.size + length


def _document(batch_id: str, records: list[Any]) -> dict[str, Any] | None:
    """The batch as the previous agent would have closed it; None without samples. A sample's rows are [interface id,
    direction, segment, rate_kbit, bytes, packets, drops, backlog_bytes, ...]."""
    try:
        samples = {one["at"]: {(row[0], row[1]): row[2:8] for row in one["rows"]} for one in records[1:]}
        times = sorted(samples)
        links: dict[str, dict[str, Any]] = {}
        for number, direction in sorted({key for rows in samples.values() for key in rows}):
            rows = [samples[at].get((number, direction)) for at in times]
            segment = next(row[0] for row in rows if row is not None)
            columns = {name: [row[1 + i] if row else None for row in rows] for i, name in enumerate(_COLUMNS)}
            links.setdefault(str(number), {})[direction] = {"segment": segment, **columns}
        head = {"schema": SCHEMA, "batch": batch_id, "agent_version": __version__, "version": records[0]["version"]}
        return {**head, "times": [ms_text(at) for at in times], "links": links} if times else None
    except (LookupError, TypeError, ValueError, OverflowError):
        return None
