"""How this service speaks with Redis: one try with short timeouts, because everything that Redis does here has a way
without it (docs/reliability.md), and nobody's request is to wait for a server that is gone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT_S = 1.0


def options() -> dict[str, Any]:
    """For a client, or the OPTIONS of Django's cache. One more try at once, for a pooled connection that was closed."""
    return {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, "retry": Retry(NoBackoff(), 1)}


@lru_cache(maxsize=1)
def client() -> Redis:
    """The process's client; only where `REDIS_URL` is set. Its pool notices a fork."""
    return Redis.from_url(settings.REDIS_URL, **options())
