"""Metrics for Prometheus: which there are, and what they are taken from. docs/agent.md has the list.

The loop publishes what it knows as one value after each step; a scrape reads it from a thread of its own.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from ap_agent import __version__
from ap_agent.common.problem import Problem
from ap_agent.document.state import LimiterState
from bandwidth_config import LinkInfo

_LAG_BUCKETS_S = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PER_LINK = ("interface_id", "isd_as", "direction")


@dataclass(frozen=True)
class Snapshot:
    """What holds after a step of the loop. Times are Unix seconds; `links` are those of the configuration."""

    state: LimiterState | None = None
    is_silent: bool = True
    links: Mapping[int, LinkInfo] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    last_contact_at: float | None = None
    failures: int = 0
    sampled_at: float | None = None
    samples: int = 0
    missed_samples: int = 0
    sample_seconds: float = 0.0
    spool_bytes: int = 0
    spool_batches: int = 0
    uploads: Mapping[str, int] = field(default_factory=dict)


class Values(Collector):
    """The newest snapshot as metrics, and what is counted as it happens. Any thread may collect."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.snapshot = Snapshot()
        self.writes = Counter("scionlab_bw_agent_kernel_writes", "Changes made in the kernel.", registry=self.registry)
        self.cycles = Counter(
            "scionlab_bw_agent_cycles",
            "States of the limiter that were read, by what it said: ok, incomplete, failed.",
            ["result"],
            registry=self.registry,
        )
        for result in ("ok", "incomplete", "failed"):
            self.cycles.labels(result)
        self.lag_seconds = Histogram(
            "scionlab_bw_agent_apply_lag_seconds",
            "From the arrival of a new configuration to its limits read back from the kernel.",
            buckets=_LAG_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        snapshot = self.snapshot
        yield from _of_agent(snapshot)
        yield from _of_usage(snapshot)
        yield from _of_links(snapshot)


def _gauge(name: str, text: str, value: float | None) -> Iterator[Metric]:
    """Nothing at all where nothing is known: a 0 would be a statement."""
    if value is not None:
        yield GaugeMetricFamily(f"scionlab_bw_agent_{name}", text, value=value)


def _of_agent(snapshot: Snapshot) -> Iterator[Metric]:
    yield InfoMetricFamily("scionlab_bw_agent_build", "The agent's version.", value={"version": __version__})
    state = snapshot.state
    found = Tally(link.state for link in (state.links.values() if state is not None else ()))
    states = GaugeMetricFamily("scionlab_bw_agent_links", "Limited links, by their state.", labels=["state"])
    for name in ("enforced", "observed", "error"):
        states.add_metric([name], found[name])
    yield states
    problems = GaugeMetricFamily("scionlab_bw_agent_problems", "What is wrong now, by code.", labels=["code"])
    for code, number in sorted(Tally(one.code for one in snapshot.problems).items()):
        problems.add_metric([code], number)
    yield problems
    order = state.order if state is not None else None
    if order is not None:
        yield from _gauge("config_generation", "G of the configuration that is enforced.", order.generation)
        yield from _gauge("config_version", "H of the configuration that is enforced.", order.config_version)
        yield from _gauge("limits_version", "L of the configuration that is enforced.", order.limits_version)
    contact = "When the service last gave a sensible answer, in Unix time."
    yield from _gauge("service_last_contact_timestamp_seconds", contact, snapshot.last_contact_at)
    yield from _gauge("service_failures", "Questions to the service that failed in a row.", snapshot.failures)
    yield from _gauge("limiter_up", "1 while the limiter tells what the kernel has.", not snapshot.is_silent)


def _of_usage(snapshot: Snapshot) -> Iterator[Metric]:
    samples = CounterMetricFamily(
        "scionlab_bw_agent_usage_samples", "Samples of the limiter's counters, by how they went.", labels=["result"]
    )
    samples.add_metric(["ok"], snapshot.samples)
    samples.add_metric(["missed"], snapshot.missed_samples)
    yield samples
    taken = "When the counters were read, in Unix time."
    yield from _gauge("usage_last_sample_timestamp_seconds", taken, snapshot.sampled_at)
    yield from _gauge("usage_sample_seconds", "How long the newest sample took.", snapshot.sample_seconds)
    yield from _gauge("usage_spool_bytes", "What is on the disk and the service does not have.", snapshot.spool_bytes)
    yield from _gauge("usage_spool_batches", "Batches that wait to be sent.", snapshot.spool_batches)
    uploads = CounterMetricFamily(
        "scionlab_bw_agent_usage_uploads", "Batches offered to the service, by how that went.", labels=["result"]
    )
    for result, number in snapshot.uploads.items():
        uploads.add_metric([result], number)
    yield uploads


def _of_links(snapshot: Snapshot) -> Iterator[Metric]:
    """Counters are those of a segment: they begin again at 0 with another one, as Prometheus expects of counters."""
    labels = list(_PER_LINK)
    limit = GaugeMetricFamily("scionlab_bw_link_limit_bits_per_second", "The rate in the kernel.", labels=labels)
    size = CounterMetricFamily("scionlab_bw_link_bytes", "What passed, as the kernel charges it.", labels=labels)
    packets = CounterMetricFamily("scionlab_bw_link_packets", "What passed.", labels=labels)
    drops = CounterMetricFamily("scionlab_bw_link_drops", "Packets beyond the limit.", labels=labels)
    refused = CounterMetricFamily("scionlab_bw_link_refused", "Of these, those refused in front.", labels=labels)
    backlog = GaugeMetricFamily("scionlab_bw_link_backlog_bytes", "What waited in the queues.", labels=labels)
    state = snapshot.state
    for number, one in sorted(state.links.items() if state is not None else ()):
        link = snapshot.links.get(number)
        for direction, side in (("from_user", one.from_user), ("to_user", one.to_user)):
            if side is None:
                continue
            values = [str(number), (link.isd_as if link is not None else None) or "", direction]
            limit.add_metric(values, side.rate_kbit * 1000)
            size.add_metric(values, side.counters.passed_bytes)
            packets.add_metric(values, side.counters.passed_packets)
            drops.add_metric(values, side.drops)
            refused.add_metric(values, side.counters.refused_packets)
            backlog.add_metric(values, side.backlog_bytes)
    yield from (limit, size, packets, drops, refused, backlog)
