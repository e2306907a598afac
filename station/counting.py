"""Counters of an end in a phase: packets and bytes sent and received, by second, each received packet once."""

from __future__ import annotations

from collections.abc import Sequence

from station.messages import Counts
from station.plan import MAX_PACKETS
from station.report import MAX_SECONDS, Row


class Tally:
    """From `begun` (monotonic, s) on."""

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self._seen = bytearray()
        self._rows: list[list[int]] = []
        self._next = 0  # above the highest sequence that arrived
        self.reordered_packets = 0

    def sent(self, now: float, payload_bytes: int) -> None:
        row = self._row(now)
        row[0] += 1
        row[1] += payload_bytes

    def received(self, now: float, sequence: int, payload_bytes: int) -> bool:
        """False for a duplicate, or beyond the length of any phase."""
        if sequence >= MAX_PACKETS:
            return False
        if sequence >= len(self._seen):
            self._seen.extend(bytes(sequence + 1024 - len(self._seen)))
        elif self._seen[sequence]:
            return False
        self._seen[sequence] = 1
        if sequence < self._next:
            self.reordered_packets += 1
        else:
            self._next = sequence + 1
        row = self._row(now)
        row[2] += 1
        row[3] += payload_bytes
        return True

    def moved(self, now: float, *, sent: int = 0, received: int = 0) -> None:
        """Bytes of TCP, which has no packets of its own."""
        row = self._row(now)
        row[1] += sent
        row[3] += received

    def _row(self, now: float) -> list[int]:
        second = min(max(0, int(now - self._begun)), MAX_SECONDS - 1)
        while len(self._rows) <= second:
            self._rows.append([0, 0, 0, 0])
        return self._rows[second]

    def rows(self) -> tuple[Row, ...]:
        return tuple((one[0], one[1], one[2], one[3]) for one in self._rows)

    def totals(self) -> Row:
        """Packets and bytes sent, packets and bytes received."""
        sums = [sum(column) for column in zip(*self._rows, strict=True)] or [0, 0, 0, 0]
        return sums[0], sums[1], sums[2], sums[3]

    def counts(self, number: int, mtu: int) -> Counts:
        return Counts(number, *self.totals(), mtu)

    def lost(self, peer_sent_packets: int | None) -> int:
        """`peer_sent_packets`: the other end's final count; None: unknown, so gaps are counted."""
        sent = self._next if peer_sent_packets is None else peer_sent_packets
        return max(0, sent - self.totals()[2])


def spread(values: Sequence[int]) -> tuple[int, int, int] | None:
    """Minimum, median and maximum; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[0], ordered[len(ordered) // 2], ordered[-1]
