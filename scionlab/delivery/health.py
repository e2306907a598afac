"""Health checks for supervisors and load balancers, without a session and without TLS (docs/operations.md).

    livez   this process responds: restart it if not
    readyz  it can serve: send requests elsewhere if not

Without Redis everything works, only later: both mention it, and neither fails. Nor does readyz where a machine's clock
differs, which it names: the database's is used. The text names the part and the remedy, but no address or message of a
server.
"""

from __future__ import annotations

from django.db import Error as DatabaseError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from scionlab.delivery.signing import unreadable_keys
from scionlab.platform.clock import clock_problems
from scionlab.platform.queue import redis_problems


@require_safe
@never_cache
def livez(_request: HttpRequest) -> HttpResponse:
    """200, whatever the state of the database: a restart would not help."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
@never_cache
def readyz(_request: HttpRequest) -> HttpResponse:
    """200 while the database responds, has this version's tables, and signing keys are readable; otherwise 503."""
    return _answer(_reasons())


def _answer(reasons: list[str]) -> HttpResponse:
    lines = [*(reasons or ["ok"]), *(redis_problems() or clock_problems())]
    headers = {"Retry-After": "5"} if reasons else {}
    return HttpResponse(
        "\n".join(lines) + "\n", status=503 if reasons else 200, content_type="text/plain", headers=headers
    )


def _reasons() -> list[str]:
    """The keys, which need the tables, are read each time."""
    try:
        return _migrations() or _signing_keys()
    except DatabaseError as exc:
        return [f"database: {type(exc).__name__}"]


_migrated = False


def _migrations() -> list[str]:
    """Cached once nothing is missing."""
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
