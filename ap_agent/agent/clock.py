"""How far this host's clock is from the service's, by the Date header of its answers. No I/O.

The header has whole seconds (RFC 9110, 6.6.1), rounded down, so the middle of its second counts. Half the round trip is
subtracted. The result is right to half a second and half a round trip.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from ap_agent.common.problem import Problem

SKEWED_MS = 5000  # beyond it timed limits begin and end visibly wrong
_SLOWEST_ROUND_TRIP_S = 2.0  # a held question, or a service that is busy: nobody knows when in it the date was written
_MAX_MS = 2**31 - 1  # what a receipt can carry: 24 days


class ClockComparison:
    """The newest measurement. Any thread may note one, any may read it."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self.skew_ms: int | None = None

    def note(self, date: datetime | None, round_trip_s: float) -> None:
        """An answer with this date has just arrived, so long after its request was begun."""
        if date is None or not 0 <= round_trip_s <= _SLOWEST_ROUND_TRIP_S:
            return
        ours_s = self._now() - round_trip_s / 2
        measured_ms = round((ours_s - (date.timestamp() + 0.5)) * 1000)
        self.skew_ms = max(-_MAX_MS, min(measured_ms, _MAX_MS))


def skew_problem(skew_ms: int | None) -> Problem | None:
    """A warning where the clocks differ by more than 5 s."""
    if skew_ms is None or abs(skew_ms) <= SKEWED_MS:
        return None
    direction = "ahead of" if skew_ms > 0 else "behind"
    return Problem(
        "clock_skewed",
        "clock",
        f"This host's clock is {abs(skew_ms) / 1000:.0f} s {direction} the service's; at most {SKEWED_MS // 1000} s "
        "are allowed. Temporary limits begin and end by this host's clock: run an NTP client here (`timedatectl` shows "
        "whether one runs).",
    )
