"""The way of a configuration: fetch, verify, store, hand over.

    service ──fetch──▶ bytes ──bundle──▶ Bundle ──store──▶ disk ──hand_over──▶ limiter

On any error the last good bundle stays in force, and the reason becomes a `Problem` in the log, the health file and the
receipt.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from ap_agent.agent.backoff import Pulled
from ap_agent.agent.bundle import Bundle, accept_bundle
from ap_agent.agent.fetch import Client, FetchResult, Have, NewBundle, NoAS, NotModified
from ap_agent.agent.hand_over import HandOver
from ap_agent.agent.hold import Hold, hold_for
from ap_agent.agent.problems import key_problem, missing_enrolment, problem_of
from ap_agent.agent.store import Store
from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.document.trust import Trust, is_accepted, trust_now

_NO_AS = (
    "The service has no AS for this host (204). The enforced limits stay; to remove them, stop the limiter "
    "and run `scionlab-bw-limiter reset`."
)


class Configuration:
    """The bundle in force, the trusted keys, and problems of delivery."""

    def __init__(
        self,
        settings: Settings,
        client: Client | None,
        logger: Logger,
        *,
        now: Callable[[], datetime],
        uptime: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.store = Store(settings.state_dir)
        self.bundle: Bundle | None = None
        self.trust: Trust = trust_now(settings, None, None)
        self.arrived_at: float | None = None  # monotonic: of the newest bundle
        self._client = client
        self._log = logger
        self._now, self._uptime = now, uptime  # wall clock, for expiry of keys and holds
        self._hand_over = HandOver(settings.state_dir)
        self._hold: Hold | None = None  # why the service's configuration is not accepted now
        self._problems: dict[str, Problem] = {}
        self._asked_at = 0.0

    @property
    def problems(self) -> tuple[Problem, ...]:
        ending = key_problem(self.settings, self.trust, self._now())
        return (*self._problems.values(), *([ending] if ending is not None else []))

    def use(self, settings: Settings, client: Client | None) -> None:
        """Apply new settings. The state directory must not change."""
        self.settings, self._client = settings, client
        self.trust = trust_now(settings, self.trust, self.bundle)
        self._look_for_enrolment()
        self._use_secret()

    # --- stored configuration ---------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the last good bundle from disk, and hand it over. A damaged one is only a problem: the service has
        another."""
        self.read()
        self._load_trust()
        self._hold = self.store.load_hold()
        if self.bundle is not None:
            self._log.info("bundle.loaded", **self._versions())
        self._put()

    def read(self) -> None:
        with self._noting("store"):
            self.bundle = self.store.load(host_id=self.settings.host_id)
        self._use_secret()

    @contextmanager
    def _noting(self, key: str) -> Iterator[None]:
        try:
            yield
        except AgentError as exc:
            self._problems[key] = problem_of(exc, str(self.settings.state_dir))

    def _load_trust(self) -> None:
        stored: Trust | None = None
        with self._noting("trust"):
            stored = self.store.load_trust()
        self.trust = trust_now(self.settings, stored, self.bundle)
        self._look_for_enrolment()
        if self.trust == stored or not ("trust" in self._problems or self.bundle is not None):
            return
        with self._noting("trust"):
            self.store.save_trust(self.trust)
            if self._problems.pop("trust", None) is not None:
                self._log.warning("trust.repaired", keys=len(self.trust.keyring.keys))

    def _look_for_enrolment(self) -> None:
        self._problems.pop("enrolment", None)
        missing = missing_enrolment(self.settings, self.trust, has_bundle=self.bundle is not None)
        if missing is not None:
            self._problems["enrolment"] = missing

    def _use_secret(self) -> None:
        """Use the secret of the verified bundle first; the enrolled one is the fallback."""
        if self._client is not None:
            self._client.use_secret(self.bundle.host_secret if self.bundle is not None else None)

    def keep(self) -> None:
        """Restore the stored bundle and the document if they were deleted or damaged."""
        if self.bundle is None:
            return  # unreadable at the start: the service's next bundle replaces it
        with self._noting("store"):
            if not self.store.is_there():  # only then: another one there is newer, and not ours
                self.store.save(self.bundle, self.trust)
                self._log.warning("bundle.stored_again", **self._versions())
            self._problems.pop("store", None)
            self._put()

    def _put(self) -> None:
        if self.bundle is None:
            return
        try:
            if self._hand_over.put(self.bundle):
                self._log.info("bundle.handed_over", **self._versions())
            self._problems.pop("hand over", None)
        except AgentError as exc:
            self._problems["hand over"] = problem_of(exc, str(self._hand_over.path))

    # --- what the service has ---------------------------------------------------------------------------------------

    def question(self, *, wait_s: int = 0) -> Callable[[], FetchResult] | None:
        """The next poll as a call that does not touch the agent, for any thread. The service may hold it for `wait_s`.
        None without a service."""
        if self._client is None:
            return None
        # Held back: ask for the complete configuration, whatever the service or a proxy assumes we have.
        have = Have.of(self.bundle) if self._hold is None else None
        self._asked_at = time.monotonic()
        return partial(self._client.fetch_config, have, wait_s=wait_s)

    def take_up(self, answer: FetchResult | AgentError) -> Pulled:
        """Check, store and hand over the result of a poll. Never raises an `AgentError`."""
        try:
            if isinstance(answer, AgentError):
                raise answer
            is_new = isinstance(answer, NewBundle) and self._take(answer.data)
        except AgentError as exc:
            self._problems["service"] = problem_of(exc, self.settings.url or "")
            return Pulled("failed", exc)
        self._problems.pop("service", None)
        if isinstance(answer, NoAS):
            self._problems["service"] = Problem("no_as", self.settings.host_id or "", _NO_AS)
            return Pulled("no_as")
        if not isinstance(answer, NewBundle) or not is_new:
            self._log.debug("fetch.unchanged", **self._versions())
            return Pulled("called" if isinstance(answer, NotModified) and answer.looked_at else "unchanged")
        self._problems.pop("store", None)
        self.arrived_at = time.monotonic()
        waited_ms = round((self.arrived_at - self._asked_at) * 1000)  # usually at the service
        self._log.info("fetch.new", **self._versions(), bytes=len(answer.data), waited_ms=waited_ms)
        self._put()
        return Pulled("new")

    def _take(self, data: bytes) -> bool:
        """Check and store; False if already in force, from a service that never responds 304."""
        bundle = accept_bundle(data, self.settings, self.trust, self.store.load_acceptance, self._now())
        self._hold_back(bundle)
        if bundle == self.bundle:
            return False
        trust = self.trust.after(bundle)
        self.store.save(bundle, trust)
        self.bundle, self.trust = bundle, trust
        self._problems.pop("trust", None)
        self.store.drop(self.store.acceptance_file)
        self._use_secret()
        return True

    def _hold_back(self, bundle: Bundle) -> None:
        """Raises `TrustError` for a configuration that must not be accepted yet."""
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
                self.store.drop(self.store.hold_file)
            return
        if hold != former:
            with contextlib.suppress(AgentError):  # a full disk: then the hold restarts with the next start
                self.store.save_hold(hold)
        raise hold.error

    @property
    def hold_left_s(self) -> int:
        """Remaining time of a hold [s]; 0 if there is none, or it ends now."""
        return self._hold.left_s(self._uptime()) if self._hold is not None else 0

    def _versions(self) -> dict[str, object]:
        if self.bundle is None:
            return {"version": None, "limits": None}
        trace = self.bundle.order.trace(self.bundle.host_id)
        return {"version": self.bundle.version, "limits": self.bundle.limits_version, "trace": trace}
