"""Makes the audit log append-only in the database.

Triggers on the table of `BandwidthChange`, created after every `migrate` if missing (SQLite drops them when it rebuilds
the table). Rows are never deleted; in a stored row only references to deleted objects change, to NULL. This prevents
mistakes, SQL injection and changes in `manage.py shell`, but not an owner of the table who drops the trigger.
"""

from __future__ import annotations

from typing import Any

from django.db import connections

TABLE = "testbed_bandwidthchange"
LIMITS = ("old_kbit", "new_kbit", "old_from_user_kbit", "new_from_user_kbit")
KEPT = ("id", "at", "kind", "subject", "actor_email", "address", *LIMITS, "detail", "reason")
REFERENCES = ("link_id", "attachment_point_id", "actor_id")
MESSAGE = "The record of bandwidth changes is only ever added to."


def _altered(differs: str) -> str:
    """SQL condition: the row's content changes. `differs`: the database's "is distinct from"."""
    changed = [f"NEW.{name} {differs} OLD.{name}" for name in KEPT]
    moved = [f"(NEW.{name} IS NOT NULL AND NEW.{name} {differs} OLD.{name})" for name in REFERENCES]
    return " OR ".join(changed + moved)


POSTGRESQL = f"""
CREATE OR REPLACE FUNCTION {TABLE}_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '{MESSAGE}' USING ERRCODE = 'restrict_violation';
END $$;
CREATE OR REPLACE TRIGGER {TABLE}_no_update BEFORE UPDATE ON {TABLE}
    FOR EACH ROW WHEN ({_altered("IS DISTINCT FROM")}) EXECUTE FUNCTION {TABLE}_append_only();
CREATE OR REPLACE TRIGGER {TABLE}_no_delete BEFORE DELETE ON {TABLE}
    FOR EACH ROW EXECUTE FUNCTION {TABLE}_append_only();
"""
SQLITE = (
    f"CREATE TRIGGER IF NOT EXISTS {TABLE}_no_update BEFORE UPDATE ON {TABLE} FOR EACH ROW "
    f"WHEN {_altered('IS NOT')} BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END",
    f"CREATE TRIGGER IF NOT EXISTS {TABLE}_no_delete BEFORE DELETE ON {TABLE} FOR EACH ROW "
    f"BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END",
)


def guard_audit(using: str = "default", **_more: Any) -> None:
    """Receives `post_migrate`; does nothing without the table (`migrate scionlab zero`)."""
    connection = connections[using]
    with connection.cursor() as cursor:
        if TABLE not in connection.introspection.table_names(cursor):
            return
        for statement in [POSTGRESQL] if connection.vendor == "postgresql" else SQLITE:
            cursor.execute(statement)
