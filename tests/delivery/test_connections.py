"""How many connections to PostgreSQL the site may open is known, and compared with what the server allows."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections
from pytest_django import Settings

from scionlab.delivery.polls.connections import check_connections, of_a_web_process, of_the_site
from scionlab.delivery.polls.threads import Threads, close_pool
from tests.cases import table

POOL = 2


def on_postgresql() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL alone bounds connections")


@table(
    ("pool", "web_threads", "each"),
    {"no pool: each thread has one": (0, 8, 15), "a pool": (6, 8, 6), "no more than threads": (64, 8, 15)}.values(),
)
def test_web_process_opens_at_most(pool: int, web_threads: int, each: int, settings: Settings) -> None:
    settings.DATABASE_POOL, settings.WEB_THREADS, settings.POLL_THREADS = pool, web_threads, 4
    settings.WEB_REPLICAS, settings.WEB_WORKERS, settings.TASK_PROCESSES = 3, 2, 4
    assert (of_a_web_process(), of_the_site()) == (each, 2 * (3 * 2 * each + 4) + 5)


@pytest.mark.django_db
def test_site_that_could_open_more_than_the_server_allows_is_not_migrated(settings: Settings) -> None:
    on_postgresql()
    assert check_connections(databases=None) == check_connections(databases=["default"]) == []
    settings.DATABASE_POOL, settings.WEB_WORKERS, settings.WEB_REPLICAS = 6, 2, 24
    settings.TASK_PROCESSES = 2
    with pytest.raises(SystemCheckError) as refused:
        call_command("migrate", "--plan", skip_checks=False, verbosity=0)
    assert "The site may open 585 connections" in str(refused.value)
    assert "Raise max_connections of the server to 588, or lower DATABASE_POOL, which is 6" in str(refused.value)


@pytest.mark.django_db(transaction=True)
def test_threads_share_the_connections_of_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also work that is no request, at whose end Django gives a connection back: eight threads, each of which asks
    again and again, have two."""
    pytest.importorskip("psycopg_pool", reason="installed with requirements/web.lock")
    on_postgresql()
    of_this_thread = connection.settings_dict
    monkeypatch.setitem(connections.settings, "default", {
        **of_this_thread, "CONN_MAX_AGE": 0,
        "OPTIONS": {**of_this_thread["OPTIONS"], "pool": {"min_size": 1, "max_size": POOL, "timeout": 5.0}},
    })  # fmt: skip
    threads = Threads(8, "pooled")
    try:
        jobs: list[Future[int]] = [threads.submit(_backend) for _ in range(40)]
        assert len({job.result(timeout=20) for job in jobs}) <= POOL
        threads.submit(close_pool).result(timeout=20)
    finally:
        asyncio.run(threads.close())


def _backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        found: int = cursor.fetchone()[0]
    time.sleep(0.002)
    return found
