"""The one clock of the service: that of the database, because its processes may run on machines whose clocks differ.

`database_now` is the time for everything that is stored, or compared with what another process stored. It costs no
query: each process measures how far its own clock is off, with a new connection and at most every `MEASURE_EACH_S`.
Never on an event loop, which has no connection. SQL's `now()` would be another value in each statement of a request,
and a query for a poll that is answered from memory. On SQLite everything runs on one machine.
"""

from __future__ import annotations

import logging
import socket
import time
from datetime import datetime, timedelta
from typing import Any, Final

from django.core.cache import cache
from django.db import DatabaseError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone
from psycopg import Error as PsycopgError
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

MEASURE_EACH_S: Final = 30.0
MOST_S: Final = 1.0  # a smaller difference is ignored
_KEPT_S: Final = 120.0  # how long a published difference counts
_CLOCKS: Final = "clocks"  # in the cache: machine -> (seconds ahead of the database, when it was measured)

_ahead_s = 0.0
_measured_at = float("-inf")  # of the monotonic clock


def database_now() -> datetime:
    """The database's time, in UTC: within `MOST_S`."""
    measure_if_due(connection=connection)
    return timezone.now() - timedelta(seconds=_ahead_s)  # noqa: TID251  the one place


def measure_if_due(*, connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Also for Django's signal `connection_created`: a process knows its difference before it reads anything."""
    if time.monotonic() - _measured_at >= MEASURE_EACH_S:
        _measure(connection)


def clock_problems() -> list[str]:
    """A line for each machine whose clock differs by more than `MOST_S` from the database's."""
    if connection.vendor != "postgresql":
        return []
    try:
        clocks = _living(cache.get(_CLOCKS) or {})
    except (RedisError, DatabaseError, OSError):
        clocks = {}
    if _ahead_s:
        clocks[socket.gethostname()] = _ahead_s, 0.0
    return [_line(name, ahead_s) for name, (ahead_s, _) in sorted(clocks.items())]


def _line(name: str, ahead_s: float) -> str:
    way = "ahead of" if ahead_s > 0 else "behind"
    return (
        f"clock: that of {name} is {abs(ahead_s):.0f} s {way} the database's, at most {MOST_S:g} s is allowed; "
        "synchronize it (NTP)"
    )


def _measure(connection: BaseDatabaseWrapper) -> None:
    """Uses the driver's connection as it is: opens none, and is no statement of a request."""
    global _ahead_s, _measured_at  # noqa: PLW0603  the process'
    if connection.vendor != "postgresql" or connection.connection is None:
        return
    began, began_at = time.monotonic(), time.time()  # noqa: TID251  it is what is measured
    try:
        with connection.connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
            database_s = float(cursor.fetchone()[0])
    except PsycopgError:  # the connection is lost, or its transaction failed: the next one will do
        return
    half_s = (time.monotonic() - began) / 2
    ahead_s = began_at + half_s - database_s  # known within half_s
    was, _ahead_s = _ahead_s, 0.0 if abs(ahead_s) - half_s < MOST_S else ahead_s
    _measured_at = time.monotonic()
    if _ahead_s:
        if not was:
            logger.warning("clock.differs ahead_s=%.1f most_s=%g", _ahead_s, MOST_S)
        _publish()


def _publish() -> None:
    """Of two machines that do so at once, one may be lost until the next measurement."""
    now_s = database_now().timestamp()
    try:
        others = _living(cache.get(_CLOCKS) or {})
        cache.set(_CLOCKS, {**others, socket.gethostname(): (_ahead_s, now_s)}, _KEPT_S)
    except (RedisError, DatabaseError, OSError) as exc:
        logger.warning("clock.unpublished error=%r", exc)


def _living(clocks: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    now_s = database_now().timestamp()
    return {name: (ahead_s, at) for name, (ahead_s, at) in clocks.items() if now_s - at < _KEPT_S}
