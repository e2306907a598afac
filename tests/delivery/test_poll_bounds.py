"""What requests may take of the web server, and what polls are answered when it stops or has no database."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connections
from pytest_django import Settings

from scionlab.delivery.polls import known, threads, worker
from scionlab.delivery.polls.answers import RETRY_AFTER_S
from scionlab.delivery.polls.known import HostState, read_states
from scionlab.delivery.polls.threads import Django
from scionlab.testbed.models import Host
from scionlab.testbed.versions.counters import hosts_bump
from tests.support.polling import (
    DEADLINE_S,
    LONG_S,
    NEVER_S,
    WRONG,
    WebServer,
    basic,
    credentials,
    raw_poll,
    serve,
    until,
    versions_of,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("polls")]


# --- bounds ---------------------------------------------------------------------------------------------------


def test_the_newest_poll_of_a_host_ends_its_older_one(server: WebServer, host: Host) -> None:
    older = server.wait(host)
    newer = server._clients.submit(server.poll, host, wait=LONG_S)
    assert older.result(DEADLINE_S).status == 304
    assert server.waiting == 1
    assert not newer.done()


def test_above_the_places_there_is_503_and_a_time_to_return(settings: Settings, host: Host, host_b: Host) -> None:
    settings.POLL_PLACES = 1
    for server in serve():
        first = server.wait(host)
        answer = server.poll(host_b, wait=LONG_S)
        assert (answer.status, json.loads(answer.body)["code"]) == (503, "unavailable")
        assert RETRY_AFTER_S[0] <= int(answer.headers["retry-after"]) <= RETRY_AFTER_S[1]
        assert server.poll(host_b).status == 304  # who does not wait needs no place
        assert not first.done()


def test_a_client_that_goes_frees_its_place_at_once(server: WebServer, host: Host) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(raw_poll(host))
        until(lambda: server.waiting == 1)
    until(lambda: server.waiting == 0)


def test_headers_that_trickle_take_no_place_and_are_cut_off(
    server: WebServer, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "HEADER_DEADLINE_S", 0.3)
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as line:
        line.sendall(raw_poll(host)[:-3])
        assert line.recv(1) == b""
    assert server.waiting == 0


def test_headers_without_end_are_cut_off(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "HEADER_DEADLINE_S", NEVER_S)  # it is their size that is too much
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as line:
        line.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * worker.MAX_HEADER_BYTES)
        assert line.recv(1) == b""


ENDLESS = b"X: " + b"x" * worker.MAX_HEADER_BYTES
CHUNKED = b"POST /api/v4/enrol HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_headers_without_end_behind_a_poll_that_waits_are_cut_off(server: WebServer, host: Host) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as line:
        line.sendall(raw_poll(host))
        until(lambda: server.waiting == 1)
        line.sendall(b"GET / HTTP/1.1\r\n")
        time.sleep(0.05)  # so that they come by themselves
        line.sendall(ENDLESS)
        until(lambda: server.waiting == 0)


def test_trailers_without_end_are_cut_off(server: WebServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as line:
        line.sendall(CHUNKED + b"1\r\nx\r\n0\r\n")
        time.sleep(0.05)
        line.sendall(ENDLESS)
        assert line.recv(1) == b""


def test_a_trailer_is_no_header(settings: Settings, server: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    """A proxy overwrites the header; a trailer it may pass on as it is."""
    settings.TRUSTED_PROXIES = 1
    token = b'{"token": "none of ours"}'
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as line:
        line.sendall(CHUNKED + b"%x\r\n%s\r\n0\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n" % (len(token), token))
        assert b" 403 " in line.recv(1000)
    assert "enrolment.refused address=127.0.0.1" in caplog.text


def test_a_body_that_breaks_off_reaches_no_view(settings: Settings, host: Host) -> None:
    """`version=1.18` cut after the 1 is well-formed too: it must not be stored."""
    settings.WEB_THREADS = 1  # so that the next request is answered after it
    head = f"POST /api/v4/host/{host.uid}/deployed_config_version HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n"
    kind = "Content-Type: application/x-www-form-urlencoded\r\n"
    auth = f"Authorization: {credentials(host)['Authorization']}\r\n\r\n"
    for server in serve():
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            line.sendall(f"{head}{kind}{auth}version=1.1".encode())
            time.sleep(0.1)  # so that it is read before the end of it is noticed
        time.sleep(0.1)
        assert server.ask("/readyz").status == 200
    assert Host.objects.get(pk=host.pk).config_version_deployed == 0


def test_a_body_that_is_too_large_is_refused(server: WebServer, host: Host) -> None:
    """One byte too many: whoever still sends when the answer comes may see a reset instead of it."""
    path = f"/api/v4/host/{host.uid}/enforcement"
    answer = server.ask(path, method="POST", headers=credentials(host), body=b"x" * (9 * 2**20 + 1))
    assert answer.status == 413


def test_many_large_bodies_do_not_fill_memory(server: WebServer, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MAX_LARGE_BYTES", 2**20)
    path = f"/api/v4/host/{host.uid}/enforcement"
    auth = f"Authorization: {credentials(host)['Authorization']}"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{auth}\r\nContent-Length: 1048576\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(head + b"x" * 1_000_000)  # and never the rest
        until(lambda: server.application._django._uploads._held_bytes > 900_000)
        large = server.ask(path, method="POST", headers=credentials(host), body=b"x" * 600_000)
        assert (large.status, large.headers["retry-after"]) == (503, "5")
        small = server.ask(path, method="POST", headers=credentials(host), body=b"x" * threads.SMALL_BODY_BYTES)
        assert small.status == 400
    until(lambda: server.application._django._uploads._held_bytes == 0)
    assert server.ask(path, method="POST", headers=credentials(host), body=b"x" * 600_000).status == 400


def upload_head(path: str, *, auth: str = "", length: int = 8 * 2**20) -> bytes:
    named = f"Authorization: {auth}\r\n" if auth else ""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{named}Content-Length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize("end", ["enforcement", "usage", "test_results", "installed"])
def test_the_credentials_of_an_upload_are_read_before_its_body(server: WebServer, host: Host, end: str) -> None:
    path = f"/api/v4/host/{host.uid}/{end}"
    wrong = "Basic " + base64.b64encode(f"{host.uid}:wrong".encode()).decode()
    for auth in ("", wrong):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as line:
            line.sendall(upload_head(path, auth=auth) + b"x" * 100)  # and never the rest
            assert line.recv(100).split()[1] == b"401"


def test_a_host_sends_two_documents_at_once_and_others_are_not_held_up(server: WebServer, host: Host) -> None:
    path, auth = f"/api/v4/host/{host.uid}/usage", credentials(host)["Authorization"]
    with contextlib.ExitStack() as lines:
        for _ in range(2):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            line.sendall(upload_head(path, auth=auth) + b"x" * 100)
        until(lambda: server.application._uploads._arriving[host.uid] == 2)
        third = server.ask(path, method="POST", headers=credentials(host), body=b"{}")
        assert (third.status, third.headers["retry-after"]) == (429, "5")
        assert b"sending 2 documents already" in third.body
    until(lambda: not server.application._uploads._arriving)
    assert server.ask(path, method="POST", headers=credentials(host), body=b"{}").status == 400


def test_a_host_fetches_two_configurations_at_once_and_nobody_else_takes_its_places(
    settings: Settings, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, is_let_go, arrived = Django._in_thread, threading.Event(), []

    def held(self: Django, scope: Any, body: Any) -> Any:
        arrived.append(scope["path"])
        is_let_go.wait(DEADLINE_S)
        return answer(self, scope, body)

    path, settings.POLL_THREADS = f"/api/v4/host/{host.uid}/config?version=1.0", 8
    monkeypatch.setattr(Django, "_in_thread", held)
    for server in serve():
        wrong, right = basic(host.uid, WRONG), credentials(host)
        asking = [server._clients.submit(server.ask, path, headers=one) for one in (wrong, wrong)]
        until(lambda: len(arrived) == 2)
        asking += [server._clients.submit(server.ask, path, headers=one) for one in (right, right)]
        until(lambda: len(arrived) == 4)
        third = server._clients.submit(server.ask, path, headers=right)
        until(lambda third=third: third.done() or len(arrived) == 5)
        is_let_go.set()
        assert [one.result(DEADLINE_S).status for one in (*asking, third)] == [401, 401, 200, 200, 503]
        assert server.ask(path, headers=right).status == 200
        assert not server.application._delivering_to


def test_strangers_who_send_much_take_no_memory_from_receipts(
    server: WebServer, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MAX_LARGE_BYTES", 2**18)
    with contextlib.ExitStack() as lines:
        for _ in range(2):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            line.sendall(upload_head("/login/", length=200_000) + b"x" * 190_000)
        until(lambda: server.application._django._bodies._held_bytes > 200_000)
        path = f"/api/v4/host/{host.uid}/enforcement"
        assert server.ask("/login/", method="POST", body=b"x" * 150_000).status == 503
        assert server.ask(path, method="POST", headers=credentials(host), body=b"x" * 150_000).status == 400
    assert server.ask("/login/", method="POST", body=b"x" * 300_000).status == 413


def test_receipts_take_no_thread_from_pages(server: WebServer, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    answer = Django._in_thread

    def noted(self: Django, scope: Any, body: Any) -> Any:
        taken.append((scope["path"].rpartition("/")[2], threading.current_thread().name.partition("_")[0]))
        return answer(self, scope, body)

    monkeypatch.setattr(Django, "_in_thread", noted)
    server.ask(f"/api/v4/host/{host.uid}/enforcement", method="POST", headers=credentials(host), body=b"{}")
    server.ask("/readyz")
    assert taken == [("enforcement", "receipts"), ("readyz", "pages")]


# --- stopping and faults ----------------------------------------------------------------------------------------


def test_stopping_answers_everybody_at_once(
    server: WebServer, host: Host, host_b: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And has them return over a time that is as long as they are many."""
    waiting = [server.wait(one) for one in (host, host_b)]
    monkeypatch.setattr("scionlab.delivery.polls.application.RETURNS_PER_S", 0.1)
    monkeypatch.setattr("scionlab.delivery.polls.answers.random.randint", lambda _, latest: latest)
    server.stop()
    answers = [one.result(DEADLINE_S) for one in waiting]
    assert [one.status for one in answers] == [503, 503]
    assert {one.headers["retry-after"] for one in answers} == {"20"}


def test_sigterm_to_gunicorn_answers_who_waits(host: Host, tmp_path: Path) -> None:
    database = settings_url()
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "scionlab.settings.dev",
        "DATABASE_URL": database,
        "SCIONLAB_VAR": str(tmp_path),
    }
    command = [sys.executable, "-m", "gunicorn", "--config", "python:scionlab.gunicorn", "--no-control-socket"]
    log = tmp_path / "log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [*command, "--bind", "127.0.0.1:0", "--workers", "1"], env=environment, stdout=out, stderr=out
        )
        try:
            until(lambda: "startup complete" in log.read_text())
            port = int(re.search(r"Listening at: http://127.0.0.1:([0-9]+)", log.read_text())[1])  # type: ignore[index]
            with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as line:
                line.sendall(raw_poll(host))
                until(lambda: is_read(port))
                server.send_signal(signal.SIGTERM)
                said = line.recv(1000).decode()
            assert said.startswith("HTTP/1.1 503 ")
            assert "retry-after: " in said
            assert server.wait(DEADLINE_S) == 0
        finally:
            server.kill()
            server.wait()


def settings_url() -> str:
    """DATABASE_URL of the tests' database."""
    url = os.environ["DATABASE_URL"]
    return re.sub(r"/[^/?]+\?", f"/{connections.databases['default']['NAME']}?", url, count=1)


def is_read(port: int) -> bool:
    """The server has looked at the poll before this one: polls are read in their order."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        line.request("GET", "/readyz", headers={"Host": "x"})
        return line.getresponse().status == 200
    finally:
        line.close()


@pytest.mark.usefixtures("_no_messages")
def test_without_its_database_the_service_answers_from_what_it_knows(
    host: Host, host_b: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_away = threading.Event()

    def read(uids: Any) -> dict[str, HostState]:
        if is_away.is_set():
            raise DatabaseError("gone")
        return read_states(uids)

    monkeypatch.setattr(known.Known.__init__, "__kwdefaults__", {"read": read})
    monkeypatch.setattr(known, "FRESH_S", 0.0)
    for server in serve():
        assert server.poll(host).status == 304
        waiting = server.wait(host, seconds=1)
        is_away.set()
        assert waiting.result(DEADLINE_S).status == 304  # who waits goes on
        assert server.poll(host).status == 304  # known, and the newest that can be known
        assert server.poll(host, secret_of=host.uid, secret=WRONG).status == 503
        unknown = server.poll(host_b)
        assert (unknown.status, "retry-after" in unknown.headers) == (503, True)
        again = server.wait(host)
        is_away.clear()
        hosts_bump(limits_ids=[host.pk])
        assert versions_of(again.result(DEADLINE_S))[1] == host.limits_version + 1
