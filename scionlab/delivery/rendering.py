"""Which configurations are rendered ahead of the poll."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Random

from scionlab.delivery.models import IssuedLimits
from scionlab.testbed import selectors
from scionlab.testbed.models import Host

POLLING_WITHIN = timedelta(minutes=10)  # hosts that were away longer are not rendered ahead


def hosts_to_render(*, now: datetime, limit: int) -> list[int]:
    """Hosts that polled recently, lack their newest configuration, and are not rendered yet; at most `limit`, those of
    attachment points first, others in random order so that a failing one does not block the rest. Two statements for
    any number of hosts. Evicted configurations, and those beyond the limit, are rendered by the poll."""
    lacks = Q(delivered_config_version__lt=F("config_version")) | Q(delivered_limits_version__lt=F("limits_version"))
    rendered = IssuedLimits.objects.filter(
        host=OuterRef("pk"),
        generation=selectors.generation(),
        config_version=OuterRef("config_version"),
        limits_version=OuterRef("limits_version"),
    )
    waiting = Host.objects.filter(lacks, ~Exists(rendered), AS__isnull=False, last_seen_at__gte=now - POLLING_WITHIN)
    first = F("attachment_point").asc(nulls_last=True)
    return list(waiting.order_by(first, Random()).values_list("pk", flat=True)[:limit])
