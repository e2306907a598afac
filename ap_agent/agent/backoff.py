"""When to ask the service again, and how long it may hold the question open. Pure: moments are monotonic seconds,
given, and randomness is a parameter, so that a test asks for a thousand hosts and an hour in a moment.

The rule behind all of it: whoever answers sensibly is asked again at once, because the next answer takes until there is
something new; whoever does not hold questions open, is asked every `interval_s`; whoever fails, ever more rarely, up to
`cap_s` and for ever. Hosts that were cut off together do not come back together (docs/adr/0011).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ap_agent.common.errors import AgentError, FetchError

Contact = Literal["none", "new", "called", "unchanged", "no_as", "failed"]

POLL_JITTER = 0.1
_AT_ONCE_S = 1.0  # an answer within it was not held open, and a failure within it cut nothing off
_QUICK_NEWS_S = 0.05  # pause after something new that came at once; doubles with each in a row,
_LONGEST_QUICK_NEWS_S = 1.0  # up to this: a service that has news at every question is asked once a second
_SOON = 0.3  # of an interval: what is added to Retry-After where a held question was cut off
_ALIKE_S = 2.0  # two questions in a row, cut off after times that differ by less: the doing of a timeout between us
SHORT_FOR_S = 3600.0  # and for so long shorter questions are asked


@dataclass(frozen=True)
class Pulled:
    """How a request to the service went. `error` says why nothing new came, where something went wrong; "called": only
    that somebody looks at links."""

    contact: Contact
    error: AgentError | None = None


class Backoff:
    """The pace of one host's questions. Each `begin` is followed by one `end`.

    `long_poll_s` is how long the service may hold a question open; 0 asks plainly every `interval_s`.
    """

    def __init__(
        self, interval_s: float, cap_s: float, long_poll_s: float, uniform: Callable[[float, float], float]
    ) -> None:
        self._interval_s = interval_s
        self._cap_s = max(cap_s, interval_s)
        self._long_poll_s = long_poll_s
        self._uniform = uniform
        self.failures = 0
        self._is_answered = False  # the last question was: only then the next one may wait
        self._holds = False  # the service held a question open
        self._began = 0.0
        self._asked_s = 0
        self._quick_news = 0
        self._cut_after_s: float | None = None
        self._short_s = 0.0
        self._short_until = 0.0

    def begin(self, now: float) -> int:
        """A question goes out. Returns for how many seconds the service may hold it open; 0: answer at once.

        After a start and after a failure the first one does not wait: its answer tells within moments that all is well
        again, where a held one would leave this unknown for a minute.
        """
        wait_s = self._long_poll_s if self._is_answered else 0.0
        if now < self._short_until:
            wait_s = min(wait_s, self._short_s)
        self._began = now
        # Hosts that began together, at the end of an outage, drift apart.
        self._asked_s = round(wait_s * self._uniform(1 - POLL_JITTER, 1.0))
        return self._asked_s

    def end(self, pulled: Pulled, now: float) -> float:
        """How that question went; returns the seconds until the next one."""
        took_s = now - self._began
        is_waited = self._asked_s > 0 and took_s >= _AT_ONCE_S
        if pulled.error is not None:
            return self._after_failure(pulled, took_s, is_waited=is_waited)
        was_answered, self._is_answered = self._is_answered, True
        self.failures = 0
        if is_waited:
            self._cut_after_s = None
        if self._long_poll_s > 0 and pulled.contact in ("new", "called"):
            return self._after_news(took_s)
        self._quick_news = 0
        if self._long_poll_s > 0 and pulled.contact == "unchanged":
            if not was_answered:
                return 0.0  # the next question may wait
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
        # Answered early. A service that is being replaced sends all hosts away at once; one that never held a question
        # open, or no longer does, does not know `wait`.
        held, self._holds = self._holds, False
        return self._uniform(0.0, self._interval_s) if held else self._plainly_s()

    def _after_failure(self, pulled: Pulled, took_s: float, *, is_waited: bool) -> float:
        error = pulled.error
        self.failures = self.failures + 1
        self._quick_news = 0
        self._is_answered = False
        retryable = error is not None and error.retryable
        told_s = error.retry_after_s if isinstance(error, FetchError) else None
        cap_s = self._cap_s
        if retryable:
            cap_s = min(cap_s, self._interval_s * 2.0 ** min(self.failures, 40))
        low_s = min(self._interval_s, cap_s) / 2  # no busy loop
        if is_waited and retryable:
            self._note_cut(took_s, now=self._began + took_s, is_told=told_s is not None)
            if self.failures == 1:
                low_s, cap_s = 0.0, self._interval_s  # a deployment: soon back, and not all at once
                if told_s is not None:  # by a service that spreads what it tells: within an interval even so
                    return self._uniform(told_s, told_s + max(self._interval_s * _SOON, told_s / 4))
        # Anything between has the same chance: a lower bound that many hosts are raised to would be their meeting.
        delay_s = self._uniform(low_s, cap_s)
        if told_s is None:
            return delay_s
        # Everybody was told the same number of seconds.
        return max(delay_s, self._uniform(told_s, told_s + max(self._interval_s, told_s / 4)))

    def _note_cut(self, took_s: float, *, now: float, is_told: bool) -> None:
        """Something between, a proxy mostly, may allow less silence than we ask for: then ask for less."""
        before_s, self._cut_after_s = self._cut_after_s, None if is_told else took_s
        if is_told or before_s is None or abs(took_s - before_s) >= _ALIKE_S:
            return
        self._cut_after_s = None
        self._short_s = took_s / 2 if took_s / 2 >= self._interval_s else 0.0
        self._short_until = now + SHORT_FOR_S
