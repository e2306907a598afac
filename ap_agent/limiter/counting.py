"""Counters read between passes, for the cap of all links.

They are shared memory; reading them costs no system call.
"""

from __future__ import annotations

from collections.abc import Callable

from ap_agent.document.handover import Configuration
from ap_agent.document.state import Total
from ap_agent.limiter.enforcing import Enforcer
from ap_agent.limiter.total import TICK_S, TICKS_PER_WORK, Cap


def not_in_force(configuration: Configuration | None) -> Total | None:
    """The wanted cap, if it is not being enforced."""
    if configuration is None or configuration.total_kbit is None:
        return None
    return Total(configuration.total_kbit, None, None)


class Counting:
    """Does what is due. `moments` are monotonic seconds."""

    def __init__(self, enforcer: Enforcer, monotonic: Callable[[], float]) -> None:
        self._enforcer, self._monotonic = enforcer, monotonic
        self._cap: Cap | None = None
        self._next_tick = monotonic()
        self.total: Total | None = None

    def moments(self) -> list[float]:
        return [self._next_tick] if self._total_kbit is not None else []

    def count(self, now: float) -> bool:
        """Return whether the cap in force changed."""
        before = self.total
        self._set_cap(now)
        return self.total != before

    # --- the cap ----------------------------------------------------------------------------------------------------

    @property
    def _total_kbit(self) -> int | None:
        configuration = self._enforcer.configuration
        return configuration.total_kbit if configuration is not None else None

    def _set_cap(self, now: float) -> None:
        total_kbit = self._total_kbit
        if total_kbit is None:
            self._cap = self.total = None
            self._enforcer.set_factors(1.0, 1.0)  # also those left by a previous limiter
            return
        refusing = self._enforcer.refusing
        if self._cap is None:
            self._cap, self._next_tick = Cap(), now
        if now < self._next_tick:
            return
        began = self._monotonic()
        self._enforcer.set_factors(*self._cap.factors(now, total_kbit, refusing, self._enforcer.counted()))
        in_force = total_kbit if refusing else None
        self.total = Total(total_kbit, in_force, in_force)
        self._next_tick = now + max(TICK_S, TICKS_PER_WORK * (self._monotonic() - began))
