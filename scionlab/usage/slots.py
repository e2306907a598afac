"""The only writer of five-minute rows, with everything that depends on them (docs/adr/0015).

Writers hold the `UsageProgress` of the attachment points, so their sums and percentiles miss nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.usage import partitions
from scionlab.usage.compact import totals_pack, totals_unpack
from scionlab.usage.models import UsageProgress, UsageSeries, UsageSlot, UsageUplink
from scionlab.usage.progress import Who, hold_progress, is_settled, read_anew
from scionlab.usage.rows import MAX_STORED, Both, nothing, rates
from scionlab.usage.totals import month_of, of_ms

Key = tuple[int, int]  # a series, and when the sum begins [ms]
_Place = tuple[str, datetime]  # five minutes of an attachment point
_RATES: Final = [f"{name}_kbit" for name in DIRECTIONS]
_DROPS: Final = [f"{name}_drops" for name in DIRECTIONS]


def add_slots(sums: Mapping[Key, Both]) -> None:
    """Add `sums` to the stored rows. Within a transaction."""
    times = {at_ms: of_ms(at_ms) for _, at_ms in sums}
    partitions.ensure({at.date() for at in times.values()})
    series = UsageSeries.objects.filter(pk__in={series_id for series_id, _ in sums})
    names = {pk: rest for pk, *rest in series.values_list("pk", "ap_isd_as", "isd_as", "owner_email")}
    earliest: dict[str, datetime] = {}
    for series_id, at_ms in sums:
        ap_isd_as = names[series_id][0]
        earliest[ap_isd_as] = min(times[at_ms], earliest.get(ap_isd_as, times[at_ms]))
    progress = hold_progress(earliest)
    before = UsageSlot.objects.filter(series__in=names, begins_at__in=times.values())
    stored = {(row[0], row[1]): row[2] for row in before.values_list("series_id", "begins_at", "packed")}
    rows = []
    uplinks: dict[_Place, UsageUplink] = {}
    late: dict[_Place, set[Who]] = {}
    for (series_id, at_ms), both in sums.items():
        (ap_isd_as, isd_as, owner_email), at = names[series_id], times[at_ms]
        packed = stored.get((series_id, at))
        was = nothing() if packed is None else totals_unpack(packed)
        uplink = uplinks.get((ap_isd_as, at))
        if uplink is None:
            uplink = uplinks[ap_isd_as, at] = UsageUplink(ap_isd_as=ap_isd_as, begins_at=at)
        for name in DIRECTIONS:
            _add(uplink, f"{name}_drops", both[name].drops)
            both[name].merge(was[name])
        row = UsageSlot(series_id=series_id, begins_at=at, packed=totals_pack(both), **rates(both))
        for column, before_kbit in rates(was).items():
            kbit: int | None = getattr(row, column)
            _add(uplink, column, None if kbit is None else kbit - (before_kbit or 0))
        rows.append(row)
        if at < progress[ap_isd_as].ranked_until:
            late.setdefault((ap_isd_as, month_of(at)), set()).add((isd_as, owner_email))
    UsageSlot.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["series", "begins_at"],
        update_fields=[*_RATES, "packed"],
    )
    _add_uplinks(uplinks)
    _invalidate(late, progress)


def _add_uplinks(uplinks: Mapping[_Place, UsageUplink]) -> None:
    """There are no concurrent additions to these attachment points."""
    names = {ap_isd_as for ap_isd_as, _ in uplinks}
    stored = UsageUplink.objects.filter(ap_isd_as__in=names, begins_at__in={at for _, at in uplinks})
    for row in stored:
        more = uplinks.get((row.ap_isd_as, row.begins_at))
        if more is not None:
            for name in (*_RATES, *_DROPS):
                _add(more, name, getattr(row, name))
    UsageUplink.objects.bulk_create(
        uplinks.values(),
        update_conflicts=True,
        unique_fields=["ap_isd_as", "begins_at"],
        update_fields=[*_RATES, *_DROPS],
    )


def _add(uplink: UsageUplink, name: str, more: int | None) -> None:
    if more is not None:
        setattr(uplink, name, min((getattr(uplink, name) or 0) + more, MAX_STORED))


def _invalidate(late: Mapping[_Place, set[Who]], progress: Mapping[str, UsageProgress]) -> None:
    """Invalidate percentiles that already include these five minutes. Final ones stay: batches are late by at most 3
    days, and a month is final after 4 and when nothing is pending."""
    for (ap_isd_as, month), whose in late.items():
        held = progress[ap_isd_as]
        if month.date() < held.settled_before and not is_settled(ap_isd_as, month):  # not computed yet
            held.settled_before = month.date()
            held.save()
        if month.date() >= held.settled_before:
            read_anew(ap_isd_as, month, whose)
