"""Usage beside the loop: samples go to the spool, batches to the service, and what fails becomes a problem.

The spool is opened when there is something to keep, and again after a failure: nothing here ever ends the agent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ap_agent.agent.backoff import Backoff, Pulled
from ap_agent.agent.fetch import Client, UsageRefusedError, UsageUnknownError
from ap_agent.common.errors import AgentError, StoreError
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.document.state import LimiterState
from ap_agent.usage import former
from ap_agent.usage.batch import Sample, ms_text
from ap_agent.usage.sampler import Sampler
from ap_agent.usage.spool import FILE_NAME, KEPT_MS, MAX_BYTES, Spool, StoredBatch

BATCHES_PER_MINUTE = 30
UPLOAD_SPREAD_S = 20.0  # all agents close a batch when a minute is over
UNKNOWN_FOR_S = 3600.0  # a service that does not take usage is asked again after that
TOLD_FOR_S = 3600.0  # for so long a batch that was lost stays a problem
_RETRY_S = 10.0  # a spool that cannot be opened
_WRITE, _SEND, _REFUSED, _DROPPED = (f"usage {one}" for one in ("write", "send", "refused", "dropped"))

Uniform = Callable[[float, float], float]


class Usage:
    """Of one agent. What is wrong now is in `problems`; `sent`, `refused` and `failed` count since the start."""

    def __init__(
        self,
        settings: Settings,
        problems: dict[str, Problem],
        logger: Logger,
        *,
        monotonic: Callable[[], float],
        uniform: Uniform,
    ) -> None:
        self.problems = problems
        self.sent = self.refused = self.failed = self.missed = 0
        self.waiting = self.spool_bytes = 0
        self.sample_seconds = 0.0
        self._log = logger
        self._monotonic, self._uniform = monotonic, uniform
        self._sampler: Sampler | None = None
        self._opens_at = 0.0
        self._is_unknown = False
        self._told_until: dict[str, float] = {}
        self._window_end, self._budget = monotonic(), BATCHES_PER_MINUTE
        self.plan_anew(settings)

    def plan_anew(self, settings: Settings) -> None:
        """With these settings."""
        self.settings = settings
        self._backoff = Backoff(settings.poll_interval_s, settings.backoff_max_s, 0, self._uniform)
        self._next_upload = self._opens_at = self._monotonic()
        self._is_unknown = False
        if not self.is_on:
            for key in (_WRITE, _SEND, _REFUSED, _DROPPED):
                self.problems.pop(key, None)

    @property
    def is_on(self) -> bool:
        return self.settings.usage_interval_s > 0

    @property
    def _former(self) -> Path:
        return self.settings.state_dir / former.FOLDER

    @property
    def newest(self) -> Sample | None:
        return self._sampler.newest if self._sampler is not None else None

    @property
    def samples(self) -> int:
        return self._sampler.taken if self._sampler is not None else 0

    # --- samples ----------------------------------------------------------------------------------------------------

    def take(self, state: LimiterState) -> None:
        """Keep what this state says of usage."""
        if not self.is_on or not (self._sampler or state.links or state.closed or self._former.is_dir()):
            return
        began = self._monotonic()
        try:
            sampler = self._opened()
            before, dropped = sampler.taken, sampler.dropped
            sampler.take(state, self.settings.usage_interval_s)
            self._look_at(sampler.spool)
        except StoreError as exc:
            self.missed += 1
            self.problems[_WRITE] = Problem("usage_unwritable", "usage", exc.message)
            return
        self.problems.pop(_WRITE, None)
        if sampler.taken > before:
            self.sample_seconds = self._monotonic() - began
        if sampler.dropped > dropped:
            self._note_dropped(sampler.dropped - dropped)

    def _opened(self) -> Sampler:
        """Raises `StoreError`."""
        if self._sampler is None:
            if self._monotonic() < self._opens_at:
                raise StoreError(self.problems[_WRITE].message)
            self._opens_at = self._monotonic() + _RETRY_S
            spool = Spool(self.settings.state_dir / FILE_NAME)
            try:
                taken = former.take_over(self._former, spool)
                self._sampler = Sampler(spool)
            except StoreError:
                spool.close()
                raise
            if taken:
                self._log.info("usage.taken_over", batches=taken)
        return self._sampler

    def _look_at(self, spool: Spool) -> None:
        before, self.waiting = self.waiting, spool.waiting()
        self.spool_bytes = spool.bytes_used()
        if self.waiting and not before:
            spread_s = min(UPLOAD_SPREAD_S, self.settings.usage_interval_s)
            self._next_upload = max(self._next_upload, self._monotonic() + self._uniform(0.0, spread_s))

    def _note_dropped(self, batches: int) -> None:
        where = str(self.settings.state_dir / FILE_NAME)
        text = (
            f"{batches} batches of usage in {where} were given up: they waited for more than {KEPT_MS // 86_400_000} "
            f"days, there were more than {MAX_BYTES >> 20} MiB, or the disk is full. The sums stay right, but for the "
            "times when they were counted."
        )
        self._log.warning("usage.dropped", batches=batches, spool=where)
        self._tell_for_a_while(_DROPPED, Problem("usage_dropped", where, text))

    def _tell_for_a_while(self, key: str, problem: Problem) -> None:
        self.problems[key] = problem
        self._told_until[key] = self._monotonic() + TOLD_FOR_S

    def forget(self) -> None:
        """Problems that were told for long enough."""
        for key in [key for key, until in self._told_until.items() if self._monotonic() >= until]:
            del self._told_until[key]
            self.problems.pop(key, None)

    # --- uploading --------------------------------------------------------------------------------------------------

    def next_upload(self) -> float | None:
        """When the next batch is to be sent (monotonic); None while there is none."""
        return self._next_upload if self.is_on and self.waiting else None

    def upload(self, client: Client) -> tuple[Callable[[], None], Callable[[Exception | None], None]] | None:
        """The oldest batch: a call that sends it, for any thread, and what takes up how that went. None: not now."""
        now = self._monotonic()
        if now >= self._window_end:
            self._window_end, self._budget = now + 60.0, BATCHES_PER_MINUTE
        if self._budget <= 0:
            self._next_upload = self._window_end
            return None
        self._next_upload = now + _RETRY_S  # whatever happens below, not at once again
        try:
            batch = self._opened().spool.oldest()
        except StoreError as exc:
            self.problems[_WRITE] = Problem("usage_unwritable", "usage", exc.message)
            return None
        if batch is None:
            self.waiting = 0
            return None
        self._budget -= 1
        self._backoff.begin(now)
        return partial(client.send_usage, batch.data), partial(self._took, batch)

    def _took(self, batch: StoredBatch, outcome: Exception | None) -> None:
        now = self._monotonic()
        self._next_upload = now
        if isinstance(outcome, UsageUnknownError):
            self._backoff.end(Pulled("none"), now)
            self._next_upload = now + UNKNOWN_FOR_S
            if not self._is_unknown:
                self._log.info("usage.unknown", url=self.settings.url, again_in_s=round(UNKNOWN_FOR_S))
            self._is_unknown = True
            self.problems.pop(_SEND, None)
        elif outcome is None or isinstance(outcome, UsageRefusedError):
            self._backoff.end(Pulled("none"), now)
            self._is_unknown = False
            self.problems.pop(_SEND, None)
            self._settle(batch, outcome)
        else:
            bug = AgentError("The agent has a bug; the log has its traceback.")
            error = outcome if isinstance(outcome, AgentError) else bug
            self.failed += 1
            self._next_upload = now + self._backoff.end(Pulled("none", error), now)
            self.problems[_SEND] = Problem("usage_failed", "usage", error.message)
            if error is bug:
                raise outcome

    def _settle(self, batch: StoredBatch, refusal: UsageRefusedError | None) -> None:
        try:
            spool = self._opened().spool
            if refusal is None:
                spool.drop(batch.number)
            else:
                spool.refuse(batch.number, refusal.message)
            self._look_at(spool)
        except StoreError as exc:  # it is sent again, which does no harm
            self.problems[_WRITE] = Problem("usage_unwritable", "usage", exc.message)
            self._next_upload = self._monotonic() + _RETRY_S
            return
        if refusal is None:
            self.sent += 1
            self._log.debug("usage.sent", batch=batch.batch_id)
            return
        self.refused += 1
        text = f"The batch of usage {batch.batch_id} was set aside. {refusal.message}"
        self._log.error("usage.refused", batch=batch.batch_id, message=refusal.message)
        self._tell_for_a_while(_REFUSED, Problem("usage_refused", batch.batch_id, text))

    # --- for people -------------------------------------------------------------------------------------------------

    def health(self) -> dict[str, object] | None:
        """For the health file; None where usage is not sampled."""
        if not self.is_on:
            return None
        newest = self.newest
        return {
            "sampled_at": ms_text(newest.at_ms) if newest is not None else None,
            "waiting_batches": self.waiting,
            "spool_bytes": self.spool_bytes,
        }
