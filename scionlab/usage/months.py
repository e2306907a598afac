"""95th percentiles of a month: what remains of its 5-minute values when those are gone.

Of all 5-minute means of the month that are known (a missing one is missing, and not zero) the smallest that 95 % of
them do not exceed: "nearest rank", as carriers bill. An attachment point's mean is the sum of its links' in that slot.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import connection, transaction
from django.utils import timezone

from scionlab.models import UsageMonth, UsageSeries
from scionlab.usage.batch import DIRECTIONS, DirectionName
from scionlab.usage.rows import MAX_STORED

logger = logging.getLogger(__name__)

LATE: Final = timedelta(days=4)  # batches of a month that is over may come for 3 days (ingest.BEHIND)

# Window functions alone, which PostgreSQL and SQLite both have. kbit/s are bits per millisecond. What comes from here
# into the text are names of columns, never a value.
_SQL: Final = """
    WITH mean AS (
        SELECT {who}, slot.begins_at,
               SUM(slot.{direction}_rated_bytes * 8 / slot.{direction}_covered_ms) AS kbit
        FROM scionlab_usageslot AS slot JOIN scionlab_usageseries AS series ON series.id = slot.series_id
        WHERE series.ap_isd_as = %s AND slot.begins_at >= %s AND slot.begins_at < %s
          AND slot.{direction}_covered_ms > 0
        GROUP BY 1, 2, slot.begins_at
    ), ranked AS (
        SELECT isd_as, owner_email, kbit,
               ROW_NUMBER() OVER (PARTITION BY isd_as, owner_email ORDER BY kbit) AS rank,
               COUNT(*) OVER (PARTITION BY isd_as, owner_email) AS n
        FROM mean
    )
    SELECT isd_as, owner_email, kbit, n FROM ranked WHERE rank = (n * 95 + 99) / 100
"""
_OF_ALL: Final = "'' AS isd_as, '' AS owner_email"
_OF_EACH: Final = "series.isd_as AS isd_as, series.owner_email AS owner_email"

_Who = tuple[str, str]


def month_begin(year: int, month: int) -> datetime:
    return datetime(year, month, 1, tzinfo=UTC)


def next_month(begins_at: datetime) -> datetime:
    return month_begin(begins_at.year + begins_at.month // 12, begins_at.month % 12 + 1)


def compute_due(*, now: datetime) -> int:
    """This month's percentiles as they stand, and the last one's while late batches may come; returns how many rows."""
    this = month_begin(now.year, now.month)
    rows = _compute(this)
    if now < this + LATE:
        rows += _compute(month_begin((this - timedelta(days=1)).year, (this - timedelta(days=1)).month))
    return rows


def compute_missing(first: datetime, until: datetime) -> None:
    """Have the percentiles of every month from `first` on that begins before `until` for good: they were computed when
    nothing could come any more, or are now."""
    month = month_begin(first.year, first.month)
    while month < until:
        final_at = next_month(month) + LATE
        if not UsageMonth.objects.filter(begins_on=month.date(), computed_at__gte=final_at).exists():
            _compute(month)
        month = next_month(month)


@transaction.atomic
def _compute(month: datetime) -> int:
    computed_at = timezone.now()
    names = UsageSeries.objects.order_by("ap_isd_as").values_list("ap_isd_as", flat=True).distinct()
    rows = [row for ap_isd_as in names for row in _rows(ap_isd_as, month, computed_at)]
    UsageMonth.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["begins_on", "ap_isd_as", "isd_as", "owner_email"],
        update_fields=["to_user_p95_kbit", "from_user_p95_kbit", "to_user_slots", "from_user_slots", "computed_at"],
    )
    # What an owner was called before.
    UsageMonth.objects.filter(begins_on=month.date(), computed_at__lt=computed_at).delete()
    return len(rows)


def _rows(ap_isd_as: str, month: datetime, computed_at: datetime) -> Iterator[UsageMonth]:
    found: dict[_Who, dict[str, Any]] = {}
    for name in DIRECTIONS:
        for who in (_OF_ALL, _OF_EACH):
            for key, kbit, slots in _percentiles(ap_isd_as, month, name, who):
                found.setdefault(key, {}).update({f"{name}_p95_kbit": kbit, f"{name}_slots": slots})
    for (isd_as, owner_email), values in found.items():
        yield UsageMonth(
            begins_on=month.date(),
            ap_isd_as=ap_isd_as,
            isd_as=isd_as,
            owner_email=owner_email,
            computed_at=computed_at,
            **{"to_user_slots": 0, "from_user_slots": 0} | values,
        )


def _percentiles(ap_isd_as: str, month: datetime, name: DirectionName, who: str) -> Iterator[tuple[_Who, int, int]]:
    adapt = connection.ops.adapt_datetimefield_value
    times = [str(adapt(month)), str(adapt(next_month(month)))]
    with connection.cursor() as cursor:
        cursor.execute(_SQL.format(who=who, direction=name), [ap_isd_as, *times])
        for isd_as, owner_email, kbit, slots in cursor.fetchall():
            yield (isd_as, owner_email), min(int(kbit), MAX_STORED), int(slots)
