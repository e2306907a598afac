"""The attachment point's end of a conversation. It never speaks first, and sends test traffic only to a peer that
proved to receive at the registered address and to have the key of this test."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from station.messages import Control, Counts, Data, Kind, Opening, OpeningCodec
from station.pacing import Guard
from station.plan import AP, Phase
from station.report import COMPLETED, CUT, NOBODY, REFUSED
from station.talk import OVER_S, Clock, Connect, Peer, SendTo, Talk, no_tcp

NOBODY_CAME = "The user's end did not connect to this test from the registered address with its key."


@dataclass(frozen=True, slots=True)
class ApOrder:
    """From the signed document. `local_ip`: where to listen, None: everywhere; `ifindex`: scope of a link-local
    address, 0: any; times in ms of Unix time; `tcp`: whether phases may use TCP."""

    test_id: str
    key: bytes
    port: int
    local_ip: str | None
    remote_ip: IPv4Address | IPv6Address
    ifindex: int
    from_ms: int
    until_ms: int
    max_kbit: int
    max_bytes: int
    tcp: bool = False


class ApTalk(Talk):
    """At most one conversation: later peers are ignored. `secret`: random, for this run only."""

    def __init__(self, order: ApOrder, send: SendTo, clock: Clock, secret: bytes, connect: Connect = no_tcp) -> None:
        self._begins, self._until = clock.at(order.from_ms), clock.at(order.until_ms)
        guard = Guard(self._until, order.max_bytes, order.max_kbit)
        super().__init__(AP, clock, OpeningCodec(order.test_id, order.key), guard, send=send, connect=connect)
        self._order, self._secret = order, secret
        self._accepted: Opening | None = None

    def receive(self, now: float, packet: bytes, peer: Peer) -> None:
        """Process a packet. Early, late, foreign or unauthenticated ones have no effect."""
        if self.is_over or not self._begins <= now < self._until:
            return
        if peer != self.peer and not self._is_registered(peer):
            return
        if self._codec is not None and self.peer == peer:
            message = self._codec.read(packet, from_user=True)
            if isinstance(message, Data):
                self._data(now, message, len(packet))
                return
            if isinstance(message, Control):
                self._answer(now, message)
                return
        if (opening := self._openings.read(packet)) is not None:
            self._open(now, opening, peer)

    def step(self, now: float) -> None:
        """Send what is due; end at `until`, and when the other end is silent."""
        if self.is_over:
            return
        if now >= self._until:
            if self.peer is None:
                self._over(NOBODY, NOBODY_CAME)
            else:
                self._over(CUT, "The time of the test has ended.")
        elif self.peer is not None and self._is_alone(now):
            self._over(CUT, f"Nothing arrived from the user's end for {OVER_S:.0f} s.")
        else:
            self._run(now)

    def _is_registered(self, peer: Peer) -> bool:
        remote = self._order.remote_ip
        return ip_address(peer.ip) == remote and (not remote.is_link_local or self._order.ifindex in {0, peer.scope})

    # --- the opening ------------------------------------------------------------------------------------------------

    def _open(self, now: float, opening: Opening, peer: Peer) -> None:
        cookie = self._openings.cookie(self._secret, opening.nonce, str(peer))
        if opening.kind is Kind.HELLO and self.peer is None:
            self._send(self._openings.pack(Opening(Kind.CHALLENGE, opening.nonce, cookie)), peer, False)
        elif opening.kind is Kind.RESPONSE and hmac.compare_digest(opening.cookie, cookie):
            if self.peer is None:
                self._accepted = opening
                self._converse(now, peer, opening)
            if self._accepted == opening and self.peer == peer and not self._done:
                self._send(self._openings.pack(Opening(Kind.ACCEPT, opening.nonce, cookie)), peer, False)

    # --- the conversation -------------------------------------------------------------------------------------------

    def _data(self, now: float, data: Data, size: int) -> None:
        self._heard_at = now
        if self._round is not None:
            self._round.receive(now, data, size)

    def _answer(self, now: float, message: Control) -> None:
        if not self._is_new(message):
            return
        self._heard_at = self._guard.heard_at = now
        if isinstance(message.body, Phase):
            self._begin_asked(now, message.body)
        elif isinstance(message.body, Counts):
            self._counts(message.kind, message.body)
        elif message.kind is Kind.BYE:
            self._control(Kind.GOODBYE)
            self._over(COMPLETED, "")

    def _begin_asked(self, now: float, phase: Phase) -> None:
        if phase.sends(AP) and phase.kbit > self._order.max_kbit:
            self._deny(phase, f"A phase of {phase.kbit} kbit/s exceeds the {self._order.max_kbit} kbit/s of this test.")
        elif phase.number == len(self._done):
            self._close()
            try:
                self._begin(phase, now)
            except OSError as exc:
                self._deny(phase, f"Phase {phase.number} cannot begin: {exc.strerror or exc}.")
            else:
                self._control(Kind.BEGUN, number=phase.number)
        elif self._round is not None and self._round.phase == phase:
            self._control(Kind.BEGUN, number=phase.number)

    def _deny(self, phase: Phase, why: str) -> None:
        self._control(Kind.DENIED, number=phase.number)
        self.why = why
        self._close()
        self._ends_as = REFUSED

    def _counts(self, kind: Kind, counts: Counts) -> None:
        if counts.number != len(self._done) - 1:
            return
        last = self._done[-1]
        last.peer = counts
        if kind is Kind.FINISH:
            self._close()
            self._control(Kind.FINISHED, last.counts())
