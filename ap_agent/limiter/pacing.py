"""When events cause a comparison. Pure: moments are monotonic seconds.

A comparison follows an event within some 20 ms, and events until then are combined. Comparisons because of events take
at most about a fifth of any minute. If something undoes our changes repeatedly, repairs wait longer each time, and that
is a problem with a name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ap_agent.common.problem import Problem
from ap_agent.limiter.events import Change, Notifications

SETTLE_S = 0.02  # one command causes several messages, and a device that comes up sends some for a while
REST_S = 0.1  # between two comparisons
WINDOW_S = 60.0
BUDGET_S = 12.0  # of work because of events, within the window; then the pause is four times as long as the work,
REST_PER_WORK = 4  # up to the longest pause: thousands of links must not wait for minutes
FAILED_REST_S = 5.0  # after an incomplete one: then everything triggers a comparison
QUICK_REPAIRS = 5  # of one device, each within a minute of the previous, until the next ones slow down
LONGEST_REST_S = 10.0
ADDRESSES = "addresses"  # the subject of changes without a device


@dataclass
class _Repairs:
    times: int = 0
    last: float = 0.0
    whats: set[str] = field(default_factory=set)


class Pacing:
    """Pending events, and recent repairs."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._causes: set[Change] = set()
        self._rested_at = 0.0
        self._work: deque[tuple[float, float]] = deque()  # end and duration of event-driven work
        self._repairs: dict[str, _Repairs] = {}

    @property
    def due(self) -> float | None:
        """When to compare; None without events."""
        return self._due

    def note(self, heard: Notifications, now: float) -> None:
        if not heard.concerns_us:
            return
        self._causes |= heard.changes
        if self._due is None:
            self._due = max(now + SETTLE_S, self._rested_at)

    def compared(self, began: float, ended: float, written: Iterable[str], *, is_finished: bool = True) -> list[Change]:
        """A comparison took place, for any reason, with repairs on the devices `written`. Return the foreign changes
        there."""
        if self._due is not None:
            self._work.append((ended, ended - began))
        causes, self._causes, self._due = self._causes, set(), None
        devices = set(written)
        guilty = sorted(one for one in causes if one.device in devices or (not one.device and devices))
        self._forget(ended)
        for subject in {one.device or ADDRESSES for one in guilty}:
            repairs = self._repairs.setdefault(subject, _Repairs())
            repairs.times, repairs.last = repairs.times + 1, ended
            repairs.whats |= {one.what for one in guilty if (one.device or ADDRESSES) == subject}
        self._rested_at = ended + self._rest_s(ended - began, is_finished)
        return guilty

    def _rest_s(self, work_s: float, is_finished: bool) -> float:
        rest_s = REST_S if is_finished else FAILED_REST_S
        if sum(spent_s for _, spent_s in self._work) > BUDGET_S:
            rest_s = max(rest_s, min(LONGEST_REST_S, REST_PER_WORK * work_s))
        beyond = max((repairs.times for repairs in self._repairs.values()), default=0) - QUICK_REPAIRS
        return max(rest_s, min(LONGEST_REST_S, REST_S * 2.0 ** min(beyond, 40))) if beyond > 0 else rest_s

    def problems(self, now: float) -> tuple[Problem, ...]:
        """Devices on which our repairs are undone."""
        self._forget(now)
        return tuple(
            _problem(subject, one) for subject, one in sorted(self._repairs.items()) if one.times > QUICK_REPAIRS
        )

    def _forget(self, now: float) -> None:
        while self._work and self._work[0][0] <= now - WINDOW_S:
            self._work.popleft()
        for subject in [subject for subject, one in self._repairs.items() if one.last <= now - WINDOW_S]:
            del self._repairs[subject]


def _problem(subject: str, repairs: _Repairs) -> Problem:
    what = ", ".join(sorted(repairs.whats))
    changed = f"The {what} of this host" if subject == ADDRESSES else f"On {subject}: {what}"
    return Problem(
        "repeatedly_changed",
        subject,
        f"{changed} changed {repairs.times} times, each time less than a minute after the last repair; repairs now "
        f"wait up to {LONGEST_REST_S:g} s. Find the program that changes it.",
    )
