"""Signed values for Django's cache in Redis: they are pickles, and unpickling a foreign value would run its code."""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.core.cache.backends.redis import RedisSerializer
from redis.exceptions import RedisError

_MAC_BYTES: Final = 32


class ForgedValueError(RedisError):
    """A subclass of the error for an unavailable Redis: callers continue without the cache."""


class SignedSerializer(RedisSerializer):
    """Integers stay as they are, so that Redis can count; reading them is safe."""

    def dumps(self, obj: Any) -> bytes | int:  # type: ignore[override]  # the library returns a number, too
        data: bytes | int = super().dumps(obj)
        return data if isinstance(data, int) else _mac(data) + data

    def loads(self, data: bytes) -> Any:  # type: ignore[override]  # the stubs have a number too; Redis gives bytes
        """Raises `ForgedValueError`."""
        value = data[_MAC_BYTES:]
        if value and hmac.compare_digest(data[:_MAC_BYTES], _mac(value)):
            return super().loads(value)
        try:
            return int(data)
        except ValueError:
            raise ForgedValueError("a value in the cache is not signed with SECRET_KEY") from None


def _mac(data: bytes) -> bytes:
    return hmac.digest(_key(settings.SECRET_KEY), data, "sha256")


@lru_cache(maxsize=2)
def _key(secret: str) -> bytes:
    return hashlib.sha256(b"scionlab cache/1\n" + secret.encode()).digest()
