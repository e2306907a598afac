"""Accounts with two at once: a link works for one of them, and nobody is told twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from django.utils.crypto import get_random_string

from bandwidth_config import RuleError
from scionlab.accounts import account, mail_links
from scionlab.accounts.account import email_change
from scionlab.accounts.models import Mail, User
from scionlab.enforcement import notices
from scionlab.enforcement.models import HostReceipt, NoticeWatch
from scionlab.enforcement.notices import notices_find
from scionlab.testbed.models import AttachmentPoint
from tests.concurrency.conftest import AtOnce, MeetIn
from tests.factories import attach, spec


def test_a_link_works_for_one_of_two_who_have_both_looked(at_once: AtOnce, owner: User, meet_in: MeetIn) -> None:
    asked = Mail.objects.create(key=get_random_string(9), purpose="email", recipient="new@example.org", user=owner)
    token = mail_links.confirm_link(asked).rstrip("/").rsplit("/", 1)[-1]
    meeting = meet_in(account, "mail_of_link")
    answers = at_once(*[lambda: email_change(token=token)] * 2)
    assert [one.code for one in answers if isinstance(one, RuleError)] == ["link_invalid"], answers
    assert sum(isinstance(one, User) for one in answers) == 1
    assert meeting.met
    assert User.objects.get().email == "new@example.org"
    assert Mail.objects.filter(purpose="").count() == 1


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
