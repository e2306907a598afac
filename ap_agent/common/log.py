"""The agent's log: one line per event on stdout, `event key=value ...`, for journald and `grep`.

    reconcile.done version=1.18 limits=7 added=1 changed=2 removed=0 ms=12

ERROR: someone must act. WARNING: degraded, retrying. INFO: something changed. DEBUG: nothing changed. Under systemd
each line begins with its priority (`<4>`), which journald removes; elsewhere level and time are at the end of the line.
Text from servers or files is quoted and kept on one line, so that it cannot forge lines. Never secrets, never whole
bundles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import structlog

from ap_agent.common.problem import Problem

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}  # sd-daemon(3)
_MAX_VALUE_CHARS = 600

Logger = Any  # structlog's bound logger has no useful types


def configure(level: str, *, under_systemd: bool, stream: TextIO | None = None) -> None:
    """Send this process's events to `stream` (stdout), from `level` up."""
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.format_exc_info, _Renderer(under_systemd)],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )


def get_logger() -> Logger:
    return structlog.get_logger()


class _Renderer:
    """The last processor: an event with its pairs -> one line."""

    def __init__(self, under_systemd: bool) -> None:
        self._under_systemd = under_systemd

    def __call__(self, _logger: Any, _method: str, event: Mapping[str, Any]) -> str:
        pairs = dict(event)
        name, level = str(pairs.pop("event")), str(pairs.pop("level", "info"))
        line = " ".join([name, *(f"{key}={quoted(value)}" for key, value in pairs.items())])
        if self._under_systemd:
            return f"<{_PRIORITIES.get(level, 6)}>{line}"
        return f"{line} level={level} at={datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


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
