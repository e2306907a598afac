"""Traffic for pages and APIs of other apps."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from scionlab.limits.measured import UsagePoint
from scionlab.testbed.cockpit import sum_of
from scionlab.usage.report import rates_now
from scionlab.usage.series import usage_of_link, usage_of_links


class MeasuredTraffic:
    def of_links(self, link_ids: Collection[int], *, begins_at: datetime) -> dict[int, UsagePoint]:
        return usage_of_links(link_ids, begins_at=begins_at)

    def in_steps(self, link_id: int, *, begins_at: datetime, ends_at: datetime) -> list[UsagePoint]:
        return usage_of_link(link_id, begins_at=begins_at, ends_at=ends_at, step="10s").points

    def now_kbit(self, attachment_point_id: int, *, now: datetime) -> int:
        return sum_of(rates_now(attachment_point_id, now=now).values()).highest_kbit or 0
