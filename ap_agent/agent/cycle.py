"""One cycle of the agent: pull, check, store, enforce, tell. No loop, no sleep, no signal.

    service ──fetch──▶ bytes ──bundle──▶ Bundle ──store──▶ disk ──reconcile──▶ kernel ──read back──▶ receipt ──▶ service

The agent fails static: whatever goes wrong on the way from the service to the disk, the last good bundle stays the one
that is enforced, and the reason becomes a `Problem` in the log, the health file and the receipt. Every cycle starts
from what the kernel says now.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ap_agent.agent.fetch import FetchResult, Have, NewBundle, NoAS, ReceiptAnswer, ServiceClient
from ap_agent.agent.hold import Hold, hold_for, uptime
from ap_agent.agent.problems import no_as_problem, problem_of
from ap_agent.agent.receipt import build_receipt, news, unread_links
from ap_agent.agent.store import Store
from ap_agent.common.clock import skew_problem
from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.common.settings import Settings
from ap_agent.document.bundle import accept_bundle
from ap_agent.document.timetable import Timetable
from ap_agent.document.trust import Trust, is_accepted, key_problem, missing_enrolment, trust_now
from ap_agent.enforcing import Enforced, Engine, enforce_links, log_enforced
from ap_agent.limiter.events import Interest, Prefixes
from ap_agent.model import IFB_NAME, Problem
from ap_agent.placement import limited
from bandwidth_config import LinkInfo

if TYPE_CHECKING:
    from ap_agent.document.bundle import Bundle


class Client(Protocol):
    """The service, as `ServiceClient` offers it."""

    @property
    def clock_skew_ms(self) -> int | None: ...
    def use_secret(self, secret: str | None) -> None: ...
    def fetch_config(self, have: Have | None, *, wait_s: int = 0) -> FetchResult: ...
    def send_receipt(self, receipt: Mapping[str, Any]) -> ReceiptAnswer: ...
    def confirm_config(self, version: str) -> None: ...
    def send_usage(self, data: bytes) -> None: ...
    def close(self) -> None: ...


Contact = Literal["none", "new", "unchanged", "no_as", "failed"]


@dataclass(frozen=True)
class Pulled:
    """How asking the service went. `error` says why nothing new came, where something went wrong."""

    contact: Contact
    error: AgentError | None = None


@dataclass(frozen=True)
class Letter:
    """A receipt on its way, with the kernel state that it tells of and the version (G.H) to confirm with it."""

    receipt: dict[str, Any]
    enforced: Enforced | None
    version: str | None


class Agent:
    """The state of one agent between cycles: what is stored, what the kernel said last, what the service said last."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        client: Client | None,
        logger: Logger,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        uptime: Callable[[], int] = uptime,
    ) -> None:
        self.settings = settings
        self.store = Store(settings.state_dir)
        self.bundle: Bundle | None = None
        self.trust: Trust = trust_now(settings, None, None)
        self.now = now  # for the keys' ends and timed limits: what has dates, not pauses
        self._uptime = uptime
        self._hold: Hold | None = None  # what keeps the service's configuration from being taken now
        self._timetable: tuple[Bundle | None, Timetable] = (None, Timetable({}))
        self._enforced_links: tuple[Bundle | None, Mapping[int, LinkInfo]] = (None, {})
        self.enforced: Enforced | None = None
        self._engine = engine
        self._client = client
        self._log = logger
        self._delivery: dict[str, Problem] = {}
        self.extra: dict[str, Problem] = {}  # what the loop around the cycle found wrong
        self.arrived_at: float | None = None  # monotonic: of a configuration that is in no kernel yet
        self._asked_at = 0.0
        self._told: object = None
        self._told_of: Enforced | None = None
        self._confirmed: str | None = None
        self._run = secrets.token_hex(16)
        self._receipts = 0  # built in this run
        self._evidence_wanted = False
        self.owes_evidence = False  # the service asked for it, and no receipt with it was sent yet
        self._prefixes: tuple[Bundle | None, Prefixes] = (None, Prefixes(()))

    @property
    def has_service(self) -> bool:
        return self._client is not None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong now: on the way from the service, and in the kernel."""
        kernel = self.enforced.problems if self.enforced is not None else ()
        ending = key_problem(self.settings, self.trust, self.now())
        skew = skew_problem(self.clock_skew_ms)
        warnings = [one for one in (ending, skew) if one is not None]
        return (*self._delivery.values(), *kernel, *self.extra.values(), *warnings)

    @property
    def clock_skew_ms(self) -> int | None:
        """This host's clock minus the service's; None: not measured."""
        return self._client.clock_skew_ms if self._client is not None else None

    def use(self, settings: Settings, client: Client | None) -> None:
        """Go on with other settings (SIGHUP). The state directory must be the same."""
        self.hang_up()
        self.settings, self._client = settings, client
        self.trust = trust_now(settings, self.trust, self.bundle)
        self._look_for_enrolment()
        self._use_secret()

    def hang_up(self) -> None:
        """Requests that are under way end at once."""
        if self._client is not None:
            self._client.close()

    # --- from the service to the disk -------------------------------------------------------------------------------

    def load(self) -> None:
        """Take up the last good bundle from the disk. A damaged one is a problem, no end: the service has another."""
        try:
            self.bundle = self.store.load(host_id=self.settings.host_id)
        except AgentError as exc:
            self._delivery["store"] = problem_of(exc, str(self.settings.state_dir))
        self._load_trust()
        self._hold = self.store.load_hold()
        self._use_secret()
        if self.bundle is not None:
            self._log.info("bundle.loaded", **self._versions())

    def _load_trust(self) -> None:
        stored: Trust | None = None
        is_damaged = False
        try:
            stored = self.store.load_trust()
        except AgentError as exc:
            is_damaged = True
            self._delivery["trust"] = problem_of(exc, str(self.settings.state_dir))
        self.trust = trust_now(self.settings, stored, self.bundle)
        self._look_for_enrolment()
        if self.trust == stored or not (is_damaged or self.bundle is not None):
            return
        try:
            self.store.save_trust(self.trust)
        except AgentError as exc:
            self._delivery["trust"] = problem_of(exc, str(self.settings.state_dir))
        else:
            if self._delivery.pop("trust", None) is not None:
                self._log.warning("trust.repaired", keys=len(self.trust.keyring.keys))

    def _look_for_enrolment(self) -> None:
        missing = missing_enrolment(self.settings, self.trust, has_bundle=self.bundle is not None)
        if missing is None:
            self._delivery.pop("enrolment", None)
        else:
            self._delivery["enrolment"] = missing

    def _use_secret(self) -> None:
        """The secret of the verified bundle follows every change; the enrolled one remains the other one to try."""
        if self._client is not None:
            self._client.use_secret(self.bundle.host_secret if self.bundle is not None else None)

    def keep_stored(self) -> None:
        """Write what is in force again where somebody deleted it under us: the next start needs it."""
        if self.bundle is None:
            return  # what could not be read at the start is the service's to replace
        if not self.store.is_there():  # only then: another one there is newer, and somebody else's
            try:
                self.store.save(self.bundle, self.trust)
            except AgentError as exc:
                self._delivery["store"] = problem_of(exc, str(self.settings.state_dir))
                return
            self._log.warning("bundle.stored_again", **self._versions())
        self._delivery.pop("store", None)

    def pull(self) -> Pulled:
        """Ask the service, check and store what it has. Never raises an `AgentError`: the last good bundle stays."""
        question = self.question()
        if question is None:
            return Pulled("none")
        try:
            return self.take_up(question())
        except AgentError as exc:
            return self.take_up(exc)

    def question(self, *, wait_s: int = 0) -> Callable[[], FetchResult] | None:
        """What to ask the service now, as a call that touches nothing of this agent: any thread may make it.

        The service may hold it open for `wait_s`.
        """
        if self._client is None:
            return None
        # Held back: the service shall say all of what it has, whatever it or a proxy thinks that we have.
        have = Have.of(self.bundle) if self._hold is None else None
        self._asked_at = time.monotonic()
        return partial(self._client.fetch_config, have, wait_s=wait_s)

    def take_up(self, answer: FetchResult | AgentError) -> Pulled:
        """Check and store what the question brought. Never raises an `AgentError`."""
        try:
            if isinstance(answer, AgentError):
                raise answer
            is_new = isinstance(answer, NewBundle) and self._take(answer.data)
        except AgentError as exc:
            self._delivery["service"] = problem_of(exc, self.settings.url or "")
            return Pulled("failed", exc)
        self._delivery.pop("service", None)
        if isinstance(answer, NoAS):
            self._delivery["service"] = no_as_problem(self.settings)
            return Pulled("no_as")
        if not isinstance(answer, NewBundle) or not is_new:
            self._log.debug("fetch.unchanged", **self._versions())
            return Pulled("unchanged")
        self._delivery.pop("store", None)
        self.arrived_at = time.monotonic()
        waited_ms = round((self.arrived_at - self._asked_at) * 1000)  # at the service, mostly
        self._log.info("fetch.new", **self._versions(), bytes=len(answer.data), waited_ms=waited_ms)
        return Pulled("new")

    def _take(self, data: bytes) -> bool:
        """Check and store; False for what we have already, from a service that never answers 304."""
        bundle = accept_bundle(data, self.settings, self.trust, self.store.load_acceptance, self.now())
        self._hold_back(bundle)
        if bundle == self.bundle:
            return False
        trust = self.trust.after(bundle)
        self.store.save(bundle, trust)
        self.bundle, self.trust = bundle, trust
        self._delivery.pop("trust", None)
        self.store.drop_acceptance()
        self._use_secret()
        return True

    def _hold_back(self, bundle: Bundle) -> None:
        """Raises `TrustError` for a configuration that must not be taken yet."""
        newest = self.trust.newest
        hold = hold_for(
            self.bundle,
            bundle,
            self._hold,
            self._uptime(),
            is_accepted=lambda: is_accepted(bundle.order, newest, self.store.load_acceptance()),
        )
        former, self._hold = self._hold, hold
        if hold is None:
            if former is not None:
                self.store.drop_hold()
            return
        if hold != former:
            with contextlib.suppress(AgentError):  # a full disk: then the hold begins anew with the next start
                self.store.save_hold(hold)
        raise hold.error

    @property
    def hold_left_s(self) -> int:
        """How long a configuration is still held back; 0 where none is, or it is to be taken now."""
        return self._hold.left_s(self._uptime()) if self._hold is not None else 0

    def _versions(self) -> dict[str, object]:
        if self.bundle is None:
            return {"version": None, "limits": None}
        return {"version": self.bundle.version, "limits": self.bundle.limits_version}

    # --- from the disk to the kernel --------------------------------------------------------------------------------

    def enforce(self, *, is_settled: bool = False) -> Enforced | None:
        """Make the kernel agree with the bundle and read it back. None while there is no bundle: nothing is touched.

        `is_settled`: nobody else changed anything since the last time, so far as the kernel's events say.
        """
        if self.bundle is None:
            self.enforced = None
            return None
        started = time.monotonic()
        links = self._timetable_of(self.bundle).at(self.now())
        is_step = is_settled and self._enforced_links[0] is self.bundle
        self._enforced_links = (self.bundle, links)
        try:
            enforced = enforce_links(self._engine, links, self.settings, is_settled=is_settled, now=self.now)
            self.enforced = replace(enforced, is_step=is_step)
        except Exception as exc:
            # Not ours to handle, but what was read back before the bug must not be claimed any longer.
            states = unread_links(links, f"the agent failed: {type(exc).__name__}")
            self.enforced = Enforced(datetime.now(UTC), states, (), writes=0, ok=False)
            raise
        ms = round((time.monotonic() - started) * 1000)
        log_enforced(self._log, self.enforced, ms, **self._versions())
        return self.enforced

    # --- timed limits -----------------------------------------------------------------------------------------------

    def _timetable_of(self, bundle: Bundle) -> Timetable:
        if self._timetable[0] is not bundle:
            self._timetable = (bundle, Timetable(bundle.links))
        return self._timetable[1]

    @property
    def has_timed_limits(self) -> bool:
        """Whether what is to be enforced may depend on the clock."""
        return self.bundle is not None and self._timetable_of(self.bundle).is_needed

    def is_step_due(self) -> bool:
        """Whether the clock, wherever it was set to meanwhile, wants other limits than were enforced last."""
        if self.bundle is None or self._enforced_links[0] is not self.bundle or not self.has_timed_limits:
            return False
        return self._timetable_of(self.bundle).at(self.now()) is not self._enforced_links[1]

    def next_step_in_s(self) -> float | None:
        """How long it is until a timed limit begins, steps or ends, by the clock as it goes now."""
        if self.bundle is None or not self.has_timed_limits:
            return None
        now = self.now()
        following = self._timetable_of(self.bundle).next_change(now)
        return (following - now).total_seconds() if following is not None else None

    # --- what is watched --------------------------------------------------------------------------------------------

    def has_lost_ifb(self) -> bool:
        """Whether our IFB is not the one, or not up as it was, when the kernel was last read back. Cheap.

        Every packet of a limited source is dropped meanwhile, so this cannot wait for the next full comparison.
        """
        if self.enforced is None or self.enforced.result is None:
            return False  # nothing was read back; such a cycle is repeated anyway
        try:
            return self._engine.ifb_in_service() != self.enforced.result.ifb
        except (AgentError, OSError):
            return True  # the cycle that follows says what is wrong

    def interest(self) -> Interest:
        """Which events of the kernel can matter to what is in force."""
        if self.bundle is None:
            return Interest()
        result = self.enforced.result if self.enforced is not None else None
        if result is None:
            return Interest(devices=None)
        has_ifb = result.ifb is not None or not result.ok
        names = frozenset((*self.settings.interfaces, *((IFB_NAME,) if has_ifb else ())))
        return Interest(result.devices, names, result.ifb, self._prefixes_of(self.bundle))

    def _prefixes_of(self, bundle: Bundle) -> Prefixes:
        if self._prefixes[0] is not bundle:
            addresses = {one for link in limited(bundle.links) for one in (link.remote_ip, link.local_ip)}
            self._prefixes = (bundle, Prefixes(one for one in addresses if one is not None))
        return self._prefixes[1]

    # --- from the kernel to the service -----------------------------------------------------------------------------

    def receipt(self) -> dict[str, Any]:
        """What there is to tell now."""
        enforced, bundle = self.enforced, self.bundle
        self._receipts += 1
        return build_receipt(
            version=bundle.version if bundle else None,
            limits_version=bundle.limits_version if bundle else None,
            limits_digest=bundle.limits_digest if bundle else None,
            run=self._run,
            number=self._receipts,
            clock_skew_ms=self.clock_skew_ms,
            evidence=bundle.evidence() if bundle is not None and self._evidence_wanted else None,
            observed_at=enforced.observed_at if enforced else datetime.now(UTC),
            writes=enforced.writes if enforced else 0,
            links=enforced.links if enforced else (),
            problems=[one for one in self.problems if one.code != "receipt_failed"],
        )

    def tell(self, *, even_if_old: bool) -> AgentError | None:
        """Send the receipt if it has news (or always with `even_if_old`). An error is returned, never raised:
        what the service hears must not disturb what is enforced."""
        letter = self.letter(even_if_old=even_if_old)
        if letter is None:
            return None
        try:
            error = self.delivered(letter, self.delivery(letter)())
        except AgentError as exc:
            return self.delivered(letter, exc)
        if self.owes_evidence:
            return self.tell(even_if_old=False)
        return error

    def letter(self, *, even_if_old: bool) -> Letter | None:
        """What there is to send now; None where there is no service, or nothing that it does not know."""
        if self._client is None:
            return None
        receipt = self.receipt()
        enforced = self.enforced
        has_written = enforced is not None and enforced.writes > 0 and enforced is not self._told_of
        if enforced is not None and enforced.is_step:
            has_written = False
        if not (even_if_old or has_written or self.owes_evidence) and news(receipt) == self._told:
            return None
        self.owes_evidence = False
        # Only an AP without the stock client: whoever installs SCION's files says so (docs/operations.md).
        version = self.bundle.version if self.settings.confirm_config and self.bundle is not None else None
        return Letter(receipt, self.enforced, version if version != self._confirmed else None)

    def delivery(self, letter: Letter) -> Callable[[], ReceiptAnswer]:
        """Sending it, as a call that touches nothing of this agent: any thread may make it."""
        client = self._client

        def send() -> ReceiptAnswer:
            if client is None:
                return ReceiptAnswer()
            answer = client.send_receipt(letter.receipt)
            if letter.version is not None:
                client.confirm_config(letter.version)
            return answer

        return send

    def usage_sender(self) -> Callable[[bytes], None] | None:
        """What sends a batch of usage; touches nothing of this agent: any thread may call it."""
        return self._client.send_usage if self._client is not None else None

    def delivered(self, letter: Letter, outcome: ReceiptAnswer | AgentError) -> AgentError | None:
        """How sending it went; returns the error."""
        error = outcome if isinstance(outcome, AgentError) else None
        if isinstance(outcome, ReceiptAnswer):
            self._evidence_wanted = outcome.evidence_wanted
            # At once only where this one had none: a service that always asks must not be told without a pause.
            wanted = outcome.evidence_wanted and "evidence" not in letter.receipt
            self.owes_evidence = wanted and self.bundle is not None and self.bundle.evidence() is not None
            error = None if outcome.is_stored else _not_stored(letter)
        if error is not None:
            self._told = None
            self._delivery["receipt"] = Problem("receipt_failed", self.settings.url or "", error.message)
            return error
        self._told, self._told_of = news(letter.receipt), letter.enforced
        if letter.version is not None:
            self._confirmed = letter.version
            self._log.info("config.confirmed", version=letter.version)
        self._delivery.pop("receipt", None)
        self._log.debug("receipt.sent", writes=letter.receipt["writes"])
        return None


def _not_stored(letter: Letter) -> AgentError:
    return AgentError(
        f"The service did not store the receipt of {letter.receipt['observed_at']}, because it has a newer one of this "
        "host. If this host's clock was set back, correct it; if another host uses these credentials, enrol that one "
        "with a token of its own.",
        retryable=True,
    )


def make_client(settings: Settings) -> ServiceClient | None:
    return ServiceClient(settings) if settings.url is not None else None
