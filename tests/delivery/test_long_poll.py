"""Polls that wait, in a real web server of this process: who waits, who is woken, and what it costs.

Redis carries the messages; where a test says so the look at the rows is all there is.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
from django.db import connection

import config_tar
from scionlab.accounts.models import User
from scionlab.delivery.polls import known, wakeup
from scionlab.delivery.polls.known import HostState, read_states
from scionlab.enforcement.generation import generation_raise
from scionlab.limits.update import link_set_bandwidth
from scionlab.platform import redis_client, wake
from scionlab.testbed.host import host_rotate_secret
from scionlab.testbed.models import Host, Link
from tests.factories import HostFactory
from tests.support.polling import DEADLINE_S, LONG_S, NEVER_S, WRONG, WebServer, raw_poll, serve, until, versions_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("polls")]


@pytest.fixture
def _only_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by himself once messages arrive."""
    monkeypatch.setattr(wakeup, "SAFETY_NET_S", NEVER_S)


# --- waiting and being woken ------------------------------------------------------------------------------------


def test_a_poll_waits_until_its_time_is_over(server: WebServer, host: Host) -> None:
    answer = server.poll(host, wait=1)
    assert (answer.status, answer.body) == (304, b"")
    assert answer.took_s >= 1.0
    assert server.waiting == 0


@pytest.mark.usefixtures("_only_messages")
def test_a_message_wakes_the_host_that_changed_and_nobody_else(
    server: WebServer, host: Host, host_b: Host, link: Link, owner: User
) -> None:
    changed, other = server.wait(host), server.wait(host_b)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    assert versions_of(changed.result(DEADLINE_S)) == ("1.2", 2)
    assert not other.done()


@pytest.mark.usefixtures("_no_messages")
def test_without_redis_a_look_at_the_rows_wakes_it(server: WebServer, host: Host, link: Link, owner: User) -> None:
    changed = server.wait(host)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    assert versions_of(changed.result(DEADLINE_S)) == ("1.2", 2)


def test_a_lost_message_is_made_up_for(
    server: WebServer, host: Host, link: Link, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = server.wait(host)
    monkeypatch.setattr(wake, "_publish", lambda _: None)
    monkeypatch.setattr(wakeup, "SAFETY_NET_S", 0.3)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    assert versions_of(changed.result(DEADLINE_S)) == ("1.2", 2)


@pytest.mark.usefixtures("_only_messages")
def test_a_raised_generation_wakes_everybody(server: WebServer, host: Host, host_b: Host) -> None:
    waiting = [server.wait(one) for one in (host, host_b)]
    generation_raise()
    assert [versions_of(one.result(DEADLINE_S))[0][:2] for one in waiting] == ["2.", "2."]


@pytest.mark.usefixtures("_only_messages")
def test_a_change_between_the_look_and_the_place_is_not_missed(
    host: Host, link: Link, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows were read, somebody saves and says so, and only then the poll compares and takes its place."""
    told, saved = threading.Event(), threading.Event()

    def read_then_let_somebody_save(uids: Any) -> dict[str, HostState]:
        rows = read_states(uids)
        if not saved.is_set():
            link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
            saved.set()
            told.wait(DEADLINE_S)
        return rows

    heard = known.Known.changed

    def hear(self: known.Known, host_ids: Any, waiting: Any) -> None:
        heard(self, host_ids, waiting)
        if host_ids is not None:  # no start of listening, but the message of the save
            told.set()

    monkeypatch.setattr(known.Known.__init__, "__kwdefaults__", {"read": read_then_let_somebody_save})
    monkeypatch.setattr(known.Known, "changed", hear)
    monkeypatch.setattr(known, "READ_DEADLINE_S", DEADLINE_S)  # this statement takes as long as the save does
    for server in serve():
        assert versions_of(server.poll(host, wait=LONG_S)) == ("1.2", 2)


@pytest.mark.usefixtures("_only_messages")
def test_a_message_between_the_comparison_and_the_place_is_not_missed(
    host: Host, link: Link, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row has been read and handed to the poll, which has not gone on yet: there is nobody to tell."""
    saved = threading.Event()

    def read_then_let_somebody_save(uids: Any) -> dict[str, HostState]:
        rows = read_states(uids)
        if not saved.is_set():
            link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
        return rows

    read_some = known.Known._read_some

    async def read_and_tell(self: known.Known) -> None:
        await read_some(self)
        if not saved.is_set():
            saved.set()
            self.changed({host.pk}, set())

    monkeypatch.setattr(wake, "_publish", lambda _: None)
    monkeypatch.setattr(known.Known.__init__, "__kwdefaults__", {"read": read_then_let_somebody_save})
    monkeypatch.setattr(known.Known, "_read_some", read_and_tell)
    for server in serve():
        assert versions_of(server.poll(host, wait=LONG_S)) == ("1.2", 2)


@pytest.mark.usefixtures("_only_messages")
def test_a_redis_that_lost_us_is_listened_to_again(
    server: WebServer, host: Host, link: Link, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was published meanwhile is not told again: everybody who waits is compared anew."""
    changed = server.wait(host)
    monkeypatch.setattr(wakeup, "WITHOUT_MESSAGES_S", NEVER_S)
    monkeypatch.setattr(wake, "_publish", lambda _: None)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    assert not changed.done()
    redis_client.client().client_kill_filter(_type="pubsub")
    assert versions_of(changed.result(DEADLINE_S)) == ("1.2", 2)


def test_a_redis_that_hangs_is_not_listened_to_any_longer(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections stay open, and nothing comes: the clock must take over. Alive, its silence means nothing."""
    monkeypatch.setattr(wakeup, "QUIET_S", 0.2)
    monkeypatch.setattr(wakeup, "RECONNECT_S", 0.2)
    redis = redis_client.client()
    for server in serve():
        time.sleep(1.0)
        assert server.is_listening
        redis.execute_command("CLIENT", "PAUSE", 1500, "ALL")
        until(lambda at=server: not at.is_listening)  # type: ignore[misc]
        until(lambda at=server: at.is_listening)  # type: ignore[misc]


# --- who may wait ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", ["wrong_secret", "host_b", "secret_of_b", "unknown"])
def test_who_is_not_the_host_never_waits(server: WebServer, host: Host, host_b: Host, caller: str) -> None:
    true = server.wait(host)
    others: dict[str, Any] = {
        "wrong_secret": {"secret_of": host.uid, "secret": WRONG},
        "host_b": {"secret_of": host_b.uid, "secret": host_b.secret},
        "secret_of_b": {"secret_of": host.uid, "secret": host_b.secret},
        "unknown": {"uid": WRONG, "secret_of": WRONG, "secret": WRONG},
    }[caller]
    answer = server.poll(host, wait=LONG_S, **others)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Basic realm="host"')
    assert not true.done()  # nor does it drive away who waits
    assert server.waiting == 1


@pytest.mark.parametrize(("keep_previous", "status"), [(False, 401), (True, 200)])
def test_a_secret_that_was_revoked_while_its_poll_waits_gets_no_tarball(
    server: WebServer, host: Host, staff: User, keep_previous: bool, status: int
) -> None:
    waiting = server.wait(host)
    host_rotate_secret(host_id=host.pk, actor=staff, keep_previous=keep_previous)
    assert waiting.result(DEADLINE_S).status == status


@pytest.mark.parametrize("gone", ["host", "AS"])
def test_a_host_that_goes_while_its_poll_waits_is_told(server: WebServer, gone: str) -> None:
    host = HostFactory()
    waiting = server.wait(host)
    if gone == "host":
        host.delete()
    else:
        Host.objects.filter(pk=host.pk).update(AS=None)
    wake.wake_after_commit([host.pk])
    assert waiting.result(DEADLINE_S).status == (401 if gone == "host" else 204)


def test_a_head_request_does_not_wait(server: WebServer, host: Host) -> None:
    answer = server.poll(host, wait=LONG_S, method="HEAD")
    assert (answer.status, answer.body) == (304, b"")


@pytest.mark.usefixtures("_no_messages")
def test_a_secret_of_a_moment_ago_is_refused_by_the_database_not_by_memory(
    server: WebServer, host: Host, staff: User
) -> None:
    """What is known of a host may be a second old: it refuses nobody."""
    assert server.poll(host).status == 304
    host_rotate_secret(host_id=host.pk, actor=staff, keep_previous=False)
    host.refresh_from_db()
    assert server.poll(host).status == 304


# --- what it costs ----------------------------------------------------------------------------------------------


def test_waiting_takes_no_thread_no_connection_and_hardly_a_statement(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty hosts wait: beside what one needs, there is nothing more of either."""
    statements: list[str] = []

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append(sql)
        return execute(sql, params, many, context)

    def read(uids: Any) -> dict[str, HostState]:
        with connection.execute_wrapper(count):
            return read_states(uids)

    monkeypatch.setattr(known.Known.__init__, "__kwdefaults__", {"read": read})
    monkeypatch.setattr(wakeup, "SAFETY_NET_S", NEVER_S)
    hosts = HostFactory.create_batch(60)
    for server in serve():
        assert server.poll(host).status == 304
        assert len(statements) == 1
        assert server.poll(host, secret_of=host.uid, secret=WRONG).status == 401
        assert len(statements) == 2  # looked up, like a host that does not exist: it takes as long
        threads = threading.active_count()
        lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in hosts]
        for line, one in zip(lines, hosts, strict=True):
            line.sendall(raw_poll(one))
        until(lambda at=server: at.waiting == len(hosts))  # type: ignore[misc]
        assert len(statements) <= 2 + len(hosts)
        assert threading.active_count() == threads
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            assert cursor.fetchone()[0] <= 3  # of this test, of the reader, of the thread that hands over
        before = len(statements)
        wake.wake_everybody_after_commit()
        until(lambda seen=before: len(statements) > seen)  # type: ignore[misc]
        assert len(statements) == before + 1  # all sixty compared
        for line in lines:
            line.close()


def test_a_stampede_for_one_tarball_renders_it_once(
    server: WebServer, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[object] = []
    original = config_tar.host_members

    def build(*args: Any, **options: Any) -> dict[str, bytes]:
        rendered.append(args)
        time.sleep(0.2)  # so that both want it while it is made
        return original(*args, **options)

    monkeypatch.setattr(config_tar, "host_members", build)
    answers = [server._clients.submit(server.poll, host, limits=0) for _ in range(2)]  # of a host at once
    bodies = {one.result(DEADLINE_S).body for one in answers}
    assert len(bodies) == 1
    assert len(rendered) == 1
