"""State of the agent: the configuration in force, the limiter's state, and what the service has been sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from ap_agent.agent.backoff import Pulled
from ap_agent.agent.configuration import Configuration
from ap_agent.agent.fetch import Client
from ap_agent.agent.hold import uptime
from ap_agent.agent.kept_reports import KeptReports
from ap_agent.agent.limiter_view import LimiterView
from ap_agent.agent.problems import skew_problem
from ap_agent.agent.receipt import Facts, Receipt, Receipts, sending
from ap_agent.common import threads
from ap_agent.common.consent import Consent, sending_tests
from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.document.timetable import tests_by_id

_LOOK_S = 0.1
SEND_WITHIN_S = 5.0  # in total, including name resolution, which no connection timeout covers
_CONNECT_S, _READ_S, _DEADLINE_S = 2.0, 3.0, 4.0


class Agent:
    """The agent between its requests. `extra` are problems found by the loop."""

    def __init__(
        self,
        settings: Settings,
        client: Client | None,
        logger: Logger,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        uptime: Callable[[], int] = uptime,
    ) -> None:
        self.settings = settings
        self.client = client
        self.now, self._monotonic = now, monotonic
        self.configuration = Configuration(settings, client, logger, now=now, uptime=uptime)
        self.limiter = LimiterView(settings, now=now, monotonic=monotonic)
        self.receipts = Receipts(logger)
        self.kept = KeptReports(settings.state_dir)
        self.extra: dict[str, Problem] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All current problems: delivery, kernel, and this host."""
        receipt, skew = self.receipts.problem, skew_problem(self.clock_skew_ms)
        return (
            *self.configuration.problems,
            *self.limiter.problems(),
            *self.extra.values(),
            *(one for one in (receipt, skew) if one is not None),
        )

    @property
    def clock_skew_ms(self) -> int | None:
        """This host's clock minus the service's; None: not measured."""
        return self.client.clock_skew_ms if self.client is not None else None

    def facts(self) -> Facts:
        bundle, consent = self.configuration.bundle, sending_tests(self.settings)
        skew_ms, now = self.clock_skew_ms, self.now()
        return Facts(self.limiter.state, self.problems, bundle, skew_ms, now, consent, self._tests(consent))

    def _tests(self, consent: Consent) -> tuple[str, ...]:
        """Tests that the limiter armed; of those that send, only the ones whose end runs here and may continue."""
        bundle, state = self.configuration.bundle, self.limiter.state
        told = state.tests if state is not None else ()
        sending = tests_by_id(bundle.links) if bundle is not None and told else {}
        return tuple(one for one in told if one not in sending or (consent == "on" and self.kept.is_running(one)))

    def use(self, settings: Settings, client: Client | None) -> None:
        """Apply new settings (SIGHUP). The state directory must not change."""
        self.hang_up()
        self.settings, self.client = settings, client
        self.limiter.settings = settings
        self.configuration.use(settings, client)

    def hang_up(self) -> None:
        if self.client is not None:
            self.client.close()

    def receipt(self, *, even_if_old: bool) -> Receipt | None:
        """The next receipt; None without a service or without news."""
        if self.client is None:
            return None
        return self.receipts.next(self.facts(), even_if_old=even_if_old, confirms=self.settings.confirm_config)

    # --- one after the other, for commands --------------------------------------------------------------------------

    def pull(self) -> Pulled:
        """Poll the service; check, store and hand over a new configuration."""
        question = self.configuration.question()
        if question is None:
            return Pulled("none")
        try:
            return self.configuration.take_up(question())
        except AgentError as exc:
            return self.configuration.take_up(exc)

    def wait_for_limiter(self, within_s: float, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Wait until the limiter has read the document; return whether it did in time."""
        deadline = self._monotonic() + within_s
        while True:
            self.limiter.read()
            state, bundle = self.limiter.state, self.configuration.bundle
            is_there = state is not None and bundle is not None and state.limits_digest == bundle.limits_digest
            if is_there and state is not None and bundle is not None and state.order == bundle.order:
                return True
            if self._monotonic() >= deadline:
                return False
            sleep(_LOOK_S)

    def send_receipt(self, *, even_if_old: bool = True) -> AgentError | None:
        """Send a receipt now, with evidence if the service asks for it. Errors are returned, never raised."""
        error = None
        for is_wanted in (even_if_old, False):
            receipt = self.receipt(even_if_old=is_wanted)
            if receipt is None or self.client is None:
                break
            try:
                answer = sending(self.client, receipt)()
                error = self.receipts.took(receipt, answer, self.facts(), self.settings.url or "")
            except AgentError as exc:
                return self.receipts.took(receipt, exc, self.facts(), self.settings.url or "")
            if not self.receipts.owes_evidence:
                break
        return error


# --- without a loop ------------------------------------------------------------------------------------------------


def send_last_receipt(
    settings: Settings, make_client: Callable[[Settings], Client | None], logger: Logger
) -> str | None:
    """Send one receipt with the limiter's last state while no agent runs: otherwise the service would show "enforced"
    until the last report is outdated. Bounded, so that removing a package does not wait for an unreachable service.
    Returns None if the service knows it or there is no service, otherwise the reason. Read-only on disk. Never raises
    an `AgentError`; takes at most `SEND_WITHIN_S`."""
    bounded = replace(
        settings,
        connect_timeout_s=min(settings.connect_timeout_s, _CONNECT_S),
        read_timeout_s=min(settings.read_timeout_s, _READ_S),
        fetch_deadline_s=min(settings.fetch_deadline_s, _DEADLINE_S),
        confirm_config=False,
    )
    is_over = threading.Event()
    outcome: list[str | None] = [f"No answer within {SEND_WITHIN_S:g} s."]

    def send() -> None:
        try:
            outcome[0] = _send(bounded, make_client, logger)
        except AgentError as exc:
            outcome[0] = exc.message
        finally:
            is_over.set()

    try:
        threads.start(send)
    except AgentError as exc:
        return exc.message
    is_over.wait(SEND_WITHIN_S)
    return outcome[0]


def _send(settings: Settings, make_client: Callable[[Settings], Client | None], logger: Logger) -> str | None:
    client = make_client(settings)
    if client is None:
        return None
    try:
        agent = Agent(settings, client, logger)
        agent.configuration.read()
        agent.limiter.read()
        error = agent.send_receipt()
    finally:
        client.close()
    return error.message if error is not None else None
