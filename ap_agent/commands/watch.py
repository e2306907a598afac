"""`watch`: status and busiest links on one screen, until Ctrl-C, from the files of agent and limiter."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from ap_agent.agent.health import is_running, read_health
from ap_agent.agent.store import stored_links
from ap_agent.commands.status import screen
from ap_agent.commands.tables import state_words
from ap_agent.common.outcome import OK, USAGE, Outcome
from ap_agent.common.settings import Settings
from ap_agent.common.text import ago, limit_words
from ap_agent.document.state import Direction, DirectionState, LimiterState, LinkState, read_state
from bandwidth_config import format_kbit
from contract.link_info import LinkInfo
from terminal import table

PAUSE_S: Final = 2.0
_ENTER, _LEAVE = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"  # xterm's alternate screen, without a cursor
_HOME, _END_OF_LINE, _REST = "\033[H", "\033[K", "\033[J"
_COLOUR_CHARS = 11  # escape codes of `painted`
_DIRECTIONS: Final[Mapping[Direction, str]] = {"to_user": "to the user AS", "from_user": "from the user AS"}
_HEADINGS = ("LINK", "USER AS", "STATE", "DIRECTION", "LIMIT", "TRAFFIC", "OF LIMIT", "DROPS/S")
_RIGHT = frozenset({"LINK", "LIMIT", "TRAFFIC", "OF LIMIT", "DROPS/S"})


class Rate(NamedTuple):
    kbit: float
    drops_per_s: float


def watch(settings: Settings) -> Outcome:
    if not sys.stdout.isatty():
        return Outcome(USAGE, err="watch needs a terminal. Use `status`, `show` or `usage` in scripts.")
    former = newest = None
    links: Mapping[int, LinkInfo] = {}
    sys.stdout.write(_ENTER)
    try:
        while True:
            state = read_state(settings.limiter_run_dir)
            if state is not None and (newest is None or (state.run, state.number) != (newest.run, newest.number)):
                former, newest = newest, state
                links = stored_links(settings.state_dir, host_id=settings.host_id)
            width, height = shutil.get_terminal_size()
            lines = _status_lines(settings) + traffic_lines(newest, former, links, now=datetime.now(UTC))
            _draw(lines[: height - 1], width)
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


def traffic_lines(
    newest: LimiterState | None, former: LimiterState | None, links: Mapping[int, LinkInfo], *, now: datetime
) -> list[str]:
    """Both directions of each link, busiest first, from the limiter's two newest states."""
    if newest is None:
        return ["", "The limiter has not written a state since boot. Start scionlab-bw-limiter."]
    rates = rates_between(former, newest)

    def busy(number: int) -> float:
        return max((rates[key].kbit for key in rates if key[0] == number), default=-1.0)

    rows = [
        row
        for number in sorted(newest.links, key=lambda number: (-busy(number), number))
        for row in _rows(newest.links[number], links.get(number), rates)
    ]
    first = "" if rates else " Traffic follows with the limiter's next counters."
    heading = f"Counters read {ago(now - newest.written_at)}.{first} Ctrl-C ends."
    return ["", heading, *(table(_HEADINGS, rows, right=_RIGHT).splitlines() if rows else ["No limited links."])]


def rates_between(former: LimiterState | None, newest: LimiterState) -> dict[tuple[int, Direction], Rate]:
    """Rates of each direction between two states; none after a reset of counters."""
    if former is None:
        return {}
    seconds = (newest.written_at - former.written_at).total_seconds()
    found: dict[tuple[int, Direction], Rate] = {}
    for number, link in newest.links.items():
        before = former.links.get(number)
        if before is None or seconds <= 0:
            continue
        for direction in _DIRECTIONS:
            now, then = _of(link, direction), _of(before, direction)
            if now is not None and then is not None and now.segment == then.segment:
                passed = now.counters.passed_bytes - then.counters.passed_bytes
                found[number, direction] = Rate(passed / 125 / seconds, (now.drops - then.drops) / seconds)
    return found


def _of(link: LinkState, direction: Direction) -> DirectionState | None:
    return link.to_user if direction == "to_user" else link.from_user


def _rows(
    link: LinkState, known: LinkInfo | None, rates: Mapping[tuple[int, Direction], Rate]
) -> list[tuple[str, ...]]:
    number = link.interface_id
    who = (str(number), (known.isd_as if known is not None else None) or "-", state_words(link))
    rows: list[tuple[str, ...]] = []
    for direction, words in _DIRECTIONS.items():
        one, rate = _of(link, direction), rates.get((number, direction))
        limit = limit_words(one.rate_kbit) if one is not None else "nothing"
        used = (format_kbit(round(rate.kbit)), f"{rate.drops_per_s:.1f}") if rate is not None else ("-", "-")
        share = f"{rate.kbit / one.rate_kbit:.0%}" if rate is not None and one is not None and one.rate_kbit else "-"
        rows.append((*(who if direction == "to_user" else ("", "", "")), words, limit, used[0], share, used[1]))
    return rows


def _draw(lines: list[str], width: int) -> None:
    """Overwrite line by line, to avoid flicker."""
    cut = [line[: width + _COLOUR_CHARS * line.startswith("\033")] for line in lines]
    sys.stdout.write(_HOME + "".join(f"{line}{_END_OF_LINE}\n" for line in cut) + _REST)
    sys.stdout.flush()
