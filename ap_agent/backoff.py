"""How long to wait before the service is asked again. Pure; randomness is a parameter."""

from __future__ import annotations

from collections.abc import Callable

from ap_agent.cycle import Pulled
from ap_agent.errors import FetchError

POLL_JITTER = 0.1


class Backoff:
    """How long to wait before asking again: ~`interval_s` normally; full jitter below a doubling cap after failures."""

    def __init__(self, interval_s: float, cap_s: float, uniform: Callable[[float, float], float]) -> None:
        self._interval_s = interval_s
        self._cap_s = max(cap_s, interval_s)
        self._uniform = uniform
        self.failures = 0

    def next_delay_s(self, pulled: Pulled) -> float:
        """Seconds until the next request, given how the last one went."""
        if pulled.error is None:
            self.failures = 0
            return self._interval_s * self._uniform(1 - POLL_JITTER, 1 + POLL_JITTER)
        self.failures = self.failures + 1
        cap_s = self._cap_s
        if pulled.error.retryable:
            cap_s = min(cap_s, self._interval_s * 2.0 ** min(self.failures, 40))
        # Hosts that failed together must not come back together: anything below the cap, but no busy loop.
        delay_s = max(self._uniform(0.0, cap_s), min(self._interval_s, cap_s) / 2)
        asked_s = pulled.error.retry_after_s if isinstance(pulled.error, FetchError) else None
        return max(delay_s, asked_s or 0.0)
