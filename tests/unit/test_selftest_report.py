"""What the self-test says to a person and to a program, for each of its results."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ap_agent.selftest.cases import SLOW, Direction
from ap_agent.selftest.features import Capability, State, Use
from ap_agent.selftest.report import Report, Result, json_text, text
from ap_agent.selftest.verdict import Control, Heartbeats, Measured, judge

HTB = Capability("htb", Use.LIMITS, "the rate of each link", State.PRESENT)
NO_IFB = Capability("ifb", Use.LIMITS, "what comes", State.MISSING, "unknown kind", "Load it: modprobe ifb.")
NO_BPF = Capability("CAP_BPF", Use.OPTION, "whole datagrams", State.MISSING, "", "Give it CAP_BPF.")
MEASURED = Measured(
    SLOW[0], Direction.TO_USER, 5.0, 501.3, offered_kbit=1000, excess_bytes=6115, heartbeats=Heartbeats(30, 0, 0)
)
CONTROL = Control(judge(replace(MEASURED, case=SLOW[4], measured_kbit=2101, offered_kbit=4000)))
MISSED = Control(judge(replace(MEASURED, case=SLOW[4], measured_kbit=2000, offered_kbit=4000)))
PASSED = Report((HTB, NO_BPF), (judge(MEASURED),), (CONTROL,), kernel="Linux 6", seconds=21.04)


@pytest.mark.parametrize(
    ("report", "result", "exit_code", "says"),
    [
        (PASSED, Result.PASS, 0, "Result: pass."),
        (
            replace(PASSED, judged=(judge(replace(MEASURED, measured_kbit=600)),)),
            Result.FAIL,
            1,
            "FAIL: 500 kbit/s to the user AS: +20.00%: more than the limit.",
        ),
        (replace(PASSED, controls=(MISSED,)), Result.FAIL, 1, "no figure above can be trusted"),
        (replace(PASSED, faults=("The kernel refused it.",)), Result.FAIL, 1, "- The kernel refused it."),
        (
            replace(PASSED, judged=(judge(replace(MEASURED, offered_kbit=400)),)),
            Result.INCONCLUSIVE,
            1,
            "Try again when this machine has less to do",
        ),
        (
            replace(PASSED, stopped=("1 Gbit/s was not measured.",)),
            Result.INCONCLUSIVE,
            1,
            "- 1 Gbit/s was not measured.",
        ),
        (Report((HTB, NO_IFB)), Result.NOT_POSSIBLE, 3, "- ifb: unknown kind. Load it: modprobe ifb."),
    ],
)
def test_each_result_has_its_exit_code_and_says_what_to_do(
    report: Report, result: Result, exit_code: int, says: str
) -> None:
    assert (report.result, report.exit_code) == (result, exit_code)
    assert says in text(report)


def test_a_figure_stands_with_its_limit_its_bound_and_its_verdict() -> None:
    (row,) = (line for line in text(PASSED).splitlines() if line.lstrip().startswith("500  to the user AS"))

    words = " ".join(row.split())
    assert words == "500 to the user AS SCION packets 501.3 +0.26% -2.00% to +2.00% 6,115 B 9,584 B 30 of 30 pass"


def test_what_is_optional_and_missing_is_named_and_changes_no_result() -> None:
    assert "Optional, and missing here: CAP_BPF (whole datagrams). Give it CAP_BPF." in text(PASSED)


def test_lost_heartbeats_and_a_link_that_went_down_are_shown() -> None:
    lost = judge(replace(MEASURED, heartbeats=Heartbeats(30, 4, 1)))

    assert "26 of 30, DOWN" in text(replace(PASSED, judged=(lost,)))


def test_json_has_every_figure() -> None:
    document = json.loads(json_text(PASSED))

    assert document["schema"] == 1
    assert (document["result"], document["kernel"], document["seconds"]) == ("pass", "Linux 6", 21.0)
    assert document["capabilities"][1] == {
        "name": "CAP_BPF",
        "use": "option",
        "purpose": "whole datagrams",
        "state": "missing",
        "detail": "",
        "remedy": "Give it CAP_BPF.",
    }
    assert document["limits"] == [
        {
            "limit_kbit": 500,
            "direction": "to_user",
            "protocol": "UDP",
            "measured_kbit": 501.3,
            "offered_kbit": 1000,
            "deviation": 0.0026,
            "allowed": [-0.02, 0.02],
            "excess_bytes": 6115,
            "allowed_excess_bytes": 9584,
            "heartbeats": {"sent": 30, "lost": 0, "downs": 0},
            "verdict": "pass",
            "reasons": [],
        }
    ]
    assert (document["controls"][0]["enforced_kbit"], document["controls"][0]["is_caught"]) == (2100, True)
