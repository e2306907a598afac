"""Rolls up samples to sums of 5 minutes and days, and deletes old ones (docs/adr/0015).

Run by Celery's beat. A batch is added to the sums and marked in one transaction, so it is added exactly once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from django.conf import settings
from django.db import transaction

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.platform.clock import database_now
from scionlab.platform.retry import retried
from scionlab.usage import partitions
from scionlab.usage.models import UsageBatch, UsageCounter, UsageDay, UsageSamples, UsageTotals, UsageUplink, has_newer
from scionlab.usage.months import settled_before
from scionlab.usage.packing import unpack
from scionlab.usage.rows import NAMES, Both, columns_of, nothing, totals_of
from scionlab.usage.slots import Key, add_slots
from scionlab.usage.totals import DAY_MS, SLOT_MS, of_ms, to_ms

logger = logging.getLogger(__name__)

BATCHES_AT_ONCE: Final = 10  # of one host: with 4000 links 40 000 rows of samples in one transaction
SEGMENTS_KEPT: Final = timedelta(days=30)  # after its last sample; a later batch counts from 0
ROWS_AT_ONCE: Final = 5000

_Row = TypeVar("_Row", bound=UsageTotals)


def roll_up(*, until: datetime | None = None) -> int:
    """Add every new batch to the sums; return their number. Idempotent and safe to run concurrently. Starts nothing new
    after `until`."""
    partitions.ensure_ahead(now=database_now())
    done = 0
    while found := _waiting_hosts():
        for host_id in found:
            if until is not None and database_now() >= until:
                return done
            done += _roll_up_some(host_id)
    return done


def _waiting_hosts() -> list[int | None]:
    waiting = UsageBatch.objects.filter(rolled_up=False)
    return list(waiting.order_by("host_id").values_list("host_id", flat=True).distinct())


@retried
@transaction.atomic
def _roll_up_some(host_id: int | None) -> int:
    """The oldest batches of a host. Waits for another worker on them, then checks again."""
    waiting = UsageBatch.objects.select_for_update(no_key=True).filter(rolled_up=False).order_by("pk")
    # Batches of a deleted host have no host, and count anyway.
    waiting = waiting.filter(host__isnull=True) if host_id is None else waiting.filter(host=host_id)
    batches = [row.pk for row in waiting[:BATCHES_AT_ONCE]]
    slots: dict[Key, Both] = {}
    days: dict[Key, Both] = {}
    rows = UsageSamples.objects.filter(batch__in=batches).values_list("series_id", "begins_at", "packed")
    for series_id, begins_at, packed in rows.iterator():
        for name, intervals in zip(DIRECTIONS, unpack(to_ms(begins_at), packed), strict=True):
            for interval in intervals:
                key = (series_id, interval.bucket(SLOT_MS))
                if (both := slots.get(key)) is None:
                    both = slots[key] = nothing()
                both[name].add(interval)
    for (series_id, at_ms), both in slots.items():
        day = days.setdefault((series_id, at_ms - at_ms % DAY_MS), nothing())
        for name in DIRECTIONS:
            day[name].merge(both[name])
    add_slots(slots)
    _add(UsageDay, days)
    UsageBatch.objects.filter(pk__in=batches).update(rolled_up=True)
    return len(batches)


def _add(model: type[_Row], sums: Mapping[Key, Both]) -> None:
    """Add to the rows. Other batches of this host wait, so there are no concurrent additions."""
    manager = model._default_manager
    stored = manager.filter(series__in={key[0] for key in sums}, begins_at__in={of_ms(key[1]) for key in sums})
    for row in stored.values("series_id", "begins_at", *NAMES):
        both = sums.get((row["series_id"], to_ms(row["begins_at"])))
        if both is not None:
            for name, before in totals_of(row).items():
                both[name].merge(before)
    manager.bulk_create(
        [model(series_id=key[0], begins_at=of_ms(key[1]), **columns_of(both)) for key, both in sums.items()],
        update_conflicts=True,
        unique_fields=["series", "begins_at"],
        update_fields=NAMES,
    )


# --- retention ------------------------------------------------------------------------------------------------


def prune(*, now: datetime) -> dict[str, int]:
    """Delete after the retention; return the number of batches, whole days of 5 minutes, and counters. What is not
    rolled up yet stays."""
    return {
        "batches": _prune_batches(now - timedelta(days=settings.USAGE_KEEP_10S_DAYS)),
        "days": _prune_days(now - timedelta(days=settings.USAGE_KEEP_5MIN_DAYS)),
        "counters": _prune_counters(now - SEGMENTS_KEPT),
    }


def _prune_batches(until: datetime) -> int:
    gone = 0
    while batches := list(
        UsageBatch.objects.filter(rolled_up=True, ends_at__lt=until).values_list("pk", flat=True)[:BATCHES_AT_ONCE]
    ):
        UsageBatch.objects.filter(pk__in=batches).delete()
        gone += len(batches)
    return gone


def _prune_days(until: datetime) -> int:
    """Only of months with final percentiles, which are not computed here: that may take long."""
    day = min(until.date(), settled_before() or until.date())
    gone = partitions.drop_before(day)
    old = UsageUplink.objects.filter(begins_at__lt=datetime(day.year, day.month, day.day, tzinfo=UTC))
    while rows := list(old.order_by("begins_at").values_list("pk", flat=True)[:ROWS_AT_ONCE]):
        UsageUplink.objects.filter(pk__in=rows).delete()
    return gone


def _prune_counters(until: datetime) -> int:
    """Segments that ended long ago; the newest of a series and direction stays, for a link may be silent that long."""
    ended = UsageCounter.objects.filter(has_newer(), at__lt=until).values_list("pk", flat=True)
    return UsageCounter.objects.filter(pk__in=list(ended)).delete()[0]
