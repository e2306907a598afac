"""The enforcement receipt (docs/api.md): what the limiter read back from the kernel; when it is sent, and its response.
Another thread sends it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ap_agent import __version__
from ap_agent.agent.bundle import Bundle
from ap_agent.agent.fetch import Client, ReceiptAnswer
from ap_agent.common.consent import Consent
from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.common.times import time_text
from ap_agent.document.state import DirectionState, LimiterState, LinkState
from contract.link_tests import KINDS

SCHEMA = 1
FAILED = "receipt_failed"
DEVICE_TO_USER, DEVICE_FROM_USER = "slbw0", "slbw1"
# The service rejects a receipt with longer texts; a shortened sentence is better than no receipt.
_MAX_TEXT_CHARS = 2000
_MAX_SUBJECT_CHARS = 200
_MAX_PROBLEMS = 1000


@dataclass(frozen=True)
class Receipt:
    """A receipt being sent. `version` (G.H) is confirmed with it, if wanted."""

    document: dict[str, Any]
    news: object
    writes: tuple[str, int] | None
    version: str | None

    @property
    def has_evidence(self) -> bool:
        return "evidence" in self.document


@dataclass(frozen=True)
class Facts:
    """Content of a receipt. `bundle` is the agent's: it has the evidence, if the limiter uses the same."""

    state: LimiterState | None
    problems: tuple[Problem, ...]
    bundle: Bundle | None
    clock_skew_ms: int | None
    now: datetime
    sending_tests: Consent = "off"
    tests: tuple[str, ...] = ()  # armed tests

    @property
    def told(self) -> tuple[Problem, ...]:
        """A receipt does not say of itself that it failed."""
        return tuple(one for one in self.problems if one.code != FAILED)

    def evidence(self) -> dict[str, Any] | None:
        if self.bundle is None or self.state is None or self.bundle.limits_digest != self.state.limits_digest:
            return None
        return self.bundle.evidence()


class Receipts:
    """Receipts of one run of the agent. `problem` says that the last one did not arrive."""

    def __init__(self, logger: Logger) -> None:
        self.problem: Problem | None = None
        self.owes_evidence = False  # requested by the service, and not sent yet
        self._log = logger
        self._run = secrets.token_hex(16)
        self._built = 0
        self._told: object = None
        self._told_writes: tuple[str, int] | None = None
        self._confirmed: str | None = None
        self._evidence_wanted = False

    def next(self, facts: Facts, *, even_if_old: bool, confirms: bool) -> Receipt | None:
        """The next receipt; None without news. `confirms`: this host installs configurations itself."""
        newest = news(facts.state, facts.told), facts.sending_tests, facts.tests
        state = facts.state
        writes = (state.run, state.writes) if state is not None else None
        has_written = state is not None and not state.is_step and writes != self._told_writes and state.writes > 0
        if not (even_if_old or has_written or self.owes_evidence) and newest == self._told:
            return None
        self.owes_evidence = False
        self._built += 1
        document = build_receipt(facts, run=self._run, number=self._built, writes=self._since_told(writes))
        if self._evidence_wanted and (evidence := facts.evidence()) is not None:
            document["evidence"] = evidence
        version = document["version"] if confirms else None
        return Receipt(document, newest, writes, version if version != self._confirmed else None)

    def _since_told(self, writes: tuple[str, int] | None) -> int:
        if writes is None:
            return 0
        before = self._told_writes
        return writes[1] - before[1] if before is not None and before[0] == writes[0] else writes[1]

    def took(self, receipt: Receipt, outcome: ReceiptAnswer | AgentError, facts: Facts, url: str) -> AgentError | None:
        """Process the result of sending; return the error."""
        error = outcome if isinstance(outcome, AgentError) else None
        if isinstance(outcome, ReceiptAnswer):
            self._evidence_wanted = outcome.evidence_wanted
            # Immediately only if this one had none: a service that always asks must not cause a busy loop.
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
    """A call that sends it without touching the agent, for any thread."""

    def send() -> ReceiptAnswer:
        answer = client.send_receipt(receipt.document)
        if receipt.version is not None:
            client.confirm_config(receipt.version)
        return answer

    return send


def _not_stored(receipt: Receipt) -> AgentError:
    return AgentError(
        f"The service did not store the receipt of {receipt.document['observed_at']}, because it has a newer one of "
        "this host. If this host's clock was set back, correct it; if another host uses these credentials, enrol "
        "that host with its own token.",
        retryable=True,
    )


# --- its content ----------------------------------------------------------------------------------------------------


def build_receipt(facts: Facts, *, run: str, number: int, writes: int = 0) -> dict[str, Any]:
    """Build a receipt. Versions, digest and time are those that the limiter reports as in force; without a state
    nothing is. `run` identifies the start of the agent and `number` counts its receipts from 1, so that the order is
    independent of clocks. `writes` counts operations since the previous receipt."""
    state = facts.state
    order = state.order if state is not None else None
    return {
        "schema": SCHEMA,
        "agent_version": __version__,
        "version": order.configuration if order is not None else None,
        "limits_version": order.limits_version if order is not None else None,
        "observed_at": time_text(state.observed_at if state is not None else facts.now, "microseconds"),
        "writes": writes,
        "links": {str(one.interface_id): _link(one) for one in (state.links.values() if state else ())},
        "problems": [_problem(problem) for problem in facts.told[:_MAX_PROBLEMS]],
        "limits_digest": state.limits_digest if state is not None else None,
        "devices": list(state.devices) if state is not None else [],
        "total": state.total._asdict() if state is not None and state.total is not None else None,
        "observe_only": state.is_observe_only if state is not None else False,
        "tests": list(facts.tests),
        "sending_tests": facts.sending_tests,
        "test_kinds": sorted(KINDS),
        "run": run,
        "number": number,
        "clock_skew_ms": facts.clock_skew_ms,
    }


def _link(link: LinkState) -> dict[str, Any]:
    """`kbit` is the lower of both directions, for readers with one limit."""
    return {
        "kbit": link.limits.lowest_kbit,
        **link.limits._asdict(),
        "state": link.state,
        "problem": _clipped(link.problem, _MAX_TEXT_CHARS) if link.problem is not None else None,
        "to_user": _direction(link.to_user, DEVICE_TO_USER),
        "from_user": _direction(link.from_user, DEVICE_FROM_USER),
    }


def _direction(side: DirectionState | None, device: str) -> dict[str, Any] | None:
    if side is None:
        return None
    return {
        "dev": device,
        "rate_kbit": side.rate_kbit,
        "bytes": side.counters.passed_bytes,
        "packets": side.counters.passed_packets,
        "drops": side.drops,
        "backlog_bytes": side.backlog_bytes,
        "refused": side.counters.refused_packets,
        "dropped": side.dropped_packets,
    }


def _problem(problem: Problem) -> dict[str, str]:
    return {
        "code": problem.code,
        "subject": _clipped(problem.subject, _MAX_SUBJECT_CHARS),
        "message": _clipped(problem.message, _MAX_TEXT_CHARS),
    }


def _clipped(text: str, chars: int) -> str:
    storable = text.encode("utf-8", "replace").decode().replace("\0", "?")  # no lone surrogates, no NUL
    return storable if len(storable) <= chars else storable[: chars - 3] + "..."


def news(state: LimiterState | None, problems: Iterable[Problem]) -> object:
    """Hash of what needs an immediate receipt: everything but times, counters and the number of writes. Excludes
    changes of timed limits that the kernel follows: the service has the same schedule, and a receipt of thousands of
    links every second would add nothing."""
    listed = sorted((one.code, one.subject) for one in problems)
    if state is None:
        return None, listed
    links = [_said(link) for link in state.links.values()]
    same = state.order, state.limits_digest, state.is_observe_only, state.total, state.devices
    return *same, links, listed


def _said(link: LinkState) -> tuple[object, ...]:
    rates = [side.rate_kbit if side is not None else None for side in (link.to_user, link.from_user)]
    follows = link.state != "error" and rates == list(link.limits)
    return link.interface_id, link.state, link.problem, None if follows else (link.limits, rates)
