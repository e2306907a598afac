"""The links in mails: signed with SECRET_KEY when a mail is sent, and kept nowhere.

confirm        of an `AccountRequest`: works once, within its time
new password   Django's: ends with the password, or a log-in, and after PASSWORD_RESET_TIMEOUT
unsubscribe    of a person and a kind of mail: works for ever, without a log-in, and can do nothing else
"""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.core import signing
from django.urls import reverse
from django.utils import timezone
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode
from django.views.decorators.debug import sensitive_variables

from scionlab.models import AccountRequest, MailKind

_CONFIRM: Final = "scionlab.confirm"
_UNSUBSCRIBE: Final = "scionlab.unsubscribe"


@sensitive_variables("token", "link")
def link_of(request: AccountRequest) -> str:
    """Where what was asked for is confirmed. Raises `ValueError` for a new password of nobody."""
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
    """What the link was made for, while it is good: not used, its time not over. Two forged ones look alike."""
    read = _read(token, _CONFIRM)
    if read is None:
        return None
    pk, nonce = read
    good = AccountRequest.objects.filter(pk=pk, nonce=nonce, used_at=None, expires_at__gt=timezone.now())
    return good.select_related("user").first()


def unsubscribe_link(user_id: int, kind: str) -> str:
    token = signing.dumps([user_id, kind], salt=_UNSUBSCRIBE)
    return settings.SITE_URL + reverse("mail_unsubscribe", args=[token])


def read_unsubscribe(token: str) -> tuple[int, MailKind] | None:
    """Whose mails of which kind; None for a link that is not ours, or names a kind that is no more."""
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
