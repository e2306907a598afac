"""The main loop: wake-ups, steps, and due times; signals, health file, systemd.

It waits for two requests (`exchange`), for changes of the limiter's state file and the document (inotify), for signals
and for time. A step processes results, starts what is due, and writes the health file.

Pauses use the monotonic clock. Clock, waiting and randomness are parameters, so that a test runs a day in a moment.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from ap_agent.agent.agent import Agent
from ap_agent.agent.background import Background
from ap_agent.agent.backoff import POLL_JITTER
from ap_agent.agent.exchange import Polls, Reports
from ap_agent.agent.fetch import Client
from ap_agent.agent.health import write_health
from ap_agent.agent.live import Live
from ap_agent.agent.metrics import Exporter
from ap_agent.agent.problems import NOT_ENROLLED, PASSING_CODES, contained, problem_of
from ap_agent.agent.results import Results
from ap_agent.agent.sending import Sending
from ap_agent.agent.usage import Usage
from ap_agent.common.errors import AgentError, LockHeldError
from ap_agent.common.log import Conditions, Logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from ap_agent.common.text import enforced_words
from ap_agent.common.waker import Waker
from ap_agent.common.watch import Watch

_PAUSE_S = 0.2  # after reading the limiter's state: at most five reads a second


class Loop:
    """Runs an `Agent` until it is stopped. `wait(seconds)` returns early on a signal; `keep_lock` raises
    `LockHeldError` if another agent took over, which ends this one; `each_check` is called regularly."""

    def __init__(
        self,
        agent: Agent,
        logger: Logger,
        *,
        notifier: Notifier,
        watch: Watch | None = None,
        background: Callable[[Callable[[], None]], Background] = Background,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
        reload: Callable[[], tuple[Settings, Client | None]] | None = None,
        keep_lock: Callable[[], None] = lambda: None,
        each_check: Callable[[], None] = lambda: None,
    ) -> None:
        self.agent = agent
        self._log = logger
        self._notifier = notifier
        self._watch = watch
        self._waker = Waker()
        self._monotonic, self._given_wait = monotonic, wait
        self._reload, self._keep_lock, self._each_check = reload, keep_lock, each_check
        self._conditions = Conditions(logger)
        self._is_stopping = self._is_reloading = False
        self._fed_at = 0.0
        for_polls, for_reports, for_usage, for_live = (background(self._waker.wake) for _ in range(4))
        self.usage = Usage(agent.settings, agent.extra, logger, for_usage, monotonic=monotonic, uniform=uniform)
        self.sending = Sending(agent, logger, monotonic=monotonic)
        self.results = Results(agent, logger, monotonic=monotonic)
        self.live = Live(agent, logger, for_live)
        self.polls = Polls(agent, self.live, logger, for_polls, monotonic=monotonic, uniform=uniform)
        self.reports = Reports(
            agent, self.usage, self.results, logger, for_reports, monotonic=monotonic, uniform=uniform
        )
        self.metrics = Exporter(agent, self.usage, self.polls, logger)
        self._next_check = self._deaf_until = monotonic()
        self._told: set[tuple[str, str]] = set()
        self._answers = 0

    # --- signals ----------------------------------------------------------------------------------------------------

    def install_signals(self) -> None:
        """SIGTERM and SIGINT stop after the current step; SIGHUP rereads the configuration."""
        self._waker.on_signals(self.stop, self.reload)

    def stop(self) -> None:
        self._is_stopping = True
        self._waker.wake()

    def reload(self) -> None:
        self._is_reloading = True
        self._waker.wake()

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until `stop`. The limits stay in the kernel."""
        self.start()
        while not self._is_stopping:
            self._sleep_until(self.step())
        for one in self._beside:
            one.abandon()
        self.sending.close()
        self.metrics.close()
        self.agent.hang_up()
        self._notifier.send("STOPPING=1", "STATUS=stopping; the limits stay in the kernel")
        self._log.info("agent.stop", limits="stay in the kernel")

    def start(self) -> None:
        """Hand over the stored configuration before using the network."""
        self.agent.configuration.load()
        self.agent.kept.load()
        self.metrics.plan_anew(self._monotonic())
        self._read_state()
        self._report()
        self._notifier.send("READY=1", f"STATUS={self._status()}")

    def step(self) -> float:
        """One cycle: new settings, outcomes of requests, a look at what should not change, the limiter's state, a poll,
        tests that send, one report, and what is told to monitors. Return the monotonic time of the next one."""
        if self._is_reloading:
            self._reread()
        for one in self._beside:
            one.finish()
        if self._monotonic() >= self._next_check:
            self._check()
        self._read_state()
        self.polls.step()
        if self.polls.answers != self._answers:
            self._answers = self.polls.answers
            self._read_state()  # also for a limiter that was faster than this line
            self.reports.note_news()
        if self.sending.step():
            self.reports.note_news()
        self.usage.forget()
        self.reports.step(is_reachable=self.polls.is_reachable)
        self._report()
        return min(self._moments())

    def _moments(self) -> list[float]:
        silent_in_s = self.agent.limiter.silent_in_s()
        moments = [
            self.polls.moment(),
            self.reports.moment(is_reachable=self.polls.is_reachable),
            self.metrics.moment(),
            self.sending.moment(),
            self._monotonic() + silent_in_s if silent_in_s is not None else None,
        ]
        return [self._next_check, *(one for one in moments if one is not None)]

    def _check(self) -> None:
        """Check what should not change: the lock, stored files, the document."""
        # Slightly longer than a poll's pause with jitter, so that it causes no extra wake-ups while polls run.
        self._next_check = self._monotonic() + self.agent.settings.poll_interval_s * (1 + POLL_JITTER)
        try:
            self._keep_lock()
        except LockHeldError:
            self._log.error("agent.lock_lost", limits="stay in the kernel")
            raise
        except AgentError as exc:
            self.agent.extra["lock"] = problem_of(exc, str(self.agent.settings.run_dir))
        else:
            self.agent.extra.pop("lock", None)
        with contained(self.agent.extra, self._log, "look"):
            self.agent.configuration.keep()
            self._each_check()

    def _read_state(self) -> None:
        self.results.refresh()
        if self._monotonic() < self._deaf_until or not self.agent.limiter.read():
            return
        self._deaf_until = self._monotonic() + _PAUSE_S
        state = self.agent.limiter.state
        if state is None:
            return
        if state.is_step:
            self.reports.receipts.note_step()
        self.reports.note_news()
        self.metrics.note_state(state, self._monotonic())
        with contained(self.agent.extra, self._log, "usage"):
            self.usage.take(state)

    # --- other settings ---------------------------------------------------------------------------------------------

    def _reread(self) -> None:
        self._is_reloading = False
        if self._reload is None:
            return
        try:
            settings, client = self._reload()
            self.agent.settings.check_unchanged(settings, "state_dir", "run_dir", "limiter_run_dir")
        except AgentError as exc:
            self.agent.extra["settings"] = Problem("settings_invalid", "configuration", exc.message)
            return
        self.agent.extra.pop("settings", None)
        self.agent.use(settings, client)
        self.polls.plan_anew()
        self.reports.plan_anew()
        self.metrics.plan_anew(self._monotonic())
        self._next_check = self._monotonic()
        self._log.info("agent.reload", url=settings.url)

    # --- waiting and reporting --------------------------------------------------------------------------------------

    def _sleep_until(self, moment: float) -> None:
        watchdog_s = self._notifier.watchdog_s
        while not self._is_stopping and not self._is_reloading and not self._has_outcome:
            left_s = moment - self._monotonic()
            if left_s <= 0:
                break
            is_woken = self._wait(left_s if watchdog_s is None else min(left_s, watchdog_s / 3))
            if watchdog_s is not None and self._monotonic() >= self._fed_at + watchdog_s / 3:
                self._fed_at = self._monotonic()
                self._notifier.send("WATCHDOG=1")
            if is_woken:
                break

    @property
    def _beside(self) -> tuple[Background, ...]:
        return tuple(one.background for one in (self.polls, self.reports, self.usage, self.live))

    @property
    def _has_outcome(self) -> bool:
        return any(one.has_outcome for one in self._beside)

    def _wait(self, seconds: float) -> bool:
        """Wait for the time, a signal, the end of a request, or a changed file, which is returned."""
        if self._given_wait is not None:
            self._given_wait(seconds)
            return False
        deaf_s = self._deaf_until - self._monotonic()
        if self._watch is None or deaf_s > 0:
            self._waker.wait(seconds if self._watch is None else min(seconds, deaf_s))
            return False
        self._waker.wait(seconds, listen_to=[self._watch.fileno()])
        return self._watch.drain()

    def _report(self) -> None:
        now = self._monotonic()
        problems = self.agent.problems
        found = {(one.code, one.subject) for one in problems}
        if found != self._told:  # report a problem that begins or ends immediately
            self._told = found
            self.reports.note_news()
        self._conditions.update(problems, now, warnings=PASSING_CODES)
        self.metrics.write_file(now)
        try:
            write_health(
                self.agent,
                problems,
                last_contact_at=self.polls.last_contact_at,
                failures=self.polls.backoff.failures,
                next_step_in_s=max(0.0, min(self._moments()) - now),
                usage=self.usage.health(),
                tests={"sending": self.sending.consent, "running": self.sending.running},
            )
            self.agent.extra.pop("health", None)
        except OSError as exc:
            where = str(self.agent.settings.run_dir)
            text = f"The health file in {where} cannot be written: {exc.strerror}."
            self.agent.extra["health"] = Problem("health_unwritable", where, text)
        self._notifier.send("WATCHDOG=1", f"STATUS={self._status()}")

    def _status(self) -> str:
        problems = self.agent.problems
        if any(one.message == NOT_ENROLLED for one in problems):
            return NOT_ENROLLED
        state, bundle = self.agent.limiter.state, self.agent.configuration.bundle
        counts = (0, 0, 0)
        if state is not None:
            counts = (state.count("enforced"), state.count("observed"), len(state.links))
        version = bundle.version if bundle is not None else "none"
        return f"configuration {version}, {enforced_words(*counts)}, {len(problems)} problems"
