"""Results as documents: JSON for scripts, CSV for spreadsheets. docs/api.md describes every column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from django.http import HttpResponse

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.linktests.models import LinkTest, TestResult
from scionlab.linktests.verdict import Interval, intervals_of
from scionlab.web.csv_files import csv_file, csv_text

_COUNTED: Final = ("limit_kbit", "passed_bytes", "passed_packets", "dropped_bytes", "dropped_packets", "lost_packets")
CSV_HEADER: Final = (
    "begins_at (UTC)",
    "took (s)",
    "enforced",
    *(f"{one} {name}" for one in DIRECTIONS for name in _COUNTED),
)


def points_of(test: LinkTest) -> Iterator[dict[str, Any]]:
    """One point per interval between two samples, in order of time; a direction whose counters were reset in it is
    None."""
    result = test.result_of(TestResult.Side.AP)
    samples = [] if result is None else result.samples
    sides = {name: {one.begins_at_ms: one for one in intervals_of(samples, name)} for name in DIRECTIONS}
    for at_ms in sorted({*sides["to_user"], *sides["from_user"]}):
        found = {name: sides[name].get(at_ms) for name in DIRECTIONS}
        known = next(one for one in found.values() if one is not None)
        yield {
            "begins_at": datetime.fromtimestamp(at_ms / 1000, UTC),
            "took_s": known.took_ms / 1000,
            "in_force": known.in_force,
            **{name: _counted(one) for name, one in found.items()},
        }


def _counted(one: Interval | None) -> dict[str, int] | None:
    return None if one is None else {name: getattr(one, name) for name in _COUNTED}


def points_csv(test: LinkTest) -> HttpResponse:
    """`watch_7_20261121T060000Z.csv`. No cell contains user text."""
    rows: list[Sequence[object]] = [CSV_HEADER]
    for point in points_of(test):
        cells = [(point[name] or {}).get(column, "") for name in DIRECTIONS for column in _COUNTED]
        at = point["begins_at"].isoformat(timespec="milliseconds").replace("+00:00", "Z")
        rows.append([at, point["took_s"], int(point["in_force"]), *cells])
    return csv_file(csv_text(rows), f"{test.tool}_{test.pk}_{test.begins_at.astimezone(UTC):%Y%m%dT%H%M%SZ}.csv")
