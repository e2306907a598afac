"""Some samples that travel together: the document that the service takes (docs/api.md). Pure."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ap_agent import __version__
from ap_agent.usage.lives import Row
from ap_agent.usage.reading import Key

SCHEMA = 1
MAX_TIMES = 60
MINUTE_MS = 60_000
COLUMNS = ("rate_kbit", "bytes", "packets", "drops", "backlog_bytes")

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

    def document(self) -> dict[str, Any]:
        """What is sent."""
        links: dict[str, dict[str, Any]] = {}
        for key, segment in sorted(self._segments.items()):
            rows = [rows.get(key) for _, rows in self.samples]
            columns = {name: [getattr(row, name) if row is not None else None for row in rows] for name in COLUMNS}
            links.setdefault(str(key[0]), {})[key[1]] = {"segment": segment, **columns}
        return {
            "schema": SCHEMA,
            "batch": self.id,
            "agent_version": __version__,
            "version": self.version,
            "times": [time_text(at_ms) for at_ms, _ in self.samples],
            "links": links,
        }


# --- as text on the disk --------------------------------------------------------------------------------------------


def rows_json(rows: Rows) -> list[list[Any]]:
    return [[*key, *row] for key, row in rows.items()]


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


def sample_json(at_ms: int, rows: Rows) -> bytes:
    return json.dumps({"at": at_ms, "rows": rows_json(rows)}, separators=(",", ":")).encode()
