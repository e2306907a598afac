"""/livez, /readyz and /healthz: each says no for its own reasons, to operators, and tells nothing that is secret."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from pytest_django import Settings

from scionlab import health
from scionlab.services.signing import signing_key_ensure

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _look_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_migrated", False)


def ask(path: str) -> tuple[int, str]:
    answer = Client().get(path)
    assert not answer.cookies
    assert "no-store" in answer.headers["Cache-Control"]
    assert ("Retry-After" in answer.headers) == (answer.status_code == 503)
    return answer.status_code, answer.content.decode()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_all_is_well(path: str) -> None:
    signing_key_ensure()
    assert ask(path) == (200, "ok\n")


def test_a_process_lives_without_a_database_and_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise DatabaseError('connection to server at "db.internal", user "scionlab" failed')

    monkeypatch.setattr(connection, "cursor", broken)
    assert ask("/livez") == (200, "ok\n")
    assert ask("/readyz") == ask("/healthz") == (503, "database: DatabaseError\n")


def test_it_is_not_ready_before_the_migrations_are_applied() -> None:
    ((_, newest),) = MigrationLoader(connection).graph.leaf_nodes("scionlab")
    MigrationRecorder(connection).record_unapplied("scionlab", newest)
    status, text = ask("/readyz")
    assert (status, text) == (503, f"migrations: 1 missing, the first is scionlab.{newest}; run manage.py migrate\n")
    assert ask("/healthz") == (200, "ok\n")
    MigrationRecorder(connection).record_applied("scionlab", newest)
    assert ask("/readyz") == (200, "ok\n")


def test_it_is_not_ready_with_another_signing_secret(settings: Settings) -> None:
    signing_key_ensure()
    settings.SIGNING_SECRET = "another-secret-than-the-keys-were-made-with"
    status, text = ask("/readyz")
    assert status == 503
    assert text == "signing keys: 1 cannot be decrypted; set the SIGNING_SECRET that they were made with\n"
    settings.SIGNING_SECRET_FALLBACKS = ["for-tests-only-nothing-secret-is-signed-with-this-key"]
    assert ask("/readyz") == (200, "ok\n")


def test_without_redis_it_is_ready_and_says_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A balancer that sent nobody here would turn a missing broker into an outage."""
    monkeypatch.setattr(health, "redis_problems", lambda: ["redis: ConnectionError; it waits"])
    assert ask("/readyz") == (200, "ok\nredis: ConnectionError; it waits\n")
