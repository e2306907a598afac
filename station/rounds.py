"""One phase at one end: what it sends when, what it answers, and what it counts. Without clock and sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from station.counting import Tally, spread
from station.messages import DATA_HEAD_BYTES, ConversationCodec, Counts, Data, Kind
from station.mtu import MtuSearch
from station.pacing import Guard, Pacer
from station.plan import AP, LARGEST_MTU, SMALLEST_MTU, Phase, frame_bytes
from station.report import PhaseReport
from station.tcp import Connections

ANSWER_S = 0.25  # a path MTU probe counts as lost without an answer in this time plus twice that of a packet
RETRY_S = 0.05  # of a probe that did not fit into the rate
LAST_ANSWER_S = 1.0  # after the last question of an echo
_NOTHING_PASSED = 1  # in `Counts.mtu`, where 0 means: not known yet


class Sent(Enum):
    """Result of sending. FULL: not sent; TOO_BIG: it must not be fragmented, and the interface has a smaller MTU."""

    SENT = "sent"
    FULL = "full"
    TOO_BIG = "too big"


Send = Callable[[bytes, bool], Sent]  # packet, whether it must not be fragmented


@dataclass(frozen=True, slots=True)
class End:
    """Shared by all phases at one end. `version`: of IP; `connect`: TCP connections, with a token for each."""

    side: str
    codec: ConversationCodec
    guard: Guard
    send: Send
    version: int
    connect: Callable[[Sequence[bytes]], Connections]


class Round:
    """A phase that began at `begun` (monotonic, s). Subclasses define what is sent and answered."""

    def __init__(self, phase: Phase, end: End, begun: float) -> None:
        self.phase = phase
        self.begun, self.ends = begun, begun + phase.duration_ms / 1000
        self.tally = Tally(begun)
        self.stopped = ""  # why the guard allowed no more
        self.peer: Counts | None = None  # the other end's last report
        self.heard_at = float("-inf")  # last arrival over TCP
        self._end, self._is_ap = end, end.side == AP
        self._sequence = 0

    def step(self, now: float) -> None:
        """Send what is due."""

    def receive(self, now: float, data: Data, size: int) -> None:
        """Count and answer test traffic of the other end; `size`: UDP payload."""
        if data.number == self.phase.number and self.tally.received(now, data.sequence, size):
            self._arrived(now, data)

    def _arrived(self, now: float, data: Data) -> None:
        """A packet that was not there before."""

    @property
    def next_at(self) -> float:
        return float("inf")

    def is_done(self, now: float) -> bool:
        """Whether the user's end finishes the phase."""
        return now >= self.ends

    def close(self) -> None:
        """End the phase at this end."""

    @property
    def mtu(self) -> int:
        """The value that this end found, for `Counts`."""
        return 0

    def counts(self) -> Counts:
        return self.tally.counts(self.phase.number, self.mtu)

    def report(self, begins_at_ms: int) -> PhaseReport:
        phase, peer_sent = self.phase, self.peer.sent_packets if self.peer else None
        return PhaseReport(
            phase.number,
            phase.kind,
            phase.direction,
            phase.kbit,
            phase.payload_bytes,
            begins_at_ms,
            *self.tally.totals(),
            self.tally.lost(peer_sent),
            self.tally.reordered_packets,
            self.tally.rows(),
            self._rtt_us(),
            self._mtus(),
        )

    def hint(self, *, is_told: bool) -> str:  # noqa: ARG002 - of some kinds
        """A finding as a sentence, or empty. `is_told`: a router reported that packets are too large."""
        return ""

    def _rtt_us(self) -> tuple[int, int, int] | None:
        return None

    def _mtus(self) -> tuple[int, int] | None:
        return None

    def _put(
        self, now: float, kind: Kind, payload_bytes: int, echoed: int = 0, size: int = 0, *, whole: bool = False
    ) -> Sent:
        """Send a packet of test traffic if the guard allows it. `whole`: it must not be fragmented."""
        frame = frame_bytes(payload_bytes, self._end.version)
        if (why := self._end.guard.denies(now, payload_bytes, frame)) is not None:
            self.stopped = self.stopped or why
            return Sent.FULL
        data = Data(kind, self.phase.number, self._sequence, echoed, size)
        outcome = self._end.send(self._end.codec.pack_data(data, payload_bytes), whole)
        if outcome is Sent.SENT:
            self._sequence += 1
            self._end.guard.took(payload_bytes, frame)
            self.tally.sent(min(now, self.ends - 0.001), payload_bytes)  # it was due before the end
        return outcome


class StreamRound(Round):
    """Packets of one size at an even rate in one direction."""

    def __init__(self, phase: Phase, end: End, begun: float) -> None:
        super().__init__(phase, end, begun)
        interval_s = frame_bytes(phase.payload_bytes, end.version) * 8 / (phase.kbit * 1000)
        self._pacer = Pacer(begun, self.ends, interval_s)
        self._sends = phase.sends(end.side)
        self._kind = Kind.AP_DATA if self._is_ap else Kind.USER_DATA

    def step(self, now: float) -> None:
        if not self._sends or self.stopped:
            return
        for _ in range(self._pacer.due(now)):
            if self._put(now, self._kind, self.phase.payload_bytes) is not Sent.SENT:
                return

    @property
    def next_at(self) -> float:
        return self._pacer.next_at if self._sends and not (self.stopped or self._pacer.is_over) else float("inf")


class EchoRound(Round):
    """The user's end asks at an even rate, the attachment point's answers each packet once."""

    def __init__(self, phase: Phase, end: End, begun: float) -> None:
        super().__init__(phase, end, begun)
        self._pacer = Pacer(begun, self.ends, phase.duration_ms / 1000 / phase.count)
        self._asked_at: dict[int, float] = {}
        self._rtts_us: list[int] = []

    def step(self, now: float) -> None:
        if self._is_ap:
            return
        for _ in range(self._pacer.due(now)):
            asked = self._sequence
            if asked < self.phase.count and self._put(now, Kind.QUESTION, self.phase.payload_bytes) is Sent.SENT:
                self._asked_at[asked] = now

    def _arrived(self, now: float, data: Data) -> None:
        if data.kind is Kind.QUESTION and data.sequence < self.phase.count:
            self._put(now, Kind.ANSWER, self.phase.payload_bytes, echoed=data.sequence)
        elif data.kind is Kind.ANSWER and (asked_at := self._asked_at.pop(data.echoed, None)) is not None:
            self._rtts_us.append(round((now - asked_at) * 1_000_000))

    @property
    def next_at(self) -> float:
        return float("inf") if self._is_ap or self._pacer.is_over else self._pacer.next_at

    def is_done(self, now: float) -> bool:
        return now >= self.ends and (not self._asked_at or now >= self.ends + LAST_ANSWER_S)

    def _rtt_us(self) -> tuple[int, int, int] | None:
        return spread(self._rtts_us)


class MtuRound(Round):
    """Both ends search for the largest unfragmented packet that passes, one probe at a time."""

    def __init__(self, phase: Phase, end: End, begun: float) -> None:
        super().__init__(phase, end, begun)
        self.search = MtuSearch()
        self._waits_for = 0  # size of the pending probe
        self._next_at = begun
        self._answer_s = ANSWER_S + 2 * self._frame_s(LARGEST_MTU)
        self._headers = 28 if end.version == 4 else 48
        self._probe = Kind.AP_PROBE if self._is_ap else Kind.USER_PROBE
        self._passed = Kind.AP_PASSED if self._is_ap else Kind.USER_PASSED

    def step(self, now: float) -> None:
        if now < self._next_at or self.search.is_over or now >= self.ends:
            return
        if self._waits_for:
            self._waits_for = 0
            self.search.no_answer()
        while not self.search.is_over:
            size = self.search.size
            outcome = self._put(now, self._probe, size - self._headers, size=size, whole=True)
            if outcome is not Sent.TOO_BIG:
                self._waits_for = size if outcome is Sent.SENT else 0
                self._next_at = now + (self._answer_s if outcome is Sent.SENT else RETRY_S)
                return
            self.search.too_large()

    def _arrived(self, now: float, data: Data) -> None:
        if data.kind in {Kind.USER_PROBE, Kind.AP_PROBE}:
            self._put(now, self._passed, DATA_HEAD_BYTES, size=data.size)
        elif data.size == self._waits_for:
            self._waits_for = 0
            self.search.passes(data.size)
            self._next_at = now + self._frame_s(data.size)

    def _frame_s(self, size: int) -> float:
        return (size + 14) * 8 / (self.phase.kbit * 1000)

    def close(self) -> None:
        self.search.give_up()

    @property
    def next_at(self) -> float:
        return float("inf") if self.search.is_over else self._next_at

    def is_done(self, now: float) -> bool:
        return now >= self.ends or bool(self.search.is_over and self.peer and self.peer.mtu)

    @property
    def mtu(self) -> int:
        return (self.search.passed or _NOTHING_PASSED) if self.search.is_over else 0

    def hint(self, *, is_told: bool) -> str:
        passed = self.search.passed
        if passed == LARGEST_MTU:
            return ""
        what = f"packets of more than {passed} bytes" if passed else f"packets of {SMALLEST_MTU} bytes"
        if self.search.is_refused:
            return f"From here, {what} do not pass: the interface of this host has a smaller MTU."
        return f"From here, {what} do not pass: {'a router refuses them' if is_told else 'they vanish'}."

    def _mtus(self) -> tuple[int, int] | None:
        mine = self.search.passed
        theirs = self.peer.mtu if self.peer and self.peer.mtu != _NOTHING_PASSED else 0
        return (mine, theirs) if self._is_ap else (theirs, mine)
