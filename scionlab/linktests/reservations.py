"""Constraints of PostgreSQL: tests of one Link, and of one lane of an attachment point, do not overlap in time.

Exclusion constraints over ranges, without extensions. SQLite, which has one writer at a time, has the locks of the
services alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

TABLE: Final = "linktests_linktest"
LINKS: Final = "link_tests_do_not_overlap"
LANES: Final = "link_tests_do_not_share_a_lane"
_COLUMNS: Final = {LINKS: ("link_id",), LANES: ("ap_id", "lane")}


def keep_apart(name: str) -> Callable[[Any, Any], None]:
    """For the migration that creates the columns."""
    equal = ", ".join(f"int8range({column}, {column}, '[]') WITH &&" for column in _COLUMNS[name])
    known = " AND ".join(f"{column} IS NOT NULL" for column in _COLUMNS[name])  # a NULL bound is infinite
    return _on_postgresql(
        f"ALTER TABLE {TABLE} ADD CONSTRAINT {name} EXCLUDE USING gist "
        f"({equal}, tstzrange(begins_at, ends_at) WITH &&) WHERE (cancelled_at IS NULL AND {known})"
    )


def let_overlap(name: str) -> Callable[[Any, Any], None]:
    return _on_postgresql(f"ALTER TABLE {TABLE} DROP CONSTRAINT {name}")


def _on_postgresql(statement: str) -> Callable[[Any, Any], None]:
    def carry_out(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001  the signature of RunPython
        if schema_editor.connection.vendor == "postgresql":
            schema_editor.execute(statement)

    return carry_out
