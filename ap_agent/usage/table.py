"""Output of `scionlab-bw-agent usage`, and of `watch`: the newest sample in the spool.

A rate is that between the two newest samples; none if these are more than half a minute apart, or of different
segments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ap_agent.common.ownership import as_owner_of
from ap_agent.common.text import FROM_USER, TO_USER, ago, limit_words
from ap_agent.document.state import Direction
from ap_agent.usage.batch import Key, Row, Sample, ms_text
from ap_agent.usage.spool import read_newest
from bandwidth_config import format_kbit
from contract.link_info import LinkInfo
from terminal import table as text_table

MAX_GAP_MS = 30_000
_DIRECTIONS: tuple[Direction, Direction] = ("to_user", "from_user")


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


_HEADINGS = ("LINK", "USER AS", "DIRECTION", "LIMIT", "USED", "OF LIMIT", "DROPS/S")
_WORDS = {"to_user": TO_USER, "from_user": FROM_USER}


def table(report: Report, links: Mapping[int, LinkInfo]) -> list[str]:
    """Both directions of each link, busiest first. `links` have the names."""

    def busy(number: int) -> float:
        return max(one.used_kbit or 0.0 for key, one in report.used.items() if key[0] == number)

    order = sorted({number for number, _ in report.used}, key=lambda number: (-busy(number), number))
    rows = [
        _line(number, direction, report.used[number, direction], links)
        for number in order
        for direction in _DIRECTIONS
        if (number, direction) in report.used
    ]
    return text_table(_HEADINGS, rows, right=frozenset(_HEADINGS) - {"USER AS", "DIRECTION"}).splitlines()


def lines(report: Report, links: Mapping[int, LinkInfo], now: datetime) -> list[str]:
    """The table, and when it was counted."""
    age = timedelta(seconds=now.timestamp() - report.at_ms / 1000)
    return [f"Counted {ago(age)}, configuration {report.version}:", "", *table(report, links)]


def _line(number: int, direction: Direction, one: Used, links: Mapping[int, LinkInfo]) -> tuple[str, ...]:
    known = links.get(number)
    return (
        str(number),
        (known.isd_as if known is not None else None) or "-",
        _WORDS[direction],
        limit_words(one.limit_kbit),
        "-" if one.used_kbit is None else format_kbit(round(one.used_kbit)),
        f"{one.used_kbit / one.limit_kbit:.0%}" if one.used_kbit is not None and one.limit_kbit else "-",
        "-" if one.drops_per_s is None else f"{one.drops_per_s:.1f}",
    )
