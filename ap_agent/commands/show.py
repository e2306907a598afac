"""`show` of both programs: what the limiter says the kernel has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from ap_agent.commands import tables
from ap_agent.common.outcome import NOT_DONE, OK, Outcome
from ap_agent.common.settings import Settings
from ap_agent.common.text import ago, problem_lines, timed_lines
from ap_agent.document.state import LimiterState, state_bytes
from bandwidth_config import LinkInfo


def show_state(
    settings: Settings,
    state: LimiterState,
    links: Mapping[int, LinkInfo],
    *,
    is_running: bool,
    as_json: bool,
    verbose: bool,
) -> Outcome:
    """A state for people, or as its file has it. The exit code says whether every link is as wanted now."""
    now = datetime.now(UTC)
    fresh_for_s = 3 * (settings.usage_interval_s or 10.0) + 30
    if state.reset_reason is not None and not as_json:
        return Outcome(NOT_DONE, f"All limits are removed, {ago(now - state.written_at)}: {state.reset_reason}")
    lines, is_fresh = tables.age_lines(state, now, is_running=is_running, fresh_for_s=fresh_for_s)
    good = all(one.state != "error" for one in state.links.values()) and state.reset_reason is None
    code = OK if good and is_fresh else NOT_DONE
    if as_json:
        return Outcome(code, state_bytes(state).decode())
    lines += ["", *tables.state_lines(state, links, verbose=verbose), *timed_lines(links, now)]
    errors = [*problem_lines(state.problems), *tables.unenforced_lines(state, state.problems)]
    return Outcome(code, "\n".join(lines), "\n".join(errors))
