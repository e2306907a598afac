"""The half of the self-test that runs in namespaces of its own (`apart` starts it as a module): tries, enforces,
measures, judges.

Writes a line of JSON to stdout before each step, {"step": words, "left_s": seconds}, and in the end one with the
report, {"report": document, "text": text, "exit_code": number}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from ap_agent import reconcile
from ap_agent.common.errors import AgentError
from ap_agent.model import EngineSettings
from ap_agent.selftest import apart
from ap_agent.selftest.capabilities import process_capabilities, try_all
from ap_agent.selftest.cases import (
    AP_ADDRESS,
    PREFIX_LENGTH,
    ROUNDS,
    UNLIMITED_TCP,
    Case,
    Direction,
    Protocol,
    Round,
    all_cases,
    links,
)
from ap_agent.selftest.features import Capability
from ap_agent.selftest.measure import DEV, TwoHosts
from ap_agent.selftest.report import Report, document, text
from ap_agent.selftest.verdict import Control, Judged, Verdict, judge
from measuring.netns import Lab, LabError, Namespace

PREFIX = "slbwself"
LONGEST_S = 52.0  # no measurement is begun that would end later
_OVERHEAD_S = 1.5  # of a round: starting its processes, waiting for stragglers
_PREPARING_S = 2.0

Say = Callable[[str, float], None]  # what begins now, and about how many seconds are left


class Course:
    """One self-test from beginning to end."""

    def __init__(
        self,
        say: Say,
        rounds: Sequence[Round] = ROUNDS,
        longest_s: float = LONGEST_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._longest_s = longest_s
        self._rounds = rounds
        self._monotonic = monotonic
        self._began = monotonic()
        self._left = list(rounds)
        self.notes: list[str] = []

    def begin(self) -> None:
        """A sign of life: there are namespaces."""
        self._say("two throw-away hosts", self._left_s() + _PREPARING_S)

    def run(self, lab: Lab) -> Report:
        """Raises `LabError` where two hosts cannot be made."""
        self._say("what the kernel can do", self._left_s() + _PREPARING_S)
        found = [*process_capabilities(), *try_all(lab.namespace("probe"))]
        if any(one.is_in_the_way for one in found):
            return self._report(found)
        ap, users = self._two_hosts(lab)
        faults = ap.call(lambda: enforce(all_cases(self._rounds)))
        if faults:
            return self._report(found, faults=faults)
        judged, controls, stopped = self._measure_all(TwoHosts(ap, users))
        return self._report(found, judged, controls, ap.call(remove_again), stopped)

    def _report(
        self,
        found: Sequence[Capability],
        judged: Sequence[Judged] = (),
        controls: Sequence[Control] = (),
        faults: Sequence[str] = (),
        stopped: Sequence[str] = (),
    ) -> Report:
        return Report(
            tuple(found),
            tuple(judged),
            tuple(controls),
            tuple(faults),
            tuple(self.notes),
            tuple(stopped),
            kernel=f"{os.uname().sysname} {os.uname().release}",
            seconds=self._monotonic() - self._began,
        )

    def _two_hosts(self, lab: Lab) -> tuple[Namespace, Namespace]:
        ap, users = lab.namespace("ap"), lab.namespace("users")
        addresses = [f"{case.user_address}/{PREFIX_LENGTH}" for case in all_cases(self._rounds)]
        lab.veth(ap.nic(DEV, f"{AP_ADDRESS}/{PREFIX_LENGTH}"), users.nic(DEV, *addresses))
        return ap, users

    # --- measuring ---

    def _measure_all(self, hosts: TwoHosts) -> tuple[list[Judged], list[Control], tuple[str, ...]]:
        capable: dict[Direction, float] = {}
        found: list[Judged] = []
        stopped: list[str] = []
        for one in self._rounds:
            if self._elapsed_s() + one.seconds > self._longest_s:
                stopped.append(
                    f"{one.title} and what follows was not measured: this machine took too long before that."
                )
                break
            self._say(one.title, self._left_s())
            self._left.remove(one)
            try:
                found += self._twice_if_need_be(hosts, one, capable)
            except LabError as exc:
                stopped.append(f"{one.title} could not be measured: {exc}.")
            capable |= {
                row.measured.direction: row.measured.measured_kbit
                for row in found
                if row.measured.case == UNLIMITED_TCP
            }
        judged = [row for row in found if not row.measured.case.is_control]
        controls = [Control(row) for row in found if row.measured.case.is_control]
        return judged, controls, tuple(stopped)

    def _twice_if_need_be(self, hosts: TwoHosts, one: Round, capable: Mapping[Direction, float]) -> list[Judged]:
        """A row that is not as it should be is measured once more, if there is time: what does not hold fails each
        time, and a busy machine may be less so then."""
        first = self._measure(hosts, one, capable)
        if all(map(_is_settled, first)) or self._elapsed_s() + self._left_s() + one.seconds > self._longest_s:
            return first
        self._say(f"{one.title}, once more", self._left_s() + one.seconds + _OVERHEAD_S)
        second = self._measure(hosts, one, capable)
        self.notes += [_second_try(row) for row in first if not _is_settled(row)]
        return [old if _is_settled(old) else new for old, new in zip(first, second, strict=True)]

    def _measure(self, hosts: TwoHosts, one: Round, capable: Mapping[Direction, float]) -> list[Judged]:
        return [judge(row) for row in hosts.measure(one, capable.get(one.directions[0]))]

    def _elapsed_s(self) -> float:
        return self._monotonic() - self._began

    def _left_s(self) -> float:
        return sum(one.seconds + _OVERHEAD_S for one in self._left)


def _is_settled(row: Judged) -> bool:
    """Measuring it again would tell nothing new: right, or wrong on purpose and found so, or beyond this machine."""
    if row.measured.case.is_control:
        return Control(row).is_caught
    is_beyond = row.measured.case.protocol is Protocol.TCP and not row.measured.is_put_to_the_test
    return is_beyond or row.verdict is Verdict.HOLDS


def _second_try(row: Judged) -> str:
    case = row.measured.case
    what = "no limit" if case.enforced_kbit is None else f"{case.enforced_kbit:,} kbit/s"
    why = "; ".join(row.reasons) or f"{row.deviation:+.2%}, which was not found wrong"
    return f"{what}, {row.measured.direction}: measured twice. At first: {why}."


# --- the real engine, in the attachment point's namespace ---------------------------------------------------------


def enforce(cases: Sequence[Case]) -> list[str]:
    """Limit all cases by one cycle of the agent's engine, and see that a second one finds nothing to do; what went
    wrong, in sentences."""
    wanted = links(cases)
    try:
        first = reconcile.reconcile(wanted, EngineSettings())
        second = reconcile.reconcile(wanted, EngineSettings())
    except AgentError as exc:
        return [exc.message]
    faults = [one.message for one in first.problems]
    if not faults and second.writes:
        faults.append(f"A second cycle of the engine changed the kernel again: {second.plan.render_text()}")
    return faults


def remove_again() -> list[str]:
    """Take every limit off; what went wrong, in sentences."""
    try:
        result = reconcile.reset(EngineSettings())
        left = reconcile.plan_reset(EngineSettings())
    except AgentError as exc:
        return [exc.message]
    faults = [one.message for one in result.problems]
    if not left.plan.is_empty:
        faults.append(f"The limits could not be taken off again: {left.plan.render_text()}")
    return faults


def _tell(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> int:
    """See the module's head."""
    course = Course(lambda step, left_s: _tell(step=step, left_s=round(left_s, 1)))
    course.begin()
    apart.settle_in()
    with Lab(PREFIX) as lab:
        report = course.run(lab)
    _tell(report=document(report), text=text(report), exit_code=report.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
