"""A day of traffic for the demo, taken in as if agents had sent it: so its pages have something to show."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lab.sample_traffic import HEARTBEATS_BYTES, PACKET_BYTES, TEN_MINUTES_MS, share
from scionlab.enforcement.directions import DIRECTIONS, DirectionName
from scionlab.testbed import selectors
from scionlab.testbed.models import Host, Link
from scionlab.usage.batch import Batch, DirectionSamples, Sample
from scionlab.usage.ingest import usage_store
from scionlab.usage.months import compute_due
from scionlab.usage.rollup import roll_up
from scionlab.usage.totals import TEN_SECONDS_MS, to_ms

HOURS = 24
HOUR_MS = 3_600_000
SILENT = (122, 123)  # of the ten minutes: four hours ago an agent was away for twenty


def seed_usage(user_as_ids: Collection[int], *, now: datetime) -> None:
    """The last 24 hours of these ASes' Links. The same Links carry the same at every run."""
    for host in Host.objects.filter(attachment_point__isnull=False).order_by("pk"):
        links = {
            interface_id: link
            for interface_id, link in selectors.limited_links(host.pk).items()
            if link.interface_b.AS_id in user_as_ids
        }
        if links:
            usage_store(host_id=host.pk, batch=_batch(host, links, now), now=now)
    roll_up()
    compute_due(now=now)


@dataclass
class _Kernel:
    """One direction of one link: its counters, and what somebody wants to send through it."""

    limit_kbit: int
    dice: random.Random
    counters: tuple[int, int, int] = (0, 0, 0)
    samples: list[Sample] = field(default_factory=list)

    def carry(self, at_ms: int, wanted_share: float) -> None:
        """`wanted_share` of the limit is wanted for 10 s; above 1 it is dropped."""
        wanted = int(self.limit_kbit * 1000 / 8 * 10 * wanted_share * self.dice.uniform(0.8, 1.2))
        most = self.limit_kbit * 1000 // 8 * 10
        carried = min(wanted + min(HEARTBEATS_BYTES, most), most)
        dropped = max(0, wanted - most) // PACKET_BYTES
        if self.limit_kbit == 0:
            dropped = 50  # heartbeats
        before = self.counters
        self.counters = (before[0] + carried, before[1] + carried // PACKET_BYTES + 1, before[2] + dropped)
        backlog = self.limit_kbit * 1000 // 8 // 10 if carried == most else 0  # 100 ms of the limit
        self.samples.append(Sample(*self.counters, at_ms=at_ms, limit_kbit=self.limit_kbit, backlog_bytes=backlog))


def _batch(host: Host, links: Mapping[int, Link], now: datetime) -> Batch:
    """All of it at once: an agent would send a batch a minute."""
    kernels = {
        (interface_id, name): _Kernel(link.enforced_kbit, random.Random(f"{link} {name}"))
        for interface_id, link in links.items()
        for name in DIRECTIONS
    }
    ends_ms = to_ms(now) // TEN_SECONDS_MS * TEN_SECONDS_MS
    begins_ms = ends_ms - HOURS * HOUR_MS
    times_ms = [
        at_ms
        for at_ms in range(begins_ms + TEN_SECONDS_MS, ends_ms + 1, TEN_SECONDS_MS)
        if (at_ms - begins_ms) // TEN_MINUTES_MS not in SILENT
    ]
    said: dict[int, dict[DirectionName, DirectionSamples]] = {}
    for (interface_id, name), kernel in kernels.items():
        for at_ms in times_ms:
            kernel.carry(at_ms, share(interface_id, name, (at_ms - begins_ms) // TEN_MINUTES_MS))
        said.setdefault(interface_id, {})[name] = DirectionSamples("demo", kernel.samples)
    key = hashlib.sha256(f"{host.uid} {begins_ms}".encode()).hexdigest()[:32]
    return Batch(key, (selectors.generation(), host.config_version), times_ms, said)
