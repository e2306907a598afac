"""Rate limits; the numbers are settings (`API_THROTTLE_*`).

Counts are in the cache. While it is unavailable, requests are served uncounted, with a warning in the log: users can
still lower limits. Password guessing is limited anyway: failures are counted in the database
(`scionlab.platform.login_guard`).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import AnonRateThrottle, SimpleRateThrottle, UserRateThrottle

from scionlab.platform.client_address import client_network

if TYPE_CHECKING:  # importing it imports its settings, which name this module
    from rest_framework.views import APIView

logger = logging.getLogger(__name__)

WARN_EVERY_S = 60.0
_warned_at = -WARN_EVERY_S


class Lenient(SimpleRateThrottle):
    """Counts by our client address, and allows requests while the cache is unavailable."""

    def get_ident(self, request: Request) -> str:
        return client_network(request._request) or "nobody"

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
