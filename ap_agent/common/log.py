"""The agent's log: one line per event on stdout, `event key=value ...`, for journald and `grep`.

    reconcile.done version=1.18 limits=7 added=1 changed=2 removed=0 ms=12

ERROR: someone must act. WARNING: degraded, retrying. INFO: something changed. DEBUG: nothing changed. Under systemd
each line begins with its priority (`<4>`), which journald removes; elsewhere level and time are at the end of the line.
Text from servers or files is quoted and kept on one line, so that it cannot forge lines. Never secrets, never whole
bundles.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TextIO

from ap_agent.common.problem import Problem

_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3}  # sd-daemon(3)
_MAX_VALUE_CHARS = 600


class Logger:
    """Lines of this process, for any thread."""

    def __init__(self) -> None:
        self.use("info", under_systemd=False)

    def use(self, level: str, *, under_systemd: bool, stream: TextIO | None = None) -> None:
        self._lowest = _PRIORITIES[level]
        self._under_systemd, self._stream = under_systemd, stream

    def debug(self, event: str, **pairs: object) -> None:
        self._say("debug", event, pairs)

    def info(self, event: str, **pairs: object) -> None:
        self._say("info", event, pairs)

    def warning(self, event: str, **pairs: object) -> None:
        self._say("warning", event, pairs)

    def error(self, event: str, **pairs: object) -> None:
        self._say("error", event, pairs)

    def exception(self, event: str, **pairs: object) -> None:
        """An error with the traceback of the exception that is being handled."""
        self._say("error", event, {**pairs, "exception": traceback.format_exc().rstrip()})

    def _say(self, level: str, event: str, pairs: Mapping[str, object]) -> None:
        if _PRIORITIES[level] > self._lowest:
            return
        line = " ".join([event, *(f"{key}={quoted(value)}" for key, value in pairs.items())])
        if self._under_systemd:
            line = f"<{_PRIORITIES[level]}>{line}\n"
        else:
            line = f"{line} level={level} at={datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}\n"
        stream = self._stream if self._stream is not None else sys.stdout
        stream.write(line)  # whole, so that lines of two threads do not mix
        stream.flush()


_current = Logger()


def configure(level: str, *, under_systemd: bool, stream: TextIO | None = None) -> None:
    """Send this process's events to `stream` (stdout), from `level` up, also of loggers that were taken before."""
    _current.use(level, under_systemd=under_systemd, stream=stream)


def get_logger() -> Logger:
    return _current


def quoted(value: object) -> str:
    """A value for the right side of `=`: bare if unambiguous, otherwise quoted, always on one line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if len(text) > _MAX_VALUE_CHARS and "Traceback" not in text[:40]:
        text = text[: _MAX_VALUE_CHARS - 3] + "..."
    if text and text.isprintable() and not set(text) & set(' "=\\'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    printable = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in escaped)
    return f'"{printable}"'


class Conditions:
    """Current problems, so that each is logged when it starts and when it ends, not every ten seconds. A condition is
    identified by code and subject; its message may change (a counter in it) without being news."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._since: dict[tuple[str, str], float] = {}
        self._times: dict[tuple[str, str], int] = {}

    def update(self, problems: Iterable[Problem], now_s: float, *, warnings: frozenset[str] = frozenset()) -> None:
        """Log started and ended conditions. `warnings` are codes that resolve themselves."""
        found = {(one.code, one.subject): one for one in problems}
        for key, problem in found.items():
            self._times[key] = self._times.get(key, 0) + 1
            if key in self._since:
                continue
            self._since[key] = now_s
            say = self._logger.warning if problem.code in warnings else self._logger.error
            say("problem.begin", code=problem.code, subject=problem.subject, message=problem.message)
        for key in [key for key in self._since if key not in found]:
            lasted_s = round(now_s - self._since.pop(key))
            self._logger.info("problem.end", code=key[0], subject=key[1], lasted_s=lasted_s, times=self._times.pop(key))
