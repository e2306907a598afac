"""`watch`: `status` and `usage` on one screen, until Ctrl-C."""

from __future__ import annotations

import shutil
import sys
import time
from datetime import UTC, datetime
from typing import Final

from ap_agent.agent.health import is_running, read_health
from ap_agent.agent.store import stored_links
from ap_agent.commands.status import screen
from ap_agent.common.errors import StoreError
from ap_agent.common.outcome import OK, USAGE, Outcome
from ap_agent.common.settings import Settings
from ap_agent.usage.spool import FILE_NAME as SPOOL
from ap_agent.usage.table import lines, read_report

PAUSE_S: Final = 2.0
_ENTER, _LEAVE = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"  # xterm's alternate screen, without a cursor
_HOME, _END_OF_LINE, _REST = "\033[H", "\033[K", "\033[J"
_COLOUR_CHARS = 11  # escape codes of `painted`


def watch(settings: Settings) -> Outcome:
    if not sys.stdout.isatty():
        return Outcome(USAGE, err="watch needs a terminal. Use `status`, `show` or `usage` in scripts.")
    sys.stdout.write(_ENTER)
    try:
        while True:
            width, height = shutil.get_terminal_size()
            _draw([*_status_lines(settings), "", *_usage_lines(settings)][: height - 1], width)
            time.sleep(PAUSE_S)
    except KeyboardInterrupt:
        return Outcome(OK)
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _status_lines(settings: Settings) -> list[str]:
    try:
        health = read_health(settings.run_dir)
        if health is None:
            return ["The agent has not reported yet. Start scionlab-bw-agent."]
        return screen(health, is_running=is_running(settings.run_dir), now=datetime.now(UTC))[1]
    except (OSError, ValueError):
        return [f"The health file in {settings.run_dir} cannot be used; `status` says why."]


def _usage_lines(settings: Settings) -> list[str]:
    try:
        report = read_report(settings.state_dir / SPOOL)
    except StoreError as exc:
        return [exc.message]
    if report is None:
        return ["No traffic sample yet."]
    return lines(report, stored_links(settings.state_dir, host_id=settings.host_id), datetime.now(UTC))


def _draw(lines: list[str], width: int) -> None:
    """Overwrite line by line, to avoid flicker."""
    cut = [line[: width + _COLOUR_CHARS * line.startswith("\033")] for line in lines]
    sys.stdout.write(_HOME + "".join(f"{line}{_END_OF_LINE}\n" for line in cut) + _REST)
    sys.stdout.flush()
