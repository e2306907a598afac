"""A series begins and ends with its Link: batches about a Link arrive after it was changed or deleted."""

from __future__ import annotations

from collections.abc import Collection

from scionlab.testbed.life import Life
from scionlab.testbed.models import Link
from scionlab.usage.ingest import ends_of, new_series
from scionlab.usage.models import UsageSeries


class SeriesLife(Life):
    def ends_changed(self, host_id: int, link_ids: Collection[int], config_version: int) -> None:
        known = UsageSeries.objects.select_for_update(no_key=True).filter(host=host_id, link__in=link_ids)
        found = {row.link_id: row.pk for row in known.order_by("pk")}
        UsageSeries.objects.filter(pk__in=found.values()).update(last_config_version=config_version - 1)
        UsageSeries.objects.bulk_create(
            new_series(host_id, interface_id, end, config_version, config_version)
            for interface_id, end in ends_of(host_id, Link.objects.filter(pk__in=link_ids)).items()
            if end.link_id not in found
        )
