"""Database constraints: tests of one Link, and of one lane of an attachment point, do not overlap in time.

PostgreSQL: exclusion constraints over ranges, without extensions. SQLite: triggers, created after every `migrate` if
missing, because Django drops them with each table that it rebuilds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from django.db import connections

TABLE: Final = "linktests_linktest"
LINKS: Final = "link_tests_do_not_overlap"
LANES: Final = "link_tests_do_not_share_a_lane"
_COLUMNS: Final = {LINKS: ("link_id",), LANES: ("ap_id", "lane")}


def _postgresql(name: str) -> str:
    equal = ", ".join(f"int8range({column}, {column}, '[]') WITH &&" for column in _COLUMNS[name])
    known = " AND ".join(f"{column} IS NOT NULL" for column in _COLUMNS[name])  # a NULL bound is infinite
    return (
        f"ALTER TABLE {TABLE} ADD CONSTRAINT {name} EXCLUDE USING gist "
        f"({equal}, tstzrange(begins_at, ends_at) WITH &&) WHERE (cancelled_at IS NULL AND {known})"
    )


def _sqlite(name: str) -> Iterator[str]:
    equal = " AND ".join(f"{column} = NEW.{column}" for column in _COLUMNS[name])
    overlap = (
        f"NEW.cancelled_at IS NULL AND EXISTS (SELECT 1 FROM {TABLE} WHERE {equal} AND cancelled_at IS NULL "  # noqa: S608  names of our own
        "AND id IS NOT NEW.id AND begins_at < NEW.ends_at AND ends_at > NEW.begins_at)"
    )
    for event in ("INSERT", f"UPDATE OF {', '.join(_COLUMNS[name])}, begins_at, ends_at, cancelled_at"):
        yield (
            f"CREATE TRIGGER IF NOT EXISTS {name}_{event.partition(' ')[0].lower()} BEFORE {event} ON {TABLE} "
            f"FOR EACH ROW WHEN {overlap} BEGIN SELECT RAISE(ABORT, '{name}'); END"
        )


def keep_apart(name: str) -> Callable[[Any, Any], None]:
    """For the migration that creates the columns."""

    def carry_out(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001  the signature of RunPython
        is_postgresql = schema_editor.connection.vendor == "postgresql"
        for statement in [_postgresql(name)] if is_postgresql else _sqlite(name):
            schema_editor.execute(statement)

    return carry_out


def let_overlap(name: str) -> Callable[[Any, Any], None]:
    def carry_out(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001  the signature of RunPython
        if schema_editor.connection.vendor == "postgresql":
            schema_editor.execute(f"ALTER TABLE {TABLE} DROP CONSTRAINT {name}")
            return
        for event in ("insert", "update"):
            schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}_{event}")

    return carry_out


def guard_reservations(using: str = "default", **_more: Any) -> None:
    """Receives `post_migrate`; does nothing while a column is missing."""
    connection = connections[using]
    if connection.vendor == "postgresql":
        return
    with connection.cursor() as cursor:
        if TABLE not in connection.introspection.table_names(cursor):
            return
        known = {one.name for one in connection.introspection.get_table_description(cursor, TABLE)}
        for name, columns in _COLUMNS.items():
            for statement in _sqlite(name) if known.issuperset(columns) else ():
                cursor.execute(statement)
