"""What a self-test found, for a person and for a program. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ap_agent.commands import outcome as commands
from ap_agent.common.text import table
from ap_agent.selftest.cases import Direction, Protocol
from ap_agent.selftest.features import Capability, State, Use
from ap_agent.selftest.verdict import Control, Judged, Verdict, total

SCHEMA = 1


class Result(StrEnum):
    """Of the whole self-test. `NOT_POSSIBLE`: nothing was measured, because something is missing."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_POSSIBLE = "not possible"


_EXIT_CODES = {
    Result.PASS: commands.OK,
    Result.FAIL: commands.NOT_DONE,
    Result.INCONCLUSIVE: commands.NOT_DONE,
    Result.NOT_POSSIBLE: commands.NOT_PERMITTED,
}
_RESULT_OF = {Verdict.HOLDS: Result.PASS, Verdict.WRONG: Result.FAIL, Verdict.INCONCLUSIVE: Result.INCONCLUSIVE}
_MARKS = {State.PRESENT: "yes", State.MISSING: "NO", State.UNTRIED: "not tried"}
_USES = {Use.LIMITS: "limits", Use.SELF_TEST: "this test", Use.OPTION: "optional"}
_WORDS = {Verdict.HOLDS: "pass", Verdict.WRONG: "FAIL", Verdict.INCONCLUSIVE: "inconclusive"}


@dataclass(frozen=True)
class Report:
    """`faults`: what the engine itself had to say, or did not do. `stopped`: what was not
    measured, and why."""

    capabilities: tuple[Capability, ...]
    judged: tuple[Judged, ...] = ()
    controls: tuple[Control, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    kernel: str = ""
    seconds: float = 0.0

    @property
    def in_the_way(self) -> tuple[Capability, ...]:
        return tuple(one for one in self.capabilities if one.is_in_the_way)

    @property
    def result(self) -> Result:
        if self.in_the_way:
            return Result.NOT_POSSIBLE
        if self.faults:
            return Result.FAIL
        found = _RESULT_OF[total(self.judged, self.controls)]
        return Result.INCONCLUSIVE if self.stopped and found is Result.PASS else found

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self.result]


# --- for a person -----------------------------------------------------------------------------------------------------


def text(report: Report) -> str:
    """Tables first, then the result and what to do next."""
    parts = [_capability_lines(report.capabilities)]
    if report.judged:
        parts.append(_limit_lines(report.judged))
    if report.controls:
        parts.append(_control_lines(report.controls))
    if report.notes:
        parts.append("\n".join(report.notes))
    return "\n\n".join([*parts, _result_lines(report)])


_CAPABILITY_HEADINGS = ("FEATURE", "THERE", "NEEDED FOR", "WHAT IT IS FOR", "")


def _capability_lines(capabilities: Iterable[Capability]) -> str:
    rows = [(one.name, _MARKS[one.state], _USES[one.use], one.purpose, one.detail) for one in capabilities]
    return "What this kernel and this process can do:\n\n" + table(_CAPABILITY_HEADINGS, rows)


_LIMIT_HEADINGS = (
    "LIMIT",
    "DIRECTION",
    "WITH",
    "MEASURED",
    "OFF",
    "ALLOWED",
    "BURST",
    "ALLOWED",
    "HEARTBEATS",
    "VERDICT",
)
_LIMIT_RIGHT = frozenset({"LIMIT", "MEASURED", "OFF", "BURST", "ALLOWED", "HEARTBEATS"})
_LEGEND = """\
LIMIT and MEASURED in kbit/s of Ethernet frames (L2, headers included), at the receiver, from the second second on.
OFF is the difference of the mean rate. ALLOWED: up to what limit x time + BURST makes of it, at most 2 % either way.
BURST is the most that any stretch of time, however short, carried above limit x time. ALLOWED: 4 ms of the limit, at
least two frames, and two frames for heartbeats (the buckets that the agent sets); one frame of each; and what the
limit carries in 8 ms, by which this machine's clock may be late.
TCP is counted by its payload, with the headers of full frames added; it is sent in super-packets of up to 64 kB.
HEARTBEATS: arrived of sent, under this overload. SCION takes a link down after three misses in a row."""


def _limit_lines(judged: Sequence[Judged]) -> str:
    rows, remarks = [], []
    for one in judged:
        rows.append(_row(one))
        if one.reasons:
            what = f"{one.measured.case.judged_kbit:,} kbit/s {one.measured.direction}"
            remarks.append(f"{_WORDS[one.verdict]}: {what}: {'; '.join(one.reasons)}.")
    lines = ["Limits that the agent's engine set in two throw-away hosts, each overloaded in both directions:", ""]
    lines += [table(_LIMIT_HEADINGS, rows, right=_LIMIT_RIGHT), "", _LEGEND]
    return "\n".join([*lines, *([""] if remarks else []), *remarks])


def _row(one: Judged) -> tuple[str, ...]:
    measured, beats = one.measured, one.measured.heartbeats
    burst = ("-", "-")
    if measured.excess_bytes is not None:
        burst = (f"{measured.excess_bytes:,.0f} B", f"{one.allowed.excess_bytes:,.0f} B")
    return (
        f"{measured.case.judged_kbit:,}",
        measured.direction,
        "SCION packets" if measured.case.protocol is Protocol.UDP else "TCP, 1 flow",
        f"{measured.measured_kbit:,.1f}",
        f"{one.deviation:+.2%}",
        f"{one.allowed.lowest:+.2%} to {one.allowed.highest:+.2%}",
        *burst,
        "-" if beats is None else f"{beats.sent - beats.lost} of {beats.sent}" + (", DOWN" if beats.downs else ""),
        _WORDS[one.verdict],
    )


def _control_lines(controls: Sequence[Control]) -> str:
    rows = []
    for one in controls:
        measured = one.judged.measured
        case = measured.case
        real = "no limit" if case.enforced_kbit is None else f"{case.enforced_kbit:,} kbit/s"
        found = {Verdict.HOLDS: "found wrong, as it must be", Verdict.WRONG: "NOT FOUND WRONG"}
        rows.append(
            (
                real,
                f"{case.judged_kbit:,} kbit/s",
                measured.direction,
                f"{measured.measured_kbit:,.1f}",
                f"{one.judged.deviation:+.2%}",
                found.get(one.verdict, "inconclusive"),
            )
        )
    headings = ("REALLY", "JUDGED AS", "DIRECTION", "MEASURED", "OFF", "VERDICT")
    return "The same judge on what is wrong on purpose:\n\n" + table(
        headings, rows, right=frozenset({"REALLY", "JUDGED AS", "MEASURED", "OFF"})
    )


def _result_lines(report: Report) -> str:
    lines = [f"Result: {_HEADLINES[report.result]}"]
    lines += [f"- {one.name}: {one.detail or 'missing'}. {one.remedy}".rstrip() for one in report.in_the_way]
    lines += [f"- {one}" for one in report.faults]
    lines += [f"- {one}" for one in report.stopped]
    if report.result is Result.FAIL:
        lines += _what_failed(report)
    if report.result is Result.INCONCLUSIVE:
        lines.append("Try again when this machine has less to do. The rows that say pass are certain.")
    optional = [one for one in report.capabilities if one.state is State.MISSING and one.use is Use.OPTION]
    if optional and report.result is not Result.NOT_POSSIBLE:
        lines += [f"Optional, and missing here: {one.name} ({one.purpose}). {one.remedy}" for one in optional]
    return "\n".join(lines)


_HEADLINES = {
    Result.PASS: "pass. This kernel limits what the agent tells it to, in both directions.",
    Result.FAIL: "FAIL. Do not rely on the limits of this host.",
    Result.INCONCLUSIVE: "inconclusive. Nothing was found wrong, but this machine was too busy or too slow to be sure.",
    Result.NOT_POSSIBLE: "nothing was measured, because something is missing.",
}


def _what_failed(report: Report) -> list[str]:
    lines = []
    if any(one.verdict is Verdict.WRONG for one in report.controls):
        lines.append("- The judge let something pass that is wrong on purpose: no figure above can be trusted.")
    if any(one.verdict is Verdict.WRONG for one in report.judged):
        lines.append("- A limit does not hold on this kernel; the rows that say FAIL and the lines below them say how.")
    return [*lines, "Run it once more; if it fails again, report it with the output of `selftest --json`."]


# --- for a program ----------------------------------------------------------------------------------------------------


def document(report: Report) -> dict[str, Any]:
    """The same as JSON; rates in kbit/s of Ethernet frames, deviations relative (0.01: 1 % above)."""
    return {
        "schema": SCHEMA,
        "result": report.result,
        "kernel": report.kernel,
        "seconds": round(report.seconds, 1),
        "capabilities": [vars(one) for one in report.capabilities],
        "limits": [_judged_fields(one) for one in report.judged],
        "controls": [
            {
                **_judged_fields(one.judged),
                "enforced_kbit": one.judged.measured.case.enforced_kbit,
                "is_caught": one.is_caught,
            }
            for one in report.controls
        ],
        "faults": list(report.faults),
        "notes": list(report.notes),
        "stopped": list(report.stopped),
    }


def _judged_fields(one: Judged) -> dict[str, Any]:
    measured = one.measured
    beats = measured.heartbeats
    return {
        "limit_kbit": measured.case.judged_kbit,
        "direction": "to_user" if measured.direction is Direction.TO_USER else "from_user",
        "protocol": measured.case.protocol,
        "measured_kbit": round(measured.measured_kbit, 1),
        "offered_kbit": None if measured.offered_kbit is None else round(measured.offered_kbit, 1),
        "deviation": round(one.deviation, 5),
        "allowed": [round(one.allowed.lowest, 5), round(one.allowed.highest, 5)],
        "excess_bytes": None if measured.excess_bytes is None else round(measured.excess_bytes),
        "allowed_excess_bytes": round(one.allowed.excess_bytes),
        "heartbeats": None if beats is None else {"sent": beats.sent, "lost": beats.lost, "downs": beats.downs},
        "verdict": _WORDS[one.verdict].lower(),
        "reasons": list(one.reasons),
    }


def json_text(report: Report) -> str:
    return json.dumps(document(report), indent=2)
