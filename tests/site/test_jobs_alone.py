"""A job that fails keeps no other one from its work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.conf import settings

from scionlab.accounts.tasks import flush_tokens_used
from scionlab.celery import app
from scionlab.delivery.tasks import flush_seen
from scionlab.platform import last_contact

pytestmark = pytest.mark.django_db


def task(name: str) -> Callable[[], None]:
    """As a worker finds it."""
    app.loader.import_default_modules()
    found: Callable[[], None] = app.tasks[f"scionlab.tasks.{name}"]
    return found


@pytest.mark.parametrize(
    ("broken", "fails", "works"),
    [
        ("limits.tasks.timed_limits_retire", "retire_timed_limits", "retire_link_tests"),
        ("linktests.tasks.link_tests_retire", "retire_link_tests", "retire_timed_limits"),
        ("enforcement.tasks.notices_find", "find_notices", "notify_exceptions"),
        ("linktests.tasks.link_tests_notify", "notify_tests", "notify_exceptions"),
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
