"""Metrics for Prometheus, over HTTP (`metrics_listen`) or in a file for node_exporter (`metrics_file`). Help texts
say what each is.
"""

from __future__ import annotations

import socket
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
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
from ap_agent.document.state import DirectionState, LimiterState, LinkState

FILE_INTERVAL_S = 15.0
_LISTEN, _FILE = "metrics listen", "metrics file"
_SLOWEST_READER_S = 5.0  # one scrape at a time: a client that does not read must not block the next for long
_END_WITHIN_S = 1.0  # how long it continues after closing
_LAG_BUCKETS_S = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PER_LINK = ["interface_id", "isd_as", "direction"]
_OF_LINK: tuple[tuple[type[Any], str, str, Callable[[DirectionState], int]], ...] = (
    (GaugeMetricFamily, "limit_bits_per_second", "Rate in the kernel; 0: blocked.", lambda side: side.rate_kbit * 1000),
    (
        CounterMetricFamily,
        "bytes",
        "Passed bytes, as charged by the kernel.",
        lambda side: side.counters.passed_bytes,
    ),
    (CounterMetricFamily, "packets", "Passed packets.", lambda side: side.counters.passed_packets),
    (CounterMetricFamily, "drops", "Packets above the limit.", lambda side: side.drops),
    (
        CounterMetricFamily,
        "refused",
        "Packets above the limit that were dropped before the queue.",
        lambda side: side.counters.refused_packets,
    ),
    (GaugeMetricFamily, "backlog_bytes", "Bytes waiting in the queues.", lambda side: side.backlog_bytes),
)


class Exporter(Collector):
    """What the agent knows as metrics, and counters of its own. Everything but `collect` happens in the loop's thread,
    which replaces values whole: a scrape sees the newest ones."""

    def __init__(self, agent: Agent, usage: Usage, polls: Polls, logger: Logger) -> None:
        self.registry = CollectorRegistry()
        self.server: MetricsServer | None = None
        self._agent, self._usage, self._polls, self._log = agent, usage, polls, logger
        self._listens: tuple[str, int] | None = None
        self._next_file = 0.0
        self._state: LimiterState | None = None
        self._writes = Counter("scionlab_bw_agent_kernel_writes", "Changes made in the kernel.", registry=self.registry)
        self._cycles = Counter(
            "scionlab_bw_agent_cycles",
            "States read from the limiter, by result: ok, incomplete, failed.",
            ["result"],
            registry=self.registry,
        )
        for result in ("ok", "incomplete", "failed"):
            self._cycles.labels(result)
        self._lag_seconds = Histogram(
            "scionlab_bw_agent_apply_lag_seconds",
            "Time from a new configuration until all its limits are read back from the kernel.",
            buckets=_LAG_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(self)

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
            self.server = MetricsServer(self.registry, *wanted)
        except AgentError as exc:
            self._agent.extra[_LISTEN] = Problem("metrics_unavailable", "metrics_listen", exc.message)
            return
        self._listens = wanted
        self._log.info("metrics.listening", address=wanted[0], port=self.server.port)

    def close(self) -> None:
        former, self.server, self._listens = self.server, None, None
        if former is not None:
            threads.start(former.close)

    def note_state(self, state: LimiterState, now: float) -> None:
        before, self._state = self._state, state
        self._cycles.labels("ok" if state.is_ok else "incomplete").inc()
        is_same_run = before is not None and before.run == state.run
        self._writes.inc(max(0, state.writes - (before.writes if before is not None and is_same_run else 0)))
        configuration = self._agent.configuration
        bundle, arrived_at = configuration.bundle, configuration.arrived_at
        if arrived_at is not None and bundle is not None and state.limits_digest == bundle.limits_digest:
            configuration.arrived_at = None
            if state.is_ok:
                self._lag_seconds.observe(now - arrived_at)

    def moment(self) -> float | None:
        """When the file is to be written next (monotonic)."""
        return self._next_file if self._agent.settings.metrics_file is not None else None

    def write_file(self, now: float) -> None:
        """If it is due."""
        agent, path = self._agent, self._agent.settings.metrics_file
        if path is None or now < self._next_file:
            return
        self._next_file = now + FILE_INTERVAL_S
        try:
            write_atomically(path, generate_latest(self.registry), mode=0o644, is_durable=False)
            agent.extra.pop(_FILE, None)
        except OSError as exc:
            text = (
                f"Metrics cannot be written to {path}: {exc.strerror}. Make it writable for the agent, or choose "
                "another file."
            )
            agent.extra[_FILE] = Problem("metrics_unavailable", str(path), text)

    # --- which there are --------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("scionlab_bw_agent_build", "The agent's version.", value={"version": __version__})
        state, usage = self._agent.limiter.state, self._usage
        links = state.links if state is not None else {}
        found = Tally(link.state for link in links.values())
        states = GaugeMetricFamily(
            "scionlab_bw_agent_links", "Limited links, by state: enforced, observed, error.", labels=["state"]
        )
        for name in ("enforced", "observed", "error"):
            states.add_metric([name], found[name])
        problems = GaugeMetricFamily("scionlab_bw_agent_problems", "Current problems, by code.", labels=["code"])
        for code, number in sorted(Tally(one.code for one in self._agent.problems).items()):
            problems.add_metric([code], number)
        samples = CounterMetricFamily(
            "scionlab_bw_agent_usage_samples",
            "Samples of the limiter's counters, by result: ok, missed.",
            labels=["result"],
        )
        for result, number in {"ok": usage.samples, "missed": usage.missed}.items():
            samples.add_metric([result], number)
        uploads = CounterMetricFamily(
            "scionlab_bw_agent_usage_uploads", "Batches by result: stored, refused, failed.", labels=["result"]
        )
        for result, number in {"stored": usage.sent, "refused": usage.refused, "failed": usage.failed}.items():
            uploads.add_metric([result], number)
        yield from (states, problems, samples, uploads)
        for name, text, value in self._gauges():
            yield GaugeMetricFamily(f"scionlab_bw_agent_{name}", text, value=value)
        yield from self._of_links(links)

    def _gauges(self) -> Iterator[tuple[str, str, float | None]]:
        """None: unknown, and no sample: a 0 would be a statement."""
        state, usage = self._agent.limiter.state, self._usage
        order, newest = state.order if state is not None else None, usage.newest
        if order is not None:
            yield "config_generation", "Generation of the enforced configuration.", order.generation
            yield "config_version", "Configuration version (H) that is enforced.", order.config_version
            yield "limits_version", "Limits version (L) that is enforced.", order.limits_version
        contact = "Time of the last valid response of the service, in Unix time."
        yield "service_last_contact_timestamp_seconds", contact, self._polls.last_contact_at
        yield "service_failures", "Consecutive failed requests to the service.", self._polls.backoff.failures
        yield "limiter_up", "1 while the limiter reports the state of the kernel.", not self._agent.limiter.is_silent
        taken = "Time of the newest sample, in Unix time."
        yield "usage_last_sample_timestamp_seconds", taken, newest.at_ms / 1000 if newest is not None else None
        yield "usage_sample_seconds", "Duration of the newest sample.", usage.sample_seconds
        yield "usage_spool_bytes", "Usage on disk that was not uploaded.", usage.spool_bytes
        yield "usage_spool_batches", "Batches waiting to be uploaded.", usage.waiting

    def _of_links(self, states: Mapping[int, LinkState]) -> list[Metric]:
        """Counters of a segment restart at 0 with a new one, as Prometheus expects."""
        bundle = self._agent.configuration.bundle
        links = bundle.links if bundle is not None else {}
        families = [kind(f"scionlab_bw_link_{name}", text, labels=_PER_LINK) for kind, name, text, _ in _OF_LINK]
        for number, one in sorted(states.items()):
            isd_as = (links[number].isd_as if number in links else None) or ""
            for direction, side in (("from_user", one.from_user), ("to_user", one.to_user)):
                if side is not None:
                    for family, (_, _, _, value) in zip(families, _OF_LINK, strict=True):
                        family.add_metric([str(number), isd_as, direction], value(side))
        return families


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
        threads.start(self._serve)

    def _serve(self) -> None:
        self._server.serve_forever(_END_WITHIN_S)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
