"""Usage of a Link as JSON and CSV. docs/api.md describes every column.

A gap is `null` in JSON and an empty cell in CSV, never 0.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from scionlab.enforcement.counters import KEPT
from scionlab.enforcement.directions import DIRECTIONS
from scionlab.limits.measured import DirectionUsage, UsagePoint
from scionlab.usage.series import Usage
from scionlab.web.csv_files import csv_text

COLUMNS: Final = {  # name in JSON: heading in CSV
    **{name: name for name in KEPT},
    "kbit": "rate (kbit/s)",
    "limit_kbit": "limit (kbit/s)",
    "covered_s": "covered (s)",
    "at_limit_s": "at limit (s)",
    "backlog_bytes": "highest backlog (bytes)",
}
_OF_EACH: Final = [f"{direction} {heading}" for direction in DIRECTIONS for heading in COLUMNS.values()]
CSV_HEADER: Final = ("begins_at (UTC)", "step (s)", *_OF_EACH)


def usage_document(usage: Usage) -> dict[str, Any]:
    """As a JSON-serializable dict."""
    return {
        "link_id": usage.link_id,
        "begins_at": iso(usage.begins_at),
        "ends_at": iso(usage.ends_at),
        "step_s": usage.step_s,
        "points": [_point(point) for point in usage.points],
    }


def usage_csv(usage: Usage) -> str:
    """No cell contains user text, so none can be a formula."""
    return csv_text([CSV_HEADER, *(_row(point, usage.step_s) for point in usage.points)])


def _row(point: UsagePoint, step_s: int) -> list[Any]:
    cells = (cell for name in DIRECTIONS for cell in _cells(getattr(point, name)))
    return [iso(point.begins_at), step_s, *cells]


def file_name(isd_as: str, ap_isd_as: str, usage: Usage, kind: str) -> str:
    """`usage_17-ffaa_1_a_at_17-ffaa_0_1107_20261121T0600Z_300s.csv`."""
    names = f"{isd_as}_at_{ap_isd_as}".replace(":", "_")
    return f"usage_{names}_{usage.begins_at.astimezone(UTC):%Y%m%dT%H%MZ}_{usage.step_s}s.{kind}"


def iso(moment: datetime) -> str:
    """`2026-11-21T06:00:00Z`."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _point(point: UsagePoint) -> dict[str, Any]:
    return {"begins_at": iso(point.begins_at)} | {name: _direction(getattr(point, name)) for name in DIRECTIONS}


def _direction(usage: DirectionUsage | None) -> dict[str, Any] | None:
    return None if usage is None else {name: getattr(usage, name) for name in COLUMNS}


def _cells(usage: DirectionUsage | None) -> list[Any]:
    """An unknown rate is an empty cell, too."""
    return [""] * len(COLUMNS) if usage is None else [getattr(usage, name) for name in COLUMNS]
