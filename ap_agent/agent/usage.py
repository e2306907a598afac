"""Usage: samples go to the spool, batches to the service; errors become problems.

Access to the spool happens in separate threads, one at a time: with 4000 links a sample takes 40 ms of CPU and closing
a batch 250, which must not delay a hand-over. Nothing here ever ends the agent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ap_agent.agent.background import Background
from ap_agent.agent.fetch import Client, NotEnabledError, UploadRefusedError
from ap_agent.agent.problems import contained
from ap_agent.agent.store import Store
from ap_agent.common.errors import AgentError, StoreError
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.document.state import LimiterState
from ap_agent.usage.batch import Sample, ms_text
from ap_agent.usage.sampler import Sampler
from ap_agent.usage.spool import FILE_NAME, KEPT_MS, MAX_BYTES, Spool

BATCHES_PER_MINUTE = 30
UPLOAD_SPREAD_S = 20.0  # all agents close a batch at the end of a minute
TOLD_FOR_S = 3600.0  # how long a lost batch stays a problem
_RETRY_S = 10.0  # retry interval for a spool that cannot be opened
_WRITE, _SEND, _REFUSED, _DROPPED = (f"usage {one}" for one in ("write", "send", "refused", "dropped"))

Uniform = Callable[[float, float], float]


@dataclass(frozen=True)
class _Spooled:
    """State after a sample was stored, or a batch `batch_id` was sent."""

    waiting: int
    spool_bytes: int
    batch_id: str | None = None
    refusal: str | None = None
    seconds: float | None = None  # duration of a sample; None if there was none
    dropped: int = 0


class Usage:
    """Current problems are in `problems`; `sent`, `refused` and `failed` count since the start."""

    def __init__(
        self,
        settings: Settings,
        problems: dict[str, Problem],
        logger: Logger,
        background: Background,
        *,
        monotonic: Callable[[], float],
        uniform: Uniform,
    ) -> None:
        self.problems = problems
        self.background = background
        self.sent = self.refused = self.failed = self.missed = 0
        self.waiting = self.spool_bytes = 0
        self.sample_seconds = 0.0
        self._log = logger
        self._monotonic, self._uniform = monotonic, uniform
        self._spool_lock = threading.Lock()  # a sample is stored in one thread, a batch is sent in another
        self._sampler: Sampler | None = None
        self._opens_at = 0.0
        self._told_until: dict[str, float] = {}
        self._window_end, self._budget = monotonic(), BATCHES_PER_MINUTE
        self.plan_anew(settings)

    def plan_anew(self, settings: Settings) -> None:
        self.settings = settings
        self._next_upload = self._opens_at = self._monotonic()
        if not self.is_on:
            for key in (_WRITE, _SEND, _REFUSED, _DROPPED):
                self.problems.pop(key, None)

    @property
    def is_on(self) -> bool:
        return self.settings.usage_interval_s > 0

    @property
    def newest(self) -> Sample | None:
        return self._sampler.newest if self._sampler is not None else None

    @property
    def samples(self) -> int:
        return self._sampler.taken if self._sampler is not None else 0

    # --- samples ----------------------------------------------------------------------------------------------------

    def take(self, state: LimiterState) -> None:
        """Start storing the sample of this state. Skipped while the previous one is still being stored: the next one
        includes its bytes."""
        if not self.is_on or not (self._sampler or state.links or state.closed):
            return
        if not self.background.is_free:
            return
        if self._sampler is None:
            if self._monotonic() < self._opens_at:
                return
            self._opens_at = self._monotonic() + _RETRY_S
            try:
                Store(self.settings.state_dir).make()  # the limiter may have counted before there was a spool
            except AgentError as exc:
                self._failed(exc)
                return
        self.background.send(partial(self._keep, state, self.settings.usage_interval_s), self._kept)

    def _keep(self, state: LimiterState, interval_s: float) -> _Spooled:
        began = self._monotonic()
        with self._spool_lock:
            sampler = self._opened()
            taken, dropped = sampler.taken, sampler.dropped
            sampler.take(state, interval_s)
            return _Spooled(
                sampler.spool.waiting(),
                sampler.spool.bytes_used(),
                seconds=self._monotonic() - began if sampler.taken > taken else None,
                dropped=sampler.dropped - dropped,
            )

    def _opened(self) -> Sampler:
        """Raises `StoreError`."""
        if self._sampler is None:
            spool = Spool(self.settings.state_dir / FILE_NAME)
            try:
                self._sampler = Sampler(spool)
            except StoreError:
                spool.close()
                raise
        return self._sampler

    def _kept(self, outcome: _Spooled | Exception) -> None:
        with contained(self.problems, self._log, "usage sample"):
            if isinstance(outcome, AgentError):
                self.missed += 1
                self._failed(outcome)
                return
            if isinstance(outcome, Exception):
                raise outcome
            self.problems.pop(_WRITE, None)
            if outcome.seconds is not None:
                self.sample_seconds = outcome.seconds
            if outcome.dropped:
                self._note_dropped(outcome.dropped)
            if outcome.waiting and not self.waiting:
                spread_s = min(UPLOAD_SPREAD_S, self.settings.usage_interval_s)
                self._next_upload = max(self._next_upload, self._monotonic() + self._uniform(0.0, spread_s))
            self.waiting, self.spool_bytes = outcome.waiting, outcome.spool_bytes

    def _failed(self, error: AgentError) -> None:
        self.problems[_WRITE] = Problem("usage_unwritable", "usage", error.message)

    def _note_dropped(self, batches: int) -> None:
        where = str(self.settings.state_dir / FILE_NAME)
        text = (
            f"{batches} batches of usage in {where} were discarded: they waited for more than {KEPT_MS // 86_400_000} "
            f"days, there were more than {MAX_BYTES >> 20} MiB, or the disk is full. The totals stay correct; the "
            "times within them are lost."
        )
        self._log.warning("usage.dropped", batches=batches, spool=where)
        self._tell_for_a_while(_DROPPED, Problem("usage_dropped", where, text))

    def _tell_for_a_while(self, key: str, problem: Problem) -> None:
        self.problems[key] = problem
        self._told_until[key] = self._monotonic() + TOLD_FOR_S

    def forget(self) -> None:
        """Drop problems after their display time."""
        for key in [key for key, until in self._told_until.items() if self._monotonic() >= until]:
            del self._told_until[key]
            self.problems.pop(key, None)

    # --- uploading --------------------------------------------------------------------------------------------------

    def due(self) -> float | None:
        """When the next batch is to be sent (monotonic); None while there is none."""
        return self._next_upload if self.is_on and self.waiting else None

    def next_call(self, client: Client) -> Callable[[], _Spooled] | None:
        """The oldest batch; None: not now."""
        now = self._monotonic()
        if now >= self._window_end:
            self._window_end, self._budget = now + 60.0, BATCHES_PER_MINUTE
        if self._sampler is None or self._budget <= 0:
            self._next_upload = self._window_end
            return None
        self._budget -= 1
        return partial(self._send, client, self._sampler.spool)

    def _send(self, client: Client, spool: Spool) -> _Spooled:
        with self._spool_lock:
            batch = spool.oldest()
        refusal: str | None = None
        if batch is not None:
            try:
                client.send_usage(batch.data)
            except UploadRefusedError as exc:
                refusal = exc.message
        with self._spool_lock:
            if batch is not None and refusal is None:
                spool.drop(batch.number)  # if killed before it, it is sent again, which is harmless
            elif batch is not None and refusal is not None:
                spool.refuse(batch.number, refusal)
            return _Spooled(spool.waiting(), spool.bytes_used(), batch.batch_id if batch is not None else None, refusal)

    def took(self, outcome: _Spooled | AgentError) -> AgentError | None:
        if isinstance(outcome, StoreError):
            self._failed(outcome)
            return outcome
        if isinstance(outcome, NotEnabledError):
            self.problems.pop(_SEND, None)
            self._log.info("usage.not_enabled", url=self.settings.url)
            return outcome
        if isinstance(outcome, AgentError):
            self.failed += 1
            self.problems[_SEND] = Problem("usage_failed", "usage", outcome.message)
            return outcome
        self.problems.pop(_SEND, None)
        self.waiting, self.spool_bytes = outcome.waiting, outcome.spool_bytes
        if outcome.refusal is not None:
            self.refused += 1
            text = f"The batch of usage {outcome.batch_id} was set aside. {outcome.refusal}"
            self._log.error("usage.refused", batch=outcome.batch_id, message=outcome.refusal)
            self._tell_for_a_while(_REFUSED, Problem("usage_refused", str(outcome.batch_id), text))
        elif outcome.batch_id is not None:
            self.sent += 1
            self._log.debug("usage.sent", batch=outcome.batch_id)
        return None

    # --- for people -------------------------------------------------------------------------------------------------

    def health(self) -> dict[str, object] | None:
        """For the health file; None if usage is not sampled."""
        if not self.is_on:
            return None
        newest = self.newest
        return {
            "sampled_at": ms_text(newest.at_ms) if newest is not None else None,
            "waiting_batches": self.waiting,
            "spool_bytes": self.spool_bytes,
        }
