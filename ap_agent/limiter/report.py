"""Writes the state file: what was wanted, the kernel's state, and counters."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.dataplane.outcome import Readback
from ap_agent.dataplane.wanted import LimitedLink
from ap_agent.document.state import (
    ClosedSegment,
    Counters,
    DirectionState,
    LimiterState,
    LinkState,
    Total,
    read_state,
    write_state,
)
from ap_agent.limiter.drops import Counted, Readbacks
from ap_agent.limiter.enforcing import Enforcer
from contract.link_info import LinkInfo

MOST_CLOSED = 8192
CLOSED_FOR = timedelta(days=1)
_NOT_THERE = "The limits of this link are not in the kernel."


@dataclass(frozen=True)
class Extras:
    """From outside the enforcer: problems of files and repairs, the cap that the factors keep, tests."""

    problems: Sequence[Problem] = ()
    capped_kbit: int | None = None
    tests: tuple[str, ...] = ()


class Report:
    """State files of one start of the limiter, with recently ended segments."""

    def __init__(self, folder: Path, logger: Logger, now: Callable[[], datetime]) -> None:
        self._folder, self._log, self._now = folder, logger, now
        self._run, self._number = secrets.token_hex(16), 0
        self._closed: tuple[ClosedSegment, ...] = ()
        self._written: LimiterState | None = None

    def take_up(self, enforcer: Enforcer) -> None:
        """Continue the previous limiter's last state. Without it there are no ended segments."""
        try:
            former = read_state(self._folder)
        except AgentError as exc:
            self._log.warning("state.unread", message=exc.message)
            return
        if former is not None:
            enforcer.drops.take_up(former)
            self._closed = kept_segments(former.closed, self._now())
            self._written = replace(former, run=self._run, is_running=True, reset_reason=None)

    def keep(self, closed: tuple[ClosedSegment, ...]) -> None:
        """The last counters of ended lanes: written before the kernel drops them, as they are needed for bills. This
        happens within a pass: everything else in the file is still the previous state."""
        if not closed:
            return
        now = self._now()
        self._closed = kept_segments((*self._closed, *closed), now)
        nothing = LimiterState(self._run, 0, now, now, None, None, None, is_ok=False, writes=0, links={})
        before = self._written or nothing
        self._number += 1
        self._write(replace(before, number=self._number, closed=self._closed))

    def write(
        self,
        enforcer: Enforcer,
        extras: Extras = Extras(),
        *,
        reset_reason: str | None = None,
        is_running: bool = True,
    ) -> LimiterState:
        self._closed = kept_segments(self._closed, self._now())
        self._number += 1
        return self._write(
            replace(
                state_of(enforcer, extras, self._now()),
                run=self._run,
                number=self._number,
                closed=self._closed,
                reset_reason=reset_reason,
                is_running=is_running,
            )
        )

    def _write(self, state: LimiterState) -> LimiterState:
        self._written = state
        save(self._folder, lambda: write_state(self._folder, state), self._log, "state.unwritable")
        return state


def save(folder: Path, write: Callable[[], None], logger: Logger, failure: str) -> None:
    """Write a file in this folder. One that cannot be written is only logged, as `failure`: the next one has more."""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        write()
    except OSError as exc:
        logger.error(failure, folder=folder, message=exc.strerror)


def state_of(enforcer: Enforcer, extras: Extras, now: datetime) -> LimiterState:
    """State after the last pass, without the writer's identity."""
    said, outcome, wanted, counted = enforcer.configuration, enforcer.outcome, enforcer.wanted, enforcer.counted()
    has_unmatched = wanted.unmatched_kbit is not None and said is not None
    links = link_states(enforcer.links, wanted.links, enforcer.errors, outcome.readback, counted)
    return LimiterState(
        run="",
        number=0,
        written_at=now,
        observed_at=enforcer.observed_at,
        host_id=said.host_id if said is not None else None,
        order=said.order if said is not None else None,
        limits_digest=said.limits_digest if said is not None else None,
        is_ok=enforcer.is_ok,
        writes=enforcer.writes,
        links=links,
        problems=tuple(dict.fromkeys((*enforcer.problems, *extras.problems))),
        is_step=enforcer.is_step,
        is_observe_only=enforcer.settings.observe_only or (said is not None and said.is_observe_only),
        total=_total(said.total_kbit, extras.capped_kbit, links) if said is not None else None,
        unmatched=directions(0, outcome.readback, counted) if has_unmatched else None,
        unmatched_problem=enforcer.errors.get(0) if has_unmatched else None,
        devices=outcome.classifying,
        next_step_at=enforcer.next_step_at(),
        tests=extras.tests,
    )


def _total(wanted_kbit: int | None, capped_kbit: int | None, links: Mapping[int, LinkState]) -> Total | None:
    """In force only if every link is: the packets of a failed one are not counted."""
    if wanted_kbit is None:
        return None
    states = {one.state for one in links.values()}
    in_force = capped_kbit if "enforced" in states and "error" not in states else None
    return Total(wanted_kbit, in_force, in_force)


def link_states(
    links: Mapping[int, LinkInfo],
    limited: Mapping[int, LimitedLink],
    errors: Mapping[int, str],
    readback: Readbacks,
    counted: Counted,
) -> dict[int, LinkState]:
    """Each limited link. `links` have the limits at the time of the readback."""
    found: dict[int, LinkState] = {}
    for number, link in links.items():
        if not link.is_user_as:
            continue
        to_user, from_user = directions(number, readback, counted)
        said: Literal["enforced", "observed", "error"] = "enforced"
        problem = errors.get(number)
        if problem is None and (to_user is None or from_user is None):
            problem = _NOT_THERE
        if problem is not None:
            said = "error"
        elif number in limited and limited[number].is_observed:
            said = "observed"
        found[number] = LinkState(number, link.limits, said, problem, to_user, from_user)
    return found


def directions(
    number: int, readback: Readbacks, counted: Counted
) -> tuple[DirectionState | None, DirectionState | None]:
    """To the user and from the user, as far as the kernel has them."""
    to_user, from_user = readback.get(number, (None, None))
    return (
        _direction(to_user, counted.get((number, "to_user"))),
        _direction(from_user, counted.get((number, "from_user"))),
    )


def _direction(found: Readback | None, counted: tuple[int, Counters] | None) -> DirectionState | None:
    if found is None or counted is None:
        return None
    return DirectionState(found.rate_kbit, *counted, found.dropped_packets, found.backlog_bytes)


def kept_segments(closed: Iterable[ClosedSegment], now: datetime) -> tuple[ClosedSegment, ...]:
    """The newest counters of each ended segment, for a day; of too many the newest."""
    since_ms = (now - CLOSED_FOR).timestamp() * 1000
    by_segment = {(one.interface_id, one.direction, one.segment): one for one in closed if one.closed_at_ms > since_ms}
    return tuple(sorted(by_segment.values(), key=lambda one: one.closed_at_ms)[-MOST_CLOSED:])
