"""The loop around the cycle: when to ask, when to look at the kernel, when to tell; signals, health file, systemd.

The last good bundle is enforced before the network is asked for anything. Then one cycle at a time, in this thread:
when the kernel says that somebody changed what matters (docs/adr/0008), when the service had something new, and every
`audit_interval_s` even when nothing is new or nobody answers. Two errands run beside, so that a slow answer keeps
nobody from the kernel (`correspondence`): one asks the service and waits until it has something new, the other one
carries receipts, at once although a question waits. About every `poll_interval_s` comes a glance: an IFB
that is gone drops packets, and what failed is tried again.

Pauses are the monotonic clock's. The wall clock decides only what has dates: which limits hold now (docs/adr/0013), as
`Agent.is_step_due` says it at every look; it may jump, and the next look sees that.
Clock, waiting and randomness are parameters, so that a test runs a day of it in a moment.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType

from ap_agent.agent.backoff import POLL_JITTER
from ap_agent.agent.companion import Companion, Guarded, Surroundings
from ap_agent.agent.correspondence import Correspondence, loudly
from ap_agent.agent.cycle import Agent, Client
from ap_agent.agent.health import write_health
from ap_agent.agent.problems import PASSING_CODES, problem_of
from ap_agent.agent.waiting import Errands, Waker
from ap_agent.common.errors import AgentError, LockHeldError, SettingsError
from ap_agent.common.log import Conditions, Logger
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from ap_agent.document.trust import NOT_ENROLLED
from ap_agent.enforcing import Enforced
from ap_agent.limiter.attention import Attention
from ap_agent.limiter.events import EventSource
from ap_agent.model import Problem

_SLICE_S = 1.0  # while waiting for the first links to come up
_CLOCK_LOOK_S = 1.0  # waits are monotonic, timed limits are not: how late a clock that jumps is noticed at most
_FIGHT = "fight over "
_DEAF_S = 0.02  # after something was heard: in a flood the socket is read fifty times a second, not at each message
_DRAINS = 16  # more than its receive buffer holds


class Loop:
    """Runs an `Agent` until it is told to stop. `wait(seconds)` returns early when a signal came; `keep_lock` raises
    `LockHeldError` where another agent is at work by now, which ends this one."""

    def __init__(
        self,
        agent: Agent,
        logger: Logger,
        *,
        notifier: Notifier,
        events: EventSource | None = None,
        errands: Callable[[Callable[[], None]], Errands] = Errands,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
        reload: Callable[[], tuple[Settings, Client | None]] | None = None,
        keep_lock: Callable[[], None] = lambda: None,
        companions: Sequence[Companion] = (),
        each_glance: Callable[[], None] = lambda: None,
    ) -> None:
        self.agent = agent
        self._log = logger
        self._notifier = notifier
        self._events = events
        self._waker = Waker()
        self._monotonic = monotonic
        self._given_wait = wait
        self._reload = reload
        self._keep_lock = keep_lock
        self._each_glance = each_glance
        self._conditions = Conditions(logger)
        self._attention = Attention()
        self._deaf_until = 0.0
        self._fed_at = 0.0
        self._is_stopping = False
        self._is_reloading = False
        self._service = Correspondence(
            agent, logger, wake=self._waker.wake, errands=errands, monotonic=monotonic, uniform=uniform
        )
        self._companions = [Guarded(one, agent, logger) for one in companions]
        for one in self._companions:
            one.attach(Surroundings(lambda: errands(self._waker.wake), monotonic, uniform))
        self._next_audit = self._next_glance = self._monotonic()

    # --- signals ----------------------------------------------------------------------------------------------------

    def install_signals(self) -> None:
        """SIGTERM and SIGINT end after the current cycle; SIGHUP rereads the configuration."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)

    def stop(self) -> None:
        self._is_stopping = True
        self._waker.wake()

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stop()

    def reload(self) -> None:
        self._is_reloading = True
        self._waker.wake()

    def _on_reload(self, _number: int, _frame: FrameType | None) -> None:
        self.reload()

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until `stop`. The limits stay in the kernel: an agent that is being updated must not open the road."""
        self.start()
        while not self._is_stopping:
            self._sleep_until(self.step())
        self._service.drop()
        for one in self._companions:
            one.drop()
        self.agent.hang_up()
        self._notifier.send("STOPPING=1", "STATUS=stopping; the limits stay in the kernel")
        self._log.info("agent.stop", limits="stay in the kernel")

    def start(self) -> None:
        """Enforce from the disk, before the network. Only then systemd lets the border router start."""
        agent = self.agent
        agent.load()
        deadline = self._monotonic() + agent.settings.start_wait_s
        while agent.bundle is not None and not self._is_stopping:
            if self._is_reloading:
                self._reread()
            self._enforce()
            if agent.enforced is None or agent.enforced.ok or not self._notifier.is_listening:
                break
            # At boot an interface may be seconds away from its address. The router waits for us, so not for long.
            if self._monotonic() >= deadline:
                break
            self._sleep_until(self._monotonic() + _SLICE_S)
        self._report()
        self._notifier.send("READY=1", f"STATUS={self._status()}")

    def step(self) -> float:
        """One cycle: whatever is due. Returns the moment (monotonic) at which something is due next."""
        if self._is_reloading:
            self._reread()
        service = self._service
        service.finish()
        for one in self._companions:
            one.finish()
        is_poll_due = service.is_poll_due
        is_glance_due = is_poll_due or self._monotonic() >= self._next_glance
        if is_glance_due:
            self._glance()  # before the network, which may take its time
        if is_poll_due:
            service.ask()
        now = self._monotonic()
        is_receipt_due = service.is_receipt_due
        was_wrong = self.agent.enforced is not None and not self.agent.enforced.ok
        is_called = self._attention.due is not None and now >= self._attention.due
        if (is_glance_due and was_wrong) or now >= self._next_audit or is_receipt_due or is_called:
            self._enforce()
        elif service.has_news or self.agent.is_step_due():
            self._enforce(only_new=True)
        service.tell(even_if_old=is_receipt_due)
        for one in self._companions:
            one.step(service)
        self._report()
        return min(self._moments())

    def _moments(self) -> list[float]:
        """At which something is due."""
        due = [self._next_audit, self._next_glance, *self._service.moments()]
        step_in_s = self.agent.next_step_in_s()
        if step_in_s is not None:
            due.append(self._monotonic() + step_in_s)
        for one in self._companions:
            due += one.moments(self._service)
        return [*due, self._attention.due] if self._attention.due is not None else due

    # --- the kernel -------------------------------------------------------------------------------------------------

    def _glance(self) -> None:
        # Just longer than a poll's pause with its jitter, so that it costs no waking of its own while polls go on.
        self._next_glance = self._monotonic() + self.agent.settings.poll_interval_s * (1 + POLL_JITTER)
        if self.agent.has_lost_ifb():
            self._enforce()
        self._stay_alone()
        self.agent.keep_stored()
        self._each_glance()

    def _stay_alone(self) -> None:
        """Two agents at one kernel would undo each other's work: whoever finds the lock taken ends."""
        try:
            self._keep_lock()
        except LockHeldError:
            self._log.error("agent.lock_lost", limits="stay in the kernel")
            raise
        except AgentError as exc:
            self.agent.extra["lock"] = problem_of(exc, str(self.agent.settings.run_dir))
        else:
            self.agent.extra.pop("lock", None)

    def _enforce(self, *, only_new: bool = False) -> None:
        """`only_new`: for no other reason than that the service had something new."""
        self._stay_alone()  # what is to be put right may be the work of another agent, who took our place meanwhile
        self._service.note_enforced()
        version = self.agent.bundle.version if self.agent.bundle is not None else None
        for one in self._companions:
            one.expect(version)
        self._hear_all()
        is_settled = only_new and self._events is not None and self._attention.due is None
        began = self._monotonic()
        enforced: Enforced | None = None
        with loudly(self.agent, self._log, "enforce"):
            enforced = self.agent.enforce(is_settled=is_settled)
        ended = self._monotonic()
        if enforced is not None and enforced.is_step:
            self._service.note_step()
        if not is_settled:  # who saves a limit every few seconds must not put the comparison off for ever
            self._next_audit = ended + self.agent.settings.audit_interval_s
        result = enforced.result if enforced is not None else None
        written = {op.device.name for op in result.plan.ops} if result is not None and result.writes else set()
        is_finished = result is not None or self.agent.bundle is None
        for drift in self._attention.looked(began, ended, written, is_finished=is_finished):
            self._log.info("kernel.drift", device=drift.device or None, what=drift.what)
        if self._events is not None:
            self._events.own(result.ports if result is not None else ())
        self._hear()  # what somebody did meanwhile leads to another look
        for one in self._companions:
            one.enforced(version, enforced, ended - began)

    def _hear(self) -> bool:
        """Take what the kernel said; whether that was all of it."""
        if self._events is None:
            return True
        heard = self._events.drain(self.agent.interest())
        if heard.messages or heard.is_lost:
            self._deaf_until = self._monotonic() + _DEAF_S
        if heard.is_lost:
            self._log.debug("kernel.events_lost", look="at everything")
        self._attention.hear(heard, self._monotonic())
        for one in self._companions:
            one.hear(heard.farewells)
        return heard.is_all

    def _hear_all(self) -> None:
        for _ in range(_DRAINS):
            if self._hear():
                break

    # --- other settings ---------------------------------------------------------------------------------------------

    def _reread(self) -> None:
        self._is_reloading = False
        if self._reload is None:
            return
        try:
            settings, client = self._reload()
            for name in ("state_dir", "run_dir"):
                if getattr(settings, name) != getattr(self.agent.settings, name):
                    raise SettingsError(f"{name} cannot change while the agent runs; restart the agent.", key=name)
        except AgentError as exc:
            self.agent.extra["settings"] = Problem("settings_invalid", "configuration", exc.message)
            return
        self.agent.extra.pop("settings", None)
        self._service.drop()  # the former client's
        self.agent.use(settings, client)
        self._service.plan_anew()
        for one in self._companions:
            one.plan_anew()
        self._next_audit = self._next_glance = self._monotonic()
        self._log.info("agent.reload", url=settings.url, unmatched=settings.unmatched)

    # --- waiting and reporting --------------------------------------------------------------------------------------

    def _sleep_until(self, moment: float) -> None:
        watchdog_s = self._notifier.watchdog_s
        while not self._is_stopping and not self._is_reloading and not self._has_outcome:
            due = self._attention.due
            left_s = min(moment, due if due is not None else moment) - self._monotonic()
            if left_s <= 0:
                break
            if self.agent.is_step_due():  # the clock was set, or the machine slept
                break
            if self.agent.has_timed_limits:
                left_s = min(left_s, _CLOCK_LOOK_S)
            self._wait(left_s if watchdog_s is None else min(left_s, watchdog_s / 3))
            if watchdog_s is not None and self._monotonic() >= self._fed_at + watchdog_s / 3:
                self._fed_at = self._monotonic()
                self._notifier.send("WATCHDOG=1")

    @property
    def _has_outcome(self) -> bool:
        return self._service.has_outcome or any(one.has_outcome for one in self._companions)

    def _wait(self, seconds: float) -> None:
        """Until then, or a signal, or the end of an errand. What the kernel says is listened to, except while a look is
        due anyway and for a moment after something was heard."""
        if self._given_wait is not None:
            self._given_wait(seconds)
        elif self._events is None or self._attention.due is not None:
            self._waker.wait(seconds)
        elif (deaf_s := self._deaf_until - self._monotonic()) > 0:
            self._waker.wait(min(seconds, deaf_s))
        else:
            self._waker.wait(seconds, listen_to=self._events.fileno())
        if self._attention.due is None:
            self._hear()

    def _report(self) -> None:
        now = self._monotonic()
        for key in [key for key in self.agent.extra if key.startswith(_FIGHT)]:
            del self.agent.extra[key]
        self.agent.extra.update({_FIGHT + one.subject: one for one in self._attention.problems(now)})
        self._conditions.update(self.agent.problems, now, warnings=PASSING_CODES)
        try:
            write_health(
                self.agent,
                self.agent.problems,
                last_contact_at=self._service.last_contact_at,
                failures=self._service.backoff.failures,
                next_cycle_in_s=max(0.0, min(self._moments()) - now),
                more={key: value for one in self._companions for key, value in one.health().items()},
            )
            self.agent.extra.pop("health", None)
        except OSError as exc:
            where = str(self.agent.settings.run_dir)
            text = f"The health file in {where} cannot be written: {exc.strerror}."
            self.agent.extra["health"] = Problem("health_unwritable", where, text)
        self._notifier.send("WATCHDOG=1", f"STATUS={self._status()}")

    def _status(self) -> str:
        if any(one.message == NOT_ENROLLED for one in self.agent.problems):
            return NOT_ENROLLED
        links = self.agent.enforced.links if self.agent.enforced is not None else ()
        good = sum(link.state == "enforced" for link in links)
        version = self.agent.bundle.version if self.agent.bundle is not None else "none"
        return f"configuration {version}, {good} of {len(links)} links enforced, {len(self.agent.problems)} problems"
