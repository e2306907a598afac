"""Result of a self-test, as text and JSON. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ap_agent.common import outcome as commands
from ap_agent.selftest import needs
from ap_agent.selftest.cases import Case, State
from ap_agent.selftest.needs import Need
from ap_agent.selftest.verdict import Judged, Verdict, total
from terminal import table

SCHEMA = 2


class Result(StrEnum):
    """Of the whole self-test. `NOT_POSSIBLE`: a requirement is missing, so nothing was measured."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_POSSIBLE = "not possible"


EXIT_CODES = {
    Result.PASS: commands.OK,
    Result.FAIL: commands.NOT_DONE,
    Result.INCONCLUSIVE: commands.NOT_DONE,
    Result.NOT_POSSIBLE: commands.NOT_PERMITTED,
}
_RESULT_OF = {Verdict.HOLDS: Result.PASS, Verdict.WRONG: Result.FAIL, Verdict.INCONCLUSIVE: Result.INCONCLUSIVE}
_MARKS = {needs.State.PRESENT: "yes", needs.State.MISSING: "NO", needs.State.UNTRIED: "not tried"}
_WORDS = {Verdict.HOLDS: "pass", Verdict.WRONG: "FAIL", Verdict.INCONCLUSIVE: "inconclusive"}


@dataclass(frozen=True)
class Report:
    """`faults`: errors of the engine. `stopped`: what was not measured, and why."""

    needs: tuple[Need, ...]
    judged: tuple[Judged, ...] = ()
    faults: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    kernel: str = f"{os.uname().sysname} {os.uname().release}"
    seconds: float = 0.0

    @property
    def in_the_way(self) -> tuple[Need, ...]:
        return tuple(one for one in self.needs if one.is_in_the_way)

    @property
    def result(self) -> Result:
        if self.in_the_way:
            return Result.NOT_POSSIBLE
        if self.faults:
            return Result.FAIL
        found = _RESULT_OF[total(self.judged)]
        return Result.INCONCLUSIVE if self.stopped and found is Result.PASS else found

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.result]


# --- for a person -----------------------------------------------------------------------------------------------------


def text(report: Report) -> str:
    """Tables first, then the result and what to do next."""
    rows = [(one.name, _MARKS[one.state], one.purpose, one.detail) for one in report.needs]
    parts = ["Requirements of the limiter:\n\n" + table(("NAME", "THERE", "PURPOSE", ""), rows)]
    if report.judged:
        parts.append(_link_lines(report.judged))
    return "\n\n".join([*parts, _result_lines(report)])


_OFF, _BURST = ("OFF", "ALLOWED"), ("BURST", "ALLOWED")
_HEADINGS = ("LIMIT", "DIRECTION", "IP", "WITH", "MEASURED", *_OFF, *_BURST, "HEARTBEATS", "VERDICT")
_RIGHT = frozenset({"LIMIT", "MEASURED", "OFF", "BURST", "ALLOWED", "HEARTBEATS"})
_LEGEND = """\
LIMIT and MEASURED in kbit/s of Ethernet frames (L2, headers included), at the receiver, from the second second on.
blocked: a limit of 0, nothing may arrive. observed: nothing is refused, and the limiter counts what would be.
bystander: another port of an address that has a blocked link; it must not lose packets. control: no limit, or 5 % more
than LIMIT is set; the check must find it wrong, and `pass` means that it did.
OFF is the difference of the mean rate. ALLOWED: up to what limit x time + BURST makes of it, at most 2 % either way.
BURST is the most that any stretch of time, however short, carried above limit x time. ALLOWED: 4 ms of the limit, at
least two frames; the heartbeats, at most what the link's queue has room for; a frame of each, or a datagram; and what
the limit carries in 8 ms, by which this machine's clock may be late.
A datagram of 10,000 or 65,507 B travels in fragments and counts when the last one has arrived.
TCP is counted by its payload, with the headers of full frames added; it is sent in super-packets of up to 64 kB.
HEARTBEATS: arrived of sent, under this overload. SCION takes a link down after three misses in a row."""


def _link_lines(judged: Sequence[Judged]) -> str:
    remarks = []
    for one in judged:
        if one.reasons:
            case = one.measured.case
            what = f"{_limit_words(case)}, IPv{case.family}, {case.form}, {one.measured.direction}"
            remarks.append(f"{_WORDS[one.verdict]}: {what}: {'; '.join(one.reasons)}.")
    lines = [
        "Links set up by the engine of the limiter between two temporary hosts, each overloaded in both directions:",
        "",
    ]
    lines += [table(_HEADINGS, map(_row, judged), right=_RIGHT), "", _LEGEND]
    return "\n".join([*lines, *([""] if remarks else []), *remarks])


def _limit_words(case: Case) -> str:
    if case.state is not State.LIMITED:
        return str(case.state)
    return f"control {case.judged_kbit:,}" if case.is_control else f"{case.judged_kbit:,}"


def _row(one: Judged) -> tuple[str, ...]:
    measured, bounds = one.measured, one.allowed
    beats = None if measured.case.state is State.BLOCKED else measured.heartbeats
    off, burst = ("-", "-"), ("-", "-")
    if bounds is not None:
        off = (f"{one.deviation:+.2%}", f"{bounds.lowest:+.2%} to {bounds.highest:+.2%}")
    if bounds is not None and measured.excess_bytes is not None:
        burst = (f"{measured.excess_bytes:,.0f} B", f"{bounds.excess_bytes:,.0f} B")
    return (
        _limit_words(measured.case),
        measured.direction,
        f"v{measured.case.family}",
        measured.case.form,
        f"{measured.measured_kbit:,.1f}",
        *off,
        *burst,
        "-" if beats is None else f"{beats.sent - beats.lost} of {beats.sent}" + (", DOWN" if beats.downs else ""),
        _WORDS[one.verdict],
    )


_HEADLINES = {
    Result.PASS: "pass. This kernel enforces the limits that the limiter sets, in both directions.",
    Result.FAIL: "FAIL. Do not rely on the limits of this host.",
    Result.INCONCLUSIVE: "inconclusive. No failure, but this machine was too busy or too slow for a reliable result.",
    Result.NOT_POSSIBLE: "nothing was measured, because a requirement is missing.",
}


def _result_lines(report: Report) -> str:
    lines = [f"Result: {_HEADLINES[report.result]}"]
    lines += [f"- {one.name}: {one.detail or 'missing'}. {one.remedy}".rstrip() for one in report.in_the_way]
    lines += [f"- {one}" for one in (*report.faults, *report.stopped)]
    if report.result is Result.FAIL:
        lines.append("Run it again; if it fails again, report it with the output of `selftest --json`.")
    if report.result is Result.INCONCLUSIVE:
        lines.append("Try again when this machine is less busy. Rows with the result pass are reliable.")
    return "\n".join(lines)


# --- for a program ----------------------------------------------------------------------------------------------------


def shown(report: Report) -> dict[str, Any]:
    """The report in both forms, and the exit code."""
    return {"report": document(report), "text": text(report), "exit_code": report.exit_code}


def document(report: Report) -> dict[str, Any]:
    """As JSON; rates in kbit/s of Ethernet frames, deviations relative (0.01: 1 % above)."""
    return {
        "schema": SCHEMA,
        "result": report.result,
        "kernel": report.kernel,
        "seconds": round(report.seconds, 1),
        "needs": [vars(one) for one in report.needs],
        "links": [
            asdict(one) | {"deviation": round(one.deviation, 5), "is_control": one.measured.case.is_control}
            for one in report.judged
        ],
        "faults": list(report.faults),
        "stopped": list(report.stopped),
    }
