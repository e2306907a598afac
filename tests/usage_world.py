"""Agents that count: kernels with exact counters, batches of what they saw, and what the service made of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Sum
from django.http import HttpResponse
from django.test import Client

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.testbed.models import Host, Link
from scionlab.usage.compact import totals_unpack
from scionlab.usage.host_api.usage_format import parse_usage
from scionlab.usage.ingest import Stored, usage_store
from scionlab.usage.models import UsageDay, UsageSamples, UsageSeries, UsageSlot
from scionlab.usage.packing import unpack
from scionlab.usage.rows import NAMES, nothing, totals_of
from scionlab.usage.slots import add_slots
from scionlab.usage.totals import DAY_MS, SLOT_MS, Interval, Totals, of_ms, to_ms
from tests.support.polling import credentials

Counters = tuple[int, int, int]  # bytes, packets, drops


def total(intervals: Iterable[Interval]) -> Totals:
    found = Totals()
    for interval in intervals:
        found.add(interval)
    return found


@dataclass
class Kernel:
    """The class of one link in one direction: its life's name, and its counters. `all` is what it ever counted."""

    segment: str = "boot-1"
    now: Counters = (0, 0, 0)
    before: Counters = (0, 0, 0)
    limit_kbit: int = 1000
    lives: int = 1

    def carry(self, count_bytes: int, packets: int = 1, drops: int = 0) -> None:
        self.now = (self.now[0] + count_bytes, self.now[1] + packets, self.now[2] + drops)

    def begin_anew(self) -> None:
        """Rebooted, or the class was made anew."""
        self.before = self.all
        self.now = (0, 0, 0)
        self.lives += 1
        self.segment = f"boot-{self.lives}"

    @property
    def all(self) -> Counters:
        return tuple(a + b for a, b in zip(self.before, self.now, strict=True))  # type: ignore[return-value]


@dataclass
class Column:
    """One direction of one link in a batch that is being written."""

    segment: str
    rows: list[tuple[int, int, int, int, int] | None] = field(default_factory=list)

    def see(self, kernel: Kernel | None, backlog: int = 0) -> None:
        self.rows.append(None if kernel is None else (kernel.limit_kbit, *kernel.now, backlog))

    def document(self) -> dict[str, Any]:
        names = ("rate_kbit", "bytes", "packets", "drops", "backlog_bytes")
        columns = {name: [None if row is None else row[i] for row in self.rows] for i, name in enumerate(names)}
        return {"segment": self.segment, **columns}


def series_of(link: Link | None = None, **values: Any) -> UsageSeries:
    """Of the Link, or of one that is gone."""
    usual: dict[str, Any] = {"interface_id": 1, "ap_isd_as": "17-ffaa:0:1107", "isd_as": "17-ffaa:1:1"}
    usual |= {"owner_email": "owner@example.org", "first_config_version": 1, "last_config_version": 1}
    if link is not None:
        near, far = link.interface_a, link.interface_b.AS
        usual |= {"host": near.host, "attachment_point": link.attachment_point, "interface_id": near.interface_id}
        usual |= {"ap_isd_as": near.AS.isd_as, "isd_as": far.isd_as, "owner_email": far.useras.owner.email}
    values = {**usual, **values}
    if link is None:
        return UsageSeries.objects.create(link_id=0, **values)
    found, _ = UsageSeries.objects.update_or_create(link=link, defaults=values)  # there since the Link was made
    return found


def iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def document(
    host: Host, times: Iterable[datetime], links: Mapping[int, Mapping[str, Column]], **values: Any
) -> dict[str, Any]:
    """A batch by the host's configuration as it is now; `batch=` and `version=` where they matter."""
    document.count += 1  # type: ignore[attr-defined]  # numbers batches
    host.refresh_from_db()
    return {
        "schema": 1,
        "batch": f"{document.count:032x}",  # type: ignore[attr-defined]
        "agent_version": "0.1.0",
        "version": f"1.{host.config_version}",
        "times": [iso(at) for at in times],
        "links": {str(key): {name: one.document() for name, one in both.items()} for key, both in links.items()},
        **values,
    }


document.count = 0  # type: ignore[attr-defined]


def simple(
    host: Host,
    begins_at: datetime,
    counters: Iterable[int],
    *,
    segment: str = "boot-1",
    interface_id: int = 1,
    **values: Any,
) -> dict[str, Any]:
    """A batch of one link's `to_user`, with these bytes, a packet for each 100, and no drops."""
    column = Column(segment)
    times = []
    for index, count in enumerate(counters):
        times.append(begins_at + timedelta(seconds=10 * index))
        column.rows.append((1000, count, count // 100, 0, 0))
    return document(host, times, {interface_id: {"to_user": column}}, **values)


def store(host: Host, body: dict[str, Any], now: datetime) -> Stored:
    return usage_store(host_id=host.pk, batch=parse_usage(json.dumps(body).encode()), now=now)


def upload(host: Host, body: dict[str, Any] | bytes, *, packed: bool = True, **headers: str) -> HttpResponse:
    """As the agent sends it."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    if packed:
        content, headers = gzip.compress(content), {"Content-Encoding": "gzip", **headers}
    sent = {**credentials(host), **headers}
    return Client().post(  # type: ignore[return-value]
        f"/api/v4/host/{host.uid}/usage", content, content_type="application/json", headers=sent
    )


# --- what the service has -------------------------------------------------------------------------------------


def stored_samples() -> dict[str, Counters]:
    """At 10 s: the sums of all that is stored, by direction."""
    found: dict[str, Counters] = {"to_user": (0, 0, 0), "from_user": (0, 0, 0)}
    for row in UsageSamples.objects.all():
        for name, intervals in zip(DIRECTIONS, unpack(to_ms(row.begins_at), row.packed), strict=True):
            one, before = total(intervals), found[name]
            found[name] = (before[0] + one.bytes, before[1] + one.packets, before[2] + one.drops)
    return found


def stored_sums(model: type[UsageSlot] | type[UsageDay]) -> dict[str, Counters]:
    """At 5 minutes, or days."""
    if model is UsageSlot:
        both = nothing()
        for packed in UsageSlot.objects.values_list("packed", flat=True):
            for name, one in totals_unpack(packed).items():
                both[name].merge(one)
        return {str(name): (one.bytes, one.packets, one.drops) for name, one in both.items()}
    found = {}
    for name in DIRECTIONS:
        sums = model.objects.aggregate(*(Sum(f"{name}_{column}") for column in ("bytes", "packets", "drops")))
        found[name] = tuple(int(value or 0) for value in sums.values())
    return found  # type: ignore[return-value]


def add_slot(series: UsageSeries, begins_at: datetime, **columns: Any) -> None:
    """Five minutes of a series: `to_user_bytes` and the others by their names. The sums of its day stay empty."""
    with transaction.atomic():
        at_ms = to_ms(begins_at) // SLOT_MS * SLOT_MS
        nothing_known = {name: None if name.endswith("limit_kbit") else 0 for name in NAMES}
        add_slots({(series.pk, at_ms): totals_of(nothing_known | columns)})
        UsageDay.objects.get_or_create(series=series, begins_at=of_ms(at_ms - at_ms % DAY_MS))
