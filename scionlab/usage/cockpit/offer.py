"""Traffic in the cockpit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Sum

from scionlab.testbed.cockpit import MenuEntry, Offer, Rate
from scionlab.testbed.models import AttachmentPoint
from scionlab.usage.cockpit.uplink_plot import uplink_plot
from scionlab.usage.models import UsageCounter, has_newer
from scionlab.usage.report import NOW, rates_now


class TrafficOffer(Offer):
    menu = (MenuEntry("cockpit_traffic", "traffic", "Traffic and cost"),)

    def rates_of_points(self, now: datetime) -> Mapping[int, Rate]:
        counters = UsageCounter.objects.filter(at__gte=now - NOW, series__link__isnull=False).exclude(has_newer())
        sums: dict[int, dict[str, int]] = {}
        for row in counters.values("series__attachment_point", "direction").annotate(total=Sum("kbit")).order_by():
            sums.setdefault(row["series__attachment_point"], {})[row["direction"]] = row["total"] or 0
        return {key: Rate(rates.get("to_user", 0), rates.get("from_user", 0)) for key, rates in sums.items()}

    def rates_of_links(self, ap: AttachmentPoint, now: datetime) -> Mapping[int, Rate]:
        return rates_now(ap.pk, now=now)

    def part_of(self, ap: AttachmentPoint, now: datetime) -> tuple[str, Mapping[str, Any]] | None:
        plot = uplink_plot(ap, now=now)
        return None if plot.is_empty else ("usage/parts/uplink.html", {"plot": plot})
