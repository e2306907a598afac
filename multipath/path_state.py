"""What is known of one path while a file is fetched: its state, its rate, and how large its ranges are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

RANGE_S = 1.0  # a range is what its path brings in this time: small enough to share out, large against its headers
MIN_RANGE, TAIL_RANGE, MAX_RANGE = 48 << 10, 4 << 10, 8 << 20  # bytes
FIRST_RATE_S = 0.1
GROWTH = 4  # of one range over the last: the first rates are those of TCP's slow start
MIN_UNDER_WAY, MAX_UNDER_WAY = 2, 6
MAX_FAILURES, MAX_BACKOFF_S = 5, 30.0
MAX_WRONG = 2  # pieces


class State(Enum):
    OPENING = "opening"
    SPARE = "spare"
    ACTIVE = "active"
    RESTING = "resting"
    OUT = "out"


@dataclass(frozen=True)
class Facts:
    """What an answer says about the file."""

    url: str
    size: int
    etag: str | None = None
    modified: str | None = None
    ranged: bool = True

    def has_other_content(self, other: Facts) -> bool:
        if self.etag and other.etag:
            return self.etag != other.etag
        return self.modified != other.modified


@dataclass
class PathState:
    state: State = State.OPENING
    reason: str = ""  # why it is out, or what failed last
    facts: Facts | None = None
    handshake_s: float = 0.0
    rate: float = 0.0  # bytes/s, smoothed
    received: int = 0  # bytes
    wrong: int = 0
    rests: int = 0
    failures: int = 0  # since the last byte
    retry_at_s: float = 0.0
    back_at_s: float = 0.0  # from a rest
    slot_from: int | None = None  # `received` when the slot began; None: it was not at work then
    last_range: int = MIN_RANGE // GROWTH  # bytes
    _mark: tuple[float, int] = (0.0, 0)

    @property
    def is_usable(self) -> bool:
        return self.state is not State.OUT and self.failures < MAX_FAILURES

    @property
    def is_at_work(self) -> bool:
        return self.state is State.ACTIVE and self.is_usable

    @property
    def ranged(self) -> bool:
        return self.facts is not None and self.facts.ranged

    @property
    def under_way(self) -> int:
        """How many ranges at a time hide the wait between a request and its first byte."""
        if not self.ranged or self.failures:
            return 1
        return min(MAX_UNDER_WAY, max(MIN_UNDER_WAY, 1 + math.ceil(self.handshake_s / (RANGE_S / 2))))

    def range_bytes(self, left_s: float, share: int) -> int:
        """Of the next range; smaller where all paths need only `left_s` for the rest, so that they end together. As
        long as no rate is known, no more than a `share`."""
        self.last_range = int(max(MIN_RANGE, min(self.rate * RANGE_S, GROWTH * self.last_range, MAX_RANGE)))
        most = self.rate * left_s / self.under_way if self.rate else share
        return max(TAIL_RANGE, int(min(self.last_range, most)))

    def measure(self, now: float, *, begins: bool = False) -> None:
        """Take a sample of the rate, at most each `RANGE_S`. `begins`: the path had nothing to do until now."""
        passed, brought = now - self._mark[0], self.received - self._mark[1]
        if begins and passed > 2 * RANGE_S:
            self._mark = (now, self.received)
        elif not begins and passed >= (RANGE_S if self.rate else FIRST_RATE_S):
            self.rate = (self.rate + brought / passed) / (2 if self.rate else 1)
            self._mark = (now, self.received)

    def fail(self, reason: str, now: float) -> None:
        self.failures, self.reason = self.failures + 1, reason
        self.retry_at_s = now + min(MAX_BACKOFF_S, 0.25 * 2**self.failures)
