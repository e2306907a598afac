"""When events cause a comparison. Pure: moments are monotonic seconds.

Events until a comparison are combined. One that undoes an object of ours is a drift: it is repaired within some 0.15 s
and the time of a pass, however often, and if it happens repeatedly that is a problem with a name. Comparisons because
of all other events take at most about a fifth of any minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ap_agent.common.problem import Problem
from ap_agent.limiter.events import Change, Notifications

SETTLE_S = 0.02  # one command causes several messages, and a device that comes up sends some for a while
REST_S = 0.1  # between two comparisons
WINDOW_S = 60.0
BUDGET_S = 12.0  # of work because of events, within the window; then the pause is four times as long as the work,
REST_PER_WORK = 4  # up to the longest pause: thousands of links must not wait for minutes
FAILED_REST_S = 5.0  # after an incomplete one: then everything triggers a comparison
TOLERATED_REPAIRS = 5  # of one device, each within a minute of the previous, until that is a problem
LONGEST_REST_S = 10.0


@dataclass
class _Repairs:
    times: int = 0
    last: float = 0.0
    whats: set[str] = field(default_factory=set)


class Pacing:
    """Pending events, and recent repairs."""

    def __init__(self) -> None:
        self.due: float | None = None  # when to compare; None without events
        self.drift: frozenset[Change] = frozenset()  # known, and not repaired
        self._rested_at = self._drift_rested_at = 0.0
        self._work: deque[tuple[float, float]] = deque()  # end and duration of event-driven work
        self._repairs: dict[str, _Repairs] = {}

    def note(self, heard: Notifications, now: float, ours: Collection[str]) -> None:
        """`ours`: the devices that have objects of ours."""
        if not heard.concerns_us:
            return
        drift = {one for one in heard.changes if one.is_undoing and one.device in ours}
        self.drift |= drift
        due = max(now + SETTLE_S, self._drift_rested_at if drift or heard.is_lost else self._rested_at)
        self.due = due if self.due is None else min(self.due, due)

    def compared(self, began: float, ended: float, written: Iterable[str], *, is_finished: bool = True) -> list[Change]:
        """A comparison took place, for any reason, with repairs on the devices `written`. Return the repaired drift."""
        if self.due is not None:
            self._work.append((ended, ended - began))
        devices = set(written)
        repaired = sorted(one for one in self.drift if one.device in devices)
        self.due = None
        if is_finished:
            self.drift = frozenset()
        self._forget(ended)
        for subject in {one.device for one in repaired}:
            repairs = self._repairs.setdefault(subject, _Repairs())
            repairs.times, repairs.last = repairs.times + 1, ended
            repairs.whats |= {one.what for one in repaired if one.device == subject}
        self._rested_at = ended + self._rest_s(ended - began, is_finished)
        self._drift_rested_at = ended + REST_S
        return repaired

    def _rest_s(self, work_s: float, is_finished: bool) -> float:
        rest_s = REST_S if is_finished else FAILED_REST_S
        if sum(spent_s for _, spent_s in self._work) > BUDGET_S:
            rest_s = max(rest_s, min(LONGEST_REST_S, REST_PER_WORK * work_s))
        return rest_s

    def problems(self, now: float) -> tuple[Problem, ...]:
        """Devices on which our repairs are undone."""
        self._forget(now)
        return tuple(
            _problem(subject, one) for subject, one in sorted(self._repairs.items()) if one.times > TOLERATED_REPAIRS
        )

    def _forget(self, now: float) -> None:
        while self._work and self._work[0][0] <= now - WINDOW_S:
            self._work.popleft()
        for subject in [subject for subject, one in self._repairs.items() if one.last <= now - WINDOW_S]:
            del self._repairs[subject]


def _problem(subject: str, repairs: _Repairs) -> Problem:
    what = ", ".join(sorted(repairs.whats))
    return Problem(
        "repeatedly_changed",
        subject,
        f"On {subject}: {what} changed {repairs.times} times, each time less than a minute after the last repair; in "
        "between packets are not limited. Find the program that changes it.",
    )
