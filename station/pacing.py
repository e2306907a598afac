"""When the next packet is due, and the limits of all test traffic."""

from __future__ import annotations

from dataclasses import dataclass

MAX_BEHIND_S = 0.05  # a sender that was delayed longer skips the rest, instead of one large burst
SILENCE_S = 2.0  # without a report of the other end sending stops


class Pacer:
    """Packets of one size at an even rate from `begins` until `ends` (monotonic, s)."""

    def __init__(self, begins: float, ends: float, interval_s: float) -> None:
        self._next = begins
        self._ends = ends
        self._interval_s = interval_s

    def due(self, now: float) -> int:
        """Return how many are due, and count them as taken."""
        if (behind := now - MAX_BEHIND_S - self._next) > 0:
            self._next += int(behind / self._interval_s) * self._interval_s
        last = min(now, self._ends)
        if last < self._next or self.is_over:
            return 0
        count = int((last - self._next) / self._interval_s) + 1
        self._next += count * self._interval_s
        return count

    @property
    def is_over(self) -> bool:
        return self._next >= self._ends

    @property
    def next_at(self) -> float:
        return self._next


@dataclass(slots=True)
class Guard:
    """Limits of all test traffic of an end, whatever is requested: an end time (monotonic, s), UDP payload, a rate in
    frames, and reports of the other end. `heard_at`: time of the last report."""

    until: float
    max_bytes: int
    max_kbit: int
    heard_at: float = float("-inf")
    sent_bytes: int = 0
    _room: float = 0.0
    _filled_at: float = float("-inf")
    _depth: float = 0.0

    def denies(self, now: float, payload_bytes: int, frame_bytes: int) -> str | None:
        """None: a packet of this size may be sent now. "": not yet, because of the rate. Otherwise why none may be
        sent."""
        if now >= self.until:
            return "the time of the test has ended"
        if self.sent_bytes + payload_bytes > self.max_bytes:
            return f"{self.max_bytes} bytes, the maximum that this test may send, were reached"
        if now - self.heard_at > SILENCE_S:
            return f"no report arrived for {SILENCE_S:.0f} s"
        self._fill(now, frame_bytes)
        return None if self._room >= frame_bytes else ""

    def took(self, payload_bytes: int, frame_bytes: int) -> None:
        self.sent_bytes += payload_bytes
        self._room -= frame_bytes

    def _fill(self, now: float, frame_bytes: int) -> None:
        """A bucket of 100 ms and two frames: a delayed sender catches up within it."""
        per_second = self.max_kbit * 125
        self._depth = max(self._depth, per_second / 10 + 2 * max(frame_bytes, 1514))
        self._room = min(self._depth, self._room + (now - self._filled_at) * per_second)
        self._filled_at = now
