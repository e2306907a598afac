"""`manage.py migrate` gives way to people who save; a deployment under load: tests/faults/service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.core.management.commands import migrate
from django.db import OperationalError, connection, transaction
from django.test import Client
from pytest_django import Settings

from scionlab.testbed.management.commands import migrate as ours
from tests.delivery.test_host_api import poll
from tests.factories import AttachmentPointFactory, UserFactory, attach, spec

pytestmark = pytest.mark.django_db(transaction=True)


def failing(monkeypatch: pytest.MonkeyPatch, cause: Exception, *, times: int) -> list[str]:
    """Django's command fails so often; returns what it found set."""
    found: list[str] = []

    def handle(*_: Any, **__: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            found.append(cursor.fetchone()[0])
        if len(found) <= times:
            transaction.atomic().__enter__()  # as Django leaves it where what was put off fails
            raise OperationalError from cause

    monkeypatch.setattr(migrate.Command, "handle", handle)
    monkeypatch.setattr(ours, "PAUSE_S", (0.0, 0.0))
    return found


@pytest.mark.parametrize("cause", [psycopg.errors.DeadlockDetected(), psycopg.errors.LockNotAvailable()])
def test_a_migration_that_gave_way_is_tried_again(monkeypatch: pytest.MonkeyPatch, cause: Exception) -> None:
    found = failing(monkeypatch, cause, times=2)
    call_command("migrate", verbosity=0)
    assert found == ["500ms"] * 3


def test_it_waits_for_a_lock_for_less_than_whoever_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or PostgreSQL would end the save; afterwards the session is as it was."""
    failing(monkeypatch, ValueError(), times=0)
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT setting::int FROM pg_settings WHERE name IN ('lock_timeout', 'deadlock_timeout')")
        deadlock_ms, lock_ms = sorted((row[0] for row in cursor.fetchall()), reverse=True)
    assert deadlock_ms > ours.LOCK_WAIT_MS
    assert lock_ms == 0


def test_it_takes_the_lock_of_hosts_before_that_of_another_table(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def handle(*_: Any, **__: Any) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("CREATE TABLE bare ()")
            cursor.execute(
                "SELECT mode FROM pg_locks WHERE relation = 'testbed_host'::regclass AND pid = pg_backend_pid()"
            )
            found.extend(cursor.fetchall())
            transaction.set_rollback(True)

    monkeypatch.setattr(migrate.Command, "handle", handle)
    call_command("migrate", verbosity=0)
    assert found == [("ShareRowExclusiveLock",)]


def test_another_error_ends_it_at_once_and_so_does_the_last_try(monkeypatch: pytest.MonkeyPatch) -> None:
    found = failing(monkeypatch, psycopg.errors.UndefinedTable(), times=9)
    with pytest.raises(OperationalError):
        call_command("migrate", verbosity=0)
    assert len(found) == 1
    monkeypatch.setattr(ours, "TRIES", 3)
    found = failing(monkeypatch, psycopg.errors.LockNotAvailable(), times=9)
    with pytest.raises(OperationalError):
        call_command("migrate", verbosity=0)
    assert len(found) == 3


@pytest.fixture
def no_redis(settings: Settings) -> Iterator[str]:
    """The cache of a site without Redis; the name of its table, which no test database has."""
    table = "cache_of_this_test"
    settings.CACHES = settings.CACHES | {
        "default": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": table}
    }
    yield table
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {table}")


def test_without_redis_it_makes_the_table_that_polls_need(no_redis: str, client: Client) -> None:
    host = attach(UserFactory(), spec(AttachmentPointFactory())).hosts.get()
    for options in ({"plan": True}, {"app_label": "testbed"}):
        call_command("migrate", verbosity=0, **options)
        assert no_redis not in connection.introspection.table_names()
    for _ in range(2):
        call_command("migrate", verbosity=0)
    assert client.get("/readyz").content == b"ok\n"
    assert poll(host).status_code == 200
