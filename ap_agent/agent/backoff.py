"""When to poll again, and how long the service may hold the poll. Pure: moments are monotonic seconds, and randomness
is a parameter, so that tests can simulate a thousand hosts.

After a valid response the agent polls again immediately, because the service holds the next poll until there is news;
if the service does not hold polls, every `interval_s`; after failures with growing pauses up to `cap_s`, without end.
Hosts that were cut off together do not return together (docs/adr/0011).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ap_agent.common.errors import AgentError, FetchError

Contact = Literal["none", "new", "called", "unchanged", "no_as", "failed"]

POLL_JITTER = 0.1
_AT_ONCE_S = 1.0  # a response within it was not held, and a failure within it interrupted nothing
_QUICK_NEWS_S = 0.05  # pause after news that came immediately; doubles with each in a row,
_LONGEST_QUICK_NEWS_S = 1.0  # up to this: a service with continuous news is polled once a second
_SOON = 0.3  # of an interval: added to Retry-After after an interrupted poll
_ALIKE_S = 2.0  # two polls in a row, interrupted after times that differ by less: a timeout of a proxy
SHORT_FOR_S = 3600.0  # how long shorter polls are used then


@dataclass(frozen=True)
class Pulled:
    """Outcome of a poll. `error` says why there is no news, if something failed; "called": live rates are requested."""

    contact: Contact
    error: AgentError | None = None


class Backoff:
    """Pace of one host's polls. Each `begin` is followed by one `end`. `long_poll_s` is how long the service may hold a
    poll; 0: plain polls every `interval_s`."""

    def __init__(
        self, interval_s: float, cap_s: float, long_poll_s: float, uniform: Callable[[float, float], float]
    ) -> None:
        self._interval_s = interval_s
        self._cap_s = max(cap_s, interval_s)
        self._long_poll_s = long_poll_s
        self._uniform = uniform
        self.failures = 0
        self._is_answered = False  # the last poll succeeded: only then the next one may be held
        self._holds = False  # the service held a poll
        self._began = 0.0
        self._asked_s = 0
        self._quick_news = 0
        self._cut_after_s: float | None = None
        self._short_s = 0.0
        self._short_until = 0.0

    def begin(self, now: float) -> int:
        """Start a poll. Return how many seconds the service may hold it; 0: respond immediately. After a start or a
        failure the first poll is not held, so that a recovery is noticed within moments instead of a minute."""
        wait_s = self._long_poll_s if self._is_answered else 0.0
        if now < self._short_until:
            wait_s = min(wait_s, self._short_s)
        self._began = now
        # Hosts that started together, at the end of an outage, drift apart.
        self._asked_s = round(wait_s * self._uniform(1 - POLL_JITTER, 1.0))
        return self._asked_s

    def end(self, pulled: Pulled, now: float) -> float:
        """End a poll; return the seconds until the next one."""
        took_s = now - self._began
        is_waited = self._asked_s > 0 and took_s >= _AT_ONCE_S
        if pulled.error is not None:
            return self._after_failure(pulled.error, took_s, is_waited=is_waited)
        was_answered, self._is_answered = self._is_answered, True
        self.failures = 0
        if is_waited:
            self._cut_after_s = None
        if self._long_poll_s > 0 and pulled.contact in ("new", "called"):
            return self._after_news(took_s)
        self._quick_news = 0
        if self._long_poll_s > 0 and pulled.contact == "unchanged":
            if not was_answered:
                return 0.0  # the next poll may be held
            if self._asked_s > 0:
                return self._after_nothing_new(took_s)
        return self._plainly_s()

    def _plainly_s(self) -> float:
        return self._interval_s * self._uniform(1 - POLL_JITTER, 1 + POLL_JITTER)

    def _after_news(self, took_s: float) -> float:
        if took_s >= _AT_ONCE_S:
            self._quick_news = 0
            return 0.0
        self._quick_news = min(self._quick_news + 1, 10)
        return min(_LONGEST_QUICK_NEWS_S, _QUICK_NEWS_S * 2.0**self._quick_news)

    def _after_nothing_new(self, took_s: float) -> float:
        if took_s >= self._asked_s / 2:
            self._holds = True
            return 0.0
        # Early response. A service that is being replaced sends all hosts away at once; one that never holds polls, or
        # no longer does, ignores `wait`.
        held, self._holds = self._holds, False
        return self._uniform(0.0, self._interval_s) if held else self._plainly_s()

    def _after_failure(self, error: AgentError, took_s: float, *, is_waited: bool) -> float:
        self.failures += 1
        self._quick_news = 0
        self._is_answered = False
        told_s = error.retry_after_s if isinstance(error, FetchError) else None
        cap_s = self._cap_s
        if error.retryable:
            cap_s = min(cap_s, self._interval_s * 2.0 ** min(self.failures, 40))
        low_s = min(self._interval_s, cap_s) / 2  # no busy loop
        if is_waited and error.retryable:
            self._note_cut(took_s, now=self._began + took_s, is_told=told_s is not None)
            if self.failures == 1:
                low_s, cap_s = 0.0, self._interval_s  # a deployment: return soon, and spread
                if told_s is not None:  # by a service that spreads its times: within an interval even so
                    return self._uniform(told_s, told_s + max(self._interval_s * _SOON, told_s / 4))
        # Uniformly distributed: raising many hosts to a lower bound would synchronize them.
        delay_s = self._uniform(low_s, cap_s)
        if told_s is None:
            return delay_s
        # All hosts got the same number of seconds.
        return max(delay_s, self._uniform(told_s, told_s + max(self._interval_s, told_s / 4)))

    def _note_cut(self, took_s: float, *, now: float, is_told: bool) -> None:
        """A proxy may allow less silence than requested: then request less."""
        before_s, self._cut_after_s = self._cut_after_s, None if is_told else took_s
        if is_told or before_s is None or abs(took_s - before_s) >= _ALIKE_S:
            return
        self._cut_after_s = None
        self._short_s = took_s / 2 if took_s / 2 >= self._interval_s else 0.0
        self._short_until = now + SHORT_FOR_S
