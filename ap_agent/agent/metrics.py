"""Metrics for Prometheus: over HTTP (`metrics_listen`), or in a file for node_exporter (`metrics_file`).

The loop publishes what it knows as one value after each step, and counts what happens; a scrape reads these from a
thread of its own and asks nobody. docs/agent.md has the list.
"""

from __future__ import annotations

import socket
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from ap_agent import __version__
from ap_agent.agent.store import write_atomically
from ap_agent.common import threads
from ap_agent.common.errors import AgentError
from ap_agent.model import Problem
from ap_agent.usage.keeper import Newest
from bandwidth_config import LinkInfo

_CYCLE_BUCKETS_S = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SLOWEST_READER_S = 5.0  # one scrape at a time: whoever does not read must not keep the next one for long
_END_WITHIN_S = 1.0  # how long it goes on after it was closed
_PER_LINK = ("interface_id", "isd_as", "direction")


@dataclass(frozen=True)
class Snapshot:
    """What holds after a step of the loop. Times are Unix seconds; `links` are those of the configuration."""

    version: str | None = None
    limits_version: int | None = None
    links: Mapping[int, LinkInfo] = field(default_factory=dict)
    enforced: int = 0
    not_enforced: int = 0
    problems: tuple[Problem, ...] = ()
    last_contact_at: float | None = None
    failures: int = 0
    newest: Newest | None = None
    samples: int = 0
    missed_samples: int = 0
    sample_seconds: float = 0.0
    spool_bytes: int = 0
    spool_batches: int = 0
    uploads: Mapping[str, int] = field(default_factory=dict)


class Metrics:
    """Of one agent. `cycle` and `publish` are for the loop's thread, `text` for any."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.snapshot = Snapshot()
        self._cycles = Counter(
            "scionlab_bw_agent_cycles",
            "Comparisons of the kernel with the configuration, by how they ended: ok, incomplete, failed.",
            ["result"],
            registry=self.registry,
        )
        for result in ("ok", "incomplete", "failed"):
            self._cycles.labels(result)
        self._writes = Counter("scionlab_bw_agent_kernel_writes", "Changes made in the kernel.", registry=self.registry)
        self._cycle_seconds = Histogram(
            "scionlab_bw_agent_cycle_seconds",
            "How long one comparison with its changes took.",
            buckets=_CYCLE_BUCKETS_S,
            registry=self.registry,
        )
        self._lag_seconds = Histogram(
            "scionlab_bw_agent_apply_lag_seconds",
            "From the arrival of a new configuration to its limits read back from the kernel.",
            buckets=_CYCLE_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(_Snapshots(self))

    def cycle(self, result: str, seconds: float, writes: int) -> None:
        self._cycles.labels(result).inc()
        self._cycle_seconds.observe(seconds)
        self._writes.inc(writes)

    def applied(self, seconds: float) -> None:
        """A new configuration is in the kernel, so long after it arrived."""
        self._lag_seconds.observe(seconds)

    def publish(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)

    def write_file(self, path: Path) -> None:
        """For node_exporter, which reads the file whenever it likes. Raises `OSError`."""
        write_atomically(path, self.text(), mode=0o644)


class _Snapshots(Collector):
    """What is taken from the newest snapshot."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        snapshot = self._metrics.snapshot
        yield from _of_agent(snapshot)
        yield from _of_usage(snapshot)
        yield from _of_links(snapshot)


def _gauge(name: str, text: str, value: float | None) -> Iterator[Metric]:
    """Nothing at all where nothing is known: a 0 would be a statement."""
    if value is not None:
        yield GaugeMetricFamily(f"scionlab_bw_agent_{name}", text, value=value)


def _of_agent(snapshot: Snapshot) -> Iterator[Metric]:
    yield InfoMetricFamily("scionlab_bw_agent_build", "The agent's version.", value={"version": __version__})
    states = GaugeMetricFamily("scionlab_bw_agent_links", "Limited links, by their state.", labels=["state"])
    states.add_metric(["enforced"], snapshot.enforced)
    states.add_metric(["error"], snapshot.not_enforced)
    yield states
    problems = GaugeMetricFamily("scionlab_bw_agent_problems", "What is wrong now, by code.", labels=["code"])
    for code, number in sorted(Tally(one.code for one in snapshot.problems).items()):
        problems.add_metric([code], number)
    yield problems
    if snapshot.version is not None:
        generation, config = map(int, snapshot.version.split("."))
        yield from _gauge("config_generation", "G of the configuration that is enforced.", generation)
        yield from _gauge("config_version", "H of the configuration that is enforced.", config)
        yield from _gauge("limits_version", "L of the configuration that is enforced.", snapshot.limits_version)
    contact = "When the service last gave a sensible answer, in Unix time."
    yield from _gauge("service_last_contact_timestamp_seconds", contact, snapshot.last_contact_at)
    yield from _gauge("service_failures", "Questions to the service that failed in a row.", snapshot.failures)


def _of_usage(snapshot: Snapshot) -> Iterator[Metric]:
    samples = CounterMetricFamily(
        "scionlab_bw_agent_usage_samples", "Samples of the kernel's counters, by how they went.", labels=["result"]
    )
    samples.add_metric(["ok"], snapshot.samples)
    samples.add_metric(["missed"], snapshot.missed_samples)
    yield samples
    if snapshot.newest is not None:
        taken = "When the counters were read, in Unix time."
        yield from _gauge("usage_last_sample_timestamp_seconds", taken, snapshot.newest.at_ms / 1000)
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
    """Counters are those of a segment: they begin again at 0 with another class, as Prometheus expects of counters."""
    labels = list(_PER_LINK)
    limit = GaugeMetricFamily("scionlab_bw_link_limit_bits_per_second", "The rate in the kernel.", labels=labels)
    size = CounterMetricFamily("scionlab_bw_link_bytes", "What passed, as the kernel charges it.", labels=labels)
    packets = CounterMetricFamily("scionlab_bw_link_packets", "What passed.", labels=labels)
    drops = CounterMetricFamily("scionlab_bw_link_drops", "Packets beyond the limit.", labels=labels)
    backlog = GaugeMetricFamily("scionlab_bw_link_backlog_bytes", "What waited in the queues.", labels=labels)
    for (number, direction), row in sorted(snapshot.newest.rows.items() if snapshot.newest is not None else ()):
        link = snapshot.links.get(number)
        values = [str(number), (link.isd_as if link is not None else None) or "", direction]
        limit.add_metric(values, row.rate_kbit * 1000)
        size.add_metric(values, row.bytes)
        packets.add_metric(values, row.packets)
        drops.add_metric(values, row.drops)
        backlog.add_metric(values, row.backlog_bytes)
    yield from (limit, size, packets, drops, backlog)


# --- over HTTP ------------------------------------------------------------------------------------------------------


class _Handler(WSGIRequestHandler):
    timeout = _SLOWEST_READER_S

    def log_message(self, *_args: Any) -> None:
        """The agent's log has other things to say."""


class _Server(WSGIServer):
    def server_bind(self) -> None:
        """As `HTTPServer` does it, which asks the DNS for this host's name before: at boot it may not answer for long,
        and until then nothing is enforced."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """Whoever asked hung up."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class MetricsServer:
    """Answers scrapes, one at a time, in a thread beside. Raises `AgentError` where nobody can listen there."""

    def __init__(self, metrics: Metrics, address: str, port: int) -> None:
        server_class = _Server6 if ":" in address else _Server
        try:
            self._server = make_server(
                address, port, make_wsgi_app(metrics.registry), server_class=server_class, handler_class=_Handler
            )
        except OSError as exc:
            raise AgentError(
                f"Metrics cannot be served at {address} port {port}: {exc.strerror}. Choose another metrics_listen."
            ) from exc
        self.is_ipv6 = ":" in address
        threads.start("metrics", self._serve)

    def _serve(self) -> None:
        self._server.serve_forever(_END_WITHIN_S)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
