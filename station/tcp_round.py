"""A phase of TCP at one end: as much as the link carries in one direction, over one connection or two.

The sender writes what its connections accept, limited by its guard; the receiver counts. Both record their progress
each 250 ms. The user's end finishes early when the rate is steady (`tcp.is_steady`).
"""

from __future__ import annotations

from dataclasses import replace

from station.pacing import Guard
from station.plan import Phase
from station.report import Moment, PhaseReport
from station.rounds import End, Round
from station.tcp import MAX_CHUNK_BYTES, SAMPLE_S, Connection, Info, is_steady

TICK_S = 0.001
CONNECT_S = 2.5  # before the conversation is given up for silence
_CHUNK_MS = 20  # of the highest rate
_NOTHING = Info(0, 0, 0, 0, 0, 0, 0)


class TcpRound(Round):
    """Raises `OSError` if this host cannot open such connections."""

    def __init__(self, phase: Phase, end: End, begun: float) -> None:
        super().__init__(phase, end, begun)
        tokens = [end.codec.token(phase.number, number) for number in range(phase.count)]
        self._connections = end.connect(tokens)
        self._sends = phase.sends(end.side)
        self._budget = Guard(self.ends, phase.payload_of_an_end, phase.kbit, heard_at=float("inf"))
        self._chunk_bytes = max(phase.payload_bytes, min(MAX_CHUNK_BYTES, phase.kbit * _CHUNK_MS // 8))
        self._taken, self._given = [0] * phase.count, [0] * phase.count
        self._infos = [_NOTHING] * phase.count
        self._samples: list[list[Moment]] = [[] for _ in range(phase.count)]
        self._progress: list[tuple[float, int]] = [(0.0, 0)]
        self._ended: set[int] = set()
        self._is_closed = False
        self._look_at = self._now = begun
        self._sample_at = begun + SAMPLE_S

    def step(self, now: float) -> None:
        if now < self._look_at or self._is_closed:
            return
        self._now, self._look_at = now, now + TICK_S
        self._connections.step(now)
        for number, one in sorted(self._connections.up.items(), key=self._given_to):
            if number not in self._ended and not self.stopped:
                self._move(now, number, one)
        if self.stopped:
            self.close()  # what the kernel has buffered is discarded, too
            return
        if now >= self._sample_at:
            self._sample_at += SAMPLE_S * (1 + int((now - self._sample_at) / SAMPLE_S))
            self._sample(now)
        if not self._is_ap:
            self._look_for_trouble(now)

    def _move(self, now: float, number: int, one: Connection) -> None:
        if not self._sends:
            if taken := one.take():
                self._taken[number] += taken
                self.heard_at = now
                self.tally.moved(now, received=taken)
        elif now < self.ends:
            self._give(now, number, one)
        if one.is_broken:
            self._note(now, number, one)
            self._ended.add(number)

    def _given_to(self, one: tuple[int, Connection]) -> int:
        """If the budget is the limit, the connection with the least goes first."""
        return self._given[one[0]]

    def _give(self, now: float, number: int, one: Connection) -> None:
        guard, most = self._end.guard, self._chunk_bytes
        while self._budget.denies(now, most, most) is None:
            if (why := guard.denies(now, most, most)) is not None:
                self.stopped = why
                return
            taken = one.send(most)
            self._given[number] += taken
            self._count(taken)
            if taken < most:
                return

    def _count(self, payload_bytes: int) -> None:
        for bound in (self._budget, self._end.guard):
            bound.took(payload_bytes, payload_bytes)

    def _sample(self, now: float) -> None:
        for number, one in self._connections.up.items():
            if number not in self._ended:
                self._note(now, number, one)
        self._progress.append((now - self.begun, sum(rows[-1][1] for rows in self._samples if rows)))

    def _note(self, now: float, number: int, one: Connection) -> None:
        at_ms = round((now - self.begun) * 1000)
        if not self._sends:
            self._samples[number].append((at_ms, self._taken[number]))
            return
        info, before = one.info(), self._infos[number]
        self._infos[number] = info
        self.tally.moved(now - SAMPLE_S / 2, sent=info.sent_bytes - before.sent_bytes)
        self._count(info.resent_bytes - before.resent_bytes)
        row = (at_ms, info.acked_bytes, info.rtt_us, info.cwnd, info.retransmitted, info.delivery_kbit)
        self._samples[number].append(row)

    def _look_for_trouble(self, now: float) -> None:
        up = self._connections.up
        if len(up) < self.phase.count and (self._connections.why or now >= self.begun + CONNECT_S):
            why = self._connections.why or f"no answer within {CONNECT_S} s"
            self.stopped = (
                f"no TCP connection to the attachment point could be established ({why}), although UDP passes; allow "
                "TCP to the same port too"
            )
        elif self._ended and now < self.ends:
            self.stopped = "a TCP connection was lost"

    @property
    def next_at(self) -> float:
        return float("inf") if self.stopped else self._look_at

    def is_done(self, now: float) -> bool:
        return now >= self.ends or is_steady(self._progress)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._sample(self._now)
            self._connections.close()

    def report(self, begins_at_ms: int) -> PhaseReport:
        return replace(super().report(begins_at_ms), tcp=tuple(map(tuple, self._samples)))
