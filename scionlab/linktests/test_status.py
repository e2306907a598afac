"""State of a test of a Link, computed from rows when it is read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal

from contract.link_tests import SENDING_KINDS, TCP
from scionlab.enforcement.agents import Agent, agent_of, no_report_since
from scionlab.enforcement.models import HostReceipt
from scionlab.linktests.models import LinkTest, TestResult
from scionlab.linktests.sending_verdict import SendingVerdict, sending_verdict
from scionlab.linktests.verdict import Verdict, verdict_of
from scionlab.platform.notation.local_time import say_time

State = Literal["scheduled", "armed", "running", "finished", "failed", "missed", "cancelled"]
OPEN: Final = frozenset({"scheduled", "armed", "running"})

GRACE: Final = timedelta(seconds=15)  # after the end a result may be in transit
LATE_AFTER: Final = timedelta(seconds=60)


@dataclass(frozen=True)
class TestStatus:
    """`why` is a sentence, or empty. `verdict` covers all samples received so far, None without any."""

    __test__ = False

    test: LinkTest
    state: State
    why: str

    @property
    def begins_at(self) -> datetime:
        return self.test.begins_at

    @property
    def result(self) -> TestResult | None:
        """The attachment point's."""
        return self.test.result_of(TestResult.Side.AP)

    @property
    def user_report(self) -> dict[str, Any] | None:
        found = self.test.result_of(TestResult.Side.USER)
        return None if found is None else found.report

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @cached_property
    def verdict(self) -> Verdict | SendingVerdict | None:
        result = self.result
        if result is None or len(result.samples) < 2:
            return None
        if not self.test.sends:
            return verdict_of(result.samples)
        if result.report is None or not result.report["phases"]:
            return None
        end = self.test.link.interface_b
        return sending_verdict(
            self.test.phases or (),
            result.samples,
            ap=result.report,
            user=self.user_report,
            is_ipv6=":" in end.public_ip,
            is_vpn=end.vpn_client_id is not None,
        )

    @property
    def is_late(self) -> bool:
        result = self.result
        return result is not None and result.is_final and result.received_at > self.test.ends_at + LATE_AFTER

    @property
    def text(self) -> str:
        """The result in one sentence, or why there is none yet."""
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


def status_of_test(test: LinkTest, *, now: datetime) -> TestStatus:
    """Judge a test of `with_results`; no SQL statement."""
    ap = test.link.interface_a
    return TestStatus(test, *_judge(test, agent_of(ap.host, ap.AS.isd_as, now=now), now))


def with_results(tests: Any) -> Any:
    """Query of tests with all that `status_of_test` reads; two statements."""
    related = ("created_by", "link__interface_a__AS__isd", "link__interface_a__host__receipt", "link__interface_b")
    return tests.select_related(*related).prefetch_related("results")


def _judge(test: LinkTest, agent: Agent, now: datetime) -> tuple[State, str]:
    result = test.result_of(TestResult.Side.AP)
    has_samples = result is not None and len(result.samples) > 1
    if test.cancelled_at is not None:
        return "cancelled", ""
    if result is not None and result.is_final:
        if test.sends:
            return _by_report(test, result)
        return ("finished", "") if has_samples else ("failed", _NOTHING)
    if now < test.ends_at + GRACE:
        return _before_the_end(test, agent, has_samples=has_samples, has_begun=now >= test.begins_at)
    if test.armed_at is None and not has_samples:
        reason = reason_against(agent, kind=test.kind)
        return "missed", f"Not carried out: {reason or 'the attachment point did not have it in time'}."
    what = "The end of the result is missing." if has_samples else "No result arrived from the attachment point."
    return "failed", f"{what} {_obstacle(agent, test)}".strip()


_NOTHING: Final = "No result: the attachment point did not have the limits of this link then."


def _by_report(test: LinkTest, result: TestResult) -> tuple[State, str]:
    report = result.report
    if report is None:
        return "failed", "No result: the attachment point did not run its end of the test."
    why = report["why"]
    match report["outcome"]:
        case "completed":
            return "finished", ""
        case "cut" if report["phases"]:
            return "finished", f"It was cut short: {why or 'no reason was reported'}"
        case "nobody":
            place = f"{test.link.interface_a.public_ip} port {test.port}"
            return "failed", (
                f"No result: no answer came from {test.link.interface_b.public_ip}. Run the command on the host with "
                f"that address, and let UDP pass to {place} and back."
            )
        case _:
            return "failed", f"No result: {why or 'the attachment point gave no reason.'}"


def _before_the_end(test: LinkTest, agent: Agent, *, has_samples: bool, has_begun: bool) -> tuple[State, str]:
    if test.armed_at is None and not has_samples:
        return "scheduled", _obstacle(agent, test)
    return ("running", "") if has_begun else ("armed", "")


def _obstacle(agent: Agent, test: LinkTest) -> str:
    """A sentence; empty if no obstacle is known."""
    reason = reason_against(agent, kind=test.kind)
    return f"{reason[0].upper()}{reason[1:]}." if reason else ""


def reason_against(agent: Agent, *, kind: str) -> str:
    """Why the attachment point cannot run tests of that kind (as in signed documents) now, without a full stop; empty:
    it can."""
    if agent.receipt is None:
        return "the attachment point has no agent that reports"
    if agent.removed_at is not None:
        return f"the operator removed the limits at {say_time(agent.removed_at)}"
    if agent.is_silent:
        since = no_report_since(agent)
        return since[0].lower() + since[1:]
    if agent.voided_by is not None:
        return agent.voided_by.in_words
    unsupported = "" if agent.receipt.says_tests else "the agent of the attachment point does not support tests"
    if kind in SENDING_KINDS and not unsupported:
        unsupported = _SENDING[agent.receipt.sending_tests]
    if kind == TCP and not unsupported and not agent.receipt.says_tcp_tests:
        unsupported = "the agent of the attachment point does not support tests over TCP"
    return unsupported or _clock(agent.clock_off)


_SENDING: Final = {
    "": "the agent of the attachment point does not support tests that send",
    HostReceipt.SendingTests.OFF.value: "the operator of the attachment point has not enabled tests that send",
    HostReceipt.SendingTests.STOPPED.value: "the operator of the attachment point has stopped all tests that send",
    HostReceipt.SendingTests.ON.value: "",
}


def _clock(off: timedelta | None) -> str:
    return "" if off is None else f"the clock of the attachment point is off by {round(abs(off.total_seconds()))} s"
