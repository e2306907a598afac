"""The limiter as a daemon: when to read files, compare the kernel, and count; signals and systemd.

First the last accepted document is enforced, then the handed over one. Then, in one thread: on a new document
(inotify), on relevant kernel events, when a timed limit steps or a test that sends begins or ends, and every
`audit_interval_s` without any event. Pauses use the monotonic clock; the wall clock only selects timed limits and
tests, may jump, and is checked each second while there are any.

No file and no kernel state ends this loop. Clock and waiting are parameters for tests.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from ap_agent.common.errors import AgentError, LockHeldError
from ap_agent.common.log import Conditions, Logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from ap_agent.common.text import enforced_words
from ap_agent.common.waker import Waker
from ap_agent.common.watch import Watch
from ap_agent.dataplane.devices import IFB_NAMES
from ap_agent.limiter.counting import Counting
from ap_agent.limiter.documents import Documents
from ap_agent.limiter.enforcing import Enforcer
from ap_agent.limiter.events import Change, Listener, Notifications, unannounced
from ap_agent.limiter.live_counters import LiveCounters
from ap_agent.limiter.pacing import Pacing
from ap_agent.limiter.report import Extras, Report
from ap_agent.limiter.watching import Watching

FILES_REST_S = 0.1  # minimum between two reads of the files, so that repeated writes cost no more
LISTEN_S = 0.1  # between two looks at events while a comparison is due
UNANNOUNCED_S = 0.5  # between two checks of what no event covers
UNWATCHED_S = 1.0
START_RETRY_S = 1.0
RETRY_S = 5.0  # after an incomplete pass
CLOCK_S = 1.0  # how late a jump of the wall clock is noticed at most
STATE_INTERVAL_S = 10.0  # without usage counting
# Problems that may resolve themselves; logged as WARNING.
PASSING = frozenset({"apply_failed", "verify_failed", "kernel_unreadable", "document_refused", "filter_behind"})


class Loop:
    """Runs until it is stopped. `keep_lock` raises `LockHeldError` if another limiter took over."""

    def __init__(
        self,
        enforcer: Enforcer,
        report: Report,
        documents: Documents,
        logger: Logger,
        *,
        events: Listener,
        watch: Callable[[], Watch],
        notifier: Notifier,
        reload: Callable[[], Settings],
        keep_lock: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] | None = None,
    ) -> None:
        self._enforcer, self._report, self._documents = enforcer, report, documents
        self._log = logger
        self._events, self._watch, self._notifier = events, watch, notifier
        self._files: Watch | None = None
        self._waker = Waker()
        self._reloaded, self._keep_lock = reload, keep_lock
        self._monotonic = monotonic
        self._wait = wait if wait is not None else self._wait_for_somebody
        self._counting = Counting(enforcer, monotonic)
        self._watching = Watching(enforcer, enforcer.settings.limiter_run_dir, logger, monotonic)
        self._live = LiveCounters(enforcer, logger, monotonic)
        self._pacing = Pacing()
        self._conditions = Conditions(logger)
        self._loop_problems: dict[str, Problem] = {}
        self._must_look_at_files, self._files_rested_at = True, -math.inf
        self._next_audit = self._next_state = self._retry_at = self._next_watchdog = monotonic()
        self._unannounced: frozenset[Change] = frozenset()
        self._next_unannounced = monotonic()
        self._is_stopping = self._is_reloading = False

    # --- signals ----------------------------------------------------------------------------------------------------

    def install_signals(self) -> None:
        """SIGTERM and SIGINT stop after the current pass; SIGHUP rereads the configuration."""
        self._waker.on_signals(self.stop, self.reload)

    def stop(self) -> None:
        self._is_stopping = True

    def reload(self) -> None:
        self._is_reloading = True

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until stopped. The limits stay in the kernel."""
        self.start()
        while not self._is_stopping:
            self.step()
            self.sleep()
        self._notifier.send("STOPPING=1", "STATUS=stopping; the limits stay in the kernel")
        extras = replace(self._extras(), capped_kbit=None)  # limits stay, with the current factors
        self._report.write(self._enforcer, extras, is_running=False)
        self._log.info("limiter.stop", limits="stay in the kernel")

    def start(self) -> None:
        """Enforce the last accepted document, then the handed over one. Only then systemd starts the border router."""
        self._documents.load()
        self._report.take_up(self._enforcer)
        self._watching.take_up()
        self._enforce()
        if self._documents.take():
            self._enforce(is_settled=self._is_settled)
        deadline = self._monotonic() + self._enforcer.settings.start_wait_s
        # At boot a card may get its address seconds later. The router waits for us, so not for long.
        while not self._enforcer.is_ok and self._notifier.is_listening and self._monotonic() < deadline:
            self._wait(START_RETRY_S)
            self._enforce()
        self._counting.count(self._monotonic())
        self._tell()
        self._notifier.send("READY=1")

    def step(self) -> None:
        if self._is_reloading:
            self._reread()
        self._feed_watchdog()
        now = self._monotonic()
        before = self._documents.problems
        is_new = self._look_at_files(now)
        was_known = bool(self._enforcer.drift)
        self._note(self._events.drain(self._enforcer.outcome.ports))  # our own questions are heard too
        self._look_for_unannounced(now)
        is_drift_new = bool(self._enforcer.drift) and not was_known
        is_called = self._pacing.due is not None and now >= self._pacing.due
        must_compare = is_called or now >= self._next_audit or (not self._enforcer.is_ok and now >= self._retry_at)
        must_enforce = must_compare or is_new or self._enforcer.is_step_due()
        if must_enforce:
            self._enforce(is_settled=not must_compare and self._is_settled)
        self._watching.sample()  # after clock-driven changes: a sample has the rates of the second that begins
        self._live.sample()
        has_news = self._counting.count(now) or self._documents.problems != before or is_drift_new
        if must_enforce or has_news or now >= self._next_state:
            self._tell()

    @property
    def _is_settled(self) -> bool:
        """Whether nothing else changed since the last pass, according to the kernel's events."""
        return self._enforcer.configuration is not None and self._enforcer.is_ok and self._pacing.due is None

    def _moments(self) -> list[float]:
        moments = [self._next_audit, self._next_state, self._next_unannounced, *self._counting.moments()]
        if self._pacing.due is not None:  # a drift among further events must not wait for a comparison that rests
            moments += (self._pacing.due, self._monotonic() + LISTEN_S)
        if self._files is None or self._must_look_at_files or self._monotonic() < self._files_rested_at:
            moments.append(self._files_rested_at)
        if not self._enforcer.is_ok:
            moments.append(self._retry_at)
        if self._enforcer.needs_clock:
            moments.append(self._monotonic() + min(CLOCK_S, self._enforcer.next_step_in_s()))
        if self._watching.is_needed:
            moments.append(self._monotonic() + min(CLOCK_S, self._watching.next_in_s()))
        moments.append(self._monotonic() + self._live.next_in_s())
        if self._notifier.watchdog_s is not None:
            moments.append(self._next_watchdog)
        return moments

    # --- files ------------------------------------------------------------------------------------------------------

    def _look_at_files(self, now: float) -> bool:
        if now < self._files_rested_at or not self._are_files_new():
            return False
        is_new = self._documents.take()
        self._live.read_request()
        rest_s = max(FILES_REST_S if self._files is not None else UNWATCHED_S, self._documents.rest_s)
        self._files_rested_at = self._monotonic() + rest_s
        return is_new

    def _are_files_new(self) -> bool:
        """Whether a file may have changed. Without inotify they are checked each second."""
        is_asked, self._must_look_at_files = self._must_look_at_files, False
        try:
            self._files = self._files or self._watch()
            return self._files.drain() or is_asked
        except OSError as exc:
            self._files = None
            self._log.debug("files.unwatched", message=exc.strerror)
            return True

    def _reread(self) -> None:
        self._is_reloading = False
        former = self._enforcer.settings
        try:
            settings = self._reloaded()
            former.check_unchanged(settings, "state_dir", "limiter_state_dir", "limiter_run_dir", "maps_dir")
        except AgentError as exc:
            self._loop_problems["settings"] = Problem("settings_invalid", "configuration", exc.message)
            return
        self._loop_problems.pop("settings", None)
        self._enforcer.settings = settings
        self._documents.use(settings)
        self._must_look_at_files, self._next_audit = True, self._monotonic()
        self._log.info("limiter.reload", unmatched=settings.unmatched, observe_only=settings.observe_only)

    # --- the kernel -------------------------------------------------------------------------------------------------

    def _note(self, heard: Notifications) -> None:
        if heard.is_lost:
            self._log.debug("kernel.events_lost")
        self._pacing.note(heard, self._monotonic(), {*self._enforcer.outcome.devices, *IFB_NAMES})
        self._enforcer.drift = self._pacing.drift

    def _look_for_unannounced(self, now: float) -> None:
        if now < self._next_unannounced:
            return
        self._next_unannounced = now + UNANNOUNCED_S
        before, self._unannounced = self._unannounced, self._unannounced_now()
        self._note(Notifications(before ^ self._unannounced))

    def _unannounced_now(self) -> frozenset[Change]:
        return unannounced(self._enforcer.outcome.devices, self._enforcer.settings.maps_dir, self._enforcer.xdp())

    def _enforce(self, *, is_settled: bool = False) -> None:
        self._stay_alone()  # the changes may be those of another limiter that replaced us
        began = self._monotonic()
        accepted = self._documents.accepted
        self._enforcer.enforce(accepted.configuration if accepted is not None else None, is_settled=is_settled)
        ended = self._monotonic()
        outcome = self._enforcer.outcome
        if not is_settled:  # frequent saves must not postpone the comparison for ever
            self._next_audit = ended + self._enforcer.settings.audit_interval_s
            self._unannounced = self._unannounced_now()
        self._retry_at = ended + RETRY_S
        written = {one.device for one in outcome.plan.operations if one.device} if outcome.writes else set()
        for change in self._pacing.compared(began, ended, written, is_finished=self._enforcer.is_finished):
            self._log.info("kernel.drift", device=change.device or None, what=change.what)
        self._note(self._events.drain_own(outcome.ports))

    def _stay_alone(self) -> None:
        try:
            self._keep_lock()
        except LockHeldError:
            self._log.error("limiter.lock_lost", limits="stay in the kernel")
            raise
        except AgentError as exc:
            folder = str(self._enforcer.settings.limiter_run_dir)
            self._loop_problems["lock"] = Problem("state_unusable", folder, exc.message)
        else:
            self._loop_problems.pop("lock", None)

    # --- saying -----------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Write the state file first, which the agent waits for; then store the accepted document."""
        self._next_state = self._monotonic() + (self._enforcer.settings.usage_interval_s or STATE_INTERVAL_S)
        before = self._documents.problems
        self._write()
        self._documents.keep()
        if self._documents.problems != before:
            self._write()

    def _write(self) -> None:
        state = self._report.write(self._enforcer, self._extras())
        self._conditions.update(state.problems, self._monotonic(), warnings=PASSING)
        version = state.order if state.order is not None else "none"
        words = enforced_words(state.count("enforced"), state.count("observed"), len(state.links), "limited links")
        self._notifier.send(f"STATUS=configuration {version}, {words}, {len(state.problems)} problems")

    def _extras(self) -> Extras:
        repeated = self._pacing.problems(self._monotonic())
        problems = (*self._documents.problems, *self._loop_problems.values(), *repeated)
        return Extras(problems, self._counting.capped_kbit, self._watching.armed())

    def _feed_watchdog(self) -> None:
        watchdog_s = self._notifier.watchdog_s
        if watchdog_s is not None and self._monotonic() >= self._next_watchdog:
            self._next_watchdog = self._monotonic() + watchdog_s / 3
            self._notifier.send("WATCHDOG=1")

    # --- waiting ----------------------------------------------------------------------------------------------------

    def sleep(self) -> None:
        """Until something is due, or woken."""
        left_s = min(self._moments()) - self._monotonic()
        if left_s > 0 and not self._is_stopping and not self._is_reloading:
            self._wait(left_s)

    def _wait_for_somebody(self, seconds: float) -> None:
        listen_to = []
        if self._files is not None and self._monotonic() >= self._files_rested_at:
            listen_to.append(self._files.fileno())
        if self._pacing.due is None:
            listen_to.append(self._events.fileno())
        self._waker.wait(seconds, listen_to=listen_to)
