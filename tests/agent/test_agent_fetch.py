"""Each way a service can answer, or not answer, becomes one typed result or one error that says what to do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ap_agent.agent.fetch import Client, Have, NewBundle, NotModified
from ap_agent.agent.http import parse_retry_after
from ap_agent.common.errors import AgentError, AuthError, FetchError
from ap_agent.common.settings import Settings
from tests import agent_service as svc
from tests.agent_bundles import HOST_ID, SECRET, bundle_bytes
from tests.agent_service import Answer, Service, reply, status

TARBALL = bundle_bytes()
HAVE = Have("1.18", 7, "d" * 64)


def settings_for(service: Service, **changes: object) -> Settings:
    settings = Settings(url=service.url, host_id=HOST_ID, host_secret=SECRET, connect_timeout_s=2, read_timeout_s=2)
    return replace(settings, **changes)  # type: ignore[arg-type]  # keys of the test


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    made = Client(settings_for(service))
    yield made
    made.close()


def test_request_has_credentials_and_says_what_is_there(service: Service, client: Client) -> None:
    service.answers["/config"] = svc.tarball(TARBALL)
    assert client.fetch_config(None) == NewBundle(TARBALL)
    service.answers["/config"] = status(304)
    assert client.fetch_config(HAVE) == NotModified()
    assert client.fetch_config(Have("1.18", None, "d" * 64)) == NotModified()

    first = service.seen[0]
    assert (first.method, first.path) == ("GET", f"/api/v4/host/{HOST_ID}/config")
    assert first.credentials == f"{HOST_ID}:{SECRET}"
    assert first.headers["Accept-Encoding"] == "identity"
    assert [one.query for one in service.seen] == [
        {},
        {"version": "1.18", "limits": "7", "digest": "d" * 64},
        {"version": "1.18", "digest": "d" * 64},
    ]


def test_question_that_waits_may_be_answered_with_what_is_looked_at(service: Service, client: Client) -> None:
    said = ",".join(["17", "0", "x", "70000", "4", *map(str, range(100, 200))])
    service.answers["/config"] = status(304, **{"Scionlab-Looked-At": said})
    found = client.fetch_config(HAVE, wait_s=9)
    assert isinstance(found, NotModified)
    assert (found.looked_at[:3], len(found.looked_at)) == ((17, 4, 100), 64)
    assert service.seen[0].query["live"] == "1"


def test_live_rates_are_answered_with_what_is_looked_at(service: Service, client: Client) -> None:
    for answer, links in ((b'{"links": ["7", "8"]}', (7, 8)), (b'{"links": []}', ())):
        service.answers["/live"] = reply(200, answer)
        assert client.send_live({"schema": 1}) == links
    for answer in (b"", b"[]", b'{"links": 7}', b'{"links": [7]}'):
        service.answers["/live"] = reply(200, answer)
        with pytest.raises(FetchError, match="cannot be read"):
            client.send_live({"schema": 1})
    service.answers["/live"] = status(404)
    with pytest.raises(FetchError):
        client.send_live({"schema": 1})
    client.end_live()
    assert {one.headers["Connection"] for one in service.asked("/live")} == {"keep-alive"}


# kind of error, may pass by itself, a piece of the message
REFUSALS: dict[str, tuple[Answer, type[AgentError], bool, str]] = {
    "401": (status(401), AuthError, False, "compare host_id"),
    "404": (status(404), FetchError, False, "Check url and host_id"),
    "500": (status(500), FetchError, True, "500"),
    "302 to no address": (status(302, Location="http://[::1"), FetchError, False, "http://[::1"),
    "302 that never ends": (svc.endless(302, Location="/login"), FetchError, False, "/login"),
    "HTML": (reply(200, b"<html>", Content_Type="text/html; charset=utf-8"), FetchError, True, "check url"),
    "content encoding": (
        reply(200, TARBALL, Content_Type="application/gzip", Content_Encoding="gzip"),
        FetchError,
        True,
        "content encoding",
    ),
    "too large": (reply(200, bytes(9 * 1024 * 1024), Content_Type="application/gzip"), FetchError, True, "9437184"),
    "endless": (svc.endless(), FetchError, True, "more than"),
    "truncated": (svc.truncated(TARBALL), FetchError, True, "before the end"),
    "not HTTP": (svc.garbage(), FetchError, True, "cannot be reached"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_unwelcome_answer_is_one_error_in_words(service: Service, client: Client, case: str) -> None:
    answer, kind, retryable, words = REFUSALS[case]
    service.answers["/config"] = answer

    with pytest.raises(kind) as refused:
        client.fetch_config(HAVE)

    assert type(refused.value) is kind
    assert refused.value.retryable is retryable
    assert words in refused.value.message
    assert SECRET not in refused.value.message
    assert len(service.seen) == 1  # no redirect followed, nothing tried again behind the loop's back


def test_environment_does_not_redirect_the_agent(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    service.answers["/config"] = status(304)

    assert client.fetch_config(HAVE) == NotModified()


def test_304_without_a_version_of_ours_is_no_answer(service: Service, client: Client) -> None:
    service.answers["/config"] = status(304)

    with pytest.raises(FetchError, match="304"):
        client.fetch_config(None)


# A service that trickles is never silent long enough for a read timeout; without the deadline it takes minutes.
SLOW: dict[str, tuple[Answer, dict[str, float], str]] = {
    "silent": (svc.never(), {"read_timeout_s": 0.3}, "sent no data for 0.3 s"),
    "body without a length": (svc.trickle(), {"fetch_deadline_s": 0.6}, "within 0.6 s"),
    "headers": (svc.trickle(in_headers=True), {"fetch_deadline_s": 0.6}, "within 0.6 s"),
}


@pytest.mark.parametrize("case", SLOW)
def test_slow_service_runs_into_a_time_out(service: Service, case: str) -> None:
    service.answers["/config"], bounds, words = SLOW[case]
    client = Client(settings_for(service, **bounds))
    started = time.monotonic()

    with pytest.raises(FetchError) as refused:
        client.fetch_config(HAVE)

    assert words in refused.value.message
    assert time.monotonic() - started > min(bounds.values()) - 0.1
    client.close()


# --- a question that is held open -------------------------------------------------------------------------------------


@pytest.fixture
def drawn_out_handshake() -> Iterator[int]:
    """Answers a TLS greeting with the head of a long record, and then a byte now and then."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"\x16\x03\x03\x40\x00")
                for _ in range(400):
                    connection.sendall(b"\x02")
                    time.sleep(0.05)

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(timeout=5)


def test_drawn_out_handshake_runs_into_the_deadline(drawn_out_handshake: int) -> None:
    url = f"https://127.0.0.1:{drawn_out_handshake}"
    client = Client(Settings(url=url, host_id=HOST_ID, host_secret=SECRET, fetch_deadline_s=0.6))
    started = time.monotonic()

    with pytest.raises(FetchError, match=r"did not finish its answer within 0\.6 s"):
        client.fetch_config(HAVE)

    assert time.monotonic() - started > 0.5
    client.close()


def after(seconds: float, answer: Answer) -> Answer:
    def wait(handler: svc.Handler) -> None:
        handler.service.is_closing.wait(seconds)
        answer(handler)

    return wait


def test_question_that_may_wait_says_how_long_and_outlives_the_usual_timeouts(service: Service) -> None:
    service.answers["/config"] = after(0.6, status(304))
    client = Client(settings_for(service, read_timeout_s=0.2, fetch_deadline_s=0.3))
    assert client.fetch_config(HAVE, wait_s=20) == NotModified()
    assert service.seen[0].query == {"version": "1.18", "limits": "7", "digest": "d" * 64, "wait": "20", "live": "1"}
    with pytest.raises(FetchError):
        client.fetch_config(HAVE)
    assert "wait" not in service.seen[1].query
    client.close()


def test_receipt_leaves_while_a_poll_waits_and_close_ends_the_poll_at_once(service: Service) -> None:
    service.answers["/config"] = svc.never()
    client = Client(settings_for(service))
    ended: list[AgentError] = []

    def poll() -> None:
        try:
            client.fetch_config(HAVE, wait_s=50)
        except AgentError as exc:
            ended.append(exc)

    thread = threading.Thread(target=poll)
    thread.start()
    deadline = time.monotonic() + 10
    while not service.asked("/config") and time.monotonic() < deadline:
        time.sleep(0.01)
    client.send_receipt({"schema": 1})
    assert service.receipts() == [{"schema": 1}]
    assert thread.is_alive()
    client.close()
    thread.join(5)
    assert not thread.is_alive()
    assert "was cancelled" in ended[0].message
    with pytest.raises(FetchError, match="was cancelled"):
        client.fetch_config(HAVE)


def test_secret_that_worked_last_is_tried_first(service: Service, client: Client) -> None:
    def knows_the_enrolled_one(handler: svc.Handler) -> None:
        status(304 if handler.request_seen.credentials == f"{HOST_ID}:{SECRET}" else 401)(handler)

    service.answers["/config"] = knows_the_enrolled_one
    client.use_secret("new")
    for _ in range(2):
        client.fetch_config(HAVE)
    assert [one.credentials.partition(":")[2] for one in service.seen] == ["new", SECRET, SECRET]


# --- TLS --------------------------------------------------------------------------------------------------------------


def test_https_works_with_the_configured_certificate_and_with_no_other(tmp_path: Path) -> None:
    certificate = svc.certificate(tmp_path, "127.0.0.1")
    with svc.service(certificate) as encrypted:
        encrypted.answers["/config"] = status(304)
        settings = Settings(url=encrypted.url, host_id=HOST_ID, host_secret=SECRET)
        stranger = Client(settings)
        with pytest.raises(FetchError, match="No trusted connection to https://127") as refused:
            stranger.fetch_config(HAVE)
        assert "ca_file" in refused.value.message
        assert encrypted.seen == []  # the secret was not sent
        friend = Client(replace(settings, ca_file=certificate))
        assert friend.fetch_config(HAVE) == NotModified()
        by_name = replace(settings, ca_file=certificate, url=encrypted.url.replace("127.0.0.1", "localhost"))
        with pytest.raises(FetchError, match="No trusted connection"):
            Client(by_name).fetch_config(HAVE)


NOW = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("99999999999999999999", 3600.0),
        ((NOW + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT"), 90.0),
        ((NOW - timedelta(days=1)).strftime("%a, %d %b %Y %H:%M:%S GMT"), 0.0),
        ((NOW + timedelta(days=99)).strftime("%a, %d %b %Y %H:%M:%S GMT"), 3600.0),
        ("Mon, 1 Jan 99999999999999999999 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_read_in_both_forms(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, NOW) == seconds


def test_retry_after_as_a_date_is_counted_by_the_clock_of_the_service(service: Service, client: Client) -> None:
    def years_ago(handler: svc.Handler) -> None:
        handler.send_response_only(503)
        handler.send_header("Date", "Sat, 21 Nov 2009 06:00:00 GMT")
        handler.send_header("Retry-After", "Sat, 21 Nov 2009 06:01:30 GMT")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    service.answers["/config"] = years_ago
    with pytest.raises(FetchError) as refused:
        client.fetch_config(HAVE)
    assert refused.value.retry_after_s == 90
    assert parse_retry_after("Sat, 21 Nov 2009 06:01:30 GMT", None) is None
