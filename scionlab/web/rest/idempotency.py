"""Idempotency of POST requests: a repeated request returns the first response.

The row with the key is inserted first, in the transaction of the work: a second request with the same key waits at the
unique constraint until the first one has committed or rolled back. So key and work are committed together, whatever
crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import transaction

from bandwidth_config import RuleError
from scionlab.platform.clock import database_now
from scionlab.web.models import MAX_KEY_CHARS, ApiRequest

if TYPE_CHECKING:
    from django.contrib.auth.models import _User as User  # the stubs' name of AUTH_USER_MODEL

KEPT_FOR = timedelta(hours=24)


@dataclass(frozen=True)
class Answer:
    """`body` is the JSON that was sent. `is_secret`: not stored."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)
    is_secret: bool = False
    is_replayed: bool = False


class IdempotencyMismatchError(RuleError):
    """The key was used with another request."""

    def __init__(self) -> None:
        super().__init__(
            "idempotency_mismatch",
            "This Idempotency-Key was used before with another request. Use a new key for each request; keys are "
            "kept for 24 hours.",
        )


class SecretNotKeptError(RuleError):
    """The response of the first request was not stored."""

    def __init__(self) -> None:
        super().__init__(
            "idempotency_secret",
            "The request with this Idempotency-Key was executed. Its response contained a secret, which is shown "
            "only once. If it was lost, revoke the created object and create another one, with a new key.",
        )


def check_key(key: str) -> None:
    """Raises `RuleError` (`idempotency_key_invalid`)."""
    if not (0 < len(key) <= MAX_KEY_CHARS and key.isascii() and key.isprintable()):
        raise RuleError(
            "idempotency_key_invalid",
            f"An Idempotency-Key must have 1 to {MAX_KEY_CHARS} printable ASCII characters, for example a random UUID.",
        )


@transaction.atomic
def answer_once(*, user: User, key: str, fingerprint: str, work: Callable[[], Answer]) -> Answer:
    """Return the response of `work`, or the stored one of this key. If `work` raises, nothing is stored. Raises
    `RuleError` (`idempotency_key_invalid`), `IdempotencyMismatchError`, `SecretNotKeptError`, and what `work`
    raises."""
    check_key(key)
    ApiRequest.objects.filter(user=user, key=key, created_at__lt=database_now() - KEPT_FOR).delete()
    row, is_first = ApiRequest.objects.get_or_create(user=user, key=key, defaults={"fingerprint": fingerprint})
    if not is_first:
        return _replay(row, fingerprint)
    answer = work()
    row.status, row.headers = answer.status, dict(answer.headers)
    row.body = "" if answer.is_secret else answer.body
    row.save(update_fields=["status", "headers", "body"])
    return answer


def _replay(row: ApiRequest, fingerprint: str) -> Answer:
    if row.fingerprint != fingerprint:
        raise IdempotencyMismatchError
    if not row.body:
        raise SecretNotKeptError
    return Answer(status=row.status, body=row.body, headers=row.headers, is_replayed=True)
