"""The second factor of an account, which allauth stores as `Authenticator` rows: who has one, and mails about
changes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.db import transaction

from scionlab.accounts.locks import lock_user
from scionlab.accounts.mail import mail_of, mails_create
from scionlab.accounts.models import User
from scionlab.platform.client_address import from_address
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import say_time

logger = logging.getLogger(__name__)


def has_second_factor(user: User) -> bool:
    """Recovery codes alone do not count: allauth deletes them with the last app or key."""
    return bool(Authenticator.objects.filter(user_id=user.pk).exists())


def lacks_required_factor(user: User) -> bool:
    """Whether an administrator must set one up first (`REQUIRE_SECOND_FACTOR_OF_STAFF`)."""
    return settings.REQUIRE_SECOND_FACTOR_OF_STAFF and user.is_staff and not has_second_factor(user)


@contextmanager
def change_notified(user: User) -> Iterator[None]:
    """A transaction in which the second factor may change; a change also creates the mail about it."""
    with transaction.atomic():
        before = _rows(user)
        yield
        after = _rows(user)
        if after != before:
            now = database_now()
            types = [kind for _pk, kind in after]
            changed_at, address = say_time(now, user.tz), from_address.get()
            context: dict[str, object] = {"types": types, "changed_at": changed_at, "address": address}
            key = f"second_factor:{user.pk}:{now:%Y%m%d%H%M%S%f}"
            mails_create([mail_of("accounts/mail/second_factor.txt", context, key=key, recipient=user.email)])
            logger.info("account.second_factor user=%s types=%s", user.pk, ",".join(types) or "none")


def second_factor_remove(*, user_id: int) -> bool:
    """Delete apps, keys and recovery codes; return False if there were none. The password alone is then enough to log
    in. Raises `User.DoesNotExist`."""
    with transaction.atomic():
        user = lock_user(user_id)
        with change_notified(user):
            deleted: int = Authenticator.objects.filter(user=user).delete()[0]
    return deleted > 0


def _rows(user: User) -> list[tuple[int, str]]:
    return list(Authenticator.objects.filter(user_id=user.pk).order_by("pk").values_list("pk", "type"))
