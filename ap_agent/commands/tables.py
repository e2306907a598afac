"""Output of `plan`, `once` and `show`: one row per link, and other facts for operators. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ap_agent.common.problem import Problem
from ap_agent.common.text import (
    FROM_USER,
    TO_USER,
    ago,
    limit_words,
    limits_words,
    problem_lines,
    remote_of,
    time_words,
)
from ap_agent.document.state import DirectionState, LimiterState, LinkState
from bandwidth_config import Limits, format_kbit, format_number
from contract.link_info import LinkInfo
from terminal import table

if TYPE_CHECKING:  # the agent, which prints states, loads no kernel code
    from ap_agent.dataplane.outcome import LinkChange, Outcome

_SHOWN_UNCHANGED = 20  # rows of unchanged links; more are counted
_UNCHANGED, _FAILED = "unchanged", "cannot be enforced (see below)"
_DETAILS = ("PACKETS", "REFUSED", "DROPPED BY HTB", "QUEUED (B)", "HEARTBEATS")
_STATE_RIGHT = frozenset({"LINK", "LIMIT", "PASSED (B)", "DROPS", *_DETAILS})


# --- plan -----------------------------------------------------------------------------------------------------------


def plan_lines(
    done: Outcome,
    links: Mapping[int, LinkInfo],
    now: datetime,
    *,
    is_done: bool,
    is_observe_only: bool,
    verbose: bool,
) -> list[str]:
    """One row per link, one line per device, and what is not touched. `is_done`: already applied."""
    rows = _plan_rows(done, links, now, is_observe_only=is_observe_only)
    unchanged = [row for row in rows if row[-1] == _UNCHANGED]
    is_short = len(unchanged) > _SHOWN_UNCHANGED and not verbose
    shown = [row for row in rows if row not in unchanged] if is_short else rows
    lines = []
    if shown:
        headings = ("LINK", "USER AS", "REMOTE ADDRESS", "LIMIT BEFORE" if is_done else "LIMIT NOW", "THEN", "ACTION")
        lines.append(table(headings, shown, right=frozenset({"LINK"})))
        lines.append("Limits apply per direction, or: to the user AS / from it.")
    if is_short:
        lines.append(f"{len(unchanged)} {'more ' if shown else ''}links unchanged (-v lists them).")
    if not rows:
        lines.append("No limited links in the configuration or in the kernel.")
    if is_observe_only:
        lines.append("Observe only: all links are measured, none is limited.")
    return [*lines, "", *_device_lines(done, is_done=is_done, verbose=verbose)]


def _device_lines(done: Outcome, *, is_done: bool, verbose: bool) -> list[str]:
    many = len(done.plan.operations)
    if not many:
        return ["The kernel was up to date." if is_done else "The kernel is up to date."]
    lines = [f"{name}: {what}" for name, what in done.plan.devices.items()]
    what = f"{many} operation{'s' if many > 1 else ''} in the kernel"
    lines.append(f"{what}{'' if verbose else ' (-v lists them)'}; no foreign object is touched.")
    return lines + ([f"  {one}" for one in done.plan.operations] if verbose else [])


def plan_json(done: Outcome, problems: Iterable[Problem], source: str) -> dict[str, Any]:
    """As JSON; limits in kbit/s."""
    return {
        "source": source,
        "links": {
            str(one.interface_id): {
                "now": one.now._asdict() if one.now is not None else None,
                "then": one.then._asdict() if one.then is not None else None,
            }
            for one in done.plan.links
        },
        "failed": {str(number): why for number, why in sorted(done.failed.items())},
        "devices": dict(done.plan.devices),
        "operations": [str(one) for one in done.plan.operations],
        "problems": [asdict(one) for one in problems],
    }


def _plan_rows(
    done: Outcome, links: Mapping[int, LinkInfo], now: datetime, *, is_observe_only: bool
) -> list[tuple[str, ...]]:
    rows: dict[int, tuple[str, ...]] = {}
    for number, link in links.items():
        if link.is_user_as:
            limits = limits_words(link.limits_at(now))
            failed = number in done.failed
            rows[number] = ("none" if failed else limits, limits, _FAILED if failed else _UNCHANGED)
    for one in done.plan.links:
        wanted = links.get(one.interface_id)
        is_observed = is_observe_only or (wanted is not None and wanted.is_observed)
        action = _FAILED if one.interface_id in done.failed else _action(one, is_observed=is_observed)
        words = [limits_words(limits) if limits is not None else "none" for limits in (one.now, one.then)]
        rows[one.interface_id] = (*words, action)
    return [(str(number), *_who(number, links), *row) for number, row in sorted(rows.items())]


def _action(change: LinkChange, *, is_observed: bool) -> str:
    if change.then is None:
        return "remove the limit"
    if is_observed:
        return "observe"
    if change.now == change.then:
        return "set again"  # parts of it are missing, or it was only observed
    if change.then == Limits.both(0):
        return "block"
    return "limit" if change.now is None else "change"


def _who(number: int, links: Mapping[int, LinkInfo]) -> tuple[str, str]:
    link = links.get(number)
    if link is None:
        return ("other traffic", "any") if number == 0 else ("-", "-")
    return (link.isd_as or "-", remote_of(link))


# --- show -----------------------------------------------------------------------------------------------------------


def age_lines(state: LimiterState, now: datetime, *, is_running: bool, fresh_for_s: float) -> tuple[list[str], bool]:
    """Age of the state, in words, and whether it is current."""
    age = now - state.written_at
    said = f"Counters read {ago(age)}; limits read back from the kernel {ago(now - state.observed_at)}"
    if not is_running:
        return [f"{said}. The limiter is not running; the limits that it set stay in the kernel."], False
    if age > timedelta(seconds=fresh_for_s):
        return [f"STALE: {said}. The limiter is running but has not updated the state since."], False
    return [f"{said}."], True


def state_lines(state: LimiterState, links: Mapping[int, LinkInfo], *, verbose: bool) -> list[str]:
    """Both directions of each link in the kernel; with `verbose` also the kinds of drops, and addresses."""
    rows: list[tuple[str, ...]] = []
    details: list[tuple[str, ...]] = []
    for number, one in sorted(state.links.items()):
        who = (str(number), (known.isd_as if (known := links.get(number)) else None) or "-", state_words(one))
        for way, side in ((TO_USER, one.to_user), (FROM_USER, one.from_user)):
            rows.append((*(who if way == TO_USER else [""] * len(who)), way, *_direction(side)))
            details.append((str(number), way, *_details(side)))
    heading = ("LINK", "USER AS", "STATE", "DIRECTION", "LIMIT", "PASSED (B)", "DROPS")
    lines = [table(heading, rows, right=_STATE_RIGHT)] if rows else ["No limited links."]
    if verbose and rows:
        lines += ["", table(("LINK", "DIRECTION", *_DETAILS), details, right=_STATE_RIGHT), ""]
        lines += [f"Link {number}: {remote_of(links[number])}" for number in sorted(state.links) if number in links]
    if any(one.state == "observed" for one in state.links.values()):
        lines.append("DROPS of an observed link counts packets that passed and that its limit would have dropped.")
    if state.total is not None:
        have = [format_kbit(one) if one is not None else "none" for one in state.total[1:]]
        wanted = format_kbit(state.total.wanted_kbit)
        lines.append(f"All links together: {wanted} requested; enforced: {have[0]} to the users, {have[1]} from them.")
    if state.unmatched is not None:
        for words, direction in zip(("to", "from"), state.unmatched, strict=True):
            mark = "failed; " if state.unmatched_problem is not None else ""
            lines.append(f"Traffic that belongs to no link, {words} them: {mark}{_unmatched_words(direction)}")
    if state.is_observe_only:
        lines.append("Observe only: all links are measured, none is limited.")
    if state.next_step_at is not None:
        lines.append(f"The next temporary limit begins, steps or ends at {time_words(state.next_step_at)}.")
    if state.devices:
        lines.append(f"Packets are classified on {', '.join(state.devices)}.")
    return lines


def failures(state: LimiterState) -> dict[int, str]:
    """Links that are not enforced, with reasons; 0: unmatched traffic."""
    found = {number: one.problem or "" for number, one in state.links.items() if one.state == "error"}
    return found if state.unmatched_problem is None else {0: state.unmatched_problem, **found}


def state_words(link: LinkState) -> str:
    if link.state == "enforced" and link.limits == Limits.both(0):
        return "blocked"
    return "failed" if link.state == "error" else link.state


def _direction(one: DirectionState | None) -> tuple[str, ...]:
    if one is None:
        return ("nothing", "-", "-")
    return (limit_words(one.rate_kbit), format_number(one.counters.passed_bytes), format_number(one.drops))


def _details(one: DirectionState | None) -> tuple[str, ...]:
    if one is None:
        return ("-",) * len(_DETAILS)
    of = one.counters
    numbers = (of.passed_packets, of.refused_packets, one.dropped_packets, one.backlog_bytes, of.heartbeat_packets)
    return tuple(map(format_number, numbers))


def _unmatched_words(one: DirectionState | None) -> str:
    if one is None:
        return "not in the kernel"
    return (
        f"{limit_words(one.rate_kbit)}, {format_number(one.counters.passed_bytes)} B passed, "
        f"{format_number(one.drops)} packets dropped"
    )


# --- both -----------------------------------------------------------------------------------------------------------


def error_lines(problems: Iterable[Problem], failed: Mapping[int, str], what: str = "is not enforced") -> list[str]:
    """Problems, and a line for each link that is not enforced (0: unmatched traffic), unless a problem covers it."""
    said = list(problems)
    messages = {one.message for one in said}
    return problem_lines(said) + [
        f"{f'link {number}' if number else 'traffic that belongs to no link'} {what}: {why}"
        for number, why in sorted(failed.items())
        if why not in messages
    ]
