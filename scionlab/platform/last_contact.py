"""Time of last contact, without a database write per contact.

Each web process collects in memory (`Contacts`) and hands over every few seconds, in one command, to a hash in Redis;
once a minute, beat runs `flush`, which writes that hash to the database in one statement. Without Redis the process
writes its own collection once a minute.

The last use of API tokens is recorded in the same way. Each app has its ledger.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from django.conf import settings
from django.db import DatabaseError, connection
from redis.exceptions import RedisError, ResponseError

from scionlab.platform import redis_client
from scionlab.platform.clock import database_now

logger = logging.getLogger(__name__)

HAND_OVER_S: Final = 10.0
FLUSH_S: Final = 60.0
MOST_AT_ONCE: Final = 500  # building a command of 10 000 blocks the process for 45 ms


@dataclass(frozen=True)
class Ledger:
    """What is recorded: the hash in Redis, and the table column."""

    key: str
    table: str
    column: str

    @property
    def taken(self) -> str:
        return f"{self.key}.taken"


class Contacts:
    """Contacts of one process since it last handed over: host -> seconds since the epoch. Thread-safe."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._times: dict[int, float] = {}
        self._lock = threading.Lock()
        self._written_at = time.monotonic()
        self._noted_at: dict[int, float] = {}

    def note(self, host_ids: Iterable[int]) -> None:
        now = database_now().timestamp()
        with self._lock:
            self._times.update(dict.fromkeys(host_ids, now))

    def note_once_a_minute(self, key: int) -> None:
        """Record at any rate: at most one Redis command a minute, or one SQL statement without Redis."""
        now = time.monotonic()
        with self._lock:
            if now - self._noted_at.get(key, -FLUSH_S) < FLUSH_S:
                return
            self._noted_at = {one: at for one, at in self._noted_at.items() if now - at < FLUSH_S} | {key: now}
        self.note([key])
        self.hand_over(at_once=True)

    def hand_over(self, *, at_once: bool = False) -> None:
        """Hand over to Redis, or without it to the database, at most once a minute unless `at_once`. Keeps what
        fails."""
        with self._lock:
            taken, self._times = self._times, {}
        if not taken:
            return
        try:
            self._pass_on(taken, at_once=at_once)
        except (RedisError, DatabaseError) as exc:
            logger.warning("seen.kept hosts=%s error=%r", len(taken), exc)
            self._put_back(taken)

    def _pass_on(self, taken: dict[int, float], *, at_once: bool) -> None:
        is_due = at_once or time.monotonic() - self._written_at >= FLUSH_S
        if settings.REDIS_URL:
            try:
                left = iter(taken.items())
                while some := list(islice(left, MOST_AT_ONCE)):
                    redis_client.client().hset(self._ledger.key, mapping={str(key): value for key, value in some})
                self._written_at = time.monotonic()
                return
            except RedisError:
                if not is_due:
                    raise
        if not is_due:
            self._put_back(taken)
            return
        store(taken, self._ledger)
        self._written_at = time.monotonic()

    def _put_back(self, taken: Mapping[int, float]) -> None:
        with self._lock:
            self._times = {**taken, **self._times}  # newer contacts win


def flush(ledger: Ledger) -> int:
    """Write what all processes handed over to Redis; return the number of changed rows. Idempotent. Raises
    `RedisError`, `DatabaseError`; then nothing is lost."""
    if not settings.REDIS_URL:
        return 0
    redis = redis_client.client()
    with suppress(ResponseError):  # no contacts
        # Not over the leftovers of a killed worker: they come first, the rest in the next run.
        redis.renamenx(ledger.key, ledger.taken)
    taken = {int(key): float(value) for key, value in redis.hgetall(ledger.taken).items()}
    changed = store(taken, ledger)
    redis.delete(ledger.taken)
    return changed


def flush_or_log(ledger: Ledger) -> None:
    """`flush`; on failure it is kept for the next run."""
    try:
        flush(ledger)
    except (RedisError, DatabaseError) as exc:
        logger.warning("seen.not_flushed ledger=%s error=%r", ledger.key, exc)


def store(times: Mapping[int, float], ledger: Ledger) -> int:
    """Raise the column of these rows in one statement; no value ever falls. Return the number of rows that rose."""
    if not times:
        return 0
    adapt = connection.ops.adapt_datetimefield_value
    heard = {str(key): str(adapt(datetime.fromtimestamp(value, UTC))) for key, value in times.items()}
    with connection.cursor() as cursor:
        cursor.execute(_STORE[connection.vendor].format(table=ledger.table, column=ledger.column), [json.dumps(heard)])
        return int(cursor.rowcount)


_STORE = {
    # Services lock hosts in the order of their keys (testbed.locks), so this must, too.
    "postgresql": """
        WITH heard AS MATERIALIZED (
            SELECT key::bigint AS id, value::timestamptz AS at FROM json_each_text(%s::json)
        ), locked AS MATERIALIZED (
            SELECT id FROM {table} WHERE id IN (SELECT id FROM heard) ORDER BY id FOR NO KEY UPDATE
        )
        UPDATE {table} SET {column} = heard.at FROM heard JOIN locked USING (id)
        WHERE {table}.id = heard.id AND ({column} IS NULL OR {column} < heard.at)""",
    "sqlite": """
        UPDATE {table} SET {column} = heard.value
        FROM json_each(%s) AS heard
        WHERE {table}.id = CAST(heard.key AS INTEGER)
          AND ({column} IS NULL OR {column} < heard.value)""",
}
