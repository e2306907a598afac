"""How often somebody may try; the numbers are settings (`API_THROTTLE_*`)."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView


class TokenThrottle(SimpleRateThrottle):
    """Guessing passwords: counted per address, whoever the guesses are for, right or wrong."""

    scope = "token"

    def get_cache_key(self, request: Request, view: APIView) -> str | None:  # noqa: ARG002  the framework's signature
        return self.cache_format % {"scope": self.scope, "ident": self.get_ident(request)}
