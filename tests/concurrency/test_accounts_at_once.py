"""Accounts with two at once: a link works for one of them, nobody has one token too many, and nobody is told twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django.utils.crypto import get_random_string

from bandwidth_config import RuleError
from scionlab.accounts import account, api_token, mail_links
from scionlab.accounts.account import email_change
from scionlab.accounts.api_token import MAX_TOKENS, IssuedApiToken, api_token_create
from scionlab.accounts.models import ApiToken, Mail, User
from scionlab.enforcement import notices
from scionlab.enforcement.models import HostReceipt, NoticeWatch
from scionlab.enforcement.notices import notices_find
from scionlab.testbed.models import AttachmentPoint
from tests.concurrency.conftest import AtOnce, MeetIn
from tests.factories import attach, spec


def token_for(purpose: str, email: str, user: User | None = None) -> str:
    """What stands in the link of the mail."""
    asked = Mail.objects.create(key=get_random_string(9), purpose=purpose, recipient=email, user=user)
    return mail_links.confirm_link(asked).rstrip("/").rsplit("/", 1)[-1]


def codes(answers: list[Any]) -> list[str]:
    """What each got: the code of its refusal, or "done"."""
    return sorted(
        one.code if isinstance(one, RuleError) else "done" if isinstance(one, User) else repr(one) for one in answers
    )


def test_a_link_works_for_one_of_two_who_have_both_looked(at_once: AtOnce, owner: User, meet_in: MeetIn) -> None:
    token = token_for("email", "new@example.org", owner)
    meeting = meet_in(account, "mail_of_link")
    assert codes(at_once(*[lambda: email_change(token=token)] * 2)) == ["done", "link_invalid"]
    assert meeting.met
    assert User.objects.get().email == "new@example.org"
    assert Mail.objects.filter(purpose="").count() == 1


@pytest.mark.parametrize("is_locked", [False, True])
def test_the_last_token_is_one_person_s_last(
    at_once: AtOnce, owner: User, meet_in: MeetIn, is_locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock two count at the same time, and both have room."""
    for number in range(MAX_TOKENS - 1):
        api_token_create(user_id=owner.pk, name=f"number {number}")
    if not is_locked:
        monkeypatch.setattr(api_token, "lock_user", lambda user_id: User.objects.get(pk=user_id))
    meet_in(api_token, "_hash", patience_s=0.5 if is_locked else 5.0)  # behind the counting
    made = at_once(*[lambda name=name: api_token_create(user_id=owner.pk, name=name) for name in ("a", "b")])
    assert sum(isinstance(one, IssuedApiToken) for one in made) == (1 if is_locked else 2)
    assert ApiToken.objects.count() == (MAX_TOKENS if is_locked else MAX_TOKENS + 1)


@pytest.mark.parametrize("is_locked", [False, True])
def test_who_looks_at_once_tells_once(
    at_once: AtOnce, owner: User, ap: AttachmentPoint, meet_in: MeetIn, is_locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock both find news; the database lets one of them keep it, and the other one fails."""
    attach(owner, spec(ap))
    now = timezone.now()
    heard = now - timedelta(hours=2)
    HostReceipt.objects.create(host=ap.host, agent_version="0.1.0", observed_at=heard, received_at=heard)
    watch = NoticeWatch.objects.create(since=heard, looked_at=now)
    if not is_locked:
        monkeypatch.setattr(notices, "_watch", lambda _now: watch)
    meet_in(notices, "_away", patience_s=0.5 if is_locked else 5.0)
    found = at_once(*[lambda: notices_find(now=now)] * 2)
    assert Mail.objects.count() == 1
    if is_locked:
        assert sorted(found) == [0, 1]
