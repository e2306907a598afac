"""Applies a configuration to the kernel. No loop, no waiting; `report` describes the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from ap_agent.common.errors import AgentError, LockHeldError
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.dataplane.devices import Host
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.outcome import Outcome, Plan
from ap_agent.dataplane.program import Address
from ap_agent.dataplane.rtsocket import RefusedError
from ap_agent.dataplane.wanted import Wanted
from ap_agent.document.handover import Configuration
from ap_agent.document.state import ClosedSegment, Counters, Direction
from ap_agent.document.timetable import Timetable
from ap_agent.limiter import protecting
from ap_agent.limiter.drops import Drops, Readbacks
from ap_agent.limiter.events import Change
from ap_agent.limiter.matching import Matcher, Matching
from bandwidth_config import Limits
from contract.link_info import LinkInfo
from contract.link_tests import LinkTest

_LOGGED_WRITES = 200  # lines logged per pass


def utc_now() -> datetime:
    return datetime.now(UTC)


class Enforcer:
    """A limiter between passes: what was wanted last, and the kernel's state then."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        logger: Logger,
        keep: Callable[[tuple[ClosedSegment, ...]], None],
        *,
        now: Callable[[], datetime] = utc_now,
        may_send: Callable[[Settings], bool] = lambda _: False,
    ) -> None:
        """`keep` gets the last counters of lanes before the kernel drops them. `may_send`: link tests may send now;
        only a process that stays to end them sets it."""
        self.settings = settings
        self.now = now
        self.configuration: Configuration | None = None
        self.links: Mapping[int, LinkInfo] = {}  # with the limits of the last pass
        self.outcome = Outcome(Plan())
        self.observed_at = now()
        self.writes = 0
        self.is_step = False  # the last pass was only due to the clock
        self.is_finished = True  # the last pass knew the kernel's state
        self.drops = Drops()
        self.drift: Collection[Change] = ()  # known foreign changes of our objects since then
        self._engine, self._log = engine, logger
        self._may_send = may_send
        self._timetable = Timetable({})
        self._matcher = Matcher()
        self._host = Host((), {})
        self._portless: list[int] = []
        self._special: Mapping[Address, str] = {}
        self._protected: Mapping[int, Problem] = {}
        self._matching: Matching = self._matcher.match({}, self._host, settings)
        engine.on_closed = keep

    # --- the kernel -------------------------------------------------------------------------------------------------

    def enforce(self, configuration: Configuration | None, *, is_settled: bool = False) -> None:
        """One pass. None: there is no configuration, and nothing is touched. `is_settled`: nothing else changed since
        the last one. Errors are in `outcome`. Raises `LockHeldError` if another limiter manages this network."""
        if configuration is None:
            return
        began = time.monotonic()
        self._prepare(configuration, is_settled=is_settled)
        try:
            outcome = self._engine.enforce(self._match(is_settled=is_settled), is_settled=is_settled)
        except LockHeldError:
            raise
        except (AgentError, RefusedError) as exc:
            self.outcome, self.is_finished = self._failed(exc), False
        else:
            self.is_finished = True
            before = self.outcome.readback if is_settled else {}
            counted = self.counted(outcome.readback if is_settled else None)
            readback = self.drops.since_segment(outcome.readback, counted)
            self.outcome = replace(outcome, readback={**before, **readback})
        self.observed_at = self.now()
        self.writes += self.outcome.writes
        self._tell_log(round((time.monotonic() - began) * 1000))

    def plan(self, configuration: Configuration) -> None:
        """As `enforce`, without changes: `outcome` has the plan. Raises `AgentError`."""
        self._prepare(configuration)
        outcome = self._engine.plan(self._match())
        self.outcome = replace(outcome, readback=self.drops.since_segment(outcome.readback, self.counted()))
        self.observed_at = self.now()

    def _prepare(self, configuration: Configuration, *, is_settled: bool = False) -> None:
        is_new = configuration is not self.configuration
        self.is_step = is_settled and not is_new
        if is_new:
            self.configuration, self._timetable = configuration, Timetable(configuration.links)
            links = configuration.links.items()
            self._portless = [number for number, one in links if one.is_user_as and one.remote_port is None]
        self.links = self._links_now()

    def _links_now(self) -> Mapping[int, LinkInfo]:
        return self._timetable.at(self.now(), may_send=self._may_send(self.settings))

    def _match(self, *, is_settled: bool = False) -> Wanted:
        assert self.configuration is not None  # noqa: S101 - for the type checker: `_prepare` came before
        if not is_settled:
            self._host = self._engine.host()
            self._special = protecting.protected(
                self.settings, self._host, protecting.peers(), protecting.logged_in_from()
            )
        self._protected = protecting.refused(self._portless, self.links, self.settings, self._special)
        links = self.links
        if self._protected:
            links = {number: one for number, one in links.items() if number not in self._protected}
        is_observe_only = self.configuration.is_observe_only
        self._matching = self._matcher.match(links, self._host, self.settings, is_observe_only=is_observe_only)
        return self._matching.wanted

    def _failed(self, exc: AgentError | RefusedError) -> Outcome:
        """The kernel's state is unknown: report the previous one, marked as possibly outdated."""
        message = exc.message if isinstance(exc, AgentError) else f"The state of the kernel cannot be read: {exc}."
        problem = Problem(getattr(exc, "code", "kernel_unreadable"), "kernel", message)
        failed = {number: message for number, link in self.links.items() if link.is_user_as}
        failed |= dict.fromkeys(self._unmatched, message)
        return replace(self.outcome, plan=Plan(), writes=0, problems=(problem,), failed=failed, is_ok=False)

    def _tell_log(self, ms: int) -> None:
        operations = self.outcome.plan.operations if self.outcome.writes else ()
        for one in operations[:_LOGGED_WRITES]:
            self._log.info("kernel.write", op=str(one))
        if len(operations) > _LOGGED_WRITES:
            self._log.info("kernel.write", more=len(operations) - _LOGGED_WRITES)
        say = self._log.info if self.outcome.writes else self._log.debug
        now = self.configuration
        order, trace = (now.order, now.order.trace(now.host_id)) if now is not None else (None, None)
        say("enforce.done", version=order, trace=trace, writes=self.outcome.writes, links=len(self.wanted.links), ms=ms)

    def reset(self) -> bool:
        """Remove everything of ours from the kernel; return whether all was removed. Raises `AgentError`."""
        self.outcome = self._engine.reset()
        self.links, self.configuration, self._timetable, self._protected = {}, None, Timetable({}), {}
        self._matching = Matcher().match({}, self._host, self.settings)
        self.writes += self.outcome.writes
        self.observed_at = self.now()
        return self.outcome.is_ok

    # --- time -------------------------------------------------------------------------------------------------------

    @property
    def needs_clock(self) -> bool:
        """Whether a timed limit or a test that sends depends on it."""
        return self._timetable.is_needed

    def is_step_due(self) -> bool:
        """Whether the links to enforce differ from those enforced last: the clock reached a step or was set, or the
        operator stopped tests."""
        return self._timetable.is_needed and self._links_now() is not self.links

    def next_step_at(self) -> datetime | None:
        """Of a timed limit."""
        return self._timetable.next_limits(self.now()) if self._timetable.is_needed else None

    def next_step_in_s(self) -> float:
        """Time until a timed limit begins, steps or ends, or a test is to be armed or ends, by the current wall clock
        [s]."""
        following = self._timetable.next_change(self.now()) if self._timetable.is_needed else None
        return max(0.0, (following - self.now()).total_seconds()) if following is not None else math.inf

    # --- what the last pass found -----------------------------------------------------------------------------------

    @property
    def wanted(self) -> Wanted:
        return self._matching.wanted

    @property
    def errors(self) -> Mapping[int, str]:
        """Why links are not enforced, or not as requested; 0: unmatched traffic."""
        protected = {number: one.message for number, one in self._protected.items()}
        return {**self._drifted(), **self.outcome.failed, **self._matching.errors, **protected}

    def _drifted(self) -> Mapping[int, str]:
        if not self.drift:
            return {}
        where = ", ".join(sorted({f"{one.device} ({one.what})" for one in self.drift}))
        why = f"Another program changed objects of the limiter on {where}; they are being repaired."
        return dict.fromkeys((*self.wanted.links, *self._unmatched), why)

    @property
    def _unmatched(self) -> tuple[int, ...]:
        """Its number, if unmatched traffic is limited."""
        return (0,) if self.wanted.unmatched_kbit is not None else ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Current problems, except those of files."""
        return (*self.outcome.problems, *self._matching.problems, *self._protected.values())

    @property
    def is_ok(self) -> bool:
        return self.outcome.is_ok and not self.errors

    @property
    def refusing(self) -> Mapping[int, Limits]:
        """The links that drop, with their current limits."""
        links = self.wanted.links
        return {n: Limits(one.to_user_kbit, one.from_user_kbit) for n, one in links.items() if not one.is_observed}

    def is_armed(self, number: int, test: LinkTest) -> bool:
        """Whether the kernel counts the packets of this sending test as its link's."""
        link = self.links.get(number)
        is_held = link is not None and test in link.tests and number not in self.errors
        return is_held and any(key.local_port == test.port for key in self._matching.tests.get(number, ()))

    def counted(self, links: Iterable[int] | None = None) -> Mapping[tuple[int, Direction], tuple[int, Counters]]:
        """As `Engine.counters`."""
        return self._engine.counters(links)

    def readback(self, links: Iterable[int]) -> Readbacks:
        """Current state of these links in the kernel; of others, or if unreadable, that of the last pass."""
        try:
            found = self._engine.readback(links)
        except (AgentError, RefusedError):
            return self.outcome.readback
        return {**self.outcome.readback, **self.drops.since_segment(found, self.counted(found))}

    def xdp(self) -> frozenset[tuple[str, str]]:
        """Devices with XDP programs, now; empty if unreadable."""
        try:
            return self._engine.xdp()
        except AgentError:
            return frozenset()

    def set_factors(self, to_user: float, from_user: float) -> None:
        """Multiply every charge of the program; 1.0: no cap."""
        self._engine.set_factors(to_user, from_user)
