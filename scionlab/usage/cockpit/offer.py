"""Traffic in the cockpit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Sum

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.testbed.cockpit import MenuEntry, Offer, Rate
from scionlab.testbed.models import AttachmentPoint
from scionlab.usage.cockpit.uplink_plot import uplink_plot
from scionlab.usage.report import newest_counters, rates_now


class TrafficOffer(Offer):
    menu = (MenuEntry("cockpit_traffic", "traffic", "Traffic and cost"),)

    def rates_of_points(self, now: datetime) -> Mapping[int, Rate]:
        rows = newest_counters(now=now).values_list("series__attachment_point", "direction")
        sums: dict[int, dict[str, int | None]] = {}
        for key, direction, kbit in rows.annotate(total=Sum("kbit")).order_by():
            sums.setdefault(key, dict.fromkeys(DIRECTIONS))[direction] = None if kbit is None else int(kbit)
        return {key: Rate(*both.values()) for key, both in sums.items()}

    def rates_of_links(self, ap: AttachmentPoint, now: datetime) -> Mapping[int, Rate]:
        return rates_now(ap.pk, now=now)

    def part_of(self, ap: AttachmentPoint, now: datetime) -> tuple[str, Mapping[str, Any]] | None:
        plot = uplink_plot(ap, now=now)
        return None if plot.is_empty else ("usage/parts/uplink.html", {"plot": plot})
