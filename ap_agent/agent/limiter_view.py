"""The limiter's state file, and whether it is current.

A file that is missing, older than `Settings.state_valid_s`, or whose writer is gone is outdated: `limiter_silent`. Its
content is still reported, with its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from ap_agent.common.files import identity, read_plain
from ap_agent.common.lock import holder
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.common.times import time_text
from ap_agent.document.state import FILE_NAME, MAX_BYTES, LimiterState, parse_state

SILENT = "limiter_silent"
_REMEDY = "The limits stay in the kernel. Run `systemctl start scionlab-bw-limiter`; see its log for the cause."


def state_path(settings: Settings) -> Path:
    return settings.limiter_run_dir / FILE_NAME


class LimiterView:
    """The newest state; kept if the file is deleted or damaged."""

    def __init__(self, settings: Settings, *, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self.settings = settings
        self.state: LimiterState | None = None
        self._now, self._monotonic = now, monotonic
        self._error: Problem | None = None
        self._identity: tuple[int, ...] | None = None
        self._heard_at: float | None = None  # monotonic time of the last observed write

    def read(self) -> bool:
        """Read the file if it changed; return whether there is a new state. With 4000 links reading takes up to 80 ms
        of CPU: each file is read once."""
        path = state_path(self.settings)
        is_first, former = self._identity is None, self._identity
        try:
            if (found := identity(path.stat())) == former:
                return False
            self._identity = found
            data, opened = read_plain(path, MAX_BYTES)
            self._identity = identity(opened)  # the file that was read, even if replaced meanwhile
            state = parse_state(data)
        except FileNotFoundError:
            self._identity, self._error = (), None
            return False
        except OSError as exc:
            code = "not_permitted" if isinstance(exc, PermissionError) else "state_unusable"
            self._error = Problem(
                code, str(path), f"{path} cannot be read: {exc.strerror}. Make it readable for the agent."
            )
            return False
        except ValueError as exc:
            text = f"{path} cannot be used: {exc}. Restart scionlab-bw-limiter to write it again."
            self._error = Problem("state_unusable", str(path), text)
            return False
        before, self.state, self._error = self.state, state, None
        if before is not None and (state.run, state.number) == (before.run, before.number):
            return False
        self._heard_at = None if is_first else self._monotonic()
        return True

    def silent_in_s(self) -> float | None:
        """Time until the newest state is outdated [s]; None if it is, or there is none. Writes that were observed are
        dated by the monotonic clock."""
        if self.state is None:
            return None
        age_s = (self._now() - self.state.written_at).total_seconds()
        if self._heard_at is not None:
            age_s = self._monotonic() - self._heard_at
        left_s = self.settings.state_valid_s - age_s
        return left_s if left_s > 0 else None

    @property
    def is_silent(self) -> bool:
        return any(one.code == SILENT for one in self.problems())

    def problems(self) -> tuple[Problem, ...]:
        """Problems reported by the limiter, and problems of the limiter."""
        state = self.state
        if state is not None and state.reset_reason is not None:
            return (*state.problems, Problem("limits_removed", "agent", state.reset_reason))
        own = (self._error, self._silence())
        return (*(state.problems if state is not None else ()), *(one for one in own if one is not None))

    def _silence(self) -> Problem | None:
        folder, state = self.settings.limiter_run_dir, self.state
        if state is None:
            said = f"The limiter has not written a state to {folder}, so the state of the kernel is not known."
        elif not state.is_running or holder(folder, "limiter") is None:
            said = f"The limiter is not running; its last state is from {time_text(state.written_at)}."
        elif self.silent_in_s() is None:
            said = f"The limiter is running but has not updated its state since {time_text(state.written_at)}."
        else:
            return None
        return Problem(SILENT, "limiter", f"{said} {_REMEDY}")
