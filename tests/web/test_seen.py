"""When hosts were last heard: through the cache to the database, and no poll writes a row."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings
from redis.exceptions import ConnectionError as RedisGoneError

from scionlab import redis_client
from scionlab.models import Host
from scionlab.services import seen
from tests.web.polling import WebServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("polls")]


def test_no_poll_writes_a_row_and_who_waits_counts_as_seen(server: WebServer, host: Host, host_b: Host) -> None:
    Host.objects.filter(pk=host_b.pk).update(last_seen_at=None)
    server.wait(host)
    server.poll(host_b)
    assert list(Host.objects.filter(pk__in=[host.pk, host_b.pk]).values_list("last_seen_at", flat=True)) == [None, None]
    server.stop()  # hands over
    assert seen.flush() == 2
    assert None not in Host.objects.filter(pk__in=[host.pk, host_b.pk]).values_list("last_seen_at", flat=True)
    first = Host.objects.get(pk=host.pk).last_seen_at
    assert first is not None
    assert seen.store({host.pk: first.timestamp() - 60}) == 0  # never back


def test_what_a_worker_that_died_had_taken_is_flushed_first(host: Host, host_b: Host) -> None:
    redis_client.client().delete("scionlab.seen", "scionlab.seen.taken")
    redis_client.client().hset("scionlab.seen.taken", mapping={str(host.pk): "1000000000"})
    seen.HEARD.note([host_b.pk])
    seen.HEARD.hand_over()
    assert seen.flush() == 1
    assert seen.flush() == 1
    assert seen.flush() == 0


def test_while_redis_is_gone_what_was_heard_is_written_by_the_process(
    host: Host, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> Any:
        raise RedisGoneError

    heard = seen.Heard()
    heard.note([host.pk])
    monkeypatch.setattr("scionlab.redis_client.client", gone)
    heard.hand_over()
    assert Host.objects.get(pk=host.pk).last_seen_at is None  # kept, Redis may return
    heard.hand_over(at_once=True)
    assert Host.objects.get(pk=host.pk).last_seen_at is not None
