"""Result of a test that sends, over all phases and in words. Pure; `linktests.sending_steps` judges a phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from bandwidth_config import format_kbit, format_number
from scionlab.enforcement.directions import DIRECTIONS, NAMES, DirectionName
from scionlab.linktests.sending_steps import Code, Evidence, Step, step_of
from scionlab.linktests.tcp_found import TcpFound
from scionlab.linktests.verdict import intervals_of, percent
from station.plan import ECHO, LOADING, MTU
from station.report import COMPLETED

_WORST_FIRST: Final[tuple[Code, ...]] = (
    "over_the_limit",
    "mixed",
    "limited_elsewhere",
    "not_enough",
    "no_result",
    "enforced",
)

Report = Mapping[str, Any]  # as written by `station.report.Report.to_json`
ByNumber = Mapping[int, Mapping[str, Any]]


@dataclass(frozen=True)
class Echo:
    """`rtt_us`: minimum, median, maximum. `mtu`: to the user, from the user; 0: not even the smallest packet."""

    sent: int
    came_back: int
    rtt_us: Annotated[Sequence[int] | None, "Lowest, median, highest."]
    mtu: Annotated[
        Sequence[int] | None, "Largest packet that passed to the user AS, and from it; 0: not even the smallest."
    ]


@dataclass(frozen=True)
class SendingSide:
    direction: DirectionName
    code: Code
    text: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class SendingVerdict:
    """The code of the worse direction."""

    code: Code
    text: str
    to_user: SendingSide
    from_user: SendingSide
    echo: Echo | None

    @property
    def sides(self) -> tuple[SendingSide, SendingSide]:
        return self.to_user, self.from_user

    @property
    def is_good(self) -> bool:
        """Enforced; for a test without load: the ends reached each other."""
        if any(side.steps for side in self.sides):
            return self.code == "enforced"
        return self.echo is not None and self.echo.came_back > 0


def sending_verdict(
    phases: Sequence[Mapping[str, Any]],
    samples: Sequence[Sequence[Any]],
    *,
    ap: Report,
    user: Report | None,
    is_ipv6: bool,
    is_vpn: bool = False,
) -> SendingVerdict:
    """`phases` as planned (`LinkTest.phases`); `ap` and `user` are the reports, None if the user's is missing."""
    by_ap, by_user = _by_number(ap), _by_number(user)
    cut = _cut_phase(user or ap)
    sides: dict[str, SendingSide] = {}
    for direction in DIRECTIONS:
        intervals = intervals_of(samples, direction)
        steps = tuple(
            step_of(
                Evidence(
                    direction=direction,
                    planned=one,
                    version=6 if is_ipv6 else 4,
                    is_vpn=is_vpn,
                    intervals=intervals,
                    ap=by_ap.get(one["number"]),
                    user=by_user.get(one["number"]),
                    is_cut=one["number"] == cut,
                )
            )
            for one in phases
            if one["kind"] in LOADING and one["direction"] == direction
        )
        code = _together([one.code for one in steps])
        sides[direction] = SendingSide(direction, code, _side_text(direction, code, steps), steps)
    echo = _echo(phases, by_ap, by_user)
    loaded = [side for side in sides.values() if side.steps]
    code = min((side.code for side in loaded), key=_WORST_FIRST.index, default="no_result")
    text = " ".join(side.text for side in loaded) or _echo_text(echo)
    return SendingVerdict(code, text, sides["to_user"], sides["from_user"], echo)


def _by_number(report: Report | None) -> ByNumber:
    return {} if report is None else {one["number"]: one for one in report["phases"]}


def _cut_phase(report: Report) -> int | None:
    """Number of the phase in which a test ended early. The user's end, which ends each phase, knows it best."""
    if report["outcome"] == COMPLETED or not report["phases"]:
        return None
    return int(report["phases"][-1]["number"])


def _together(codes: Sequence[Code]) -> Code:
    """Combine the phases of a direction. Phases that sent too little, some on purpose, count only if there are no
    others."""
    if "over_the_limit" in codes:
        return "over_the_limit"
    told = set(codes) - {"not_enough", "no_result"}
    if told:
        return told.pop() if len(told) == 1 else "mixed"
    return "not_enough" if "not_enough" in codes else "no_result"


# --- in words ---------------------------------------------------------------------------------------------------

_SENTENCES: Final[dict[tuple[Code, DirectionName] | Code, str]] = {
    "enforced": "enforced. {got} of {limit} {came}{dropped}.",
    "over_the_limit": "over the limit. {passed} passed where {limit} is the limit. The administrators are notified.",
    ("limited_elsewhere", "to_user"): "limited elsewhere. {passed} left the attachment point, {received} arrived.",
    ("limited_elsewhere", "from_user"): (
        "limited elsewhere. Your end sent {sent}, {passed} reached the attachment point, which dropped none."
    ),
    "not_enough": "not enough was sent to tell: {sent}, where {limit} is the limit.",
    "mixed": "mixed. {passed} of {limit} passed{dropped}.",
    "no_result": "no result: {why}.",
}


def _side_text(direction: DirectionName, code: Code, steps: Sequence[Step]) -> str:
    """The text of the representative phase: of those with the direction's code, the one that passed most."""
    if not steps:
        return ""
    told = max([one for one in steps if one.code == code] or steps, key=lambda one: one.passed_kbit or 0.0)
    sentence = f"{NAMES[direction]}: {_sentence(told, code)}"
    if told.tcp is not None:
        sentence += f" {_tcp_sentence(told.tcp)}"
    if told.is_stepped:
        sentence += " The limit changed meanwhile."
    if any(one.is_contradicted for one in steps):
        sentence += " Your end reported more than the link passed; its figure is ignored."
    return sentence


def _sentence(step: Step, code: Code) -> str:
    most = step.passed_kbit
    if code == "over_the_limit" and step.direction == "from_user":
        most = max(step.passed_kbit or 0, step.received_kbit or 0)  # either may be what is over the limit
    passed, sent, received = (
        "nothing" if one is None else format_kbit(round(one)) for one in (most, step.sent_kbit, step.received_kbit)
    )
    is_arrived = step.is_alone and step.is_as_limited
    got, came = (received, "arrived") if is_arrived else (passed, "passed")
    dropped = f"; {percent(step.dropped_percent)} of the traffic was dropped" if step.dropped_percent else ""
    written = _SENTENCES.get(code) or _SENTENCES[code, step.direction]
    limit = " and ".join(format_kbit(one) for one in step.limits_kbit)
    figures = {"passed": passed, "sent": sent, "received": received, "got": got, "came": came}
    return written.format(**figures, dropped=dropped, limit=limit, why=step.why or "it differs")


def _tcp_sentence(found: TcpFound) -> str:
    count = len(found.connections)
    text = f"TCP got {format_kbit(round(found.kbit))} of payload over {count} connection{'s' if count > 1 else ''}"
    if found.share_percent is not None:
        text += f", {percent(found.share_percent)} of what headers leave of the limit"
    if found.rtt_us is not None and found.resent is not None:
        text += f"; round trip {found.rtt_us[1] / 1000:.1f} ms (median), {format_number(found.resent)} retransmissions"
    early = f" The rate was certain after {found.took_ms / 1000:.0f} s." if found.is_early else ""
    return f"{text}.{early}"


def _echo(phases: Sequence[Mapping[str, Any]], by_ap: ByNumber, by_user: ByNumber) -> Echo | None:
    """From the user's end, which asked, or else from the attachment point's, which answered."""
    asked = next((one for one in phases if one["kind"] == ECHO), None)
    if asked is None:
        return None
    seen = [by[one["number"]] for one in phases for by in (by_user, by_ap) if one["number"] in by]
    mtu = next((one["mtu"] for one in seen if one["kind"] == MTU and one["mtu"] is not None), None)
    end = next((one for one in seen if one["kind"] == ECHO), None)
    if end is None:
        return Echo(asked["count"], 0, None, mtu)
    return Echo(asked["count"], min(asked["count"], end["received_packets"]), end["rtt_us"], mtu)


def _echo_text(echo: Echo | None) -> str:
    if echo is None:
        return "No result."
    if not echo.came_back:
        return f"The ends do not reach each other: none of {echo.sent} packets came back."
    text = f"The ends reach each other: {echo.came_back} of {echo.sent} packets came back"
    if echo.rtt_us is not None:
        text += f", round trip {echo.rtt_us[1] / 1000:.1f} ms (median)"
    if echo.mtu is not None:
        to_user, from_user = (f"up to {one} bytes" if one else "not even 576 bytes" for one in echo.mtu)
        text += f". Packets pass to your AS {to_user}, from it {from_user}"
    return f"{text}."
