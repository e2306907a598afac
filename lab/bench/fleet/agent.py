"""One agent of the fleet. Pace, trust and checks are the agent's own; the transport is somebody else's (`__main__`)."""

from __future__ import annotations

import urllib.parse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ap_agent.agent.backoff import Backoff, Pulled
from ap_agent.agent.bundle import Bundle, accept_bundle
from ap_agent.agent.fetch import Have
from ap_agent.common.errors import AgentError, AuthError, FetchError
from ap_agent.common.keys import TrustedKey
from ap_agent.common.settings import Settings
from ap_agent.document.trust import trust_now
from lab.bench.poll_client import PollingHost, Said

URL = "http://127.0.0.1"


@dataclass
class Counts:
    """What the agents of a process met. `away_s` are the times without an answer of those that came back."""

    answers: Counter[str] = field(default_factory=Counter)
    away_s: list[float] = field(default_factory=list)


class FleetAgent:
    """`have` is what it had stored before it was started; None: nothing. Its clock is wrong by `clock_error`."""

    def __init__(
        self,
        host: PollingHost,
        keys: tuple[TrustedKey, ...],
        counts: Counts,
        uniform: Callable[[float, float], float],
        *,
        have: Have | None = None,
        clock_error: timedelta = timedelta(),
        long_poll_s: int = 50,
    ) -> None:
        self.host = host
        self.have = have
        self._settings = Settings(
            url=URL, host_id=host.uid, host_secret=host.secret, service_keys=keys, long_poll_s=long_poll_s
        )
        self._trust = trust_now(self._settings, None, None)
        self._counts, self._uniform, self._clock_error = counts, uniform, clock_error
        self.asks_to_wait_s = 0
        self.restart()

    def restart(self) -> None:
        """A new process of the agent: what it had stored it has still."""
        one = self._settings
        self._backoff = Backoff(one.poll_interval_s, one.backoff_max_s, one.long_poll_s, self._uniform)
        self._away_since: float | None = None

    def query(self, now: float) -> str:
        """The next question."""
        self.asks_to_wait_s = self._backoff.begin(now)
        if self.have is None:
            return ""
        asked: dict[str, object] = {"version": self.have.version, "digest": self.have.limits_digest}
        asked |= {} if self.have.limits_version is None else {"limits": self.have.limits_version}
        asked |= {"wait": self.asks_to_wait_s} if self.asks_to_wait_s else {}
        return urllib.parse.urlencode(asked)

    def take(self, said: Said | None, now: float) -> tuple[float, Bundle | None]:
        """The answer; None where the connection broke or nobody answered. Seconds until the next question, and what is
        new and was accepted."""
        bundle = None
        try:
            bundle = self._taken(said)
            pulled = Pulled("unchanged" if bundle is None else "new")
        except AgentError as exc:
            pulled = Pulled("failed", exc)
        self._count(said, pulled, now)
        return self._backoff.end(pulled, now), bundle

    def _taken(self, said: Said | None) -> Bundle | None:
        if said is None:
            raise FetchError("The connection was cut.")
        if said.status == 304 and self.have is not None:
            return None
        if said.status in {401, 403}:
            raise AuthError(f"The service answered {said.status}.")
        if said.status != 200:
            told_s = None if said.retry_after_s is None else float(said.retry_after_s)
            raise FetchError(f"{said.status}", retryable=said.status >= 500, retry_after_s=told_s)
        now = datetime.now(UTC) + self._clock_error
        bundle = accept_bundle(said.body, self._settings, self._trust, lambda: None, now)
        self._trust = self._trust.after(bundle)
        self.have = Have.of(bundle)
        return bundle

    def _count(self, said: Said | None, pulled: Pulled, now: float) -> None:
        self._counts.answers["cut" if said is None else str(said.status)] += 1
        if pulled.error is None:
            if self._away_since is not None:
                self._counts.away_s.append(now - self._away_since)
            self._away_since = None
            return
        self._away_since = now if self._away_since is None else self._away_since
        if not isinstance(pulled.error, FetchError | AuthError):  # an answer that it does not believe
            self._counts.answers[f"refused: {getattr(pulled.error, 'code', type(pulled.error).__name__)}"] += 1
        elif said is not None and (said.status != 503 or said.retry_after_s is None):
            self._counts.answers["unexpected"] += 1
