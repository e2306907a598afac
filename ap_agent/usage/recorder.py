"""Recording usage beside the loop: when to sample, what the kernel said of deleted classes, when to upload.

Everything here happens in the loop's thread but the work itself: one errand reads the kernel and writes the disk
(`keeper`), another one talks to the service. Neither is ever waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

from ap_agent.agent.backoff import Backoff
from ap_agent.agent.companion import Companion, Surroundings
from ap_agent.agent.correspondence import Correspondence, loudly
from ap_agent.agent.cycle import Agent, Pulled
from ap_agent.agent.fetch import UsageRefusedError, UsageUnknownError
from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.enforcing import Enforced
from ap_agent.linkstate import NO_REFUSALS, Refusals
from ap_agent.model import LinkState, Problem
from ap_agent.usage.batch import time_text
from ap_agent.usage.keeper import Farewells, Job, Keeper, Kept, LastWords, Newest, Sample, devices_of
from ap_agent.usage.reading import UsageReader
from ap_agent.usage.spool import FOLDER, KEPT_MS, MAX_BYTES, Spool

BATCHES_PER_MINUTE = 30
UPLOAD_SPREAD_S = 20.0  # all agents close a batch when a minute is over
UNKNOWN_FOR_S = 3600.0  # a service that does not take usage is asked again after that
TOLD_FOR_S = 3600.0  # for so long a batch that was lost stays a problem
_AGAIN_S = 1.0  # after a sample that a new configuration overtook
_MAX_FAREWELL_BODIES = 100_000  # while the disk does not answer
_READ, _WRITE, _SEND, _REFUSED, _DROPPED = (f"usage {one}" for one in ("read", "write", "send", "refused", "dropped"))


@runtime_checkable
class CountsLoss(Protocol):
    """An engine that says which devices are about to lose all their classes, and what was dropped in front of them."""

    before_loss: Callable[[Sequence[str]], None] | None

    def refused(self) -> Refusals: ...


@dataclass(frozen=True)
class _Sent:
    """How sending the oldest batch went. `name` None: there was none."""

    name: str | None
    refusal: str | None = None


class UsageRecorder(Companion):
    """Of one agent."""

    def __init__(
        self,
        agent: Agent,
        logger: Logger,
        *,
        reader: Callable[[], UsageReader] = UsageReader,
        refused: Callable[[], Refusals] = lambda: NO_REFUSALS,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._agent = agent
        self._log = logger
        self._reader = reader
        self._wall = wall
        self.kept: Kept | None = None
        self.samples = self.missed = self.sent = self.refused = self.failed = 0  # since the start
        self._keeper = Keeper(
            agent.settings.state_dir / FOLDER,
            reader,
            now=wall,
            interval_s=lambda: agent.settings.usage_interval_s,
            refused=refused,
        )
        self._queue: list[Job] = []
        self._version: str | None = None
        self._links: tuple[LinkState, ...] = ()
        self._generation = 0
        self._is_unknown = False
        self._told_until: dict[str, float] = {}

    def attach(self, around: Surroundings) -> None:
        self._work, self._upload = around.errands(), around.errands()
        self._monotonic, self._uniform = around.monotonic, around.uniform
        self._next_sample = self._window_end = self._monotonic()
        self._budget = BATCHES_PER_MINUTE
        self.plan_anew()

    def plan_anew(self) -> None:
        self._upload.abandon()  # it is the former client's, and may have been sent or not: it is sent again
        settings = self._agent.settings
        self._backoff = Backoff(settings.poll_interval_s, settings.backoff_max_s, 0, self._uniform)
        self._next_upload = self._monotonic()
        self._is_unknown = False
        if not self.is_on:
            for key in (_READ, _WRITE, _SEND, _REFUSED, _DROPPED):
                self._agent.extra.pop(key, None)

    @property
    def is_on(self) -> bool:
        return self._agent.settings.usage_interval_s > 0

    @property
    def newest(self) -> Newest | None:
        return self.kept.newest if self.kept is not None else None

    # --- what the loop tells ----------------------------------------------------------------------------------------

    def expect(self, version: str | None) -> None:
        """What is being read may be neither the former configuration's nor this one's."""
        if version != self._version:
            self._generation += 1

    def enforced(self, version: str | None, enforced: Enforced | None, _seconds: float = 0.0) -> None:
        if enforced is not None and version is not None and devices_of(enforced.links):
            if self._version is None:
                self._next_sample = self._monotonic()  # the first one at once: until then no farewell has a meaning
            self._links = enforced.links
        elif enforced is None or enforced.ok:
            self._links = ()
        self._version = version

    def hear(self, farewells: Sequence[bytes]) -> None:
        """They were counted while the configuration before was in force."""
        if not farewells or not self.is_on or self._version is None:
            return
        waiting = sum(len(job.bodies) for job in self._queue if isinstance(job, Farewells))
        if waiting < _MAX_FAREWELL_BODIES:
            self._queue.append(Farewells(self._version, self._now_ms(), farewells))

    def before_loss(self, names: Sequence[str]) -> None:
        """Count these devices once more: all their classes are about to go. Called while a plan is carried out."""
        if not self.is_on or self._version is None:
            return
        with loudly(self._agent, self._log, "usage"):  # whatever it is, the plan goes on
            try:
                reader = self._reader()
                try:
                    self._queue.append(LastWords(self._version, self._now_ms(), reader.read(names)))
                finally:
                    reader.close()
            except (AgentError, OSError) as exc:  # then the sample before was the last one
                self._log.debug("usage.unread", devices=",".join(names), error=str(exc))

    # --- when -------------------------------------------------------------------------------------------------------

    @property
    def has_outcome(self) -> bool:  # type: ignore[override]  # asked, not kept
        return self._work.has_outcome or self._upload.has_outcome

    def finish(self) -> None:
        self._work.finish()
        self._upload.finish()

    def drop(self) -> None:
        """What is being written is complete or torn, and read so at the next start."""
        self._work.abandon()
        self._upload.abandon()

    def moments(self, service: Correspondence) -> list[float]:
        due = [self._next_sample] if self._can_sample else []
        if self._can_upload and service.is_reachable:
            due.append(self._next_upload)
        return [*due, *self._told_until.values()]

    def step(self, service: Correspondence) -> None:
        now = self._monotonic()
        for key in [key for key, until in self._told_until.items() if now >= until]:
            del self._told_until[key]
            self._agent.extra.pop(key, None)
        if self._can_sample and now >= self._next_sample:
            self._plan_sample()
            if self._work.is_free:
                generation = self._generation
                self._queue.append(Sample(self._version or "", self._links, lambda: self._generation == generation))
            else:
                self.missed += 1
        if self._queue and self._work.is_free:
            jobs, self._queue = self._queue, []
            self._work.send(partial(self._keeper.work, jobs), self._worked)
            self._work.finish()
        if self._can_upload and service.is_reachable and now >= self._next_upload:
            self._send_oldest(now)

    @property
    def _can_sample(self) -> bool:
        return self.is_on and self._version is not None and bool(self._links)

    def _plan_sample(self) -> None:
        """At the next multiple of the interval by the clock, so that all links and hosts have the same times."""
        interval_s = self._agent.settings.usage_interval_s
        left_s = interval_s - self._wall() % interval_s
        self._next_sample = self._monotonic() + (left_s if left_s > interval_s / 5 else left_s + interval_s)

    def _now_ms(self) -> int:
        return int(self._wall() * 1000)

    # --- what was kept ----------------------------------------------------------------------------------------------

    def _worked(self, outcome: Kept | Exception) -> None:
        with loudly(self._agent, self._log, "usage"):
            if isinstance(outcome, AgentError):  # no thread to be had
                self._note(_READ, "usage_unread", outcome.message)
                return
            if isinstance(outcome, Exception):
                raise outcome
            self._take_up(outcome)

    def _take_up(self, kept: Kept) -> None:
        before, self.kept = self.kept, kept
        folder = str(self._keeper.spool.folder)
        if kept.is_superseded:
            self._next_sample = min(self._next_sample, self._monotonic() + _AGAIN_S)
        elif kept.seconds:
            self.samples += kept.read_error is None
            self._note(_READ, "usage_unread", kept.read_error, "The kernel's counters cannot be read: {}")
        self._note(
            _WRITE, "usage_unwritable", kept.write_error, f"Usage cannot be stored in {folder}: {{}}. Make room there."
        )
        if kept.dropped:
            text = (
                f"{kept.dropped} batches of usage in {folder} were dropped: they waited for more than "
                f"{KEPT_MS // 86_400_000} days, there were more than {MAX_BYTES >> 20} MiB, or the disk is full."
            )
            self._log.warning("usage.dropped", batches=kept.dropped, folder=folder)
            self._tell_for_a_while(_DROPPED, Problem("usage_dropped", folder, text))
        if kept.waiting and (before is None or not before.waiting):
            now = self._monotonic()
            spread_s = min(UPLOAD_SPREAD_S, self._agent.settings.usage_interval_s)
            self._next_upload = max(self._next_upload, now + self._uniform(0.0, spread_s))

    def _note(self, key: str, code: str, error: str | None, sentence: str = "{}") -> None:
        if error is None:
            self._agent.extra.pop(key, None)
        else:
            self._agent.extra[key] = Problem(code, "usage", sentence.format(error))

    def _tell_for_a_while(self, key: str, problem: Problem) -> None:
        self._agent.extra[key] = problem
        self._told_until[key] = self._monotonic() + TOLD_FOR_S

    # --- uploading --------------------------------------------------------------------------------------------------

    @property
    def _can_upload(self) -> bool:
        has_batches = self.kept is not None and self.kept.waiting > 0
        return has_batches and self.is_on and self._agent.has_service and self._upload.is_free

    def _send_oldest(self, now: float) -> None:
        if now >= self._window_end:
            self._window_end, self._budget = now + 60.0, BATCHES_PER_MINUTE
        if self._budget <= 0:
            self._next_upload = self._window_end
            return
        send = self._agent.usage_sender()
        if send is None:
            return
        self._budget -= 1
        self._backoff.begin(now)
        self._upload.send(partial(send_oldest, self._keeper.spool, send), self._delivered)
        self._upload.finish()

    def _delivered(self, outcome: _Sent | Exception) -> None:
        now = self._monotonic()
        self._next_upload = now
        if isinstance(outcome, UsageUnknownError):
            self._backoff.end(Pulled("none"), now)
            self._next_upload = now + UNKNOWN_FOR_S
            if not self._is_unknown:
                self._log.info("usage.unknown", url=self._agent.settings.url, again_in_s=round(UNKNOWN_FOR_S))
            self._is_unknown = True
            self._note(_SEND, "", None)
            return
        error = AgentError("The agent has a bug; the log has its traceback.")
        with loudly(self._agent, self._log, "usage upload"):
            if isinstance(outcome, OSError):
                error = AgentError(f"The oldest batch cannot be read: {outcome.strerror}.", retryable=True)
            elif isinstance(outcome, AgentError):
                error = outcome
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                self._backoff.end(Pulled("none"), now)
                self._note_sent(outcome)
                return
        self.failed += 1
        self._next_upload = now + self._backoff.end(Pulled("none", error), now)
        self._note(_SEND, "usage_failed", error.message)

    def _note_sent(self, sent: _Sent) -> None:
        self._is_unknown = False
        self._note(_SEND, "", None)
        waiting = max(0, self.kept.waiting - 1) if self.kept is not None and sent.name is not None else 0
        self.kept = self.kept and _with_waiting(self.kept, waiting)
        if sent.refusal is not None:
            self.refused += 1
            text = f"A batch of usage was set aside as {sent.name}. {sent.refusal}"
            self._log.error("usage.refused", batch=sent.name, message=sent.refusal)
            self._tell_for_a_while(_REFUSED, Problem("usage_refused", sent.name or "", text))
        elif sent.name is not None:
            self.sent += 1
            self._log.debug("usage.sent", batch=sent.name)

    # --- for people -------------------------------------------------------------------------------------------------

    def health(self) -> dict[str, object]:
        newest = self.newest
        if not self.is_on:
            return {"usage": None}
        usage = {
            "sampled_at": time_text(newest.at_ms) if newest is not None else None,
            "waiting_batches": self.kept.waiting if self.kept is not None else 0,
            "spool_bytes": self.kept.spool_bytes if self.kept is not None else 0,
        }
        return {"usage": usage}


def _with_waiting(kept: Kept, waiting: int) -> Kept:
    return Kept(**{**kept.__dict__, "waiting": waiting})


def send_oldest(spool: Spool, send: Callable[[bytes], None]) -> _Sent:
    """Send the oldest batch and delete it; one that the service will never take is set aside. Raises what `send`
    raises otherwise, and `OSError`."""
    paths = spool.closed()
    if not paths:
        return _Sent(None)
    path = paths[0]
    try:
        send(path.read_bytes())
    except FileNotFoundError:  # dropped in this moment
        return _Sent(None)
    except UsageRefusedError as exc:
        spool.refuse(path)
        return _Sent(path.name, exc.message)
    path.unlink(missing_ok=True)
    return _Sent(path.name)
