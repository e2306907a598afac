"""From measurements to verdicts. Pure.

Tolerances are derived from what the engine sets (docs/agent.md):

* HTB paces admitted packets: no window of length T carries more than rate*T + its burst + a frame. Heartbeats bypass
it, so theirs are added, until the queue that they were charged to is empty: at most its room. The receiver's clock may
add what the limit carries in 8 ms: the softirq that takes a packet can wait for a tick of 4 ms, twice.

* So the mean rate may be above the limit by that much over the measured time; never more than 2 %, which is what the
service promises, and by as much below.

* Nothing of a blocked link arrives. Everything of an observed link and of a bystander does, and the engine counts what
an observed link would have dropped.

Too much traffic is always a failure. Too little, late or lost traffic is a failure only if the machine was not
overloaded: otherwise the verdict is `inconclusive`, as it is if too little was offered to see the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ap_agent.dataplane.lanes import room_bytes
from ap_agent.selftest.cases import Case, Direction, Form, State
from measuring.framing import wire_bytes
from measuring.judge import FRAME_BYTES, RATE_TOLERANCE, bucket_bytes
from measuring.scion_packet import HEARTBEAT_INTERVAL_S, heartbeat_payload_bytes

SUPER_PACKET_BYTES = 68_000  # 64 kB of IP with an Ethernet header, TCP and IP headers for each of its 46 segments
CLOCK_SLACK_S = 0.008
BYTES_PER_KBIT = 125  # per second
ENOUGH_OFFERED = 1.05  # below that a rate within the tolerance may be due to the sender
LONG_PAUSE_S = 0.1  # half an interval between heartbeats
BUSY_IDLE_SHARE = 0.03
STOLEN_SHARE = 0.02


class Verdict(StrEnum):
    """`WRONG`: the link is not treated as it should be."""

    HOLDS = "holds"
    WRONG = "does not hold"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Strain:
    """Load of the machine during the measurement: shares of the time, and the longest pause of all stations."""

    paused_share: float = 0.0
    longest_pause_s: float = 0.0
    least_idle_share: float = 1.0  # of the busiest processor
    stolen_share: float = 0.0  # by the hypervisor

    def reasons(self) -> list[str]:
        """Why a low rate may be due to the machine; empty if it was not overloaded."""
        found = []
        if self.least_idle_share < BUSY_IDLE_SHARE:
            found.append(f"a processor was {1 - self.least_idle_share:.0%} busy")
        if self.stolen_share > STOLEN_SHARE:
            found.append(f"the hypervisor took {self.stolen_share:.0%} of the processors' time")
        if self.longest_pause_s > LONG_PAUSE_S or self.paused_share > 0:
            found.append(f"the machine paused for up to {self.longest_pause_s * 1000:.0f} ms")
        return found


@dataclass(frozen=True)
class Heartbeats:
    """In one direction. `downs`: how often three in a row were missed, which takes a SCION link down."""

    sent: int
    lost: int
    downs: int


@dataclass(frozen=True)
class Measured:
    """One case in one direction, at the receiver. Rates are L2 (`measuring.judge`), `lost` is data packets.
    `offered_kbit` is what was sent; None (TCP): unknown. `excess_bytes` is the most that any window carried above
    rate*T, None without per-packet data. `refused` is counted by the engine."""

    case: Case
    direction: Direction
    seconds: float
    measured_kbit: float
    offered_kbit: float | None = None
    excess_bytes: float | None = None
    arrived: int = 0
    lost: int = 0
    refused: int = 0
    heartbeats: Heartbeats | None = None
    strain: Strain = Strain()

    @property
    def is_put_to_the_test(self) -> bool:
        """Whether more than the limit was offered, so that the limit determines the rate."""
        return self.offered_kbit is None or self.offered_kbit >= self.case.judged_kbit * ENOUGH_OFFERED


@dataclass(frozen=True)
class Allowed:
    """Relative bounds of the rate (0.02: 2 %), and what any window may carry above rate*T."""

    lowest: float
    highest: float
    excess_bytes: float


@dataclass(frozen=True)
class Judged:
    """A measurement with its verdict; `allowed` is None if no rate is judged. `reasons` explain a failure or a missing
    verdict."""

    measured: Measured
    allowed: Allowed | None
    verdict: Verdict
    reasons: tuple[str, ...] = ()

    @property
    def deviation(self) -> float:
        """Relative: 0.01 is one per cent above the limit; 0 without a limit."""
        limit = self.measured.case.judged_kbit
        return self.measured.measured_kbit / limit - 1 if limit else 0.0


def allowed(case: Case, seconds: float) -> Allowed:
    """For a limit above 0; see the module's docstring."""
    limit = case.judged_kbit
    largest = SUPER_PACKET_BYTES if case.form is Form.TCP else wire_bytes(case.payload_bytes, family=case.family)
    beat_bytes = wire_bytes(heartbeat_payload_bytes(case.family), family=case.family)
    beats = min(room_bytes(limit), beat_bytes * seconds / HEARTBEAT_INTERVAL_S)
    excess = bucket_bytes(limit) + largest + FRAME_BYTES + beats + limit * BYTES_PER_KBIT * CLOCK_SLACK_S
    return Allowed(-RATE_TOLERANCE, min(RATE_TOLERANCE, excess / (limit * BYTES_PER_KBIT * seconds)), excess)


def judge(measured: Measured) -> Judged:
    """See the module's docstring."""
    case = measured.case
    if case.state is State.LIMITED:
        bounds = allowed(case, measured.seconds)
        off = Judged(measured, bounds, Verdict.HOLDS).deviation
        faults = [f"{off:+.2%}: more than the limit"] if off > bounds.highest else []
        found = _judged(measured, bounds, faults, _doubts(measured, bounds, off), _untested(measured))
        return _of_control(found, is_too_fast=bool(faults)) if case.is_control else found
    if case.state is State.BLOCKED:
        faults = [f"{measured.arrived} packets of a blocked link arrived"] if measured.arrived else []
        return _judged(measured, None, faults, [], [] if measured.refused else ["no packets were offered"])
    is_uncounted = case.state is State.OBSERVED and not measured.refused
    faults = ["the engine counted no packet above the limit"] if is_uncounted else []
    doubts = [f"{measured.lost} packets were lost"] if measured.lost else []
    return _judged(measured, None, faults, doubts, [] if measured.arrived else ["nothing arrived"])


def _judged(
    measured: Measured, bounds: Allowed | None, faults: list[str], doubts: list[str], untested: list[str]
) -> Judged:
    """`faults`: independent of the machine's load; `doubts`: may be due to it; `untested`: why there is no verdict."""
    strain = measured.strain.reasons()
    if faults or (doubts and not strain):
        return Judged(measured, bounds, Verdict.WRONG, (*faults, *doubts))
    if doubts:
        return Judged(measured, bounds, Verdict.INCONCLUSIVE, (*doubts, *strain))
    return Judged(measured, bounds, Verdict.INCONCLUSIVE if untested else Verdict.HOLDS, tuple(untested))


def _of_control(found: Judged, *, is_too_fast: bool) -> Judged:
    """Every control exceeds its limit; failing for another reason does not confirm the check."""
    if is_too_fast:
        return replace(found, verdict=Verdict.HOLDS, reasons=())
    if found.verdict is Verdict.INCONCLUSIVE or found.measured.strain.reasons():
        return replace(found, verdict=Verdict.INCONCLUSIVE)
    return replace(found, verdict=Verdict.WRONG, reasons=("a negative control passed: no result here is reliable",))


def _doubts(measured: Measured, bounds: Allowed, off: float) -> list[str]:
    """A sender that offered too little is handled in `_untested`."""
    found = []
    beats = measured.heartbeats
    if off < bounds.lowest and measured.is_put_to_the_test:
        found.append(f"{off:+.2%}: less than the limit")
    if measured.excess_bytes is not None and measured.excess_bytes > bounds.excess_bytes:
        found.append(
            f"a window carried {measured.excess_bytes:,.0f} B above rate x time, allowed {bounds.excess_bytes:,.0f}"
        )
    if beats is not None and beats.lost:
        found.append(f"{beats.lost} of {beats.sent} heartbeats were lost")
    if beats is not None and beats.downs:
        found.append(f"SCION would have declared the link down {beats.downs} times")
    return found


def _untested(measured: Measured) -> list[str]:
    if measured.is_put_to_the_test:
        return []
    return [f"this machine manages only {measured.offered_kbit:,.0f} kbit/s, too little to test this limit"]


def total(judged: Sequence[Judged]) -> Verdict:
    """One failure fails the test; to pass, all must be certain."""
    verdicts = {one.verdict for one in judged} or {Verdict.INCONCLUSIVE}
    return next(one for one in (Verdict.WRONG, Verdict.INCONCLUSIVE, Verdict.HOLDS) if one in verdicts)
