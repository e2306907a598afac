"""What Redis keeps for Django's cache is signed: values are pickles, and to read one that somebody else wrote would run
what he put into it, beside the keys that sign configurations."""

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
    """Of the family of a Redis that does not answer: whoever asks goes on without the cache."""


class SignedSerializer(RedisSerializer):
    """Whole numbers stay as they are, so that Redis can count; to read them runs nothing."""

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
