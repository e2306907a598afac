"""PostgreSQL stores five minutes in one partition per day, which can be dropped at once (docs/adr/0015).

SQLite has no partitions and deletes row by row. There is no default partition: a writer creates the day's partition
first, in the same transaction; if that fails nothing is added and the batch stays pending.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Final

from django.db import OperationalError, connection, transaction

from scionlab.usage.models import UsageSlot
from scionlab.usage.slot_field import slot_number

logger = logging.getLogger(__name__)

TABLE: Final = UsageSlot._meta.db_table
AHEAD: Final = timedelta(days=3)
ROWS_AT_ONCE: Final = 5000
_LOCK: Final = 0x5C11  # advisory lock for creating and dropping partitions
_DAY: Final = timedelta(days=1)
_PATIENCE: Final = "2s"  # how long a page may wait for a partition being dropped, which waits for pages
# Rows are updated once, five minutes after they were inserted: reuse their old versions soon.
_OPTIONS: Final = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.2"


def ensure(days: Iterable[date]) -> None:
    """Create missing partitions. Within a transaction; readers and writers do not wait for it."""
    wanted = {_name(day): day for day in days}
    if connection.vendor != "postgresql" or wanted.keys() <= set(_there()):
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        for name in sorted(wanted.keys() - set(_there())):
            first, end = (slot_number(_begin(wanted[name] + more)) for more in (0 * _DAY, _DAY))
            # Names and numbers are generated here. ATTACH does not block reads and writes; PARTITION OF would.
            cursor.execute(f"CREATE TABLE {name} (LIKE {TABLE} INCLUDING ALL) WITH ({_OPTIONS})")
            cursor.execute(f"ALTER TABLE {TABLE} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({end})")


@transaction.atomic
def ensure_ahead(*, now: datetime) -> None:
    """For today and the next days."""
    ensure(now.date() + number * _DAY for number in range(AHEAD.days + 1))


def drop_before(day: date) -> int:
    """Drop whole days before this one, oldest first; return their number. A day that is being read for more than 2 s is
    left for the next run."""
    if connection.vendor != "postgresql":
        return _delete_before(day)
    gone = 0
    for name in sorted(name for name in _there() if name < _name(day)):
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
                cursor.execute(f"DROP TABLE IF EXISTS {name}")
        except OperationalError as exc:
            logger.warning("usage.day_is_in_use partition=%s error=%s", name, exc)
            break
        gone += 1
    return gone


def _delete_before(day: date) -> int:
    rows = UsageSlot.objects.filter(begins_at__lt=_begin(day))
    days = {slot.date() for slot in rows.values_list("begins_at", flat=True).distinct()}
    while slots := list(rows.values_list("begins_at", flat=True).distinct()[:12]):
        UsageSlot.objects.filter(begins_at__in=slots).delete()
    return len(days)


def _there() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = %s::regclass",
            [TABLE],
        )
        return [name for (name,) in cursor.fetchall() if re.fullmatch(rf"{TABLE}_[0-9]{{8}}", name)]


def _name(day: date) -> str:
    return f"{TABLE}_{day:%Y%m%d}"


def _begin(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
