"""How a test of a Link stands, judged when it is read: from rows, never by a job that might be late."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, Literal

from scionlab.enforcement.agents import Agent, agent_of, no_report_since
from scionlab.links.verdict import Verdict, verdict_of
from scionlab.models import LinkTest, TestResult
from scionlab.notation.local_time import say_time

State = Literal["scheduled", "armed", "running", "finished", "failed", "missed", "cancelled"]
OPEN: Final = frozenset({"scheduled", "armed", "running"})

GRACE: Final = timedelta(seconds=15)  # after the end a result may be under way
LATE_AFTER: Final = timedelta(seconds=60)


@dataclass(frozen=True)
class TestStatus:
    """`why` is a sentence, empty where there is nothing to explain. `verdict` is that of all samples that came, None
    while there are none."""

    __test__ = False

    test: LinkTest
    state: State
    why: str

    @property
    def result(self) -> TestResult | None:
        found: TestResult | None = getattr(self.test, "result", None)
        return found

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @cached_property
    def verdict(self) -> Verdict | None:
        result = self.result
        return None if result is None or len(result.samples) < 2 else verdict_of(result.samples)

    @property
    def is_late(self) -> bool:
        result = self.result
        return result is not None and result.is_final and result.received_at > self.test.ends_at + LATE_AFTER

    @property
    def text(self) -> str:
        """The answer in one sentence, or why there is none yet."""
        if self.verdict is not None and self.state not in OPEN:
            return f"{self.verdict.text} {self.why}".strip()
        return self.why or _TEXTS[self.state].format(begins=say_time(self.test.begins_at))


_TEXTS: Final[dict[State, str]] = {
    "scheduled": "Scheduled for {begins}.",
    "armed": "Scheduled for {begins}; the attachment point confirmed it.",
    "running": "Running.",
    "finished": "Finished.",
    "failed": "No result.",
    "missed": "Not carried out.",
    "cancelled": "Cancelled.",
}


def status_of_test(test: LinkTest, *, now: datetime, agent: Agent | None = None) -> TestStatus:
    """Of a test that was read with `RELATIONS`; no statement then."""
    ap = test.link.interface_a
    agent = agent or agent_of(ap.host, ap.AS.isd_as, now=now)
    return TestStatus(test, *_judge(test, agent, now))


RELATIONS: Final = ("result", "created_by", "link__interface_a__AS__isd", "link__interface_a__host__receipt")


def _judge(test: LinkTest, agent: Agent, now: datetime) -> tuple[State, str]:
    result: TestResult | None = getattr(test, "result", None)
    has_samples = result is not None and len(result.samples) > 1
    if test.cancelled_at is not None:
        return "cancelled", ""
    if result is not None and result.is_final:
        return ("finished", "") if has_samples else ("failed", _NOTHING)
    if now < test.ends_at + GRACE:
        return _before_the_end(test, agent, has_samples=has_samples, has_begun=now >= test.begins_at)
    if test.armed_at is None and not has_samples:
        return "missed", f"Not carried out: {_reason(agent) or 'the attachment point did not have it in time'}."
    what = "The end of the result did not arrive." if has_samples else "No result arrived from the attachment point."
    return "failed", f"{what} {_obstacle(agent)}".strip()


_NOTHING: Final = "No result: the attachment point did not have the limits of this link then."


def _before_the_end(test: LinkTest, agent: Agent, *, has_samples: bool, has_begun: bool) -> tuple[State, str]:
    if test.armed_at is None and not has_samples:
        return "scheduled", _obstacle(agent)
    return ("running", "") if has_begun else ("armed", "")


def _obstacle(agent: Agent) -> str:
    """A sentence; empty where nothing is known to be in the way."""
    reason = _reason(agent)
    return f"{reason[0].upper()}{reason[1:]}." if reason else ""


def _reason(agent: Agent) -> str:
    """What keeps the attachment point from carrying out tests now, without a full stop."""
    if agent.receipt is None:
        return "the attachment point has no agent that reports"
    if agent.removed_at is not None:
        return f"the operator removed the limits at {say_time(agent.removed_at)}"
    if agent.is_silent:
        since = no_report_since(agent)
        return since[0].lower() + since[1:]
    if agent.voided_by is not None:
        return agent.voided_by.in_words
    too_old = "" if agent.receipt.says_tests else "the agent of the attachment point is too old for tests"
    return too_old or _clock(agent.clock_off)


def _clock(off: timedelta | None) -> str:
    return "" if off is None else f"the clock of the attachment point is off by {round(abs(off.total_seconds()))} s"
