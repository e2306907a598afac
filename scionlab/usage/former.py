"""Moves five-minute rows that the previous version added after the migration (docs/adr/0038).

To be removed in the next version, with `UsageFormerSlot`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.db import transaction
from django.utils import timezone

from scionlab.models import UsageFormerSlot
from scionlab.platform.retry import retried
from scionlab.usage.rows import totals_of
from scionlab.usage.slots import add_slots
from scionlab.usage.totals import to_ms

ROWS_AT_ONCE: Final = 5000


def take_over(*, until: datetime | None = None) -> int:
    """Move them, oldest first; return their number. Starts nothing new after `until`."""
    done = 0
    while (until is None or timezone.now() < until) and (moved := _move()):
        done += moved
    return done


@retried
@transaction.atomic
def _move() -> int:
    rows = list(UsageFormerSlot.objects.select_for_update(no_key=True).order_by("begins_at", "pk")[:ROWS_AT_ONCE])
    if rows:
        add_slots({(row.series_id, to_ms(row.begins_at)): totals_of(row) for row in rows})
        UsageFormerSlot.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return len(rows)
