"""When hosts were last heard: through the cache to the database, and no poll writes a row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db.utils import ConnectionHandler
from pytest_django import Settings
from redis.exceptions import ConnectionError as RedisGoneError

from scionlab.delivery.last_contact import CONTACTS, HOSTS
from scionlab.platform import last_contact, redis_client
from scionlab.platform.last_contact import Contacts, flush, store
from scionlab.testbed.models import Host
from tests.support.polling import WebServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("polls")]


def test_no_poll_writes_a_row_and_who_waits_counts_as_seen(server: WebServer, host: Host, host_b: Host) -> None:
    Host.objects.filter(pk=host_b.pk).update(last_seen_at=None)
    server.wait(host)
    server.poll(host_b)
    assert list(Host.objects.filter(pk__in=[host.pk, host_b.pk]).values_list("last_seen_at", flat=True)) == [None, None]
    server.stop()  # hands over
    assert flush(HOSTS) == 2
    assert None not in Host.objects.filter(pk__in=[host.pk, host_b.pk]).values_list("last_seen_at", flat=True)
    first = Host.objects.get(pk=host.pk).last_seen_at
    assert first is not None
    assert store({host.pk: first.timestamp() - 60}, HOSTS) == 0  # never back


def test_what_a_worker_that_died_had_taken_is_flushed_first(host: Host, host_b: Host) -> None:
    redis_client.client().hset("scionlab.seen.taken", mapping={str(host.pk): "1000000000"})
    CONTACTS.note([host_b.pk])
    CONTACTS.hand_over()
    assert flush(HOSTS) == 1
    assert flush(HOSTS) == 1
    assert flush(HOSTS) == 0


def test_while_redis_is_gone_what_was_heard_is_written_by_the_process(
    host: Host, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> Any:
        raise RedisGoneError

    heard = Contacts(HOSTS)
    heard.note([host.pk])
    monkeypatch.setattr("scionlab.platform.redis_client.client", gone)
    heard.hand_over()
    assert Host.objects.get(pk=host.pk).last_seen_at is None  # kept, Redis may return
    heard.hand_over(at_once=True)
    assert Host.objects.get(pk=host.pk).last_seen_at is not None


def test_the_embedded_database_is_written_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite keeps moments as text: they must compare, and read back, as Django's own do."""
    embedded = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})["default"]
    try:
        with embedded.cursor() as cursor:
            cursor.execute("CREATE TABLE testbed_host (id integer PRIMARY KEY, last_seen_at datetime)")
            cursor.execute("INSERT INTO testbed_host VALUES (1, NULL), (2, '2026-11-21 06:00:00.250000'), (3, NULL)")
            monkeypatch.setattr(last_contact, "connection", embedded)
            at_six = datetime(2026, 11, 21, 6, 0, tzinfo=UTC).timestamp()
            assert store({1: at_six, 2: at_six, 99: at_six}, HOSTS) == 1
            assert store({2: at_six + 0.5}, HOSTS) == 1
            cursor.execute("SELECT last_seen_at FROM testbed_host ORDER BY id")
            assert [row[0] and str(row[0]) for row in cursor.fetchall()] == [
                "2026-11-21 06:00:00",
                "2026-11-21 06:00:00.500000",
                None,
            ]
    finally:
        embedded.connection.close()  # Django keeps one in memory open
