"""Converts between `Totals` and the columns of a row with both directions."""

from __future__ import annotations

from typing import Any, Final

from scionlab.enforcement.directions import DIRECTIONS, DirectionName
from scionlab.usage.totals import Totals

COLUMNS: Final = Totals.__struct_fields__
NAMES: Final = [f"{direction}_{column}" for direction in DIRECTIONS for column in COLUMNS]
_LARGEST: Final = {"covered_ms": 2**31 - 1, "at_limit_ms": 2**31 - 1, "limit_kbit": 2**31 - 1, "rated_bytes": 2**59}
MAX_STORED: Final = 2**63 - 1
LARGEST_KBIT: Final = 2**31 - 1  # 2 Tbit/s: no limit is above 100 Gbit/s

Both = dict[DirectionName, Totals]


def nothing() -> Both:
    return {name: Totals() for name in DIRECTIONS}


def totals_of(row: dict[str, Any]) -> Both:
    """Of a row as `values()` gives it."""
    return {name: Totals(**{column: row[f"{name}_{column}"] for column in COLUMNS}) for name in DIRECTIONS}


def columns_of(both: Both) -> dict[str, int | None]:
    """Values beyond any kernel's counters are cut to the column's range."""
    found: dict[str, int | None] = {}
    for name, totals in both.items():
        for column in COLUMNS:
            value: int | None = getattr(totals, column)
            found[f"{name}_{column}"] = None if value is None else min(value, _LARGEST.get(column, MAX_STORED))
    return found


def rates(both: Both) -> dict[str, int | None]:
    """Mean rates, rounded down [kbit/s]: bits per millisecond. None without coverage."""
    return {
        f"{name}_kbit": min(one.rated_bytes * 8 // one.covered_ms, LARGEST_KBIT) if one.covered_ms > 0 else None
        for name, one in both.items()
    }
