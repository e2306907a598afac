"""Progress of the percentiles of attachment points, and which must be recomputed (docs/adr/0015)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Final

from scionlab.usage.models import UsageDay, UsageMonth, UsageProgress
from scionlab.usage.totals import LATE, month_of, next_month

Who = tuple[str, str]  # an AS at an attachment point, and its owner
ALL: Final[Who] = ("", "")  # all of them


def hold_progress(earliest: Mapping[str, datetime]) -> dict[str, UsageProgress]:
    """Lock the rows of these attachment points until the transaction ends, in the order of their keys. Missing ones are
    created; `earliest` is then the first value that is not ranked yet."""
    found = _locked(earliest)
    missing = sorted(earliest.keys() - found.keys())
    if missing:
        made = [
            UsageProgress(ap_isd_as=one, ranked_until=earliest[one], settled_before=month_of(earliest[one]).date())
            for one in missing
        ]
        UsageProgress.objects.bulk_create(made, ignore_conflicts=True)  # another worker may create them now
        found = _locked(earliest)
    return found


def _locked(ap_isd_ases: Collection[str]) -> dict[str, UsageProgress]:
    rows = UsageProgress.objects.select_for_update(no_key=True).filter(ap_isd_as__in=list(ap_isd_ases))
    return {row.ap_isd_as: row for row in rows.order_by("pk")}


def is_settled(ap_isd_as: str, month: datetime) -> bool:
    """Whether the percentiles are final."""
    rows = UsageMonth.objects.filter(ap_isd_as=ap_isd_as, isd_as="", begins_on=month.date())
    return rows.filter(computed_at__gte=next_month(month) + LATE).exists()


def skip(progress: UsageProgress, until: datetime) -> None:
    """Skip ranking up to there: every percentile that is not final is recomputed."""
    for month in open_months(progress, until):
        days = UsageDay.objects.filter(
            series__ap_isd_as=progress.ap_isd_as, begins_at__gte=month, begins_at__lt=next_month(month)
        )
        read_anew(progress.ap_isd_as, month, set(days.values_list("series__isd_as", "series__owner_email")))
    progress.ranked_until = until


def open_months(progress: UsageProgress, until: datetime) -> Iterator[datetime]:
    """Months whose percentiles are not final, up to that of `until`."""
    first = progress.settled_before
    month = month_of(until).replace(year=first.year, month=first.month)
    while month <= until:
        yield month
        month = next_month(month)


def read_anew(ap_isd_as: str, month: datetime, whose: Collection[Who]) -> None:
    """Recompute the windows of these from all their five minutes at the next ranking."""
    rows = [blank(ap_isd_as, month, who) for who in whose]
    UsageMonth.objects.bulk_create(rows, ignore_conflicts=True)
    names = {"isd_as__in": {isd_as for isd_as, _ in whose}, "owner_email__in": {owner for _, owner in whose}}
    UsageMonth.objects.filter(ap_isd_as=ap_isd_as, begins_on=month.date(), **names).update(window=None)


def blank(ap_isd_as: str, month: datetime, who: Who) -> UsageMonth:
    """An empty, unsaved row."""
    return UsageMonth(
        begins_on=month.date(),
        ap_isd_as=ap_isd_as,
        isd_as=who[0],
        owner_email=who[1],
        to_user_slots=0,
        from_user_slots=0,
        computed_at=month,
    )
