"""Where metrics are shown: over HTTP (`metrics_listen`), or in a file for node_exporter (`metrics_file`)."""

from __future__ import annotations

import socket
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app

from ap_agent.agent.agent import Agent
from ap_agent.agent.exchange import Polls
from ap_agent.agent.metrics import Snapshot, Values
from ap_agent.agent.usage import Usage
from ap_agent.common import threads
from ap_agent.common.errors import AgentError
from ap_agent.common.files import write_atomically
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.document.state import LimiterState

FILE_INTERVAL_S = 15.0
_LISTEN, _FILE = "metrics listen", "metrics file"
_SLOWEST_READER_S = 5.0  # one scrape at a time: whoever does not read must not keep the next one for long
_END_WITHIN_S = 1.0  # how long it goes on after it was closed


class Exporter:
    """Of one agent. Everything but a scrape happens in the loop's thread."""

    def __init__(self, agent: Agent, usage: Usage, polls: Polls, logger: Logger) -> None:
        self.values = Values()
        self.server: MetricsServer | None = None
        self._agent, self._usage, self._polls, self._log = agent, usage, polls, logger
        self._listens: tuple[str, int] | None = None
        self._next_file = 0.0
        self._state: LimiterState | None = None

    def plan_anew(self, now: float) -> None:
        """With the agent's settings as they are now."""
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
        """Stop listening."""
        former, self.server, self._listens = self.server, None, None
        if former is not None:
            threads.start("metrics end", former.close)

    def note_state(self, state: LimiterState, now: float) -> None:
        """The limiter wrote another state."""
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
        """What holds now, for the next scrape, and into the file if it is time."""
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
                f"Metrics cannot be written to {path}: {exc.strerror}. Let the agent write there, or choose another "
                "file."
            )
            agent.extra[_FILE] = Problem("metrics_unavailable", str(path), text)


class _Handler(WSGIRequestHandler):
    timeout = _SLOWEST_READER_S

    def log_message(self, *_args: Any) -> None:
        """The agent's log has other things to say."""


class _Server(WSGIServer):
    def server_bind(self) -> None:
        """As `HTTPServer` does it, which asks the DNS for this host's name before: at boot it may not answer for long,
        and until then nothing is handed over."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """Whoever asked hung up."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class MetricsServer:
    """Answers scrapes, one at a time, in a thread beside. Raises `AgentError` where nobody can listen there."""

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
