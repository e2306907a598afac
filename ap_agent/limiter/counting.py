"""What is read of the program's counters between passes: the cap of all links, and samples that the agent asked for.

Counters are memory of this process; reading them costs no system call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime

from ap_agent.document.handover import Configuration
from ap_agent.document.state import LinkSample, Total
from ap_agent.limiter.documents import requested_samples
from ap_agent.limiter.enforcing import Enforcer
from ap_agent.limiter.total import TICK_S, TICKS_PER_WORK, Cap

SAMPLE_S = 1.0
KEPT_SAMPLES = 120


def not_in_force(configuration: Configuration | None) -> Total | None:
    """The cap that is wanted, where nobody sets the factors that keep it."""
    if configuration is None or configuration.total_kbit is None:
        return None
    return Total(configuration.total_kbit, None, None)


class Counting:
    """Does what is due when it is asked. `moments` are monotonic seconds."""

    def __init__(self, enforcer: Enforcer, monotonic: Callable[[], float]) -> None:
        self._enforcer, self._monotonic = enforcer, monotonic
        self._cap: Cap | None = None
        self._next_tick = self._next_sample = monotonic()
        self._wanted: dict[int, datetime] = {}
        self._samples: dict[int, deque[LinkSample]] = {}
        self.total: Total | None = None

    def take_requests(self) -> None:
        """Look again which links the agent wants to have sampled."""
        self._wanted = requested_samples(self._enforcer.settings.state_dir, self._enforcer.now())

    @property
    def samples(self) -> dict[int, tuple[LinkSample, ...]]:
        return {number: tuple(several) for number, several in self._samples.items()}

    def moments(self) -> list[float]:
        moments = [self._next_tick] if self._total_kbit is not None else []
        return [*moments, self._next_sample] if self._wanted or self._samples else moments

    def count(self, now: float) -> bool:
        """Whether the cap in force is another now."""
        before = self.total
        self._set_cap(now)
        if now >= self._next_sample and (self._wanted or self._samples):
            self._next_sample = now + SAMPLE_S
            self._sample()
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
            self._enforcer.set_factors(1.0, 1.0)  # also those that a limiter before this one left behind
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

    # --- samples ----------------------------------------------------------------------------------------------------

    def _sample(self) -> None:
        """One more of each link; those of a link that nobody asks for any more go one by one."""
        now = self._enforcer.now()
        self._wanted = {number: until for number, until in self._wanted.items() if now < until}
        counted = self._enforcer.counted()
        for number in self._wanted:
            if (number, "to_user") in counted and (number, "from_user") in counted:
                several = self._samples.setdefault(number, deque(maxlen=KEPT_SAMPLES))
                counters = counted[number, "to_user"][1], counted[number, "from_user"][1]
                several.append(LinkSample(round(now.timestamp() * 1000), *counters))
        for number in self._samples.keys() - self._wanted.keys():
            self._samples[number].popleft()
            if not self._samples[number]:
                del self._samples[number]
