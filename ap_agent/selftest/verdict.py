"""From what was measured to a verdict. Pure.

What is allowed is derived from the token buckets that the agent sets (docs/adr/0002, docs/adr/0003), not chosen:

* No window of length T may carry more than rate*T + both buckets (data and heartbeats) + a frame of each. The
  receiver's clock may add what the limit carries in 8 ms: the softirq that takes a packet can wait for a tick of
  4 ms, twice.
* So the mean rate may be above the limit by that much over the measured time; never more than 2 %, which is what the
  service promises, and by as much below. A bucket makes up for 4 ms of waiting for the processor and no more.

A rate that is too high is a fault whatever the machine did. What is too low, late or lost is a fault only on a machine
that had the time to do better: else the verdict is `inconclusive`, as it is where less was offered than would have
been needed to see the limit at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ap_agent.selftest.cases import Case, Direction, Protocol
from bandwidth_config import HEARTBEAT_KBIT
from measuring.judge import RATE_TOLERANCE, bucket_bytes

FRAME_BYTES = 1514
SUPER_PACKET_BYTES = 68_000  # 64 kB of IP with an Ethernet header, TCP and IP headers for each of its 46 segments
CLOCK_SLACK_S = 0.008
BYTES_PER_KBIT = 125  # per second
ENOUGH_OFFERED = 1.05  # below that a rate within the tolerance may be the sender's own
LONG_PAUSE_S = 0.1  # half an interval between heartbeats
BUSY_IDLE_SHARE = 0.03
STOLEN_SHARE = 0.02


class Verdict(StrEnum):
    """`WRONG`: the limit does not hold."""

    HOLDS = "holds"
    WRONG = "does not hold"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Strain:
    """How the machine was while it measured: shares of the measured time, and the longest pause of all stations."""

    paused_share: float = 0.0
    longest_pause_s: float = 0.0
    least_idle_share: float = 1.0  # of the busiest processor
    stolen_share: float = 0.0  # by the hypervisor

    def reasons(self) -> list[str]:
        """Why less than the limit may be the machine's doing; empty on a machine that had time."""
        found = []
        if self.least_idle_share < BUSY_IDLE_SHARE:
            found.append(f"a processor was {1 - self.least_idle_share:.0%} busy")
        if self.stolen_share > STOLEN_SHARE:
            found.append(f"the hypervisor took {self.stolen_share:.0%} of the processors' time")
        if self.longest_pause_s > LONG_PAUSE_S or self.paused_share > 0:
            found.append(f"the machine stood still for up to {self.longest_pause_s * 1000:.0f} ms")
        return found


@dataclass(frozen=True)
class Heartbeats:
    """Of one direction. `downs`: how often three in a row were missed, which takes a SCION link down."""

    sent: int
    lost: int
    downs: int


@dataclass(frozen=True)
class Measured:
    """One case in one direction, at the receiver. Rates are L2 (`measuring.judge`).

    `offered_kbit` is what was sent, or for TCP what a flow gets here without a limit; None: nobody knows.
    `excess_bytes` is the most that any window carried above rate*T, None where single packets are not seen.
    """

    case: Case
    direction: Direction
    seconds: float
    measured_kbit: float
    offered_kbit: float | None = None
    excess_bytes: float | None = None
    heartbeats: Heartbeats | None = None
    strain: Strain = Strain()

    @property
    def is_put_to_the_test(self) -> bool:
        """More than the limit was offered, so that a rate at the limit is the limit's doing."""
        return self.offered_kbit is None or self.offered_kbit >= self.case.judged_kbit * ENOUGH_OFFERED


@dataclass(frozen=True)
class Allowed:
    """Relative bounds of the rate (0.02: 2 %), and what any window may carry above rate*T."""

    lowest: float
    highest: float
    excess_bytes: float


@dataclass(frozen=True)
class Judged:
    """A measurement with its verdict; `reasons` say in words what is wrong, or why nothing can be said."""

    measured: Measured
    allowed: Allowed
    verdict: Verdict
    reasons: tuple[str, ...] = ()

    @property
    def deviation(self) -> float:
        return deviation(self.measured)


def allowed(case: Case, seconds: float) -> Allowed:
    """See the module's head."""
    limit = case.judged_kbit
    largest = SUPER_PACKET_BYTES if case.protocol is Protocol.TCP else FRAME_BYTES
    excess = bucket_bytes(limit) + bucket_bytes(HEARTBEAT_KBIT) + largest + FRAME_BYTES + _clock_bytes(limit)
    return Allowed(-RATE_TOLERANCE, min(RATE_TOLERANCE, excess / (limit * BYTES_PER_KBIT * seconds)), excess)


def _clock_bytes(limit_kbit: int) -> float:
    return limit_kbit * BYTES_PER_KBIT * CLOCK_SLACK_S


def deviation(measured: Measured) -> float:
    """Relative: 0.01 is one per cent above the limit."""
    return measured.measured_kbit / measured.case.judged_kbit - 1


def judge(measured: Measured) -> Judged:
    """See the module's head."""
    bounds = allowed(measured.case, measured.seconds)
    faults, doubts = _faults(measured, bounds), _doubts(measured, bounds)
    strain = measured.strain.reasons()
    if faults or (doubts and not strain):
        return Judged(measured, bounds, Verdict.WRONG, (*faults, *doubts))
    if doubts:
        return Judged(measured, bounds, Verdict.INCONCLUSIVE, (*doubts, *strain))
    missing = _not_seen(measured)
    return Judged(measured, bounds, Verdict.INCONCLUSIVE if missing else Verdict.HOLDS, missing)


def _faults(measured: Measured, bounds: Allowed) -> list[str]:
    """What no busy machine can bring about."""
    off = deviation(measured)
    return [f"{off:+.2%}: more than the limit"] if off > bounds.highest else []


def _doubts(measured: Measured, bounds: Allowed) -> list[str]:
    """What is wrong, unless the machine had no time. A sender that offered too little is no reason: see `_not_seen`."""
    found = []
    off, beats = deviation(measured), measured.heartbeats
    if off < bounds.lowest and not _not_seen(measured):
        found.append(f"{off:+.2%}: less than the limit")
    if measured.excess_bytes is not None and measured.excess_bytes > bounds.excess_bytes:
        found.append(
            f"a window carried {measured.excess_bytes:,.0f} B above rate x time, allowed {bounds.excess_bytes:,.0f}"
        )
    if beats is not None and beats.lost:
        found.append(f"{beats.lost} of {beats.sent} heartbeats were lost")
    if beats is not None and beats.downs:
        found.append(f"SCION would have taken the link down {beats.downs} times")
    return found


def _not_seen(measured: Measured) -> tuple[str, ...]:
    """Why the limit was not put to the test."""
    if measured.is_put_to_the_test:
        return ()
    return (f"this machine manages only {measured.offered_kbit:,.0f} kbit/s, too little to see this limit at work",)


@dataclass(frozen=True)
class Control:
    """What the judge said of something that is wrong on purpose."""

    judged: Judged

    @property
    def is_caught(self) -> bool:
        """Every one of them is too fast; being found wrong for another reason tells nothing about the judge."""
        return self.judged.verdict is Verdict.WRONG and self.judged.deviation > self.judged.allowed.highest

    @property
    def verdict(self) -> Verdict:
        """Of the self-test itself. A machine that cannot exceed a limit says nothing by keeping to it."""
        if self.is_caught:
            return Verdict.HOLDS
        case, strain = self.judged.measured.case, self.judged.measured.strain.reasons()
        too_slow = case.protocol is Protocol.TCP and self.judged.deviation <= self.judged.allowed.highest
        if too_slow or self.judged.verdict is Verdict.INCONCLUSIVE or strain:
            return Verdict.INCONCLUSIVE
        return Verdict.WRONG


def total(judged: Sequence[Judged], controls: Iterable[Control]) -> Verdict:
    """One that does not hold is a failure, and so is a control that was not caught; else all must be certain."""
    verdicts = [one.verdict for one in judged] + [one.verdict for one in controls]
    if Verdict.WRONG in verdicts:
        return Verdict.WRONG
    return Verdict.INCONCLUSIVE if Verdict.INCONCLUSIVE in verdicts or not judged else Verdict.HOLDS
