"""How this service speaks with Redis: one try with short timeouts, because everything that Redis does here has a way
without it (docs/reliability.md), and nobody's request is to wait for a server that is gone.
"""

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
    """For a client, or the OPTIONS of Django's cache.

    One more try at once, for a pooled connection that was closed; none for a server that hangs: the same wait again.
    """
    once_more = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
    return {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, "retry": once_more}


def client() -> Redis:
    """The process's client of the broker; only where `REDIS_URL` is set. Its pool notices a fork."""
    return client_of(settings.REDIS_URL)


@lru_cache(maxsize=2)  # the broker, and the cache where it has a server of its own
def client_of(url: str) -> Redis:
    return Redis.from_url(url, **options())


class Rest:
    """The last failure of a server that did not answer this process: one save has several things to send to it, and who
    was just kept waiting does not try the next one."""

    def __init__(self) -> None:
        self._until = 0.0  # of the monotonic clock

    def begin(self) -> None:
        self._until = time.monotonic() + REST_S

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._until


REST: Final = Rest()
