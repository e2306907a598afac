"""The user's end of a conversation: it repeats requests until they are answered, and runs the phases."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from station.messages import NONCE_BYTES, Control, Counts, Data, Kind, Opening, OpeningCodec
from station.pacing import Guard
from station.plan import MAX_KBIT, USER, Phase
from station.report import COMPLETED, CUT, ERROR, NOBODY, REFUSED
from station.talk import OVER_S, Clock, Connect, Peer, SendTo, Talk, no_tcp

AGAIN_S = 0.3
TRIES = {Kind.HELLO: 17, Kind.RESPONSE: 10, Kind.BYE: 3}  # 5 s, 3 s, 1 s
OTHER_TRIES = 20  # 6 s: at 32 kbit/s the queue of a limit takes 4 s to drain
NO_ANSWER = "No answer arrived."  # the caller adds what it knows of the network


@dataclass(frozen=True, slots=True)
class UserOrder:
    """The service's response to `start`. `ip`, `port`: the attachment point's; times in ms of Unix time by the
    service's clock; `bind`: the address to send from (`fe80::1%eth0` for a link-local one), None: the kernel chooses;
    `clock_off_ms`: the service's clock minus this host's."""

    test_id: str
    key: bytes
    ip: str
    port: int
    from_ms: int
    until_ms: int
    phases: tuple[Phase, ...]
    bind: str | None = None
    clock_off_ms: int = 0


@dataclass(slots=True)
class Question:
    """The pending request, and how often it may be repeated."""

    kind: Kind
    tries_left: int
    again_at: float


class UserTalk(Talk):
    """With the attachment point at `ap`, until the end of the test."""

    def __init__(self, order: UserOrder, ap: Peer, send: SendTo, clock: Clock, connect: Connect = no_tcp) -> None:
        self._until = clock.at(order.until_ms)
        guard = Guard(self._until, max_bytes=1 << 62, max_kbit=MAX_KBIT)
        super().__init__(USER, clock, OpeningCodec(order.test_id, order.key), guard, send=send, connect=connect)
        self._phases, self._ap = order.phases, ap
        self._hello = Opening(Kind.HELLO, secrets.token_bytes(NONCE_BYTES))
        self._response: Opening | None = None
        self._question: Question | None = None
        self.time_was_over = False

    def step(self, now: float) -> None:
        """Send what is due; end when all is done, at `until`, and when the other end is silent."""
        if self.is_over:
            return
        if self._question is None and self._round is None:
            self._ask(Kind.HELLO, now)
        if now >= self._until:
            self.time_was_over = True
            self._over(NOBODY if self.peer is None else CUT, "The time of the test has ended.")
        elif self._round is not None and self._round.stopped:
            self._over(CUT, "")
        elif self._round is not None and self._round.is_done(now):
            self._close()
            self._ask(Kind.FINISH, now)
        elif self._round is not None:
            self._run_or_miss(now)
        elif self._question is not None and now >= self._question.again_at:
            self._ask_again(self._question, now)

    def _run_or_miss(self, now: float) -> None:
        if self._is_alone(now):
            self._over(CUT, f"Nothing arrived from the attachment point's end for {OVER_S:.0f} s.")
        else:
            self._run(now)

    # --- asking -----------------------------------------------------------------------------------------------------

    def _ask(self, kind: Kind, now: float) -> None:
        self._question = Question(kind, TRIES.get(kind, OTHER_TRIES), now)
        self._ask_again(self._question, now)

    def _ask_again(self, question: Question, now: float) -> None:
        if question.tries_left == 0:
            self._not_answered(question.kind)
            return
        question.tries_left -= 1
        question.again_at = now + AGAIN_S
        if question.kind in {Kind.HELLO, Kind.RESPONSE}:
            self._send(self._openings.pack(self._response or self._hello), self._ap, False)
        elif question.kind is Kind.BEGIN:
            self._control(Kind.BEGIN, self._phases[len(self._done)])
        elif question.kind is Kind.FINISH:
            self._control(Kind.FINISH, self._done[-1].counts())
        else:
            self._control(Kind.BYE)

    def _not_answered(self, kind: Kind) -> None:
        if kind is Kind.BYE:  # it was received, or does not matter any more
            self._over(COMPLETED, "")
        elif kind is Kind.HELLO:
            self._over(NOBODY, NO_ANSWER)
        else:
            self._over(CUT, "The attachment point's end stopped answering.")

    # --- answers ----------------------------------------------------------------------------------------------------

    def receive(self, now: float, packet: bytes, peer: Peer) -> None:
        """Process a packet. Those from other addresses have no effect."""
        if self.is_over or peer[:2] != self._ap[:2]:
            return
        message = self._codec.read(packet, from_user=False) if self._codec else None
        if message is None:
            self._open(now, self._openings.read(packet))
        elif isinstance(message, Data):
            self._heard_at = now
            if self._question is not None and self._question.kind is Kind.BEGIN and message.number == len(self._done):
                self._question = None  # its BEGUN is late or lost
                self._begin_it(self._phases[message.number], now)
            if self._done:
                self._done[-1].receive(now, message, len(packet))
        elif self._is_new(message):
            self._heard_at = self._guard.heard_at = now
            self._answered(now, message)

    def _open(self, now: float, opening: Opening | None) -> None:
        if opening is None or opening.nonce != self._hello.nonce or self.peer is not None:
            return
        if opening.kind is Kind.CHALLENGE and self._response is None:
            self._response = Opening(Kind.RESPONSE, opening.nonce, opening.cookie)
            self._ask(Kind.RESPONSE, now)
        elif opening.kind is Kind.ACCEPT and self._response and opening.cookie == self._response.cookie:
            self._converse(now, self._ap, opening)
            self._ask(Kind.BEGIN, now)

    def _answered(self, now: float, message: Control) -> None:
        asked = self._question.kind if self._question else None
        if isinstance(message.body, Counts):
            if self._done and message.body.number == len(self._done) - 1:
                self._done[-1].peer = message.body
                if asked is Kind.FINISH and message.kind is Kind.FINISHED:
                    self._next(now)
        elif asked is Kind.BEGIN and message.number == len(self._done):
            self._question = None
            if message.kind is Kind.BEGUN:
                self._begin_it(self._phases[message.number], now)
            elif message.kind is Kind.DENIED:
                self._ends_as = REFUSED
                self.why = (
                    f"The attachment point's end refused phase {message.number}: it exceeds what was granted, or "
                    "cannot be run there."
                )
                self._ask(Kind.BYE, now)
        elif asked is Kind.BYE and message.kind is Kind.GOODBYE:
            self._over(COMPLETED, "")

    def _begin_it(self, phase: Phase, now: float) -> None:
        try:
            self._begin(phase, now)
        except OSError as exc:
            self._ends_as, self.why = ERROR, f"Phase {phase.number} cannot begin: {exc.strerror or exc}."
            self._ask(Kind.BYE, now)

    def _next(self, now: float) -> None:
        more = len(self._done) < len(self._phases) and not self._ends_as
        self._ask(Kind.BEGIN if more else Kind.BYE, now)

    def hints(self, *, is_told: bool) -> list[str]:
        """Findings as sentences. `is_told`: a router reported that packets are too large."""
        return [hint for one in self._done if (hint := one.hint(is_told=is_told))]
