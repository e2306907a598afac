"""Makes the kernel agree with a configuration, and says in the state file what it has. No loop, no waiting."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.dataplane.devices import Host
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.outcome import Outcome, Plan
from ap_agent.dataplane.rtsocket import RefusedError
from ap_agent.dataplane.wanted import Wanted
from ap_agent.document.handover import Configuration
from ap_agent.document.state import ClosedSegment, LimiterState, LinkSample, Total, read_state, write_state
from ap_agent.document.timetable import Timetable
from ap_agent.limiter import previous_engine
from ap_agent.limiter.matching import Matcher, Matching
from ap_agent.limiter.previous_engine import PreviousEngine
from ap_agent.limiter.report import Counted, directions, kept_segments, link_states
from bandwidth_config import Limits, LinkInfo

_LOGGED_WRITES = 200  # of one pass, one line each


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Extras:
    """What the loop adds to the state: problems of files and repairs, the cap in force, samples."""

    problems: Sequence[Problem] = ()
    total: Total | None = None
    samples: Mapping[int, tuple[LinkSample, ...]] | None = None


def not_in_force(configuration: Configuration | None) -> Total | None:
    """The cap that is wanted, where nobody sets the factors that keep it."""
    if configuration is None or configuration.total_kbit is None:
        return None
    return Total(configuration.total_kbit, None, None)


class Enforcer:
    """One limiter between passes: what was wanted last and what the kernel had then."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        logger: Logger,
        *,
        now: Callable[[], datetime] = utc_now,
        find_previous: Callable[[], PreviousEngine | None] = previous_engine.find,
    ) -> None:
        self.settings = settings
        self.configuration: Configuration | None = None
        self.outcome = Outcome(Plan())
        self.extras = Extras()
        self.is_step = False
        self.is_finished = True  # the last pass said something of the kernel
        self._engine = engine
        self._log = logger
        self.now = now
        self._timetable = Timetable({})
        self._matcher = Matcher()
        self._host: Host | None = None
        self._links: Mapping[int, LinkInfo] = {}
        self._matching: Matching = self._matcher.match({}, Host((), {}), settings)
        self._observed_at = now()
        self._run, self._number, self._writes = secrets.token_hex(16), 0, 0
        self._closed: tuple[ClosedSegment, ...] = ()
        self._said: LimiterState | None = None  # last, by this limiter or by the one before
        self._find_previous: Callable[[], PreviousEngine | None] | None = find_previous  # None: there is none any more
        self._previous_problems: tuple[Problem, ...] = ()
        engine.on_closed = self._note_closed

    def take_up_closed(self) -> None:
        """What the limiter before said last, with the segments that ended lately. There may be no state file."""
        try:
            former = read_state(self.settings.limiter_run_dir)
        except AgentError as exc:
            self._log.warning("state.unread", message=exc.message)
            return
        if former is not None:
            self._closed = kept_segments(former.closed, self.now())
            self._said = replace(former, run=self._run, is_running=True)

    # --- the kernel -------------------------------------------------------------------------------------------------

    def enforce(self, configuration: Configuration | None, *, is_settled: bool = False) -> None:
        """One pass. None: there is no configuration, and nothing is touched.

        `is_settled`: nobody else changed anything since the last one. What goes wrong is said in the state.
        """
        if configuration is None:
            return
        began = time.monotonic()
        self._said = self._said or self.state()
        is_new = configuration is not self.configuration
        self.is_step = is_settled and not is_new
        if is_new:
            self.configuration, self._timetable = configuration, Timetable(configuration.links)
        self._links = self._timetable.at(self.now())
        try:
            matching = self._match(configuration, is_settled=is_settled)
            if self._find_previous is not None:
                outcome = self._replace_previous(matching.wanted, self._find_previous)
            else:
                outcome = self._engine.enforce(matching.wanted, is_settled=is_settled)
        except (AgentError, RefusedError) as exc:
            self.outcome, self.is_finished = self._failed(exc), False
        else:
            self.is_finished = True
            before = self.outcome.readback if is_settled else {}
            self.outcome = replace(outcome, readback={**before, **outcome.readback})
            self._note_closed(outcome.closed)
        self._observed_at = self.now()
        self._writes += self.outcome.writes
        self._report(round((time.monotonic() - began) * 1000))

    def _match(self, configuration: Configuration, *, is_settled: bool) -> Matching:
        if self._host is None or not is_settled:
            self._host = self._engine.host()
        self._matching = self._matcher.match(
            self._links, self._host, self.settings, is_observe_only=configuration.is_observe_only
        )
        return self._matching

    def _replace_previous(self, wanted: Wanted, find: Callable[[], PreviousEngine | None]) -> Outcome:
        """A pass that may find objects of the first engine: they go when ours hold, and not before."""
        previous = find()
        if previous is None:
            self._find_previous = None
            return self._engine.enforce(wanted)
        previous.make_way()
        first = self._engine.enforce(wanted)
        if not first.is_ok:
            previous.close()
            return replace(first, problems=(*first.problems, previous.waiting()))
        self._note_closed(first.closed)
        removed = previous.remove(self._engine.counters, self._note_closed)
        self._find_previous, self._previous_problems = None, removed.problems
        then = self._engine.enforce(wanted)
        return replace(then, plan=first.plan, writes=first.writes + then.writes)

    def _failed(self, exc: AgentError | RefusedError) -> Outcome:
        """Nothing can be said of the kernel: what it had before is told, and that it may not be so."""
        message = exc.message if isinstance(exc, AgentError) else f"The kernel does not say what it has: {exc}."
        problem = Problem(getattr(exc, "code", "kernel_unreadable"), "kernel", message)
        failed = {number: message for number, link in self._links.items() if link.is_user_as}
        return replace(self.outcome, plan=Plan(), writes=0, problems=(problem,), failed=failed, closed=(), is_ok=False)

    def _report(self, ms: int) -> None:
        operations = self.outcome.plan.operations if self.outcome.writes else ()
        for one in operations[:_LOGGED_WRITES]:
            self._log.info("kernel.write", op=str(one))
        if len(operations) > _LOGGED_WRITES:
            self._log.info("kernel.write", more=len(operations) - _LOGGED_WRITES)
        say = self._log.info if self.outcome.writes else self._log.debug
        order = self.configuration.order if self.configuration is not None else None
        say("enforce.done", version=order, writes=self.outcome.writes, links=len(self._matching.wanted.links), ms=ms)

    def _note_closed(self, closed: tuple[ClosedSegment, ...]) -> None:
        """The last counters of lanes that end: written before the kernel forgets them, because a bill may need them.

        That is within a pass: of the links it says what was so when that was written, because the kernel does not have
        the new limits yet.
        """
        if set(closed) <= set(self._closed):
            return
        self._closed = kept_segments((*self._closed, *closed), self.now())
        self._number += 1
        said = self._said or self.state()
        self._write(replace(said, number=self._number, closed=self._closed))

    # --- time -------------------------------------------------------------------------------------------------------

    @property
    def has_timed_limits(self) -> bool:
        return self._timetable.is_needed

    def is_step_due(self) -> bool:
        """Whether the clock, wherever it was set to meanwhile, wants other limits than were enforced last."""
        return self._timetable.is_needed and self._timetable.at(self.now()) is not self._links

    def next_step_in_s(self) -> float:
        """How long it is until a timed limit begins, steps or ends, by the clock as it goes now."""
        following = self.next_step_at()
        return max(0.0, (following - self.now()).total_seconds()) if following is not None else math.inf

    def next_step_at(self) -> datetime | None:
        return self._timetable.next_change(self.now()) if self._timetable.is_needed else None

    # --- what to say ------------------------------------------------------------------------------------------------

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong now, without what files say."""
        return (*self.outcome.problems, *self._matching.problems, *self._previous_problems)

    @property
    def is_ok(self) -> bool:
        return self.outcome.is_ok and not self.outcome.failed and not self._matching.errors

    @property
    def refusing(self) -> Mapping[int, Limits]:
        """The links of which the kernel refuses something, with their limits of now."""
        links = self._matching.wanted.links
        return {n: Limits(one.to_user_kbit, one.from_user_kbit) for n, one in links.items() if not one.is_observed}

    @property
    def limited(self) -> int:
        """How many links the kernel limits."""
        return sum(number not in self.outcome.failed for number in self._matching.wanted.links)

    def counted(self) -> Counted:
        return self._engine.counters()

    def set_factors(self, to_user: float, from_user: float) -> None:
        """Every charge of the program is multiplied; 1.0: no cap."""
        self._engine.set_factors(to_user, from_user)

    def write(self, *, reset_reason: str | None = None, is_running: bool = True) -> LimiterState:
        """Say it in the state file. A file that cannot be written is a line in the log: nobody else could be told."""
        state = self.state(reset_reason=reset_reason, is_running=is_running)
        self._write(state)
        return state

    def _write(self, state: LimiterState) -> None:
        self._said = state
        try:
            self.settings.limiter_run_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_state(self.settings.limiter_run_dir, state)
        except OSError as exc:
            self._log.error("state.unwritable", folder=self.settings.limiter_run_dir, message=exc.strerror)

    def state(self, *, reset_reason: str | None = None, is_running: bool = True) -> LimiterState:
        """What there is to say now, with the counters of now."""
        self._number += 1
        now, said, counted = self.now(), self.configuration, self._engine.counters()
        outcome, wanted = self.outcome, self._matching.wanted
        errors = {**outcome.failed, **self._matching.errors}
        has_unmatched = wanted.unmatched_kbit is not None and said is not None
        return LimiterState(
            run=self._run,
            number=self._number,
            written_at=now,
            observed_at=self._observed_at,
            host_id=said.host_id if said is not None else None,
            order=said.order if said is not None else None,
            limits_digest=said.limits_digest if said is not None else None,
            is_ok=self.is_ok,
            writes=self._writes,
            links=link_states(self._links, wanted.links, errors, outcome.readback, counted),
            problems=tuple(dict.fromkeys((*self.problems, *self.extras.problems))),
            is_step=self.is_step,
            is_observe_only=self.settings.observe_only or (said is not None and said.is_observe_only),
            total=self.extras.total,
            unmatched=directions(0, outcome.readback, counted) if has_unmatched else None,
            devices=outcome.devices,
            next_step_at=self.next_step_at(),
            closed=kept_segments(self._closed, now),
            samples=self.extras.samples or {},
            reset_reason=reset_reason,
            is_running=is_running,
        )

    # --- taking everything away -------------------------------------------------------------------------------------

    def reset(self, reason: str) -> LimiterState:
        """Remove everything of ours from the kernel, also of the first engine, and say so. Raises `AgentError`."""
        find = self._find_previous or (lambda: None)
        if (previous := find()) is not None:
            previous.make_way()
            previous.close()
        self.outcome = self._engine.reset()
        self._note_closed(self.outcome.closed)
        if (previous := find()) is not None:
            removed = previous.remove(dict, self._note_closed)
            self._previous_problems = removed.problems
        self._links, self.configuration = {}, None
        self._timetable, self._matching = Timetable({}), Matcher().match({}, Host((), {}), self.settings)
        self._writes += self.outcome.writes
        self._observed_at = self.now()
        is_done = self.outcome.is_ok and not self._previous_problems
        return self.write(reset_reason=reason if is_done else None, is_running=False)
