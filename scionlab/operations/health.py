"""What whoever starts, stops and balances processes asks, without a session and without TLS (docs/operations.md).

    livez    this process answers: restart it if not
    readyz   it can do its work: send requests elsewhere if not
    healthz  the database answers: what balancers of earlier versions ask

Without Redis everything works, only later: both name it, and neither is a reason to send nobody here. What they say is
for operators: which part, and what to do, but no address, name or message of a server.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import Error as DatabaseError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from scionlab.platform.queue import redis_problems
from scionlab.trust.signing import unreadable_keys


@require_safe
@never_cache
def livez(_request: HttpRequest) -> HttpResponse:
    """200 whatever the database does: a restart of this process would not bring that back."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
@never_cache
def healthz(_request: HttpRequest) -> HttpResponse:
    """200 while the database answers, else 503."""
    return _answer(_first_reason(_database))


@require_safe
@never_cache
def readyz(_request: HttpRequest) -> HttpResponse:
    """200 while the database answers, has the tables of this version, and its signing keys can be used; else 503."""
    return _answer(_first_reason(_database, _migrations, _signing_keys))


def _answer(reasons: list[str]) -> HttpResponse:
    lines = [*(reasons or ["ok"]), *redis_problems()]
    headers = {"Retry-After": "5"} if reasons else {}
    return HttpResponse(
        "\n".join(lines) + "\n", status=503 if reasons else 200, content_type="text/plain", headers=headers
    )


def _first_reason(*checks: Callable[[], list[str]]) -> list[str]:
    """What the first check finds that finds anything: those behind it need what it looks at."""
    try:
        return next((found for found in (check() for check in checks) if found), [])
    except DatabaseError as exc:
        return [f"database: {type(exc).__name__}"]


def _database() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return []


_migrated = False


def _migrations() -> list[str]:
    """Looked up until nothing is missing: what was migrated stays so while this process lives."""
    global _migrated  # noqa: PLW0603  the process'
    if _migrated:
        return []
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        first = missing[0][0]
        return [
            f"migrations: {len(missing)} missing, the first is {first.app_label}.{first.name}; run manage.py migrate"
        ]
    _migrated = True
    return []


def _signing_keys() -> list[str]:
    found = unreadable_keys()
    if not found:
        return []
    return [f"signing keys: {len(found)} cannot be decrypted; set the SIGNING_SECRET that they were encrypted with"]
