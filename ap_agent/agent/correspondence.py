"""Asking and telling the service: one question and one receipt under way at most, each an errand beside, and when the
next one is due.

Everything here happens in the loop's thread but the requests themselves. What is answered is taken up by the agent
(`cycle`); what it means for the next question is said in `backoff`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from ap_agent.agent.backoff import POLL_JITTER, Backoff
from ap_agent.agent.cycle import Agent, Letter, Pulled
from ap_agent.agent.fetch import FetchResult, ReceiptAnswer
from ap_agent.agent.waiting import Errands
from ap_agent.common.errors import AgentError, AuthError, FetchError
from ap_agent.common.log import Logger
from ap_agent.model import Problem

# While limits change by the clock, every second perhaps, the service is told no more often what the kernel has.
STEP_RECEIPT_S = 10.0

T = TypeVar("T")
Uniform = Callable[[float, float], float]


@contextmanager
def loudly(agent: Agent, logger: Logger, step: str) -> Iterator[None]:
    """A programming error ends this step with its traceback; the limits stay, and the next cycle starts anew."""
    key = f"internal {step}"
    try:
        yield
        agent.extra.pop(key, None)
    except Exception as exc:
        logger.exception("agent.bug", step=step)
        text = f"{type(exc).__name__}: {exc}. This is a bug of the agent; the log has its traceback."
        if isinstance(exc, MemoryError):
            text = "No memory is left for the agent. Free some, or raise the limit of its unit."
        agent.extra[key] = Problem("internal_error", f"agent: {step}", text)


def _expected(outcome: T | Exception) -> T | AgentError:
    """Raises what nobody expects of an errand, where its traceback is logged."""
    if isinstance(outcome, Exception) and not isinstance(outcome, AgentError):
        raise outcome
    return outcome


class Correspondence:
    """With the service of one agent. `wake` ends the loop's wait when an errand has its outcome."""

    def __init__(
        self,
        agent: Agent,
        logger: Logger,
        *,
        wake: Callable[[], None],
        errands: Callable[[Callable[[], None]], Errands],
        monotonic: Callable[[], float],
        uniform: Uniform,
    ) -> None:
        self.polls, self.letters = errands(wake), errands(wake)
        self.has_news = False  # the service had something that is not enforced yet
        self.last_contact_at: float | None = None  # Unix time, for people
        self._agent = agent
        self._log = logger
        self._monotonic = monotonic
        self._uniform = uniform
        self.is_reachable = True  # so far as the last question showed
        self._told_at = -STEP_RECEIPT_S  # monotonic: the last receipt with everything in it
        self._may_tell = False  # something happened since the last receipt was taken, or the last one was not
        self.plan_anew()

    def plan_anew(self) -> None:
        """With the agent's settings as they are now."""
        settings = self._agent.settings
        paces = (settings.poll_interval_s, settings.backoff_max_s)
        self.backoff = Backoff(*paces, settings.long_poll_s, self._uniform)
        self._letter_backoff = Backoff(*paces, 0, self._uniform)
        self.next_poll = self.next_receipt = self._next_letter = self._monotonic()

    # --- errands ----------------------------------------------------------------------------------------------------

    @property
    def has_outcome(self) -> bool:
        return self.polls.has_outcome or self.letters.has_outcome

    def finish(self) -> None:
        """Take up what errands have brought."""
        self.polls.finish()
        self.letters.finish()

    def drop(self) -> None:
        """Nobody wants any longer what they bring."""
        self.polls.abandon()
        self.letters.abandon()

    def moments(self) -> list[float]:
        """At which something is due. What an errand is needed for waits until the one of its kind is done."""
        due = [self.next_poll] if self._agent.has_service and self.polls.is_free else []
        if self._can_tell:
            due.append(self._next_letter if self._may_tell else max(self.next_receipt, self._next_letter))
        return due

    # --- asking -----------------------------------------------------------------------------------------------------

    @property
    def is_poll_due(self) -> bool:
        return self._agent.has_service and self.polls.is_free and self._monotonic() >= self.next_poll

    def ask(self) -> None:
        """Send the next question."""
        question = self._agent.question(wait_s=self.backoff.begin(self._monotonic()))
        if question is not None:
            self.polls.send(question, self._take_up)
            self.polls.finish()

    def _take_up(self, answer: FetchResult | Exception) -> None:
        pulled = Pulled("failed", AgentError("The agent has a bug; the log has its traceback."))
        with loudly(self._agent, self._log, "fetch"):
            pulled = self._agent.take_up(_expected(answer))
        now = self._monotonic()
        self.next_poll = now + self.backoff.end(pulled, now)
        if self._agent.hold_left_s > 0:  # what is held back is taken as soon as it may be
            self.next_poll = min(self.next_poll, now + self._agent.hold_left_s)
        # Nobody there, or nobody who lets us in: a receipt would only wait for the same answer once more.
        self.is_reachable = not isinstance(pulled.error, FetchError | AuthError)
        if self.is_reachable:
            self.last_contact_at = time.time()
        self.has_news = self.has_news or pulled.contact == "new"
        self._may_tell = True

    # --- telling ----------------------------------------------------------------------------------------------------

    @property
    def _can_tell(self) -> bool:
        return self._agent.has_service and self.is_reachable and self.letters.is_free

    @property
    def is_receipt_due(self) -> bool:
        """Whether a receipt is to be sent although nothing may have happened."""
        return self._can_tell and self._monotonic() >= max(self.next_receipt, self._next_letter)

    def note_enforced(self) -> None:
        """The kernel was made to agree with everything that the service said so far."""
        self.has_news, self._may_tell = False, True

    def note_step(self) -> None:
        """A timed limit changed what the kernel has: a receipt is due, unless there was one just now."""
        self.next_receipt = min(self.next_receipt, max(self._monotonic(), self._told_at + STEP_RECEIPT_S))

    def tell(self, *, even_if_old: bool) -> None:
        """Send a receipt, if this is the moment and there is something to tell, or `even_if_old`."""
        now = self._monotonic()
        if not self._can_tell or not (self._may_tell or even_if_old) or now < self._next_letter:
            return
        self._may_tell = False
        letter: Letter | None = None
        with loudly(self._agent, self._log, "tell"):
            letter = self._agent.letter(even_if_old=even_if_old)
        if even_if_old:  # with jitter: hosts that were switched on together do not tell together for ever
            pause = self._uniform(1 - POLL_JITTER, 1 + POLL_JITTER)
            self.next_receipt = now + self._agent.settings.receipt_interval_s * pause
            self._told_at = now
        if letter is not None:
            self._letter_backoff.begin(now)
            self.letters.send(self._agent.delivery(letter), partial(self._delivered, letter))
            self.letters.finish()

    def _delivered(self, letter: Letter, outcome: ReceiptAnswer | Exception) -> None:
        error: AgentError | None = AgentError("The agent has a bug; the log has its traceback.")
        with loudly(self._agent, self._log, "tell"):
            error = self._agent.delivered(letter, _expected(outcome))
        now = self._monotonic()
        delay_s = self._letter_backoff.end(Pulled("none", error), now)
        self._next_letter = now
        if error is None:
            self._may_tell = self._may_tell or self._agent.owes_evidence
        else:
            self._may_tell, self._next_letter = True, now + delay_s
