"""The only writer of 5-minute rows, of links and of attachment points (docs/adr/0015)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.usage import partitions
from scionlab.usage.compact import totals_pack, totals_unpack
from scionlab.usage.models import UsageLock, UsageSeries, UsageSlot, UsageUplink
from scionlab.usage.rows import MAX_STORED, Both, nothing, rates
from scionlab.usage.totals import of_ms

Key = tuple[int, int]  # a series, and when the sum begins [ms]
_Place = tuple[str, datetime]  # five minutes of an attachment point
_RATES: Final = [f"{name}_kbit" for name in DIRECTIONS]
_DROPS: Final = [f"{name}_drops" for name in DIRECTIONS]


def add_slots(sums: Mapping[Key, Both]) -> None:
    """Add `sums` to the stored rows. Within a transaction."""
    times = {at_ms: of_ms(at_ms) for _, at_ms in sums}
    partitions.ensure({at.date() for at in times.values()})
    series = UsageSeries.objects.filter(pk__in={series_id for series_id, _ in sums})
    names = dict(series.values_list("pk", "ap_isd_as"))
    _hold(set(names.values()))
    before = UsageSlot.objects.filter(series__in=names, begins_at__in=times.values())
    stored = {(row[0], row[1]): row[2] for row in before.values_list("series_id", "begins_at", "packed")}
    rows = []
    uplinks: dict[_Place, UsageUplink] = {}
    for (series_id, at_ms), both in sums.items():
        ap_isd_as, at = names[series_id], times[at_ms]
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
    UsageSlot.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["series", "begins_at"],
        update_fields=[*_RATES, "packed"],
    )
    _add_uplinks(uplinks)


def _hold(ap_isd_ases: Collection[str]) -> None:
    """Lock the rows of these attachment points until the transaction ends: batches of a deleted host and of its
    successor may be added at once. Missing ones are made."""
    known = set(UsageLock.objects.filter(ap_isd_as__in=ap_isd_ases).values_list("ap_isd_as", flat=True))
    made = [UsageLock(ap_isd_as=one) for one in sorted(set(ap_isd_ases) - known)]
    UsageLock.objects.bulk_create(made, ignore_conflicts=True)  # another worker may make them now
    list(UsageLock.objects.select_for_update(no_key=True).filter(ap_isd_as__in=ap_isd_ases).order_by("pk"))


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
