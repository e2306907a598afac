"""Some hours of traffic for the demo, taken in as if agents had sent it: so its pages have something to show."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from scionlab import selectors
from scionlab.models import Host, Link
from scionlab.services.receipt import limited_links
from scionlab.usage.batch import DIRECTIONS, Batch, DirectionName, DirectionSamples, Sample
from scionlab.usage.ingest import usage_store
from scionlab.usage.rollup import roll_up
from scionlab.usage.totals import TEN_SECONDS, floor

HOURS = 6
SAMPLES = 60  # of a batch: 10 minutes
SILENT = (14, 15)  # batches that never came: an agent was away for 20 minutes
PACKET_BYTES = 1100
HEARTBEATS_BYTES = 5 * 10 * 80  # of 10 s: five a second


def seed_usage(*, now: datetime) -> int:
    """The last 6 hours of every active Link that is limited and has no traffic yet; returns how many Links.

    The same Links carry the same at every run.
    """
    count = 0
    for host in Host.objects.filter(attachment_point__isnull=False).order_by("pk"):
        links = {
            interface_id: link
            for interface_id, link in limited_links(host.pk).items()
            if link.active and not link.usage_series.exists()
        }
        for batch in _batches(host, links, now):
            usage_store(host_id=host.pk, batch=batch, now=now)
        count += len(links)
    if count:
        roll_up()
    return count


@dataclass
class _Kernel:
    """One direction of one link: its counters, and what somebody wants to send through it."""

    limit_kbit: int
    dice: random.Random
    counters: tuple[int, int, int] = (0, 0, 0)
    samples: list[Sample] = field(default_factory=list)

    def carry(self, at: datetime, share: float) -> None:
        """`share` of the limit is wanted for 10 s; above 1 it is dropped."""
        wanted = int(self.limit_kbit * 1000 / 8 * 10 * share * self.dice.uniform(0.8, 1.2))
        most = self.limit_kbit * 1000 // 8 * 10
        carried = min(wanted + min(HEARTBEATS_BYTES, most), most)
        dropped = max(0, wanted - most) // PACKET_BYTES
        if self.limit_kbit == 0:
            dropped = 50  # heartbeats
        before = self.counters
        self.counters = (before[0] + carried, before[1] + carried // PACKET_BYTES + 1, before[2] + dropped)
        backlog = self.limit_kbit * 1000 // 8 // 10 if carried == most else 0  # 100 ms of the limit
        self.samples.append(Sample(at, self.limit_kbit, *self.counters, backlog))


def _batches(host: Host, links: Mapping[int, Link], now: datetime) -> Iterator[Batch]:
    if not links:
        return
    kernels = {
        (interface_id, name): _Kernel(link.enforced_kbit, random.Random(f"{link} {name}"))  # noqa: S311  a demo
        for interface_id, link in links.items()
        for name in DIRECTIONS
    }
    version = (selectors.generation(), host.config_version)
    first = floor(now, TEN_SECONDS) - timedelta(hours=HOURS)
    for number in range(HOURS * 3600 // 10 // SAMPLES):
        times = [first + (number * SAMPLES + index + 1) * TEN_SECONDS for index in range(SAMPLES)]
        for (interface_id, name), kernel in kernels.items():
            kernel.samples = []
            for at in times:
                kernel.carry(at, _share(interface_id, name, number))
        if number not in SILENT:
            said: dict[int, dict[DirectionName, DirectionSamples]] = {}
            for (interface_id, name), kernel in kernels.items():
                said.setdefault(interface_id, {})[name] = DirectionSamples("demo", kernel.samples)
            key = hashlib.sha256(f"{host.uid} {times[0]}".encode()).hexdigest()[:32]
            yield Batch(key, "demo", version, times, said)


def _share(interface_id: int, name: DirectionName, number: int) -> float:
    """Somebody works for an hour or two and copies something in between, on each link at another time."""
    phase = interface_id + (0.5 if name == "from_user" else 0)
    work = max(0.0, math.sin(number / 5 + phase)) * (0.6 if name == "to_user" else 0.2)
    return work + (1.5 if (number + interface_id) % 9 == 0 else 0.0)
