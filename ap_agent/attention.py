"""How soon and how often the kernel is looked at because of events. Pure: moments are monotonic seconds, given.

A look follows an event within some 20 ms, and everything that is heard until then is one occasion. Looks because of
events take at most about a fifth of any minute. Where somebody undoes what we do, again and again, each repair waits
longer than the one before, and the fight is a problem with a name.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import TypeVar

from ap_agent.events import Change, Heard
from ap_agent.model import Problem

T = TypeVar("T")

SETTLE_S = 0.02  # one command of somebody's is several messages, and a device that comes up speaks for a while
REST_S = 0.1  # between two looks
BUDGET_S = 12.0  # of looking because of events, within the window; then the rest is four times as long as the look
REST_PER_WORK = 4
FAILED_REST_S = 5.0  # after a look that could not be finished: everything counts as an occasion then
WINDOW_S = 60.0
PATIENCE = 5  # repairs of one device within the window before they slow down
LONGEST_REST_S = 10.0
ROUTING = "routing"  # the subject of changes that belong to no device


class Attention:
    """What was heard and not yet looked at, and what was repaired in the last minute."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._causes: set[Change] = set()
        self._rested_at = 0.0
        self._work: deque[tuple[float, float]] = deque()  # when, and how long it took
        self._repairs: dict[str, deque[tuple[float, frozenset[str]]]] = defaultdict(deque)

    @property
    def due(self) -> float | None:
        """When to look; None while there is no occasion."""
        return self._due

    def hear(self, heard: Heard, now: float) -> None:
        if not heard.concerns_us:
            return
        self._causes |= heard.changes
        if self._due is None:
            self._due = max(now + SETTLE_S, self._rested_at)

    def looked(self, began: float, ended: float, written: Iterable[str], *, is_finished: bool = True) -> list[Change]:
        """The kernel was looked at, for whatever reason, and `written` are the devices on which something had to be put
        right. Returns what somebody else had done there."""
        if self._due is not None:
            self._work.append((ended, ended - began))
        causes, self._causes, self._due = self._causes, set(), None
        devices = set(written)
        guilty = sorted(one for one in causes if one.device in devices or (not one.device and devices))
        for subject in {one.device or ROUTING for one in guilty}:
            whats = frozenset(one.what for one in guilty if (one.device or ROUTING) == subject)
            self._repairs[subject].append((ended, whats))
        self._forget(ended)
        rest_s = REST_S if is_finished else FAILED_REST_S
        if sum(work_s for _, work_s in self._work) > BUDGET_S:
            rest_s = max(rest_s, REST_PER_WORK * (ended - began))
        self._rested_at = ended + max(rest_s, self._penance_s())
        return guilty

    def problems(self, now: float) -> tuple[Problem, ...]:
        """The fights that go on."""
        self._forget(now)
        return tuple(
            _problem(subject, [whats for _, whats in repairs])
            for subject, repairs in sorted(self._repairs.items())
            if len(repairs) > PATIENCE
        )

    def _penance_s(self) -> float:
        times = max((len(repairs) for repairs in self._repairs.values()), default=0)
        return min(LONGEST_REST_S, REST_S * 2.0 ** (times - PATIENCE)) if times > PATIENCE else 0.0

    def _forget(self, now: float) -> None:
        _forget_before(now - WINDOW_S, self._work)
        for repairs in self._repairs.values():
            _forget_before(now - WINDOW_S, repairs)


def _forget_before(moment: float, rows: deque[tuple[float, T]]) -> None:
    while rows and rows[0][0] <= moment:
        rows.popleft()


def _problem(subject: str, whats: list[frozenset[str]]) -> Problem:
    what = ", ".join(sorted(frozenset().union(*whats)))
    changed = f"The {what} of the links" if subject == ROUTING else f"On {subject}: {what}"
    return Problem(
        "repeatedly_changed",
        subject,
        f"{changed} changed {len(whats)} times within the last minute and had to be put right each time, now at most "
        f"every {LONGEST_REST_S:g} s; find the other program that does it.",
    )
