"""Output of `scionlab-bw-agent usage`: the newest sample in the spool.

A rate is that between the two newest samples; none if these are more than half a minute apart, or of different
segments.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ap_agent.common.ownership import as_owner_of
from ap_agent.usage.batch import Key, Row, Sample, ms_text
from ap_agent.usage.spool import read_newest
from terminal import table as text_table

MAX_GAP_MS = 30_000


@dataclass(frozen=True)
class Used:
    """One direction of a link. None: unknown."""

    limit_kbit: int
    used_kbit: float | None
    drops_per_s: float | None
    backlog_bytes: int
    bytes: int
    packets: int
    drops: int


@dataclass(frozen=True)
class Report:
    at_ms: int
    version: str | None
    used: dict[Key, Used]

    def to_json(self) -> dict[str, Any]:
        links: dict[str, dict[str, Any]] = {}
        for key, one in sorted(self.used.items()):
            links.setdefault(str(key[0]), {})[key[1]] = asdict(one)
        return {"at": ms_text(self.at_ms), "version": self.version, "links": links}


def read_report(path: Path) -> Report | None:
    """None without samples. Raises `StoreError`."""
    with as_owner_of(path.parent):  # a reader creates SQLite's auxiliary files, which the agent must be able to use
        found = read_newest(path)
    if not found:
        return None
    newest, before = found[-1], found[0] if len(found) > 1 else None
    return Report(
        newest.at_ms, newest.version, {key: _used(key, row, newest, before) for key, row in newest.rows.items()}
    )


def _used(key: Key, row: Row, newest: Sample, before: Sample | None) -> Used:
    kbit = drops_per_s = None
    former = before.rows.get(key) if before is not None else None
    if before is not None and former is not None and former.segment == row.segment:
        passed_ms = newest.at_ms - before.at_ms
        if 0 < passed_ms <= MAX_GAP_MS:
            kbit = round((row.bytes - former.bytes) * 8 / passed_ms, 1)
            drops_per_s = round((row.drops - former.drops) * 1000 / passed_ms, 1)
    return Used(row.rate_kbit, kbit, drops_per_s, row.backlog_bytes, row.bytes, row.packets, row.drops)


_HEADINGS = ("link", "direction", "limit kbit/s", "used kbit/s", "of it", "drops/s", "queued B", "bytes", "drops")


def table(report: Report) -> list[str]:
    rows = [_line(key, one) for key, one in sorted(report.used.items())]
    return text_table(_HEADINGS, rows, right=frozenset(_HEADINGS) - {"direction"}).splitlines()


def _line(key: Key, one: Used) -> tuple[str, ...]:
    share = f"{one.used_kbit / one.limit_kbit:.0%}" if one.used_kbit is not None and one.limit_kbit else "-"
    return (
        str(key[0]),
        "to the user AS" if key[1] == "to_user" else "from the user AS",
        "blocked" if one.limit_kbit == 0 else f"{one.limit_kbit:,}".replace(",", " "),
        _number(one.used_kbit),
        share,
        _number(one.drops_per_s),
        str(one.backlog_bytes),
        str(one.bytes),
        str(one.drops),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}".replace(",", " ")
