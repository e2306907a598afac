"""Access to Redis: one attempt with short timeouts, because everything has a fallback without it (docs/reliability.md),
and no request may wait for a dead server."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

TIMEOUT_S = 1.0
REST_S: Final = 3.0


def options() -> dict[str, Any]:
    """Options of a client, or of Django's cache. One retry for a pooled connection that was closed; none for a server
    that hangs."""
    once_more = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
    return {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, "retry": once_more}


def client() -> Redis:
    """The process's client of the broker; only if `REDIS_URL` is set. Its pool detects forks."""
    return client_of(settings.REDIS_URL)


@lru_cache(maxsize=2)  # the broker, and the cache's server if separate
def client_of(url: str) -> Redis:
    return Redis.from_url(url, **options())


class Rest:
    """The last failure of a server: the further messages of a save skip it instead of waiting again."""

    def __init__(self) -> None:
        self._until = 0.0  # of the monotonic clock

    def begin(self) -> None:
        self._until = time.monotonic() + REST_S

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._until


REST: Final = Rest()
