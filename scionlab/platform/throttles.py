"""Rate limits; the numbers are settings (`API_THROTTLE_*`).

Counts are in the cache. While it is unavailable, requests are served uncounted, with a warning in the log: users can
still lower limits. Password guessing is limited anyway: failures are counted in the database
(`scionlab.platform.login_guard`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from django.core.cache import cache
from django.db import DatabaseError
from redis.exceptions import RedisError
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.throttling import AnonRateThrottle, SimpleRateThrottle, UserRateThrottle

from scionlab.platform.client_address import client_network
from scionlab.platform.clock import database_now

if TYPE_CHECKING:  # importing it imports its settings, which name this module
    from rest_framework.views import APIView

logger = logging.getLogger(__name__)

WARN_EVERY_S = 60.0
_warned_at = -WARN_EVERY_S


class Lenient(SimpleRateThrottle):
    """Counts by our client address, and allows requests while the cache is unavailable."""

    def get_ident(self, request: Request) -> str:
        return client_network(request._request) or "nobody"

    def timer(self) -> float:
        """The tiers count together."""
        return database_now().timestamp()

    def allow_request(self, request: Request, view: APIView) -> bool:
        try:
            return super().allow_request(request, view)
        except (RedisError, OSError) as exc:
            _warn(exc)
            return True


def _warn(exc: Exception) -> None:
    global _warned_at  # noqa: PLW0603  the last time is the process'
    now = time.monotonic()
    if now - _warned_at >= WARN_EVERY_S:
        _warned_at = now
        logger.warning("throttle.off requests are not counted: the cache does not answer (%s)", type(exc).__name__)


AT_ONCE: Final = 2
LEASE_S: Final = 30  # of a request whose process died


class ManyAtOnceError(APIException):
    """Of one person, on all web tiers together."""

    status_code = 429
    default_code = "many_at_once"
    default_detail = f"You have {AT_ONCE} requests of this kind running. Send this one when they are answered."
    wait = 1  # s, for Retry-After


@contextmanager
def one_of_few(user_id: int) -> Iterator[None]:
    """One of the requests that cost up to a second of CPU, of which a person has `AT_ONCE` running: a limit per minute
    would let them take all threads. Raises `ManyAtOnceError`."""
    taken = ""
    try:
        names = (f"dear:{user_id}:{number}" for number in range(AT_ONCE))
        taken = next(name for name in names if cache.add(name, 1, LEASE_S))
    except StopIteration:
        raise ManyAtOnceError from None
    except (RedisError, DatabaseError, OSError) as exc:
        _warn(exc)
    try:
        yield
    finally:
        if taken:
            with suppress(RedisError, DatabaseError, OSError):
                cache.delete(taken)


class AddressThrottle(Lenient, AnonRateThrottle):
    """Requests without credentials, per address."""


class PersonThrottle(Lenient, UserRateThrottle):
    """Requests of a user, from any address."""


class TokenThrottle(Lenient):
    """Password guessing: per address, for all accounts, right or wrong."""

    scope = "token"

    def get_cache_key(self, request: Request, view: APIView) -> str | None:  # noqa: ARG002  the framework's signature
        found: dict[str, Any] = {"scope": self.scope, "ident": self.get_ident(request)}
        return self.cache_format % found


class EnrolThrottle(TokenThrottle):
    """Guessing of enrolment tokens, per address."""

    scope = "enrol"
