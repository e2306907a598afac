"""`GET /api/v1/tests/<id>/?wait=`: held back until the test changes, without a thread or a connection for each."""

from __future__ import annotations

import json
import socket
from collections.abc import Sized
from concurrent.futures import Future
from datetime import timedelta
from functools import partial

import pytest
from django.utils import timezone
from pytest_django import Settings

from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.linktests import waiting_tests
from scionlab.linktests.link_test import link_test_cancel, link_test_create
from scionlab.linktests.models import LinkTest
from scionlab.linktests.test_results import Upload, result_store
from scionlab.testbed.models import Host, Link
from tests.factories import api_token
from tests.web.polling import DEADLINE_S, LONG_S, Answer, WebServer, serve, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("polls")]


class Reader:
    """Who created a watch reads it, with a token."""

    def __init__(self, server: WebServer, test: LinkTest, person: User) -> None:
        self.server, self.test, self.token = server, test, api_token(person)
        self.etag = self.get().headers["etag"]

    def get(self, wait: str = "", *, etag: str | None = None, method: str = "GET") -> Answer:
        headers = {"Authorization": f"Token {self.token}"}
        if etag is not None:
            headers["If-None-Match"] = etag
        path = f"/api/v1/tests/{self.test.pk}/" + (f"?wait={wait}" if wait else "")
        return self.server.ask(path, method=method, headers=headers)

    def wait(self, seconds: int = LONG_S) -> Future[Answer]:
        """One that has its place."""
        before = self.waiting
        future = self.server._clients.submit(self.get, str(seconds), etag=self.etag)
        until(lambda: self.waiting > before or future.done())
        return future

    @property
    def waiting(self) -> int:
        return len(self.server.application._tests)


@pytest.fixture
def watch(link: Link, receipt: HostReceipt, owner: User) -> LinkTest:
    HostReceipt.objects.update(says_tests=True)
    begins_at = timezone.now() + timedelta(minutes=10)
    return link_test_create(link_id=link.pk, begins_at=begins_at, duration_s=60, actor=owner)


@pytest.fixture
def reader(server: WebServer, watch: LinkTest, owner: User) -> Reader:
    return Reader(server, watch, owner)


def test_what_arms_begins_measures_and_cancels_a_test_ends_the_waiting(
    reader: Reader, watch: LinkTest, host: Host, owner: User
) -> None:
    row = LinkTest.objects.filter(pk=watch.pk)
    row.update(begins_at=timezone.now() + timedelta(seconds=5))
    reader.etag = reader.get().headers["etag"]

    def arm() -> None:
        row.update(armed_at=timezone.now())

    def store() -> None:
        result_store(host_id=host.pk, upload=Upload(watch.test_id, "1", True, ()))

    def cancel() -> None:
        link_test_cancel(link_test_id=watch.pk, actor=owner)

    def nothing() -> None:
        """Its time begins by itself."""

    steps = ((arm, "armed"), (nothing, "running"), (store, "failed"), (cancel, "cancelled"))
    for act, state in steps:
        waiting = reader.wait()
        act()
        answer = waiting.result(DEADLINE_S)
        assert (answer.status, json.loads(answer.body)["state"]) == (200, state)
        reader.etag = answer.headers["etag"]


def test_nothing_new_is_304_when_the_time_is_over(reader: Reader) -> None:
    answer = reader.get("1", etag=reader.etag)
    assert (answer.status, answer.body) == (304, b"")
    assert 1 <= answer.took_s < 5
    assert reader.waiting == 0


@pytest.mark.parametrize(
    ("wait", "status"), [("0", 304), ("-1", 400), ("60", 304), ("61", 400), ("soon", 400), ("1000000", 400)]
)
def test_wait_at_its_bounds(reader: Reader, wait: str, status: int) -> None:
    reader.server.application._tests.most = 0  # so that 60 need not be waited for
    assert reader.get(wait, etag=reader.etag).status == status


def test_nobody_else_waits_and_what_is_known_otherwise_is_answered_at_once(
    reader: Reader, stranger: User, server: WebServer
) -> None:
    other = Reader.__new__(Reader)
    other.server, other.test, other.token = server, reader.test, api_token(stranger)
    assert other.get(str(LONG_S), etag=reader.etag).status == 404
    other.token = "slbwu_" + "x" * 43
    assert other.get(str(LONG_S), etag=reader.etag).status == 401
    assert reader.get(str(LONG_S)).status == 200  # without If-None-Match there is nothing to wait for
    assert reader.get(str(LONG_S), etag='"another"').status == 200
    assert reader.get(str(LONG_S), etag=reader.etag, method="HEAD").status == 304


def test_a_token_has_ten_places_and_the_next_is_answered_at_once(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_tests, "PLACES_PER_TOKEN", 2)
    waiting = [reader.wait(), reader.wait()]
    assert reader.get(str(LONG_S), etag=reader.etag).status == 304
    assert not any(one.done() for one in waiting)
    monkeypatch.setattr(waiting_tests, "PLACES_PER_TOKEN", 3)
    waiting.append(reader.wait())
    assert not waiting[2].done()


def test_a_tenth_of_the_places_of_polls_is_theirs(settings: Settings, watch: LinkTest, owner: User) -> None:
    settings.POLL_PLACES = 20
    for server in serve():
        reader = Reader(server, watch, owner)
        waiting = [reader.wait(), reader.wait()]
        assert reader.get(str(LONG_S), etag=reader.etag).status == 304
        assert not any(one.done() for one in waiting)


def is_long(several: Sized, count: int) -> bool:
    return len(several) == count


def test_who_waits_holds_no_thread_and_goes_when_the_client_does(
    settings: Settings, watch: LinkTest, owner: User
) -> None:
    settings.WEB_THREADS = 1
    for server in serve():
        waiting = server.application._tests
        reader = Reader(server, watch, owner)
        first, second = reader.wait(), reader.wait()
        assert server.ask("/readyz").status == 200
        assert (first.done(), second.done()) == (False, False)
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            line.sendall(
                f"GET /api/v1/tests/{watch.pk}/?wait={LONG_S} HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: Token {reader.token}\r\nIf-None-Match: {reader.etag}\r\n\r\n".encode()
            )
            until(partial(is_long, waiting, 3))
        until(partial(is_long, waiting, 2))
        waiting.stop()
        assert [one.result(DEADLINE_S).status for one in (first, second)] == [503, 503]
