"""What mails and notices for the webhook share: a row is made in the transaction of the event, and sent after it.

The rows have `sent_at`, `not_before`, `attempts` and `last_error`. One that is given up has no `not_before`.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Value
from django.db.models.functions import Least
from django.utils import timezone

logger = logging.getLogger(__name__)

# Longer than a task may run (CELERY_TASK_TIME_LIMIT): who holds a lease that ran out is dead.
LEASE = timedelta(minutes=5)
FIRST_RETRY = timedelta(seconds=30)
LONGEST_RETRY = timedelta(hours=1)
MAX_ATTEMPTS_COUNTED = 30_000  # the column is a small integer; counting stops, trying does not


def claim(model: Any, row_id: int) -> bool:
    """True for exactly one of those who ask at the same time: the compare and the swap are one statement."""
    now = timezone.now()
    free = model.objects.filter(pk=row_id, sent_at=None, not_before__lte=now)
    attempts = Least(F("attempts") + 1, Value(MAX_ATTEMPTS_COUNTED))
    return bool(free.update(not_before=now + LEASE, attempts=attempts) == 1)


def retry_later(row: Any, error: str) -> None:
    """Of a row that was claimed: the longer it has failed, the later."""
    delay = min(FIRST_RETRY * 2 ** min(row.attempts - 1, 10), LONGEST_RETRY)
    type(row).objects.filter(pk=row.pk).update(not_before=timezone.now() + delay, last_error=error[:200])
    name, seconds = row._meta.model_name, delay.seconds
    logger.warning("%s.failed id=%s attempts=%s retry_in_s=%d error=%s", name, row.pk, row.attempts, seconds, error)


def due_ids(model: Any, *, now: datetime, limit: int) -> list[int]:
    """The unsent rows that may be tried now, oldest first."""
    due = model.objects.filter(sent_at=None, not_before__lte=now).order_by("not_before", "pk")
    return list(due.values_list("pk", flat=True)[:limit])
