"""The outbox of mails: a row is created in the transaction of the event, and sent after the commit.

The rows have `sent_at`, `not_before`, `attempts` and `last_error`. One that is given up has no `not_before`.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Value
from django.db.models.functions import Least

from scionlab.platform.clock import database_now

logger = logging.getLogger(__name__)

# Longer than CELERY_TASK_TIME_LIMIT: the owner of an expired lease is dead.
LEASE = timedelta(minutes=5)
FIRST_RETRY = timedelta(seconds=30)
LONGEST_RETRY = timedelta(hours=1)
MAX_ATTEMPTS_COUNTED = 30_000  # the column is a small integer; counting stops, retrying does not


def claim(model: Any, row_id: int) -> bool:
    """Return True for exactly one of concurrent callers: compare and swap in one statement."""
    now = database_now()
    free = model.objects.filter(pk=row_id, sent_at=None, not_before__lte=now)
    attempts = Least(F("attempts") + 1, Value(MAX_ATTEMPTS_COUNTED))
    return bool(free.update(not_before=now + LEASE, attempts=attempts) == 1)


def retry_later(row: Any, error: str) -> None:
    """Postpone a claimed row, with exponential back-off."""
    delay = min(FIRST_RETRY * 2 ** min(row.attempts - 1, 10), LONGEST_RETRY)
    type(row).objects.filter(pk=row.pk).update(not_before=database_now() + delay, last_error=error[:200])
    name, seconds = row._meta.model_name, delay.seconds
    logger.warning("%s.failed id=%s attempts=%s retry_in_s=%d error=%s", name, row.pk, row.attempts, seconds, error)


def due_ids(model: Any, *, now: datetime, limit: int) -> list[int]:
    due = model.objects.filter(sent_at=None, not_before__lte=now).order_by("not_before", "pk")
    return list(due.values_list("pk", flat=True)[:limit])
