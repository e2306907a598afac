"""`manage.py migrate` during operation: gives way to concurrent saves and retries.

A migration locks whole tables one after the other, while saves hold and request row locks there: PostgreSQL may find a
deadlock, and new requests queue behind the migration. So it waits for a lock less than PostgreSQL's `deadlock_timeout`
(1 s), and usually is the one that fails. A failed migration has changed nothing.
"""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from django.core.management import call_command
from django.core.management.commands import migrate
from django.db import OperationalError, connections
from django.db.migrations.executor import MigrationExecutor

from scionlab.platform.retry import is_conflict
from scionlab.testbed.models import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

LOCK_WAIT_MS: Final = 500
FIRST_LOCK_WAIT_MS: Final = 5_000  # the first lock cannot deadlock: saves only wait briefly
TRIES: Final = 60
PAUSE_S: Final = (0.2, 2.0)
_NO_LOCK = "55P03"


class Command(migrate.Command):
    help = "Updates the database schema while the service is running; without Redis also creates the cache's table."

    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        for attempt in range(1, TRIES + 1):
            try:
                with _waiting_briefly(connection, is_named=bool(options["app_label"])):
                    super().handle(*args, **options)
                if not (options["plan"] or options["check_unapplied"] or options["app_label"]):
                    call_command("createcachetable", database=options["database"], verbosity=0)
                return
            except OperationalError as exc:
                if connection.vendor == "postgresql":
                    _begin_anew(connection)
                if attempt == TRIES or not _gave_way(exc):
                    raise
                self.stderr.write("The table is in use. Trying again.")
                time.sleep(random.uniform(*PAUSE_S))  # noqa: S311  nobody gains by guessing it


def _begin_anew(connection: BaseDatabaseWrapper) -> None:
    """Django leaves the transaction open if its deferred SQL fails at the end of a migration."""
    connection.close()
    connection.connect()


def _gave_way(exc: OperationalError) -> bool:
    return is_conflict(exc) or getattr(exc.__cause__, "sqlstate", None) == _NO_LOCK


@contextmanager
def _waiting_briefly(connection: BaseDatabaseWrapper, *, is_named: bool) -> Iterator[None]:
    """Not in an empty database, and not while a non-atomic migration is or may be due: an interrupted index would
    remain, invalid."""
    has_hosts = Host._meta.db_table in connection.introspection.table_names()
    if connection.vendor != "postgresql" or is_named or not has_hosts or _has_unbounded(connection):
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {LOCK_WAIT_MS}")
    with connection.execute_wrapper(_hosts_first):
        yield
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")


def _hosts_first(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """Lock hosts first. Saves lock hosts and then read other tables: a migration that holds another table and requests
    that of hosts, for a foreign key, would deadlock with every save. Locking twice is free."""
    if context["connection"].in_atomic_block and sql.startswith(("ALTER ", "CREATE ", "DROP ")):
        for first in (
            f"SET LOCAL lock_timeout = {FIRST_LOCK_WAIT_MS}",
            f'LOCK TABLE "{Host._meta.db_table}" IN SHARE ROW EXCLUSIVE MODE',
            f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}",
        ):
            execute(first, None, False, context)
    return execute(sql, params, many, context)


def _has_unbounded(connection: BaseDatabaseWrapper) -> bool:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return any(not migration.atomic for migration, _ in plan)
