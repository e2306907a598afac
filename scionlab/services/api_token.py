"""API tokens: made on a page or for a password, shown once, kept as a hash, and withdrawn one by one."""

from __future__ import annotations

import hashlib
import logging
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from django.db import transaction
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from scionlab.models import ApiToken
from scionlab.services import allocation
from scionlab.services.errors import FieldRuleError

logger = logging.getLogger(__name__)

TOKEN_PREFIX: Final = "slbwu_"  # noqa: S105  by it scanners find tokens that somebody published
MAX_TOKENS: Final = 20
LAST_YEAR: Final = 9998  # the end is shown in any zone, and there is no year 10000
_RANDOM_BYTES: Final = 32


@dataclass(frozen=True)
class IssuedApiToken:
    """A token, to be shown once: `text` is kept nowhere."""

    token: ApiToken
    text: str = field(repr=False)


@transaction.atomic
@sensitive_variables("text")
def api_token_create(
    *, user_id: int, name: str, may_write: bool = True, expires_at: datetime | None = None, replaces: bool = False
) -> IssuedApiToken:
    """A token of this person. `replaces`: one of the same name ends, where a program logs in again and again. Expired
    ones are forgotten.

    Raises `FieldRuleError` (`token_name_missing`, `token_name_long`, `token_name_taken`, `token_expiry_past`,
    `token_expiry_far`, `token_many`).
    """
    user = allocation.lock_user(user_id)
    name = " ".join(name.split())
    _check_name(name)
    if expires_at is not None and expires_at <= timezone.now():
        text = f"{expires_at:%Y-%m-%d %H:%M} UTC is over. Choose a later end, or none."
        raise FieldRuleError("token_expiry_past", text, "expires_at")
    if expires_at is not None and expires_at.year > LAST_YEAR:
        text = f"The end lies behind the year {LAST_YEAR}. Choose an earlier one, or none."
        raise FieldRuleError("token_expiry_far", text, "expires_at")
    same = ApiToken.objects.filter(user=user, name=name)
    if replaces:
        same.delete()
    ApiToken.objects.filter(user=user, expires_at__lte=timezone.now()).delete()
    if same.exists():
        text = f'You have a token named "{name}". Withdraw it first, or choose another name.'
        raise FieldRuleError("token_name_taken", text, "name")
    if ApiToken.objects.filter(user=user).count() >= MAX_TOKENS:
        text = f"You have {MAX_TOKENS} API tokens, and more are not possible. Withdraw one that is not needed."
        raise FieldRuleError("token_many", text, "name")
    text = TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    token = ApiToken.objects.create(
        user=user, name=name, may_write=may_write, expires_at=expires_at, token_sha256=_hash(text.encode())
    )
    logger.info("api_token.made token=%s user=%s may_write=%s expires_at=%s", token.pk, user_id, may_write, expires_at)
    return IssuedApiToken(token, text)


def _check_name(name: str) -> None:
    if not name:
        text = "The name is missing. Name the token after the program or machine that will have it."
        raise FieldRuleError("token_name_missing", text, "name")
    maximum = ApiToken._meta.get_field("name").max_length or 0
    if len(name) > maximum:
        text = f"A name of {len(name)} characters is longer than the {maximum} allowed. Shorten it."
        raise FieldRuleError("token_name_long", text, "name")


def api_token_revoke(*, user_id: int, token_id: int) -> str:
    """Withdraw one of this person's tokens; returns its name. Raises `ApiToken.DoesNotExist`."""
    token = ApiToken.objects.get(pk=token_id, user_id=user_id)
    token.delete()
    logger.info("api_token.withdrawn token=%s user=%s", token_id, user_id)
    return token.name


@sensitive_variables("text")
def api_token_of(text: bytes) -> ApiToken | None:
    """The token, with its user, while it is good: one hash and one statement, whatever was sent."""
    found = ApiToken.objects.select_related("user").filter(token_sha256=_hash(text)).first()
    return found if found is not None and found.user.is_active and not found.is_expired else None


@sensitive_variables("text")
def _hash(text: bytes) -> str:
    """No salt and no slow hash: there is nothing to guess in 256 random bits."""
    return hashlib.sha256(text).hexdigest()
