"""`show` of both programs: the limiter's state of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from ap_agent.commands import tables
from ap_agent.common.lock import holder
from ap_agent.common.outcome import NOT_DONE, OK, Outcome
from ap_agent.common.settings import Settings
from ap_agent.common.text import ago, timed_lines
from ap_agent.document.state import LimiterState, read_state, state_bytes
from contract.link_info import LinkInfo


def show(
    settings: Settings,
    links: Mapping[int, LinkInfo],
    *,
    look: Callable[[LimiterState], LimiterState] = lambda written: written,
    as_json: bool = False,
    verbose: bool = False,
) -> Outcome:
    """The state file as text or JSON. `links` have the names and addresses, which are not in it; `look` reads the
    current state if no limiter runs. The exit code says whether every link, and unmatched traffic, is enforced."""
    state = read_state(settings.limiter_run_dir)
    if state is None:
        missing = f"there is no state.json in {settings.limiter_run_dir}"
        text = f"The limiter has not written a state since boot: {missing}. Start scionlab-bw-limiter."
        return Outcome(NOT_DONE, err=text)
    is_running = state.is_running and holder(settings.limiter_run_dir, "limiter") is not None
    if not is_running:
        state = look(state)
    now = datetime.now(UTC)
    if state.reset_reason is not None and not as_json:
        return Outcome(NOT_DONE, f"All limits are removed, {ago(now - state.written_at)}: {state.reset_reason}")
    lines, is_fresh = tables.age_lines(state, now, is_running=is_running, fresh_for_s=settings.state_valid_s)
    failed = tables.failures(state)
    code = OK if is_fresh and not failed and state.reset_reason is None else NOT_DONE
    if as_json:
        return Outcome(code, state_bytes(state).decode())
    lines += ["", *tables.state_lines(state, links, verbose=verbose), *timed_lines(links, now)]
    return Outcome(code, "\n".join(lines), "\n".join(tables.error_lines(state.problems, failed)))
