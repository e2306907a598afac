"""Some samples that travel together: the document that the service takes (docs/api.md). Pure."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from ap_agent import __version__
from ap_agent.usage.lives import Row
from ap_agent.usage.reading import Key

SCHEMA = 1
MAX_TIMES = 60
MINUTE_MS = 60_000
COLUMNS = ("rate_kbit", "bytes", "packets", "drops", "backlog_bytes")
_PLACES = [(name, Row._fields.index(name)) for name in COLUMNS]
_AT_ONCE = 256

Rows = Mapping[Key, Row]


def time_text(at_ms: int) -> str:
    """`2026-11-21T06:00:00.000Z`."""
    seconds, ms = divmod(at_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"


def new_batch_id() -> str:
    return secrets.token_hex(16)


class Batch:
    """Of one configuration (`version`, G.H), with one segment for each direction of a link."""

    def __init__(self, version: str | None, batch_id: str | None = None) -> None:
        self.id = batch_id or new_batch_id()
        self.version = version
        self.samples: list[tuple[int, Rows]] = []
        self._segments: dict[Key, str] = {}

    def takes(self, at_ms: int, rows: Rows, version: str | None) -> bool:
        """Whether this sample may be added; else it belongs into the next batch."""
        if not self.samples:
            return self.version == version
        last_ms = self.samples[-1][0]
        return (
            self.version == version
            and at_ms > last_ms
            and at_ms // MINUTE_MS == self.samples[0][0] // MINUTE_MS
            and len(self.samples) < MAX_TIMES
            and all(self._segments.get(key, row.segment) == row.segment for key, row in rows.items())
        )

    def add(self, at_ms: int, rows: Rows) -> None:
        self.samples.append((at_ms, rows))
        self._segments.update({key: row.segment for key, row in rows.items()})

    def text(self) -> bytes:
        """The document that is sent, as JSON: link by link, because whoever encodes 3 MB in one call keeps all other
        threads waiting meanwhile."""
        head = {
            "schema": SCHEMA,
            "batch": self.id,
            "agent_version": __version__,
            "version": self.version,
            "times": [time_text(at_ms) for at_ms, _ in self.samples],
        }
        links = groupby(sorted(self._segments), key=itemgetter(0))
        texts = [f'"{number}":{_compact({key[1]: self._columns(key) for key in keys})}' for number, keys in links]
        return f'{_compact(head)[:-1]},"links":{{{",".join(texts)}}}}}'.encode()

    def _columns(self, key: Key) -> dict[str, Any]:
        found = [rows.get(key) for _, rows in self.samples]
        columns = {name: [row[place] if row is not None else None for row in found] for name, place in _PLACES}
        return {"segment": self._segments[key], **columns}


# --- as text on the disk --------------------------------------------------------------------------------------------


def sample_text(at_ms: int, rows: Rows) -> str:
    """One sample; some rows at a time, as above."""
    entries = [(*key, *row) for key, row in rows.items()]
    parts = [_compact(entries[start : start + _AT_ONCE])[1:-1] for start in range(0, len(entries), _AT_ONCE)]
    return f'{{"at":{at_ms},"rows":[{",".join(parts)}]}}'


def _compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))


def rows_of(document: Any) -> dict[Key, Row]:
    """The inverse. Raises `ValueError`."""
    found: dict[Key, Row] = {}
    for entry in document:
        number, direction, segment, *numbers = entry
        if direction not in ("to_user", "from_user") or not isinstance(segment, str):
            raise ValueError("no row")
        if type(number) is not int or not all(type(one) is int and one >= 0 for one in numbers):
            raise ValueError("no row")
        int(segment.partition("-")[0], 16)
        found[number, direction] = Row(segment, *numbers)
    return found
