"""Links in mails: signed with SECRET_KEY when a mail is sent, not stored.

confirm        of an `AccountRequest`: works once, until it expires
new password   Django's: expires with the password, at a login, and after PASSWORD_RESET_TIMEOUT
unsubscribe    of a user and a kind of mail: never expires, needs no login, and allows nothing else
"""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.core import signing
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode
from django.views.decorators.debug import sensitive_variables

from scionlab.accounts.models import AccountRequest, MailKind
from scionlab.platform.clock import database_now

_CONFIRM: Final = "scionlab.confirm"
_UNSUBSCRIBE: Final = "scionlab.unsubscribe"


@sensitive_variables("token", "link")
def link_of(request: AccountRequest) -> str:
    """URL that confirms the request. Raises `ValueError` for a new password without an account."""
    if request.purpose == AccountRequest.Purpose.PASSWORD:
        if request.user is None:
            raise ValueError("a new password for nobody")
        uid = urlsafe_base64_encode(force_bytes(request.user.pk))
        token = default_token_generator.make_token(request.user)
        link = reverse("password_reset_confirm", args=[uid, token])
    else:
        link = reverse("account_confirm_link", args=[signing.dumps([request.pk, request.nonce], salt=_CONFIRM)])
    return settings.SITE_URL + link


@sensitive_variables("token")
def request_of(token: str) -> AccountRequest | None:
    """The request of a valid link: not used, not expired. None otherwise, for any reason."""
    read = _read(token, _CONFIRM)
    if read is None:
        return None
    pk, nonce = read
    good = AccountRequest.objects.filter(pk=pk, nonce=nonce, used_at=None, expires_at__gt=database_now())
    return good.select_related("user").first()


def unsubscribe_link(user_id: int, kind: str) -> str:
    token = signing.dumps([user_id, kind], salt=_UNSUBSCRIBE)
    return settings.SITE_URL + reverse("mail_unsubscribe", args=[token])


def read_unsubscribe(token: str) -> tuple[int, MailKind] | None:
    """User and kind of mail; None for an invalid link, or a kind that no longer exists."""
    read = _read(token, _UNSUBSCRIBE)
    if read is None or read[1] not in MailKind.values:
        return None
    return read[0], MailKind(read[1])


@sensitive_variables("token")
def _read(token: str, salt: str) -> tuple[int, str] | None:
    try:
        read: Any = signing.loads(token, salt=salt)
    except signing.BadSignature:
        return None
    return read[0], read[1]
