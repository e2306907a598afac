"""Moves the five minutes of usage into the table of `0027_usage_in_partitions`, or back: newest first, in pieces.

May be interrupted and run again. What the former version adds meanwhile is moved by `scionlab.usage.former`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db import migrations, transaction
from django.db.models import Count

from scionlab.usage import partitions
from scionlab.usage.compact import totals_pack, totals_unpack
from scionlab.usage.rows import columns_of, rates, totals_of

ROWS_AT_ONCE = 5000  # about: of one five minutes all are moved at once


def move(apps: Any, _schema_editor: Any) -> None:
    former, slot, series = (apps.get_model('scionlab', name) for name in ('UsageFormerSlot', 'UsageSlot', 'UsageSeries'))
    ap_of = dict(series.objects.values_list('pk', 'ap_isd_as'))
    for times in pieces(former):
        with transaction.atomic():
            partitions.ensure({at.date() for at in times})
            there = set(slot.objects.filter(begins_at__in=times).values_list('series_id', 'begins_at'))
            rows = [
                row
                for row in former.objects.select_for_update(no_key=True).filter(begins_at__in=times)
                if (row.series_id, row.begins_at) not in there
            ]
            made = []
            uplinks: dict[tuple[str, datetime], dict[str, int]] = {}
            for row in rows:
                both = totals_of(vars(row))
                means = rates(both)
                made.append(slot(series_id=row.series_id, begins_at=row.begins_at, packed=totals_pack(both), **means))
                uplink = uplinks.setdefault((ap_of[row.series_id], row.begins_at), {})
                add(uplink, means | {f'{name}_drops': one.drops for name, one in both.items()})
            slot.objects.bulk_create(made)
            store(apps, times, uplinks)
            former.objects.filter(pk__in=[row.pk for row in rows]).delete()


def store(apps: Any, times: list[datetime], uplinks: dict[tuple[str, datetime], dict[str, int]]) -> None:
    model = apps.get_model('scionlab', 'UsageUplink')
    names = ['to_user_kbit', 'from_user_kbit', 'to_user_drops', 'from_user_drops']
    for row in model.objects.filter(begins_at__in=times):
        if (row.ap_isd_as, row.begins_at) in uplinks:
            add(uplinks[row.ap_isd_as, row.begins_at], {name: getattr(row, name) for name in names})
    model.objects.bulk_create(
        [model(ap_isd_as=ap_isd_as, begins_at=at, **sums) for (ap_isd_as, at), sums in uplinks.items()],
        update_conflicts=True,
        unique_fields=['ap_isd_as', 'begins_at'],
        update_fields=names,
    )


def add(sums: dict[str, int], more: dict[str, int | None]) -> None:
    for name, value in more.items():
        if value is not None:
            sums[name] = min(sums.get(name, 0) + value, 2**63 - 1)


def move_back(apps: Any, _schema_editor: Any) -> None:
    former, slot = (apps.get_model('scionlab', name) for name in ('UsageFormerSlot', 'UsageSlot'))
    for times in pieces(slot):
        with transaction.atomic():
            found = {
                (series_id, at): totals_unpack(packed)
                for series_id, at, packed in slot.objects.filter(begins_at__in=times).values_list(
                    'series_id', 'begins_at', 'packed'
                )
            }
            there = [
                row for row in former.objects.filter(begins_at__in=times) if (row.series_id, row.begins_at) in found
            ]
            for row in there:
                for name, one in totals_of(vars(row)).items():
                    found[row.series_id, row.begins_at][name].merge(one)
            former.objects.filter(pk__in=[row.pk for row in there]).delete()
            former.objects.bulk_create(
                former(series_id=series_id, begins_at=at, **columns_of(both)) for (series_id, at), both in found.items()
            )
            slot.objects.filter(begins_at__in=times).delete()


def pieces(model: Any) -> Iterator[list[datetime]]:
    """All times that the table has now, the newest first, as many at once as have some 5000 rows."""
    counts = model.objects.order_by('-begins_at').values_list('begins_at').annotate(Count('series_id'))
    times: list[datetime] = []
    rows = 0
    for at, count in list(counts):
        times.append(at)
        rows += count
        if rows >= ROWS_AT_ONCE:
            yield times
            times, rows = [], 0
    if times:
        yield times


class Migration(migrations.Migration):

    atomic = False
    dependencies = [
        ('scionlab', '0027_usage_in_partitions'),
    ]
    short_lock = 'each piece is a transaction of its own, of some 5000 rows'

    operations = [
        migrations.RunPython(move, move_back),
    ]
