"""Scheduling of requests: one thread polls for configurations, another one sends reports: receipts first, then usage.

Everything but the requests themselves happens in the loop's thread. `backoff` decides the next poll.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ap_agent.agent.agent import Agent
from ap_agent.agent.background import Background
from ap_agent.agent.backoff import POLL_JITTER, Backoff, Pulled
from ap_agent.agent.fetch import FetchResult, NotModified, ReceiptAnswer
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
        self._agent, self._usage, self._results, self._log = agent, usage, results, logger
        self.background = background
        self._monotonic, self._uniform = monotonic, uniform
        self._told_at = -STEP_RECEIPT_S  # last complete receipt
        self._may_have_news = False
        self.plan_anew()

    def plan_anew(self) -> None:
        settings = self._agent.settings
        self.background.abandon()
        self._backoff = Backoff(settings.poll_interval_s, settings.backoff_max_s, 0, self._uniform)
        self.next_receipt = self._not_before = self._monotonic()
        self._usage.plan_anew(settings)
        self._results.plan_anew(settings)

    def note_news(self) -> None:
        """Something happened that may need a receipt."""
        self._may_have_news = True

    def note_step(self) -> None:
        """A timed limit changed the kernel: send a receipt, unless one was just sent."""
        self.next_receipt = min(self.next_receipt, max(self._monotonic(), self._told_at + STEP_RECEIPT_S))

    def moment(self, *, is_reachable: bool) -> float | None:
        """Time of the next report; None while one is running, or the service is unreachable."""
        if not self._can_send(is_reachable=is_reachable):
            return None
        receipt = self._not_before if self._may_have_news else max(self.next_receipt, self._not_before)
        upload = self._usage.next_upload()
        return min(receipt, self._results.next_upload(), *(() if upload is None else (upload,)))

    def _can_send(self, *, is_reachable: bool) -> bool:
        return self._agent.client is not None and is_reachable and self.background.is_free

    def step(self, *, is_reachable: bool) -> None:
        if not self._can_send(is_reachable=is_reachable):
            return
        self._send_receipt()
        self._send_result()
        upload = self._usage.next_upload()
        client = self._agent.client
        if client is None or upload is None or self._monotonic() < upload or not self.background.is_free:
            return
        call = self._usage.upload(client)
        if call is not None:
            self.background.send(call, self._usage.uploaded)

    def _send_result(self) -> None:
        client = self._agent.client
        if client is None or not self.background.is_free or self._monotonic() < self._results.next_upload():
            return
        call = self._results.upload(client)
        if call is not None:
            self.background.send(call, self._results.uploaded)

    def _send_receipt(self) -> None:
        now, client = self._monotonic(), self._agent.client
        is_due = now >= self.next_receipt
        if client is None or now < self._not_before or not (self._may_have_news or is_due):
            return
        self._may_have_news = False
        receipt: Receipt | None = None
        with contained(self._agent.extra, self._log, "receipt"):
            receipt = self._agent.receipt(even_if_old=is_due)
        if is_due:  # with jitter: so that hosts started together drift apart
            pause = self._uniform(1 - POLL_JITTER, 1 + POLL_JITTER)
            self.next_receipt = now + self._agent.settings.receipt_interval_s * pause
            self._told_at = now
        if receipt is not None:
            self._backoff.begin(now)
            self.background.send(sending(client, receipt), partial(self._took, receipt))

    def _took(self, receipt: Receipt, outcome: ReceiptAnswer | Exception) -> None:
        agent = self._agent
        error: AgentError | None = AgentError(_BUG)
        with contained(agent.extra, self._log, "receipt"):
            error = agent.receipts.took(receipt, _expected(outcome), agent.facts(), agent.settings.url or "")
        now = self._monotonic()
        delay_s = self._backoff.end(Pulled("none", error), now)
        self._not_before = now
        if error is None:
            self._may_have_news = self._may_have_news or agent.receipts.owes_evidence
        else:
            self._may_have_news, self._not_before = True, now + delay_s
