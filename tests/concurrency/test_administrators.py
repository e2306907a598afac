"""The last two administrators end each other, or themselves, at once: by whichever door, one of them stays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from scionlab.accounts import account
from scionlab.accounts.models import User
from tests.concurrency.conftest import AtOnce, MeetIn, browser_of, failures
from tests.factories import PASSWORD, UserFactory


@pytest.fixture
def two(transactional_db: None) -> list[User]:
    return [UserFactory(email=f"{name}@example.org", is_staff=True) for name in ("ada", "bob")]


def at_the_account_page(me: User, _other: User) -> Callable[[], Any]:
    return partial(browser_of(me).post, "/account/delete/", {"password": PASSWORD})


def deletes_the_other(me: User, other: User) -> Callable[[], Any]:
    return partial(browser_of(me).post, f"/admin/accounts/user/{other.pk}/delete/", {"post": "yes"})


def demotes_the_other(me: User, other: User) -> Callable[[], Any]:
    values = {"email": other.email, "full_name": other.full_name, "as_quota": other.as_quota, "is_active": "on"}
    return partial(browser_of(me).post, f"/admin/accounts/user/{other.pk}/change/", values)


DOORS = [at_the_account_page, deletes_the_other, demotes_the_other]


def administrators() -> list[str]:
    return list(User.objects.filter(is_staff=True, is_active=True).values_list("email", flat=True))


@pytest.mark.parametrize("second", DOORS)
@pytest.mark.parametrize("first", DOORS)
def test_one_administrator_stays_whichever_doors_the_last_two_take(
    two: list[User],
    at_once: AtOnce,
    meet_in: MeetIn,
    first: Callable[[User, User], Callable[[], Any]],
    second: Callable[[User, User], Callable[[], Any]],
) -> None:
    ada, bob = two
    meet_in(account, "other_administrators")
    answers = at_once(first(ada, bob), second(bob, ada))
    assert failures(answers) == []
    assert len(administrators()) == 1
