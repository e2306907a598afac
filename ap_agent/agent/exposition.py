"""Showing metrics: counts what happens in the loop, publishes a snapshot after each step, and keeps the server or the
file that the configuration asks for."""

from __future__ import annotations

from functools import partial

from ap_agent.agent.companion import Companion, Surroundings
from ap_agent.agent.correspondence import Correspondence, loudly
from ap_agent.agent.cycle import Agent
from ap_agent.agent.metrics import Metrics, MetricsServer, Snapshot
from ap_agent.common import threads
from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.enforcing import Enforced
from ap_agent.model import Problem
from ap_agent.usage.recorder import UsageRecorder

FILE_INTERVAL_S = 15.0
_LISTEN, _FILE = "metrics listen", "metrics file"


class Exposition(Companion):
    """Of one agent and what it records."""

    def __init__(self, agent: Agent, logger: Logger, usage: UsageRecorder) -> None:
        self._agent = agent
        self._log = logger
        self._usage = usage
        self.metrics = Metrics()
        self.server: MetricsServer | None = None
        self._listens: tuple[str, int] | None = None

    def attach(self, around: Surroundings) -> None:
        self._errand = around.errands()
        self._monotonic = around.monotonic
        self.plan_anew()

    def plan_anew(self) -> None:
        self._next_file = self._monotonic()
        for key in (_LISTEN, _FILE):
            self._agent.extra.pop(key, None)
        wanted = self._agent.settings.metrics_listen
        if wanted == self._listens:
            return
        former, self.server, self._listens = self.server, None, None
        if former is not None:
            threads.start("metrics end", former.close)
        if wanted is None:
            return
        try:
            self.server = MetricsServer(self.metrics, *wanted)
        except AgentError as exc:
            self._agent.extra[_LISTEN] = Problem("metrics_unavailable", "metrics_listen", exc.message)
            return
        self._listens = wanted
        self._log.info("metrics.listening", address=wanted[0], port=self.server.port)

    # --- what happens -----------------------------------------------------------------------------------------------

    def enforced(self, version: str | None, enforced: Enforced | None, seconds: float) -> None:
        if version is None:
            return
        is_finished = enforced is not None and enforced.result is not None
        result = "failed" if enforced is None or not is_finished else "ok" if enforced.ok else "incomplete"
        self.metrics.cycle(result, seconds, enforced.writes if enforced is not None else 0)
        arrived, self._agent.arrived_at = self._agent.arrived_at, None
        if arrived is not None and result != "failed":
            self.metrics.applied(self._monotonic() - arrived)

    def step(self, service: Correspondence) -> None:
        self.metrics.publish(self._snapshot(service))
        path, now = self._agent.settings.metrics_file, self._monotonic()
        if path is not None and self._errand.is_free and now >= self._next_file:
            self._next_file = now + FILE_INTERVAL_S
            self._errand.send(partial(self.metrics.write_file, path), self._written)
            self._errand.finish()

    def _written(self, outcome: Exception | None) -> None:
        with loudly(self._agent, self._log, "metrics file"):
            if outcome is None:
                self._agent.extra.pop(_FILE, None)
            elif isinstance(outcome, OSError | AgentError):
                why = outcome.message if isinstance(outcome, AgentError) else outcome.strerror
                path = str(self._agent.settings.metrics_file)
                text = f"Metrics cannot be written to {path}: {why}. Let the agent write there, or choose another file."
                self._agent.extra[_FILE] = Problem("metrics_unavailable", path, text)
            else:
                raise outcome

    def _snapshot(self, service: Correspondence) -> Snapshot:
        agent, usage = self._agent, self._usage
        links = agent.enforced.links if agent.enforced is not None else ()
        good = sum(one.state == "enforced" for one in links)
        kept = usage.kept
        return Snapshot(
            version=agent.bundle.version if agent.bundle is not None else None,
            limits_version=agent.bundle.limits_version if agent.bundle is not None else None,
            links=agent.bundle.links if agent.bundle is not None else {},
            enforced=good,
            not_enforced=len(links) - good,
            problems=agent.problems,
            last_contact_at=service.last_contact_at,
            failures=service.backoff.failures,
            newest=usage.newest,
            samples=usage.samples,
            missed_samples=usage.missed,
            sample_seconds=kept.seconds if kept is not None else 0.0,
            spool_bytes=kept.spool_bytes if kept is not None else 0,
            spool_batches=kept.waiting if kept is not None else 0,
            uploads={"stored": usage.sent, "refused": usage.refused, "failed": usage.failed},
        )

    @property
    def has_outcome(self) -> bool:  # type: ignore[override]  # asked, not kept
        return self._errand.has_outcome

    def finish(self) -> None:
        self._errand.finish()

    def moments(self, _service: Correspondence) -> list[float]:
        return [self._next_file] if self._agent.settings.metrics_file is not None and self._errand.is_free else []

    def drop(self) -> None:
        self._errand.abandon()
        if self.server is not None:
            threads.start("metrics end", self.server.close)
