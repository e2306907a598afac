"""Locks of accounts; `testbed.locks` has the order of all."""

from __future__ import annotations

from django.db.models import Q

from scionlab.accounts.models import User
from scionlab.platform.locks import lock_rows


def lock_user(user_id: int) -> User:
    return User.objects.select_for_update(no_key=True).get(pk=user_id)


def lock_administrators(user_id: int) -> User:
    """Lock a user and all administrators, so that the check for another administrator is serialized. Returns the user.
    Raises `User.DoesNotExist`."""
    lock_rows(User.objects.filter(Q(pk=user_id) | Q(is_staff=True, is_active=True)))
    return User.objects.get(pk=user_id)
