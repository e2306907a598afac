"""Checks before serving that the site's connections fit PostgreSQL's limit.

Otherwise the server rejects everyone, including the administrator's psql: with a connection per thread the fourth web
tier of a deployment filled PostgreSQL. Pools of 3 to 6 cost no more time per page. PgBouncer saved nothing more, does
not pass on `join_collapse_limit`, and is one more program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.db import DatabaseError, connections

RECEIPT_THREADS: Final = 2
READING_THREADS: Final = 1  # of rows of polling hosts
DEPLOYMENT: Final = 2  # web tiers and workers of two versions run side by side for a while
RESERVE: Final = 5  # psql, a backup, migrations, an exporter


def of_a_web_process() -> int:
    """As many as it has threads that use the database, or as its pool has."""
    threads = settings.WEB_THREADS + settings.POLL_THREADS + RECEIPT_THREADS + READING_THREADS
    return min(threads, settings.DATABASE_POOL or threads)


def of_the_site() -> int:
    web = settings.WEB_REPLICAS * settings.WEB_WORKERS * of_a_web_process()
    return DEPLOYMENT * (web + settings.TASK_PROCESSES) + RESERVE


def check_connections(
    app_configs: Sequence[Any] | None = None,  # noqa: ARG001  Django's signature
    databases: Sequence[str] | None = None,
    **_: Any,
) -> list[CheckMessage]:
    """A Django check with the tag `database`: run by `migrate` and `check --database`."""
    return [problem for alias in databases or () for problem in _problems(alias)]


def _problems(alias: str) -> list[CheckMessage]:
    connection = connections[alias]
    if connection.vendor != "postgresql":
        return []
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT name, setting::int FROM pg_settings WHERE name LIKE '%%reserved_connections'")
            reserved = sum(count for _, count in cursor.fetchall())
            cursor.execute("SELECT setting::int FROM pg_settings WHERE name = 'max_connections'")
            most = cursor.fetchone()[0]
    except DatabaseError:
        return []  # the caller will report it
    needed, allowed = of_the_site(), most - reserved
    if needed <= allowed:
        return []
    parts = (
        f"{settings.WEB_REPLICAS} web tiers (WEB_REPLICAS) of {settings.WEB_WORKERS} processes (WEB_WORKERS) with "
        f"{of_a_web_process()} each, and {settings.TASK_PROCESSES} of workers (TASK_PROCESSES), twice during a "
        f"deployment, and {RESERVE} for administrators"
    )
    return [
        Error(
            f"The site may open {needed} connections to PostgreSQL: {parts}. The server allows {allowed}: "
            f"max_connections is {most}, of which {reserved} are reserved.",
            hint=f"Raise max_connections of the server to {needed + reserved}, or lower DATABASE_POOL, which is "
            f"{settings.DATABASE_POOL or 'off'}, or WEB_WORKERS.",
            id="scionlab.E001",
        )
    ]
