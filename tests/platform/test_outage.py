"""Which errors of the database are an outage, and who is told how. Real outages are in tests/faults/service."""

from __future__ import annotations

from typing import Any

import psycopg.errors
import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import DatabaseError, IntegrityError, InterfaceError, InternalError, OperationalError, ProgrammingError
from django.test import Client

from scionlab.accounts.models import User
from scionlab.platform import outage
from scionlab.testbed import selectors
from scionlab.testbed.models import UserAS
from scionlab.user_ases.rest import link_views
from tests.cases import table

pytestmark = pytest.mark.django_db


def read_only() -> DatabaseError:
    """As Django passes it on: psycopg's error is the cause."""
    error = InternalError("cannot execute UPDATE in a read-only transaction")
    error.__cause__ = psycopg.errors.ReadOnlySqlTransaction("cannot execute UPDATE in a read-only transaction")
    return error


PASSES = [OperationalError("gone"), InterfaceError("connection already closed"), read_only()]
MISTAKES = [IntegrityError("twice"), ProgrammingError("no such column"), InternalError("?"), RuntimeError("?")]


def raising(error: Exception) -> Any:
    def broken(*_: object, **__: object) -> None:
        raise error

    return broken


@pytest.fixture
def browser(owner: User) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(owner)
    return client


@table("error", PASSES, ids=lambda error: type(error).__name__)
def test_an_outage_is_told_with_the_seconds_to_wait(
    error: Exception, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "user_ases_of", raising(error))
    page = browser.get("/ases/")
    assert (page.status_code, page["Retry-After"] in {"2", "3", "4", "5", "6"}) == (503, True)
    assert "saved completely or not at all" in page.content.decode()
    assert page["Cache-Control"] == "no-store, private"


@table("error", MISTAKES, ids=lambda error: type(error).__name__)
def test_a_mistake_of_ours_is_no_outage(error: Exception, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "user_ases_of", raising(error))
    page = browser.get("/ases/")
    assert (page.status_code, page.has_header("Retry-After")) == (500, False)


def test_programs_are_told_in_the_shape_of_their_api(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_views, "links_of", raising(OperationalError("gone")))
    answer = browser.get("/api/v1/links/")
    assert (answer.status_code, answer["Content-Type"]) == (503, "application/json")
    assert answer.json() == {"code": "unavailable", "message": outage.SENTENCE, "fields": {}}
    assert answer.has_header("Retry-After")


def test_what_middleware_cannot_write_is_an_outage_too(
    browser: Client, user_as: UserAS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view is through; its session cannot be saved any more."""
    monkeypatch.setattr(SessionStore, "save", raising(OperationalError("gone")))
    monkeypatch.setattr(
        "django.contrib.messages.storage.fallback.FallbackStorage._store", raising(OperationalError("gone"))
    )
    answer = browser.post(f"/ases/{user_as.pk}/active/", {"active": "0"})
    assert (answer.status_code, answer.has_header("Retry-After")) == (503, True)


def test_the_log_has_one_line_for_many_who_ask(
    browser: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outage, "_logged_at", {})
    monkeypatch.setattr(selectors, "user_ases_of", raising(OperationalError("the server\nclosed the connection")))
    for _ in range(5):
        browser.get("/ases/")
    lines = [record.getMessage() for record in caplog.records if record.name == "scionlab.platform.outage"]
    assert lines == ["outage.database OperationalError: the server closed the connection"]
    assert [record for record in caplog.records if record.exc_info] == [], "and no traceback for each of them"
