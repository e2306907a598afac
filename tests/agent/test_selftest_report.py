"""What the self-test says to a person and to a program, for each of its results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ap_agent.selftest.cases import SLOW, Direction
from ap_agent.selftest.needs import Need, State
from ap_agent.selftest.report import Report, Result, text
from ap_agent.selftest.verdict import Heartbeats, Measured, judge

HTB = Need("htb", "the rate of each link", State.PRESENT)
NO_IFB = Need("ifb", "where admitted packets wait", State.MISSING, "unknown kind", "Load it: modprobe ifb.")
MEASURED = Measured(
    SLOW[0], Direction.TO_USER, 5.0, 501.3, offered_kbit=1000, excess_bytes=6115, heartbeats=Heartbeats(30, 0, 0)
)
CONTROL = judge(replace(MEASURED, case=SLOW[4], measured_kbit=2101, offered_kbit=4000))
MISSED = judge(replace(MEASURED, case=SLOW[4], measured_kbit=2000, offered_kbit=4000))
PASSED = Report((HTB,), (judge(MEASURED), CONTROL), kernel="Linux 6", seconds=21.04)


@pytest.mark.parametrize(
    ("report", "result", "exit_code", "says"),
    [
        (PASSED, Result.PASS, 0, "Result: pass."),
        (
            replace(PASSED, judged=(judge(replace(MEASURED, measured_kbit=600)),)),
            Result.FAIL,
            1,
            "FAIL: 500, IPv4, full frames, to the user AS: +20.00%: more than the limit.",
        ),
        (replace(PASSED, judged=(judge(MEASURED), MISSED)), Result.FAIL, 1, "no result here is reliable"),
        (replace(PASSED, faults=("The kernel refused it.",)), Result.FAIL, 1, "- The kernel refused it."),
        (
            replace(PASSED, judged=(judge(replace(MEASURED, offered_kbit=400)),)),
            Result.INCONCLUSIVE,
            1,
            "Try again when this machine is less busy",
        ),
        (
            replace(PASSED, stopped=("100 Mbit/s was not measured.",)),
            Result.INCONCLUSIVE,
            1,
            "- 100 Mbit/s was not measured.",
        ),
        (Report((HTB, NO_IFB)), Result.NOT_POSSIBLE, 3, "- ifb: unknown kind. Load it: modprobe ifb."),
    ],
)
def test_each_result_has_its_exit_code_and_says_what_to_do(
    report: Report, result: Result, exit_code: int, says: str
) -> None:
    assert (report.result, report.exit_code) == (result, exit_code)
    assert says in text(report)
