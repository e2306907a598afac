"""Links in mails: signed with SECRET_KEY when a mail is sent, not stored.

confirm        of a `Mail` with a purpose: works once, for 24 hours
new password   Django's: expires with the password, at a login, and after PASSWORD_RESET_TIMEOUT
unsubscribe    of a user and a kind of mail: never expires, needs no login, and allows nothing else
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.core import signing
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.http import int_to_base36
from django.views.decorators.debug import sensitive_variables

from scionlab.accounts.models import Mail, MailKind, User
from scionlab.platform.clock import database_now

LINK_LIFETIME: Final = timedelta(hours=24)
_CONFIRM: Final = "scionlab.confirm"
_UNSUBSCRIBE: Final = "scionlab.unsubscribe"


def good_links() -> QuerySet[Mail]:
    """Mails that a form asked for whose links are good: not used, not expired."""
    made = Mail.objects.exclude(purpose="")
    return made.filter(used_at=None, created_at__gt=database_now() - LINK_LIFETIME)


def confirm_link(mail: Mail) -> str:
    """Signed over the address, too: a restored database gives keys out again."""
    token = signing.dumps([mail.pk, mail.recipient], salt=_CONFIRM)
    return settings.SITE_URL + reverse("account_confirm_link", args=[token])


@sensitive_variables("token")
def mail_of_link(token: str) -> Mail | None:
    """The mail of a good link; None otherwise, for any reason."""
    read = _read(token, _CONFIRM)
    if read is None:
        return None
    return good_links().filter(pk=read[0], recipient=read[1]).select_related("user").first()


@sensitive_variables("token")
def password_link(user: User) -> str:
    token = default_token_generator.make_token(user)
    return settings.SITE_URL + reverse("account_reset_password_from_key", args=[int_to_base36(user.pk), token])


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
