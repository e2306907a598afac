"""Which receipt to send when, and what its answer means. Sending it is somebody else's thread (`reports`)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ap_agent.agent.bundle import Bundle
from ap_agent.agent.fetch import Client, ReceiptAnswer
from ap_agent.agent.receipt import Sender, build_receipt, news
from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.document.state import LimiterState

FAILED = "receipt_failed"


@dataclass(frozen=True)
class Receipt:
    """One on its way. `version` (G.H) is to be confirmed with it, where that is wanted."""

    document: dict[str, Any]
    news: object
    writes: tuple[str, int] | None
    version: str | None

    @property
    def has_evidence(self) -> bool:
        return "evidence" in self.document


@dataclass(frozen=True)
class Facts:
    """What there is to tell. `bundle` is the agent's own: it has the evidence, if the limiter has the same."""

    state: LimiterState | None
    problems: tuple[Problem, ...]
    bundle: Bundle | None
    clock_skew_ms: int | None
    now: datetime

    def evidence(self) -> dict[str, Any] | None:
        if self.bundle is None or self.state is None or self.bundle.limits_digest != self.state.limits_digest:
            return None
        return self.bundle.evidence()


class Receipts:
    """Of one run of the agent. `problem` says that the last one did not arrive."""

    def __init__(self, logger: Logger) -> None:
        self.problem: Problem | None = None
        self.owes_evidence = False  # the service asked for it, and no receipt with it was sent yet
        self._log = logger
        self._run = secrets.token_hex(16)
        self._built = 0
        self._told: object = None
        self._told_writes: tuple[str, int] | None = None
        self._confirmed: str | None = None
        self._evidence_wanted = False

    def next(self, facts: Facts, *, even_if_old: bool, confirms: bool) -> Receipt | None:
        """What to send now; None where the service knows it. `confirms`: this host installs configurations itself."""
        told = tuple(one for one in facts.problems if one.code != FAILED)
        newest = news(facts.state, told)
        state = facts.state
        writes = (state.run, state.writes) if state is not None else None
        has_written = state is not None and not state.is_step and writes != self._told_writes and state.writes > 0
        if not (even_if_old or has_written or self.owes_evidence) and newest == self._told:
            return None
        self.owes_evidence = False
        self._built += 1
        document = build_receipt(
            state,
            told,
            Sender(self._run, self._built, facts.clock_skew_ms),
            now=facts.now,
            writes=self._since_told(writes),
            evidence=facts.evidence() if self._evidence_wanted else None,
        )
        version = document["version"] if confirms else None
        return Receipt(document, newest, writes, version if version != self._confirmed else None)

    def _since_told(self, writes: tuple[str, int] | None) -> int:
        if writes is None:
            return 0
        before = self._told_writes
        return writes[1] - before[1] if before is not None and before[0] == writes[0] else writes[1]

    def took(self, receipt: Receipt, outcome: ReceiptAnswer | AgentError, facts: Facts, url: str) -> AgentError | None:
        """How sending it went; returns the error."""
        error = outcome if isinstance(outcome, AgentError) else None
        if isinstance(outcome, ReceiptAnswer):
            self._evidence_wanted = outcome.evidence_wanted
            # At once only where this one had none: a service that always asks must not be told without a pause.
            wanted = outcome.evidence_wanted and not receipt.has_evidence
            self.owes_evidence = wanted and facts.evidence() is not None
            error = None if outcome.is_stored else _not_stored(receipt)
        if error is not None:
            self._told = None
            self.problem = Problem(FAILED, url, error.message)
            return error
        self._told, self._told_writes = receipt.news, receipt.writes
        if receipt.version is not None:
            self._confirmed = receipt.version
            self._log.info("config.confirmed", version=receipt.version)
        self.problem = None
        self._log.debug("receipt.sent", writes=receipt.document["writes"])
        return None


def sending(client: Client, receipt: Receipt) -> Callable[[], ReceiptAnswer]:
    """Sending it, as a call that touches nothing of the agent: any thread may make it."""

    def send() -> ReceiptAnswer:
        answer = client.send_receipt(receipt.document)
        if receipt.version is not None:
            client.confirm_config(receipt.version)
        return answer

    return send


def _not_stored(receipt: Receipt) -> AgentError:
    return AgentError(
        f"The service did not store the receipt of {receipt.document['observed_at']}, because it has a newer one of "
        "this host. If this host's clock was set back, correct it; if another host uses these credentials, enrol that "
        "one with a token of its own.",
        retryable=True,
    )
