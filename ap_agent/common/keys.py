"""Public keys of the service as text, in enrolments, configurations and signed texts."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime

from ap_agent.common.times import time_text

MAX_KEYS = 32
_PUBLIC_KEY_BYTES = 32
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)


@dataclass(frozen=True)
class TrustedKey:
    """A public key of the service: 32 raw bytes, and its expiry (UTC)."""

    public_key: bytes
    not_after: datetime

    @property
    def key_id(self) -> str:
        """The first 32 hexadecimal digits of the key's SHA-256."""
        return hashlib.sha256(self.public_key).hexdigest()[:32]

    def to_json(self) -> dict[str, str]:
        return {
            "key_id": self.key_id,
            "public_key": base64.b64encode(self.public_key).decode("ascii"),
            "not_after": time_text(self.not_after),
        }


def parse_keys(listed: object) -> tuple[TrustedKey, ...]:
    """`[{"key_id", "public_key", "not_after"}]` -> keys, sorted. Raises `ValueError` with the reason."""
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_KEYS:
        raise ValueError(f'"keys" are missing, or not a list of 1 to {MAX_KEYS}')
    keys = [_key(one) for one in listed]
    if len({one.key_id for one in keys}) != len(keys):
        raise ValueError('"keys" contain a duplicate')
    return tuple(sorted(keys, key=lambda one: one.key_id))


def _key(entry: object) -> TrustedKey:
    if not isinstance(entry, dict):
        raise ValueError('"keys" contain an invalid entry')
    public_key = decoded(entry.get("public_key"), _PUBLIC_KEY_BYTES)
    if public_key is None:
        raise ValueError(f'"keys" contain a public_key that is not the base64 of {_PUBLIC_KEY_BYTES} bytes')
    key = TrustedKey(public_key, parse_time(entry.get("not_after")))
    if entry.get("key_id") != key.key_id:
        raise ValueError(f'"keys" contain the key {key.key_id} under another key_id')
    return key


def parse_time(text: object) -> datetime:
    """`2028-11-21T00:00:00Z`. Raises `ValueError` with the reason."""
    if not isinstance(text, str) or not _TIME.fullmatch(text):
        raise ValueError("a not_after is not a time of the form 2028-11-21T00:00:00Z")
    try:
        return datetime.fromisoformat(text)
    except ValueError as exc:
        raise ValueError("a not_after is not a valid date") from exc


def decoded(text: object, size: int) -> bytes | None:
    """Decode canonical base64 of `size` bytes: each value has one spelling. None for anything else."""
    if not isinstance(text, str) or len(text) != -(-size // 3) * 4:
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return data if len(data) == size and base64.b64encode(data).decode("ascii") == text else None
