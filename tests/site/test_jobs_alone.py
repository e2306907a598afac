"""A job that fails keeps no other one from its work."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from scionlab.accounts.models import Mail, User
from scionlab.accounts.tasks import flush_tokens_used
from scionlab.celery import app
from scionlab.delivery.tasks import flush_seen
from scionlab.limits.models import MaximumException
from scionlab.linktests.models import LinkTest
from scionlab.platform import last_contact
from scionlab.testbed.models import Link

pytestmark = pytest.mark.django_db


def task(name: str) -> Callable[[], None]:
    """As a worker finds it."""
    app.loader.import_default_modules()
    found: Callable[[], None] = app.tasks[f"scionlab.tasks.{name}"]
    return found


def test_unreadable_result_of_a_test_keeps_no_mail_of_an_exception_back(
    link: Link, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    begins_at = now - timedelta(hours=1)
    LinkTest.objects.create(
        link=link, tool="watch", begins_at=begins_at, ends_at=begins_at + timedelta(minutes=1), created_by=owner
    )
    LinkTest.objects.update(created_at=begins_at - timedelta(hours=1))
    monkeypatch.setattr("scionlab.linktests.test_mails.status_of_test", json.loads)  # which reads no such row
    MaximumException.objects.create(
        link=link,
        maximum_kbit=5000,
        ends_at=now + timedelta(hours=1),
        state="approved",
        decided_at=now - timedelta(days=9),
        reason="A measurement.",
    )
    failed = []
    for one in settings.CELERY_BEAT_SCHEDULE:
        if one in {"find_notices", "notify_tests", "notify_exceptions"}:
            try:
                task(one)()
            except TypeError:
                failed.append(one)
    assert failed == ["notify_tests"]
    assert Mail.objects.filter(key__contains="exception_ends", recipient=owner.email).exists()


@pytest.mark.parametrize(
    ("broken", "fails", "works"),
    [
        ("limits.tasks.timed_limits_retire", "retire_timed_limits", "retire_link_tests"),
        ("linktests.tasks.link_tests_retire", "retire_link_tests", "retire_timed_limits"),
        ("enforcement.tasks.notices_find", "find_notices", "notify_exceptions"),
    ],
)
def test_each_job_has_a_task_of_its_own(
    broken: str, fails: str, works: str, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ValueError("unreadable")

    monkeypatch.setattr(f"scionlab.{broken}", fail)
    with pytest.raises(ValueError, match="unreadable"):
        task(fails)()
    task(works)()
    assert {fails, works} <= settings.CELERY_BEAT_SCHEDULE.keys()


def test_each_ledger_is_flushed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []

    def flush(ledger: last_contact.Ledger) -> int:
        flushed.append(ledger.key)
        return 0

    monkeypatch.setattr(last_contact, "flush", flush)
    flush_seen()
    flush_tokens_used()
    assert flushed == ["scionlab.seen", "scionlab.token_used"]
