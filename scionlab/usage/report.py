"""Traffic of attachment points by AS: bills of a month, and current top talkers.

Rows identify attachment points and ASes by text, so they outlive both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final

from django.db.models import Max, QuerySet, Sum

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.testbed.cockpit import Rate
from scionlab.usage.models import UsageCounter, UsageDay, UsageMonth, has_newer
from scionlab.usage.totals import month_begin, next_month

NOW: Final = timedelta(seconds=180)  # maximum age of a current sample; agents upload once a minute


_KEY: Final = ("ap_isd_as", "isd_as", "owner_email")


@dataclass(frozen=True)
class TrafficRow:
    """A month of an attachment point (`isd_as` and `owner_email` empty), or of one AS there. `to_user_bytes` is egress,
    which the operator pays. A percentile is None before it is first computed (within an hour, then daily), and without
    known rates. `slots` is the number of 5-minute values, of about 8640 in a month."""

    attachment_point_id: Annotated[int | None, "null: deleted."]
    ap_isd_as: str
    isd_as: str
    owner_email: str
    to_user_bytes: Annotated[int, "Egress, billed to the operator."]
    from_user_bytes: int
    to_user_p95_kbit: Annotated[int | None, "95th percentile of 5-minute values."]
    from_user_p95_kbit: int | None
    to_user_slots: int
    from_user_slots: int


@dataclass(frozen=True)
class MonthlyTraffic:
    """Both lists with the most egress first. `computed_at` of the percentiles, None without any."""

    year: int
    month: int
    computed_at: Annotated[datetime | None, "Time of the newest percentile; they are computed daily."]
    attachment_points: list[TrafficRow]
    ases: list[TrafficRow]


def monthly_traffic(year: int, month: int) -> MonthlyTraffic:
    """A calendar month (UTC) as far as rolled up; bytes lag by some minutes at most. Two statements."""
    begins_at = month_begin(year, month)
    months = list(UsageMonth.objects.filter(begins_on=begins_at.date()))
    percentiles: dict[tuple[str, ...], UsageMonth] = {
        (row.ap_isd_as, row.isd_as, row.owner_email): row for row in months
    }
    days = UsageDay.objects.filter(begins_at__gte=begins_at, begins_at__lt=next_month(begins_at))
    sums = list(
        days.values(*(f"series__{name}" for name in _KEY)).annotate(
            ap_id=Max("series__attachment_point"), to_user=Sum("to_user_bytes"), from_user=Sum("from_user_bytes")
        )
    )
    ases: list[TrafficRow] = []
    by_ap: dict[str, list[TrafficRow]] = {}
    percentiles |= _renamed(months, [tuple(one[f"series__{name}"] for name in _KEY) for one in sums])
    for one in sums:
        key = (one["series__ap_isd_as"], one["series__isd_as"], one["series__owner_email"])
        row = _row(key, one["ap_id"], int(one["to_user"]), int(one["from_user"]), percentiles)
        ases.append(row)
        by_ap.setdefault(row.ap_isd_as, []).append(row)
    return MonthlyTraffic(
        year=year,
        month=month,
        attachment_points=_sorted(_of_all(ap, rows, percentiles) for ap, rows in by_ap.items()),
        ases=_sorted(ases),
        computed_at=max((row.computed_at for row in percentiles.values()), default=None),
    )


def _renamed(months: Iterable[UsageMonth], keys: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], UsageMonth]:
    """Percentiles of ASes whose owner changed the address: they are stored under the previous one, and can seldom be
    recomputed. Only if the AS had one owner there in the month."""
    by_as: dict[tuple[str, str], list[UsageMonth]] = {}
    for row in months:
        by_as.setdefault((row.ap_isd_as, row.isd_as), []).append(row)
    wanted: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for key in keys:
        wanted.setdefault(key[:2], []).append(key)
    return {
        only[0]: found[0]
        for names, found in by_as.items()
        if len(found) == 1 and len(only := wanted.get(names, [])) == 1
    }


def _of_all(ap_isd_as: str, rows: list[TrafficRow], percentiles: dict[tuple[str, ...], UsageMonth]) -> TrafficRow:
    ap_id = max((row.attachment_point_id for row in rows if row.attachment_point_id is not None), default=None)
    to_user, from_user = (sum(row.to_user_bytes for row in rows), sum(row.from_user_bytes for row in rows))
    return _row((ap_isd_as, "", ""), ap_id, to_user, from_user, percentiles)


def _row(
    key: tuple[str, str, str],
    ap_id: int | None,
    to_user: int,
    from_user: int,
    percentiles: dict[tuple[str, ...], UsageMonth],
) -> TrafficRow:
    found = percentiles.get(key, UsageMonth())
    return TrafficRow(
        ap_id,
        *key,
        to_user,
        from_user,
        found.to_user_p95_kbit,
        found.from_user_p95_kbit,
        found.to_user_slots,
        found.from_user_slots,
    )


def _sorted(rows: Iterable[TrafficRow]) -> list[TrafficRow]:
    return sorted(rows, key=lambda row: (-row.to_user_bytes, row.ap_isd_as, row.isd_as, row.owner_email))


# --- now ------------------------------------------------------------------------------------------------------


def newest_counters(*, now: datetime) -> QuerySet[UsageCounter]:
    """Of each active Link and direction the newest, with a sample of at most 180 s."""
    return UsageCounter.objects.filter(at__gte=now - NOW, series__link__active=True).exclude(has_newer("series__link"))


def rates_now(attachment_point_id: int, *, now: datetime) -> dict[int, Rate]:
    """By active Link with a sample of at most 180 s, most traffic first. One statement."""
    counters = newest_counters(now=now).filter(series__attachment_point=attachment_point_id)
    found: dict[int, dict[str, int | None]] = {}
    for link_id, direction, kbit in counters.values_list("series__link", "direction", "kbit"):
        found.setdefault(link_id, dict.fromkeys(DIRECTIONS))[direction] = kbit
    rates = {link_id: Rate(*both.values()) for link_id, both in found.items()}
    return dict(sorted(rates.items(), key=lambda one: (-sum(kbit or 0 for kbit in one[1]), one[0])))
