"""The newest sample for people and scripts: what `scionlab-bw-agent usage` prints, read from the spool.

A rate is that of the time between the two newest samples; where these are more than half a minute apart, or the class
is another one, there is none.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ap_agent.usage.batch import Rows, time_text
from ap_agent.usage.reading import Key
from ap_agent.usage.spool import Spool

MAX_GAP_MS = 30_000


@dataclass(frozen=True)
class Used:
    """One direction of a link. None: not known."""

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
        return {"at": time_text(self.at_ms), "version": self.version, "links": links}


def read_report(folder: Path) -> Report | None:
    """None where nothing was sampled yet. Raises `OSError`."""
    found = next(reversed([one for one in Spool(folder).open_batches() if one.newest is not None]), None)
    if found is None or found.newest is None:
        return None
    at_ms, rows = found.newest
    before = found.samples[-2] if len(found.samples) > 1 else None
    used = {key: _used(key, at_ms, rows, before) for key in rows}
    return Report(at_ms, found.batch.version, used)


def _used(key: Key, at_ms: int, rows: Rows, before: tuple[int, Rows] | None) -> Used:
    row = rows[key]
    kbit = drops_per_s = None
    former = before[1].get(key) if before is not None else None
    if before is not None and former is not None and former.segment == row.segment:
        passed_ms = at_ms - before[0]
        if 0 < passed_ms <= MAX_GAP_MS:
            kbit = round((row.bytes - former.bytes) * 8 / passed_ms, 1)
            drops_per_s = round((row.drops - former.drops) * 1000 / passed_ms, 1)
    return Used(row.rate_kbit, kbit, drops_per_s, row.backlog_bytes, row.bytes, row.packets, row.drops)


_HEADINGS = ("link", "direction", "limit kbit/s", "used kbit/s", "of it", "drops/s", "queued B", "bytes", "drops")


def table(report: Report) -> list[str]:
    """Lines, with numbers right-aligned."""
    rows = [_HEADINGS, *(_line(key, one) for key, one in sorted(report.used.items()))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return [
        "  ".join(
            text.ljust(width) if column == 1 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


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
