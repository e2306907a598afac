"""Shared by the conversations of both ends: peers, numbered control messages, finished phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from station.messages import Control, ConversationCodec, Counts, Kind, Opening, OpeningCodec
from station.pacing import SILENCE_S, Guard
from station.plan import AP, ECHO, MTU, STREAM, TCP, USER, Phase
from station.report import CUT, Report
from station.rounds import EchoRound, End, MtuRound, Round, Sent, StreamRound
from station.tcp import Connections
from station.tcp_round import TcpRound

REPORT_S = 0.2
OVER_S = SILENCE_S + 1.0  # an end that receives nothing for so long ends
_ROUNDS: Mapping[str, type[Round]] = {STREAM: StreamRound, ECHO: EchoRound, MTU: MtuRound, TCP: TcpRound}


class Peer(NamedTuple):
    """Source of a packet, and the local address that it was sent to (for the answer)."""

    ip: str
    port: int
    scope: int = 0  # index of the interface, of a link-local address
    local: str = ""

    @property
    def version(self) -> int:
        return 6 if ":" in self.ip else 4

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


SendTo = Callable[[bytes, Peer, bool], Sent]  # packet, destination, whether it must not be fragmented
Connect = Callable[[Sequence[bytes], Peer], Connections]  # TCP, with a token for each; raises `OSError`


def no_tcp(_tokens: Sequence[bytes], _peer: Peer) -> Connections:
    """For a test whose document does not allow TCP. Raises `PermissionError`."""
    raise PermissionError("this test is not one of TCP")


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall clock at the start: later changes have no effect. `zero_ms`: Unix time in ms at which the monotonic
    clock was 0."""

    zero_ms: float

    def ms(self, at: float) -> int:
        """Monotonic s -> Unix time in ms."""
        return round(self.zero_ms + at * 1000)

    def at(self, ms: int) -> float:
        """Inverse of `ms`."""
        return (ms - self.zero_ms) / 1000


class Talk:
    """`guard`: the limits of what this end sends; `send`, `connect`: to the other end."""

    def __init__(
        self, side: str, clock: Clock, openings: OpeningCodec, guard: Guard, *, send: SendTo, connect: Connect
    ) -> None:
        self.outcome: str | None = None  # None: it continues
        self.why = ""
        self._ends_as = ""  # what has already failed
        self.peer: Peer | None = None
        self._side, self._clock, self._openings = side, clock, openings
        self._guard, self._send, self._connect = guard, send, connect
        self._codec: ConversationCodec | None = None
        self._end: End | None = None
        self._written = self._read = 0  # numbers of control messages
        self._heard_at = 0.0
        self._report_at = 0.0
        self._done: list[Round] = []  # including the running one
        self._round: Round | None = None  # the running one

    def step(self, now: float) -> None:
        """Send what is due, and end in time."""

    def receive(self, now: float, packet: bytes, peer: Peer) -> None:
        """Process a packet."""

    @property
    def is_over(self) -> bool:
        return self.outcome is not None

    def report(self) -> Report:
        """Of this end, at any time."""
        phases = tuple(one.report(self._clock.ms(one.begun)) for one in self._done)
        return Report(self._side, self.outcome or CUT, self.why, str(self.peer) if self.peer else None, phases)

    def _over(self, outcome: str, why: str) -> None:
        self._close()
        if self.outcome is None:
            self.outcome, self.why = self._ends_as or outcome, self.why or why

    def _converse(self, now: float, peer: Peer, opening: Opening) -> None:
        """The conversation begins: both ends receive at their addresses, and have the key."""
        self.peer = peer
        self._codec = self._openings.conversation(opening.nonce, opening.cookie)
        self._end = End(
            self._side,
            self._codec,
            self._guard,
            lambda one, whole: self._send(one, peer, whole),
            peer.version,
            lambda tokens: self._connect(tokens, peer),
        )
        self._heard_at = self._guard.heard_at = now

    def _is_new(self, message: Control) -> bool:
        """False for repeated or reordered messages."""
        if message.counter <= self._read:
            return False
        self._read = message.counter
        return True

    def _control(self, kind: Kind, body: Phase | Counts | None = None, number: int = 0) -> None:
        if self._end is not None:
            self._written += 1
            self._end.send(self._end.codec.pack(Control(kind, self._written, body, number)), False)

    def _begin(self, phase: Phase, now: float) -> None:
        """Raises `OSError` if this host cannot."""
        assert self._end is not None  # noqa: S101 - for mypy: there is a conversation
        self._round = _ROUNDS[phase.kind](phase, self._end, now)
        self._done.append(self._round)
        self._report_at = now + REPORT_S

    def _close(self) -> None:
        if self._round is not None:
            self._round.close()
            if self._round.stopped:
                self._ends_as = self._ends_as or CUT
                self.why = self.why or _sentence(self._round.stopped)
            self._round = None

    def _run(self, now: float) -> None:
        """Send what is due in the running phase, and report to the other end if that sends."""
        if self._round is None:
            return
        self._round.step(now)
        report, other = (Kind.AP_REPORT, USER) if self._side == AP else (Kind.USER_REPORT, AP)
        if now >= self._report_at and self._round.phase.sends(other):
            self._control(report, self._round.counts())
            self._report_at = now + REPORT_S

    def _is_alone(self, now: float) -> bool:
        return now - max(self._heard_at, self._round.heard_at if self._round else self._heard_at) > OVER_S

    @property
    def next_at(self) -> float:
        """When `step` must be called at the latest to keep an even rate."""
        return self._round.next_at if self._round else float("inf")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""
