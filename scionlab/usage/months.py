"""95th percentiles of a month, kept after its 5-minute rows are deleted.

Of all known 5-minute means of the month (missing ones are not zero), the smallest that 95 % of them do not exceed:
"nearest rank", as carriers bill. The mean of an AS, or of an attachment point, is the sum of its links' in that slot.

Once a day the database ranks all rows of a month, one attachment point at a time. A month is final 4 days after its
end, when every batch was added (docs/adr/0015).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import F, Max, Min, QuerySet, Sum, Value

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.platform.retry import retried
from scionlab.usage.models import UsageBatch, UsageMonth, UsageSlot, UsageUplink
from scionlab.usage.totals import LATE, month_of, next_month

RANKED_EVERY: Final = timedelta(days=1)
# The place of the percentile among `known` ascending values, from 1: as many as make 95 % of them, rounded up.
_RANK = """
SELECT isd_as, owner_email, known, kbit FROM (
  SELECT isd_as, owner_email, kbit, count(*) OVER (PARTITION BY isd_as, owner_email) AS known,
         row_number() OVER (PARTITION BY isd_as, owner_email ORDER BY kbit) AS place
  FROM ({means}) AS means
) AS ranked WHERE place = (known * 95 + 99) / 100"""

_Month = tuple[str, datetime]  # an attachment point, and when the month begins


def compute_due(*, now: datetime) -> int:
    """Compute the percentiles that are a day old or can become final, the oldest first; return the number of rows."""
    computed = {
        (row.ap_isd_as, row.begins_on): row.computed_at for row in UsageMonth.objects.filter(isd_as="", is_final=False)
    }
    due = []
    for ap_isd_as, month in open_months():
        at = computed.get((ap_isd_as, month.date()))
        if at is None or now - at >= RANKED_EVERY or now >= next_month(month) + LATE:
            due.append((at is not None, at or month, ap_isd_as, month))
    return sum(_compute(ap_isd_as, month, now) for _, _, ap_isd_as, month in sorted(due))


def open_months() -> list[_Month]:
    """Those with 5-minute rows whose percentiles are not final."""
    final = set(UsageMonth.objects.filter(isd_as="", is_final=True).values_list("ap_isd_as", "begins_on"))
    spans = UsageUplink.objects.values("ap_isd_as").annotate(first=Min("begins_at"), last=Max("begins_at"))
    return [
        (one["ap_isd_as"], month)
        for one in spans
        for month in _months_between(one["first"], one["last"])
        if (one["ap_isd_as"], month.date()) not in final
    ]


def settled_before() -> date | None:
    """Day before which no percentile needs 5-minute rows; None: none needs any."""
    return min((month.date() for _, month in open_months()), default=None)


def _months_between(first: datetime, last: datetime) -> Iterator[datetime]:
    month = month_of(first)
    while month <= last:
        yield month
        month = next_month(month)


@retried
@transaction.atomic
def _compute(ap_isd_as: str, month: datetime, now: datetime) -> int:
    final_at = next_month(month) + LATE
    is_final = now >= final_at and not UsageBatch.objects.filter(rolled_up=False, received_at__lt=final_at).exists()
    which = {"begins_at__gte": month, "begins_at__lt": next_month(month)}
    of_ases = UsageSlot.objects.filter(series__ap_isd_as=ap_isd_as, **which)
    of_all = UsageUplink.objects.filter(ap_isd_as=ap_isd_as, **which)

    def row_of(isd_as: str, owner_email: str) -> UsageMonth:
        return UsageMonth(
            begins_on=month.date(),
            ap_isd_as=ap_isd_as,
            isd_as=isd_as,
            owner_email=owner_email,
            computed_at=now,
            is_final=is_final,
        )

    rows = {("", ""): row_of("", "")}  # also where no rate is known: the month is to become final
    for name in DIRECTIONS:
        column = f"{name}_kbit"
        means: Iterable[QuerySet[Any, Any]] = (
            of_ases.values("begins_at", isd_as=F("series__isd_as"), owner_email=F("series__owner_email")).annotate(
                kbit=Sum(column)
            ),
            of_all.values(isd_as=Value(""), owner_email=Value(""), kbit=F(column)),
        )
        for isd_as, owner_email, known, kbit in (ranked for one in means for ranked in _ranked(one)):
            row = rows.setdefault((isd_as, owner_email), row_of(isd_as, owner_email))
            setattr(row, f"{name}_p95_kbit", kbit)
            setattr(row, f"{name}_slots", known)
    said = [f"{name}_{what}" for name in DIRECTIONS for what in ("p95_kbit", "slots")]
    UsageMonth.objects.bulk_create(
        rows.values(),
        update_conflicts=True,
        unique_fields=["begins_on", "ap_isd_as", "isd_as", "owner_email"],
        update_fields=[*said, "computed_at", "is_final"],
    )
    # An owner changed the address: the values are the new one's.
    UsageMonth.objects.filter(ap_isd_as=ap_isd_as, begins_on=month.date()).exclude(computed_at=now).delete()
    return len(rows)


def _ranked(means: QuerySet[Any, Any]) -> list[tuple[str, str, int, int]]:
    """ISD-AS, owner, number of known means, and the percentile of them."""
    sql, params = means.filter(kbit__isnull=False).query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(_RANK.format(means=sql), params)
        return [(isd_as, owner, known, int(kbit)) for isd_as, owner, known, kbit in cursor.fetchall()]
