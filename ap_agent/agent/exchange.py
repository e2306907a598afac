"""Scheduling of requests: one thread polls for configurations, another one sends reports: receipts first,
then results of tests, then usage.

Everything but the requests themselves happens in the loop's thread. `backoff` decides the next poll.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ap_agent.agent.agent import Agent
from ap_agent.agent.background import Background
from ap_agent.agent.backoff import POLL_JITTER, Backoff, Pulled
from ap_agent.agent.fetch import Client, FetchResult, NotModified, ReceiptAnswer
from ap_agent.agent.live import Live
from ap_agent.agent.problems import contained
from ap_agent.agent.receipt import Receipt, sending
from ap_agent.agent.results import Results
from ap_agent.agent.usage import Uniform, Usage
from ap_agent.common.errors import AgentError, AuthError, FetchError
from ap_agent.common.log import Logger

# While limits change by the clock, perhaps every second, receipts are limited to this rate.
STEP_RECEIPT_S = 10.0
_BUG = "This is a bug in the agent; see the log for the traceback."

T = TypeVar("T")


def _expected(outcome: T | Exception) -> T | AgentError:
    """Raises unexpected exceptions of a request, whose traceback is then logged."""
    if isinstance(outcome, Exception) and not isinstance(outcome, AgentError):
        raise outcome
    return outcome


class Polls:
    """Polls for a newer configuration: one at a time, held by the service."""

    def __init__(
        self,
        agent: Agent,
        live: Live,
        logger: Logger,
        background: Background,
        *,
        monotonic: Callable[[], float],
        uniform: Uniform,
    ) -> None:
        self._agent, self._live, self._log = agent, live, logger
        self.background = background
        self._monotonic, self._uniform = monotonic, uniform
        self.is_reachable = True  # as far as the last poll showed
        self.last_contact_at: float | None = None  # Unix time, for display
        self.answers = 0  # number of accepted configurations
        self.plan_anew()

    def plan_anew(self) -> None:
        settings = self._agent.settings
        self.background.abandon()  # it belongs to the previous client
        self.backoff = Backoff(settings.poll_interval_s, settings.backoff_max_s, settings.long_poll_s, self._uniform)
        self.next_at = self._monotonic()

    def moment(self) -> float | None:
        """Time of the next poll; None while one is running, or without a service."""
        return self.next_at if self._agent.client is not None and self.background.is_free else None

    def step(self) -> None:
        due = self.moment()
        if due is None or self._monotonic() < due:
            return
        question = self._agent.configuration.question(wait_s=self.backoff.begin(self._monotonic()))
        if question is not None:
            self.background.send(question, self._take_up)

    def _take_up(self, answer: FetchResult | Exception) -> None:
        pulled = Pulled("failed", AgentError(_BUG))
        with contained(self._agent.extra, self._log, "fetch"):
            pulled = self._agent.configuration.take_up(_expected(answer))
            if isinstance(answer, NotModified):
                self._live.begin(answer.looked_at)
        now = self._monotonic()
        self.next_at = now + self.backoff.end(pulled, now)
        left_s = self._agent.configuration.hold_left_s
        if left_s > 0:  # a held configuration is accepted as soon as allowed
            self.next_at = min(self.next_at, now + left_s)
        # Unreachable or rejected: a receipt would only fail in the same way.
        self.is_reachable = not isinstance(pulled.error, FetchError | AuthError)
        if self.is_reachable:
            self.last_contact_at = time.time()
        self.answers += 1


class Queue(Protocol):
    """One kind of report on its way to the service. Everything but the call happens in the loop's thread."""

    def due(self) -> float | None:
        """When the next one is to be sent (monotonic); None without one."""

    def next_call(self, client: Client) -> Callable[[], Any] | None:
        """A call that sends it without touching the agent, for any thread; None: not now."""

    def took(self, outcome: Any) -> AgentError | None:
        """Process what the call returned or raised; return the error after which to pause."""


class Lane:
    """A queue with its back-off: what the service does not take of one kind delays no other."""

    def __init__(self, name: str, queue: Queue, agent: Agent, logger: Logger, clock: Callable[[], float]) -> None:
        self._name, self._queue, self._agent, self._log = name, queue, agent, logger
        self._monotonic = clock

    def plan_anew(self, uniform: Uniform) -> None:
        settings = self._agent.settings
        self._backoff = Backoff(settings.poll_interval_s, settings.backoff_max_s, 0, uniform)
        self._not_before = self._monotonic()

    def moment(self) -> float | None:
        due = self._queue.due()
        return max(due, self._not_before) if due is not None else None

    def start(self, client: Client, background: Background) -> None:
        """Send the next one if it is due."""
        moment, now = self.moment(), self._monotonic()
        if moment is None or now < moment:
            return
        self._backoff.begin(now)
        call: Callable[[], Any] | None = None
        with contained(self._agent.extra, self._log, self._name):
            call = self._queue.next_call(client)
        if call is not None:
            background.send(call, self.took)

    def took(self, outcome: Any) -> None:
        error: AgentError | None = AgentError(_BUG)
        with contained(self._agent.extra, self._log, self._name):
            error = self._queue.took(_expected(outcome))
        now = self._monotonic()
        pause_s = self._backoff.end(Pulled("none", error), now)
        self._not_before = now if error is None else now + pause_s


class ReceiptQueue:
    """A receipt at once when there is news, and regularly."""

    def __init__(self, agent: Agent, *, monotonic: Callable[[], float], uniform: Uniform) -> None:
        self._agent, self._monotonic, self._uniform = agent, monotonic, uniform
        self._told_at = -STEP_RECEIPT_S  # last complete receipt
        self._sent: Receipt | None = None
        self.has_news = False
        self.next_at = monotonic()

    def note_step(self) -> None:
        """A timed limit changed the kernel: send a receipt, unless one was just sent."""
        self.next_at = min(self.next_at, max(self._monotonic(), self._told_at + STEP_RECEIPT_S))

    def due(self) -> float:
        return self._monotonic() if self.has_news else self.next_at

    def next_call(self, client: Client) -> Callable[[], ReceiptAnswer] | None:
        now = self._monotonic()
        is_due, self.has_news = now >= self.next_at, False
        if is_due:  # with jitter: so that hosts started together drift apart
            pause = self._uniform(1 - POLL_JITTER, 1 + POLL_JITTER)
            self.next_at, self._told_at = now + self._agent.settings.receipt_interval_s * pause, now
        self._sent = self._agent.receipt(even_if_old=is_due)
        return sending(client, self._sent) if self._sent is not None else None

    def took(self, outcome: ReceiptAnswer | AgentError) -> AgentError | None:
        agent = self._agent
        if self._sent is None:
            return None
        error = agent.receipts.took(self._sent, outcome, agent.facts(), agent.settings.url or "")
        self.has_news = self.has_news or error is not None or agent.receipts.owes_evidence
        return error


class Reports:
    """Receipts; between them test results, then batches of usage. One request at a time."""

    def __init__(
        self,
        agent: Agent,
        usage: Usage,
        results: Results,
        logger: Logger,
        background: Background,
        *,
        monotonic: Callable[[], float],
        uniform: Uniform,
    ) -> None:
        self._agent, self._usage, self._uniform = agent, usage, uniform
        self.background = background
        self.receipts = ReceiptQueue(agent, monotonic=monotonic, uniform=uniform)
        queues: dict[str, Queue] = {"receipt": self.receipts, "test results": results, "usage upload": usage}
        self._lanes = [Lane(name, queue, agent, logger, monotonic) for name, queue in queues.items()]
        self._monotonic = monotonic
        self.plan_anew()

    def plan_anew(self) -> None:
        self.background.abandon()
        self.receipts.next_at = self._monotonic()
        self._usage.plan_anew(self._agent.settings)
        for lane in self._lanes:
            lane.plan_anew(self._uniform)

    def note_news(self) -> None:
        """Something happened that may need a receipt."""
        self.receipts.has_news = True

    def moment(self, *, is_reachable: bool) -> float | None:
        """Time of the next report; None while one is running, or the service is unreachable."""
        if not self._can_send(is_reachable=is_reachable):
            return None
        return min((moment for lane in self._lanes if (moment := lane.moment()) is not None), default=None)

    def _can_send(self, *, is_reachable: bool) -> bool:
        return self._agent.client is not None and is_reachable and self.background.is_free

    def step(self, *, is_reachable: bool) -> None:
        for lane in self._lanes:
            client = self._agent.client
            if client is None or not self._can_send(is_reachable=is_reachable):
                return
            lane.start(client, self.background)
