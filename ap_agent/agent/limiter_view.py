"""What the limiter says of the kernel, and whether it still says anything.

The limiter writes its state when something changed and every `usage_interval_s`. A file that is missing, older than
three of these intervals and 30 s, or whose writer is gone says nothing of now: `limiter_silent`. What it says is told
all the same, with its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from ap_agent.agent.problems import problem_of
from ap_agent.common.errors import AgentError
from ap_agent.common.lock import holder, lock_path
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.common.times import time_text
from ap_agent.document.state import FILE_NAME, LimiterState, read_state

SILENT = "limiter_silent"
_INTERVALS, _GRACE_S = 3, 30.0
_SLOWEST_S = 10.0  # its interval where usage is not sampled
_REMEDY = (
    "The limits that were set stay in the kernel. `systemctl start scionlab-bw-limiter`; its log says why it ended."
)


def state_path(settings: Settings) -> Path:
    return settings.limiter_run_dir / FILE_NAME


class LimiterView:
    """The newest state. `is_running` says whether a limiter is at work; the file's own age is asked besides."""

    def __init__(
        self,
        settings: Settings,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        is_running: Callable[[Path], bool] = lambda folder: holder(lock_path(folder, "limiter")) is not None,
    ) -> None:
        self.settings = settings
        self.state: LimiterState | None = None
        self.error: Problem | None = None
        self._now, self._monotonic = now, monotonic
        self._is_running = is_running
        self._identity: tuple[int, ...] | None = None
        self._heard_at: float | None = None  # monotonic: when it wrote while we were there

    def read(self) -> bool:
        """Take up the file if it is another one; whether there is another state."""
        identity = self._identity_now()
        if identity == self._identity:
            return False
        is_first, self._identity = self._identity is None, identity
        before = self.state
        try:
            state = read_state(self.settings.limiter_run_dir)
            self.error = None
        except AgentError as exc:
            self.error = problem_of(exc, str(state_path(self.settings)))
            return False
        self.state = state if state is not None else before  # deleted: what it said last is still the newest word
        if state is None or (before is not None and (state.run, state.number) == (before.run, before.number)):
            return False
        self._heard_at = None if is_first else self._monotonic()
        return True

    def _identity_now(self) -> tuple[int, ...]:
        try:
            found = state_path(self.settings).stat()
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_mtime_ns

    @property
    def longest_silence_s(self) -> float:
        return _INTERVALS * (self.settings.usage_interval_s or _SLOWEST_S) + _GRACE_S

    def age_s(self) -> float:
        """Of the newest state. What was written while we were there is dated by a clock that nobody sets."""
        if self.state is None:
            return float("inf")
        age_s = (self._now() - self.state.written_at).total_seconds()
        return age_s if self._heard_at is None else self._monotonic() - self._heard_at

    def silent_in_s(self) -> float | None:
        """How long until the newest state is too old; None where that moment is past."""
        left_s = self.longest_silence_s - self.age_s()
        return left_s if left_s > 0 else None

    @property
    def is_silent(self) -> bool:
        return any(one.code == SILENT for one in self.problems())

    def problems(self) -> tuple[Problem, ...]:
        """What the limiter says is wrong, and what is wrong with the limiter."""
        state = self.state
        if state is not None and state.reset_reason is not None:
            return (*state.problems, Problem("limits_removed", "agent", state.reset_reason))
        silence = self._silence()
        return (*(state.problems if state is not None else ()), *([self.error] if self.error else []), *silence)

    def _silence(self) -> tuple[Problem, ...]:
        folder, state = self.settings.limiter_run_dir, self.state
        if state is None:
            said = f"The limiter has written no state in {folder}, so nothing is known of the kernel."
        elif not state.is_running or not self._is_running(folder):
            said = f"The limiter is not running; its last state is of {time_text(state.written_at)}."
        elif self.silent_in_s() is None:
            said = f"The limiter runs, but has written nothing since {time_text(state.written_at)}."
        else:
            return ()
        return (Problem(SILENT, "limiter", f"{said} {_REMEDY}"),)
