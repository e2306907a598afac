"""Tests of one Link do not overlap in time: the database refuses what no code of ours does.

PostgreSQL: an exclusion constraint over ranges, which needs no extension. SQLite: triggers, made after every `migrate`
where they are missing, because Django drops them with each table that it rebuilds.
"""

from __future__ import annotations

from typing import Any

from django.db import connections

TABLE = "scionlab_linktest"
NAME = "link_tests_do_not_overlap"

POSTGRESQL = f"""
ALTER TABLE {TABLE} ADD CONSTRAINT {NAME} EXCLUDE USING gist (
    int8range(link_id, link_id, '[]') WITH &&, tstzrange(begins_at, ends_at) WITH &&
) WHERE (cancelled_at IS NULL)
"""
_OVERLAP = f"""
NEW.cancelled_at IS NULL AND EXISTS (
    SELECT 1 FROM {TABLE} WHERE link_id = NEW.link_id AND cancelled_at IS NULL AND id IS NOT NEW.id
    AND begins_at < NEW.ends_at AND ends_at > NEW.begins_at
)
"""  # noqa: S608  names of our own
SQLITE = [
    f"CREATE TRIGGER IF NOT EXISTS {NAME}_{event.partition(' ')[0].lower()} BEFORE {event} ON {TABLE} FOR EACH ROW "
    f"WHEN {_OVERLAP} BEGIN SELECT RAISE(ABORT, '{NAME}'); END"
    for event in ("INSERT", "UPDATE OF link_id, begins_at, ends_at, cancelled_at")
]


def keep_apart(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001  the signature of RunPython
    """Of the migration that makes the table."""
    for statement in [POSTGRESQL] if schema_editor.connection.vendor == "postgresql" else SQLITE:
        schema_editor.execute(statement)


def guard_reservations(using: str = "default", **_more: Any) -> None:
    """Receives `post_migrate`; does nothing while the table is not there."""
    connection = connections[using]
    if connection.vendor == "postgresql":
        return
    with connection.cursor() as cursor:
        if TABLE in connection.introspection.table_names(cursor):
            for statement in SQLITE:
                cursor.execute(statement)
