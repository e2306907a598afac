"""Metrics for Prometheus, over HTTP (`metrics_listen`) or in a file for node_exporter (`metrics_file`). Help texts
say what each is.

The loop publishes its state as one value after each step; scrapes read it from a separate thread.
"""

from __future__ import annotations

import socket
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from ap_agent import __version__
from ap_agent.agent.agent import Agent
from ap_agent.agent.exchange import Polls
from ap_agent.agent.usage import Usage
from ap_agent.common import threads
from ap_agent.common.errors import AgentError
from ap_agent.common.files import write_atomically
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.document.state import LimiterState
from contract.link_info import LinkInfo

FILE_INTERVAL_S = 15.0
_LISTEN, _FILE = "metrics listen", "metrics file"
_SLOWEST_READER_S = 5.0  # one scrape at a time: a client that does not read must not block the next for long
_END_WITHIN_S = 1.0  # how long it continues after closing
_LAG_BUCKETS_S = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PER_LINK = ("interface_id", "isd_as", "direction")


@dataclass(frozen=True)
class Snapshot:
    """State after a step of the loop. Times are Unix seconds; `links` are those of the configuration."""

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
    """The newest snapshot as metrics, and counters. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.snapshot = Snapshot()
        self.writes = Counter("scionlab_bw_agent_kernel_writes", "Changes made in the kernel.", registry=self.registry)
        self.cycles = Counter(
            "scionlab_bw_agent_cycles",
            "States read from the limiter, by result: ok, incomplete, failed.",
            ["result"],
            registry=self.registry,
        )
        for result in ("ok", "incomplete", "failed"):
            self.cycles.labels(result)
        self.lag_seconds = Histogram(
            "scionlab_bw_agent_apply_lag_seconds",
            "Time from a new configuration until its limits are read back from the kernel.",
            buckets=_LAG_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        snapshot = self.snapshot
        yield from _of_agent(snapshot)
        yield from _of_usage(snapshot)
        yield from _of_links(snapshot)


class Exporter:
    """Everything but a scrape happens in the loop's thread."""

    def __init__(self, agent: Agent, usage: Usage, polls: Polls, logger: Logger) -> None:
        self.values = Values()
        self.server: MetricsServer | None = None
        self._agent, self._usage, self._polls, self._log = agent, usage, polls, logger
        self._listens: tuple[str, int] | None = None
        self._next_file = 0.0
        self._state: LimiterState | None = None

    def plan_anew(self, now: float) -> None:
        self._next_file = now
        for key in (_LISTEN, _FILE):
            self._agent.extra.pop(key, None)
        wanted = self._agent.settings.metrics_listen
        if wanted == self._listens:
            return
        self.close()
        if wanted is None:
            return
        try:
            self.server = MetricsServer(self.values.registry, *wanted)
        except AgentError as exc:
            self._agent.extra[_LISTEN] = Problem("metrics_unavailable", "metrics_listen", exc.message)
            return
        self._listens = wanted
        self._log.info("metrics.listening", address=wanted[0], port=self.server.port)

    def close(self) -> None:
        former, self.server, self._listens = self.server, None, None
        if former is not None:
            threads.start("metrics end", former.close)

    def note_state(self, state: LimiterState, now: float) -> None:
        before, self._state = self._state, state
        self.values.cycles.labels("ok" if state.is_ok else "incomplete").inc()
        is_same_run = before is not None and before.run == state.run
        self.values.writes.inc(max(0, state.writes - (before.writes if before is not None and is_same_run else 0)))
        configuration = self._agent.configuration
        bundle, arrived_at = configuration.bundle, configuration.arrived_at
        if arrived_at is not None and bundle is not None and state.limits_digest == bundle.limits_digest:
            configuration.arrived_at = None
            self.values.lag_seconds.observe(now - arrived_at)

    def moment(self) -> float | None:
        """When the file is to be written next (monotonic)."""
        return self._next_file if self._agent.settings.metrics_file is not None else None

    def publish(self, now: float) -> None:
        """Publish the current values for scrapes, and write the file if due."""
        agent, usage = self._agent, self._usage
        bundle, newest = agent.configuration.bundle, usage.newest
        self.values.snapshot = Snapshot(
            state=agent.limiter.state,
            is_silent=agent.limiter.is_silent,
            links=bundle.links if bundle is not None else {},
            problems=agent.problems,
            last_contact_at=self._polls.last_contact_at,
            failures=self._polls.backoff.failures,
            sampled_at=newest.at_ms / 1000 if newest is not None else None,
            samples=usage.samples,
            missed_samples=usage.missed,
            sample_seconds=usage.sample_seconds,
            spool_bytes=usage.spool_bytes,
            spool_batches=usage.waiting,
            uploads={"stored": usage.sent, "refused": usage.refused, "failed": usage.failed},
        )
        path = agent.settings.metrics_file
        if path is None or now < self._next_file:
            return
        self._next_file = now + FILE_INTERVAL_S
        try:
            write_atomically(path, generate_latest(self.values.registry), mode=0o644, is_durable=False)
            agent.extra.pop(_FILE, None)
        except OSError as exc:
            text = (
                f"Metrics cannot be written to {path}: {exc.strerror}. Make it writable for the agent, or choose "
                "another file."
            )
            agent.extra[_FILE] = Problem("metrics_unavailable", str(path), text)


class _Handler(WSGIRequestHandler):
    timeout = _SLOWEST_READER_S

    def log_message(self, *_args: Any) -> None:
        """Scrapes are not logged."""


class _Server(WSGIServer):
    def server_bind(self) -> None:
        """Like `HTTPServer`, without its reverse DNS lookup of this host: at boot that may block for long and delay the
        hand-over."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """The client disconnected."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class MetricsServer:
    """Serves scrapes one at a time in a thread. Raises `AgentError` if it cannot listen."""

    def __init__(self, registry: CollectorRegistry, address: str, port: int) -> None:
        server_class = _Server6 if ":" in address else _Server
        try:
            self._server = make_server(
                address, port, make_wsgi_app(registry), server_class=server_class, handler_class=_Handler
            )
        except OSError as exc:
            raise AgentError(
                f"Metrics cannot be served at {address} port {port}: {exc.strerror}. Choose another metrics_listen."
            ) from exc
        threads.start("metrics", self._serve)

    def _serve(self) -> None:
        self._server.serve_forever(_END_WITHIN_S)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


# --- which there are ------------------------------------------------------------------------------------------------


def _gauge(name: str, text: str, value: float | None) -> Iterator[Metric]:
    """Unknown values are omitted: a 0 would be a statement."""
    if value is not None:
        yield GaugeMetricFamily(f"scionlab_bw_agent_{name}", text, value=value)


def _of_agent(snapshot: Snapshot) -> Iterator[Metric]:
    yield InfoMetricFamily("scionlab_bw_agent_build", "The agent's version.", value={"version": __version__})
    state = snapshot.state
    found = Tally(link.state for link in (state.links.values() if state is not None else ()))
    states = GaugeMetricFamily(
        "scionlab_bw_agent_links", "Limited links, by state: enforced, observed, error.", labels=["state"]
    )
    for name in ("enforced", "observed", "error"):
        states.add_metric([name], found[name])
    yield states
    problems = GaugeMetricFamily("scionlab_bw_agent_problems", "Current problems, by code.", labels=["code"])
    for code, number in sorted(Tally(one.code for one in snapshot.problems).items()):
        problems.add_metric([code], number)
    yield problems
    order = state.order if state is not None else None
    if order is not None:
        yield from _gauge("config_generation", "Generation of the enforced configuration.", order.generation)
        yield from _gauge("config_version", "Configuration version (H) that is enforced.", order.config_version)
        yield from _gauge("limits_version", "Limits version (L) that is enforced.", order.limits_version)
    contact = "Time of the last valid response of the service, in Unix time."
    yield from _gauge("service_last_contact_timestamp_seconds", contact, snapshot.last_contact_at)
    yield from _gauge("service_failures", "Consecutive failed requests to the service.", snapshot.failures)
    yield from _gauge("limiter_up", "1 while the limiter reports the state of the kernel.", not snapshot.is_silent)


def _of_usage(snapshot: Snapshot) -> Iterator[Metric]:
    samples = CounterMetricFamily(
        "scionlab_bw_agent_usage_samples",
        "Samples of the limiter's counters, by result: ok, missed.",
        labels=["result"],
    )
    samples.add_metric(["ok"], snapshot.samples)
    samples.add_metric(["missed"], snapshot.missed_samples)
    yield samples
    taken = "Time of the newest sample, in Unix time."
    yield from _gauge("usage_last_sample_timestamp_seconds", taken, snapshot.sampled_at)
    yield from _gauge("usage_sample_seconds", "Duration of the newest sample.", snapshot.sample_seconds)
    yield from _gauge("usage_spool_bytes", "Usage on disk that was not uploaded.", snapshot.spool_bytes)
    yield from _gauge("usage_spool_batches", "Batches waiting to be uploaded.", snapshot.spool_batches)
    uploads = CounterMetricFamily(
        "scionlab_bw_agent_usage_uploads", "Batches by result: stored, refused, failed.", labels=["result"]
    )
    for result, number in snapshot.uploads.items():
        uploads.add_metric([result], number)
    yield uploads


def _of_links(snapshot: Snapshot) -> Iterator[Metric]:
    """Counters of a segment restart at 0 with a new one, as Prometheus expects."""
    labels = list(_PER_LINK)
    limit = GaugeMetricFamily(
        "scionlab_bw_link_limit_bits_per_second", "Rate in the kernel; 0: blocked.", labels=labels
    )
    size = CounterMetricFamily("scionlab_bw_link_bytes", "Passed bytes, as charged by the kernel.", labels=labels)
    packets = CounterMetricFamily("scionlab_bw_link_packets", "Passed packets.", labels=labels)
    drops = CounterMetricFamily("scionlab_bw_link_drops", "Packets above the limit.", labels=labels)
    refused = CounterMetricFamily(
        "scionlab_bw_link_refused", "Packets above the limit that were dropped before the queue.", labels=labels
    )
    backlog = GaugeMetricFamily("scionlab_bw_link_backlog_bytes", "Bytes waiting in the queues.", labels=labels)
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
