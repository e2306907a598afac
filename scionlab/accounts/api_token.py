"""API tokens: created on a page, with a password or by another token, shown once, stored as a hash, revocable."""

from __future__ import annotations

import hashlib
import logging
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from bandwidth_config import RuleError
from scionlab.accounts.locks import lock_user
from scionlab.accounts.mail import mail_of, mails_create
from scionlab.accounts.models import ApiToken
from scionlab.platform.client_address import from_address
from scionlab.platform.clock import database_now
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.notation.local_time import say_time

logger = logging.getLogger(__name__)

TOKEN_PREFIX: Final = "slbwu_"  # noqa: S105  lets scanners find leaked tokens
MAX_TOKENS: Final = 20
LAST_YEAR: Final = 9998  # the end is shown in any zone, and datetime ends with the year 9999
_RANDOM_BYTES: Final = 32


@dataclass(frozen=True)
class IssuedApiToken:
    """A token, to be shown once: `text` is not stored."""

    token: ApiToken
    text: str = field(repr=False)


@transaction.atomic
@sensitive_variables("text")
def api_token_create(
    *,
    user_id: int,
    name: str,
    may_write: bool = True,
    expires_at: datetime | None = None,
    replaces: bool = False,
    made_by: ApiToken | None = None,
) -> IssuedApiToken:
    """Create a token of this user, who is notified by mail. Deletes expired ones. Forms check the length of `name`.

    `replaces`: delete one of the same name, for programs that log in repeatedly. `made_by`: the token of the request,
    which bounds the new one and, without `expires_at`, sets its end.

    Raises `FieldRuleError` (`token_name_taken`, `token_expiry_past`, `token_expiry_far`, `token_expiry_bound`,
    `token_access_bound`, `token_many`), `RuleError` (`token_gone`).
    """
    user = lock_user(user_id)
    name = " ".join(name.split())
    if made_by is not None:
        made_by = _still_good(made_by)
        expires_at = expires_at or made_by.expires_at
        _check_bounds(made_by, may_write=may_write, expires_at=expires_at)
    if expires_at is not None and expires_at <= database_now():
        text = f"{expires_at:%Y-%m-%d %H:%M} UTC is in the past. Choose a later end, or none."
        raise FieldRuleError("token_expiry_past", text, "expires_at")
    if expires_at is not None and expires_at.year > LAST_YEAR:
        text = f"The end is after the year {LAST_YEAR}. Choose an earlier one, or none."
        raise FieldRuleError("token_expiry_far", text, "expires_at")
    same = ApiToken.objects.filter(user=user, name=name)
    if replaces:
        same.delete()
    ApiToken.objects.filter(user=user, expires_at__lte=database_now()).delete()
    if same.exists():
        text = f'You already have a token named "{name}". Revoke it first, or choose another name.'
        raise FieldRuleError("token_name_taken", text, "name")
    if ApiToken.objects.filter(user=user).count() >= MAX_TOKENS:
        text = f"You have {MAX_TOKENS} API tokens, which is the maximum. Revoke an unused one."
        raise FieldRuleError("token_many", text, "name")
    text = TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    token = ApiToken.objects.create(
        user=user,
        name=name,
        may_write=may_write,
        expires_at=expires_at,
        made_by=made_by,
        token_sha256=_hash(text.encode()),
    )
    _notify_owner(token, is_for_password=replaces)
    logger.info(
        "api_token.created token=%s user=%s may_write=%s expires_at=%s", token.pk, user_id, may_write, expires_at
    )
    return IssuedApiToken(token, text)


def _still_good(made_by: ApiToken) -> ApiToken:
    """Locked, so that it is not revoked meanwhile. Raises `RuleError` (`token_gone`)."""
    found = ApiToken.objects.select_for_update(no_key=True).filter(pk=made_by.pk).first()
    if found is None or found.is_expired:
        raise RuleError(
            "token_gone", "The API token of this request was revoked or has expired. Create one on the site."
        )
    return found


def _check_bounds(made_by: ApiToken, *, may_write: bool, expires_at: datetime | None) -> None:
    """A token cannot create one with more rights or a later end, so a leaked token does not gain any."""
    if may_write and not made_by.may_write:
        text = (
            f'The API token "{made_by.name}" is read-only and can only create read-only tokens. Create this '
            "one on the site."
        )
        raise FieldRuleError("token_access_bound", text, "may_write")
    end = made_by.expires_at
    if end is not None and expires_at is not None and expires_at > end:
        text = (
            f"{expires_at:%Y-%m-%d %H:%M} UTC is later than {end:%Y-%m-%d %H:%M} UTC, when the API token "
            f'"{made_by.name}" ends, which creates this one. Choose an earlier end, or create it on the site.'
        )
        raise FieldRuleError("token_expiry_bound", text, "expires_at")


def _notify_owner(token: ApiToken, *, is_for_password: bool) -> None:
    """A mail without a kind: an attacker with a token or a session cannot unsubscribe from it."""
    zone = token.user.tz
    context = {
        "token": token,
        "valid_until": "it is revoked" if token.expires_at is None else say_time(token.expires_at, zone),
        "created_at": say_time(token.created_at, zone),
        "is_for_password": is_for_password,
        "address": from_address.get(),
    }
    mails_create(
        [mail_of("accounts/mail/token_made.txt", context, key=f"api_token:{token.pk}", recipient=token.user.email)]
    )


def api_token_revoke(*, user_id: int, token_id: int) -> str:
    """Revoke one of this user's tokens and those that it created; return its name. Raises `ApiToken.DoesNotExist`."""
    token = ApiToken.objects.get(pk=token_id, user_id=user_id)
    token.delete()
    logger.info("api_token.revoked token=%s user=%s", token_id, user_id)
    return token.name


@sensitive_variables("text")
def api_token_of(text: bytes) -> ApiToken | None:
    """Return the valid token with its user, or None: one hash and one statement for any input."""
    found = ApiToken.objects.select_related("user").filter(token_sha256=_hash(text)).first()
    return found if found is not None and found.user.is_active and not found.is_expired else None


@sensitive_variables("text")
def _hash(text: bytes) -> str:
    """No salt and no slow hash: 256 random bits cannot be guessed."""
    return hashlib.sha256(text).hexdigest()
