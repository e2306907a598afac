"""/livez and /readyz: each says no for its own reasons, to operators, and tells nothing that is secret."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from pytest_django import Settings

from scionlab.delivery import health
from scionlab.delivery.signing import signing_key_ensure
from tests.cases import table

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


def test_a_process_lives_without_a_database_and_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise DatabaseError('connection to server at "db.internal", user "scionlab" failed')

    monkeypatch.setattr(connection, "cursor", broken)
    assert ask("/livez") == (200, "ok\n")
    assert ask("/readyz") == (503, "database: DatabaseError\n")


def test_it_is_not_ready_before_the_migrations_are_applied() -> None:
    ((_, newest),) = MigrationLoader(connection).graph.leaf_nodes("linktests")
    applied = MigrationRecorder(connection).migration_qs.filter(app="linktests", name=newest)
    rows = list(applied)
    applied.delete()
    assert ask("/readyz") == (503, f"migrations: 1 missing, the first is linktests.{newest}; run manage.py migrate\n")
    MigrationRecorder.Migration.objects.bulk_create(rows)
    assert ask("/readyz") == (200, "ok\n")


def test_it_is_not_ready_with_another_signing_secret(settings: Settings) -> None:
    signing_key_ensure()
    settings.SIGNING_SECRET = "another-secret-than-the-keys-were-made-with"
    said = "signing keys: 1 cannot be decrypted; set the SIGNING_SECRET that they were encrypted with\n"
    assert ask("/readyz") == (503, said)
    settings.SIGNING_SECRET_FALLBACKS = ["for-tests-only-nothing-secret-is-signed-with-this-key"]
    assert ask("/readyz") == (200, "ok\n")


@table(("url", "line"), [("CACHE_URL", "cache: ConnectionError; "), ("REDIS_URL", "redis: ConnectionError; ")])
def test_without_redis_it_is_ready_and_names_the_one_that_is_away(settings: Settings, url: str, line: str) -> None:
    """A balancer that sent nobody here would turn a missing broker into an outage."""
    if not settings.REDIS_URL:
        pytest.skip("needs Redis (REDIS_URL)")
    setattr(settings, url, "unix:///nowhere/redis.sock")
    status, said = ask("/readyz")
    assert (status, len(said.splitlines()), said.startswith(f"ok\n{line}")) == (200, 2, True)


def test_security_txt_is_there_where_a_contact_is_set_and_ends_within_a_year(settings: Settings) -> None:
    assert Client().get("/.well-known/security.txt").status_code == 404
    settings.SECURITY_CONTACT = ["mailto:security@example.org", "https://example.org/report"]
    answer = Client().get("/.well-known/security.txt")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    *contacts, expires, _languages, _canonical = answer.content.decode().splitlines()
    assert contacts == ["Contact: mailto:security@example.org", "Contact: https://example.org/report"]
    ends = datetime.fromisoformat(expires.removeprefix("Expires: "))
    assert timedelta(days=178) < ends - datetime.now(UTC) <= timedelta(days=180)
