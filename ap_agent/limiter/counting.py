"""Counters read between passes, for the cap of all links.

They are shared memory; reading them costs no system call.
"""

from __future__ import annotations

from collections.abc import Callable

from ap_agent.limiter.enforcing import Enforcer
from ap_agent.limiter.total import TICK_S, TICKS_PER_WORK, Cap


class Counting:
    """Does what is due. `moments` are monotonic seconds. `capped_kbit`: the cap of the current factors."""

    def __init__(self, enforcer: Enforcer, monotonic: Callable[[], float]) -> None:
        self._enforcer, self._monotonic = enforcer, monotonic
        self._cap = Cap()
        self._next_tick = monotonic()
        self.capped_kbit: int | None = None

    def moments(self) -> list[float]:
        return [self._next_tick] if self._total_kbit is not None else []

    def count(self, now: float) -> bool:
        """Return whether the cap changed."""
        before = self.capped_kbit
        self._set_cap(now)
        return self.capped_kbit != before

    # --- the cap ----------------------------------------------------------------------------------------------------

    @property
    def _total_kbit(self) -> int | None:
        configuration = self._enforcer.configuration
        return configuration.total_kbit if configuration is not None else None

    def _set_cap(self, now: float) -> None:
        total_kbit = self._total_kbit
        if total_kbit is None:
            self._cap, self.capped_kbit = Cap(), None
            self._enforcer.set_factors(1.0, 1.0)  # also those left by a previous limiter
            return
        if total_kbit == self.capped_kbit and now < self._next_tick:
            return
        began, enforcer = self._monotonic(), self._enforcer
        enforcer.set_factors(*self._cap.factors(now, total_kbit, enforcer.refusing, enforcer.counted()))
        self.capped_kbit = total_kbit
        self._next_tick = now + max(TICK_S, TICKS_PER_WORK * (self._monotonic() - began))
