"""Loss detection and NewReno congestion control after RFC 9002, without sockets: times and numbers in, decisions out.

Times are CLOCK_MONOTONIC nanoseconds. See `quic_like` for what is left out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

INITIAL_WINDOW_PACKETS = 10
LEAST_WINDOW_PACKETS = 2
LOSS_FACTOR = 0.5
PACKET_THRESHOLD = 3
INITIAL_RTT_NS = 333_000_000
GRANULARITY_NS = 1_000_000
ACK_DELAY_NS = 25_000_000
PACING_GAIN = 1.25
_BURST_PACKETS = 10  # RFC 9002, 7.7: a sender that was late may catch up by an initial window
_FAR_NS = 1_000_000_000


class NewReno:
    """One sender: ask `may_send`, tell `on_sent`, `on_ack` and, again and again, `on_time`."""

    def __init__(self, packet_bytes: int) -> None:
        self._packet = packet_bytes
        self.window = float(INITIAL_WINDOW_PACKETS * packet_bytes)
        self.threshold = float("inf")  # of slow start
        self.next_number = 0
        self.lost = 0
        self._in_flight: OrderedDict[int, int] = OrderedDict()  # number -> when it was sent
        self._largest_acked = -1
        self._recovery_from_ns = -1
        self._smoothed_ns = float(INITIAL_RTT_NS)
        self._variation_ns = INITIAL_RTT_NS / 2
        self._latest_ns = 0
        self._probes = 0  # timeouts in a row
        self._probes_to_send = 0
        self._last_sent_ns = 0
        self._next_paced_ns = 0

    # --- what the sender asks ---------------------------------------------------------------------------------------

    def may_send(self, now_ns: int) -> bool:
        """Window and pacing allow one more packet, or a probe is due."""
        if self._probes_to_send:
            return True
        has_room = (len(self._in_flight) + 1) * self._packet <= self.window
        return has_room and now_ns >= self._next_paced_ns

    def next_event_ns(self, now_ns: int) -> int:
        """When `may_send` or `on_time` may have something new, unless an acknowledgement comes first."""
        until = self._probe_at_ns() if self._in_flight else now_ns + _FAR_NS
        if (len(self._in_flight) + 1) * self._packet <= self.window:
            until = min(until, self._next_paced_ns)
        return until

    # --- what the sender tells --------------------------------------------------------------------------------------

    def on_sent(self, now_ns: int) -> None:
        """The packet `next_number` has left."""
        self._in_flight[self.next_number] = now_ns
        self.next_number += 1
        self._last_sent_ns = now_ns
        self._probes_to_send = max(0, self._probes_to_send - 1)
        gap_ns = int(self._packet * self._smoothed_ns / (PACING_GAIN * self.window))
        self._next_paced_ns = max(self._next_paced_ns, now_ns - _BURST_PACKETS * gap_ns) + gap_ns

    def on_ack(self, numbers: Iterable[int], rtt_ns: int, now_ns: int) -> None:
        """These packets have arrived; `rtt_ns` is that of the largest, without the receiver's delay."""
        acked = [(number, self._in_flight.pop(number)) for number in numbers if number in self._in_flight]
        if not acked:
            return
        largest = max(number for number, _ in acked)
        if largest > self._largest_acked:
            self._largest_acked = largest
            self._measure(rtt_ns)
        self._probes = 0
        for _, sent_ns in acked:
            self._grow(sent_ns)
        self._detect_losses(now_ns)

    def on_time(self, now_ns: int) -> None:
        """Packets that are too old are lost; after a probe timeout one or two probes may go."""
        if self._largest_acked >= 0:
            self._detect_losses(now_ns)
        if self._in_flight and now_ns >= self._probe_at_ns():
            self._probes += 1
            self._probes_to_send = 2
            self._last_sent_ns = now_ns

    # --- RFC 9002 ---------------------------------------------------------------------------------------------------

    def _measure(self, rtt_ns: int) -> None:
        """Section 5.3."""
        rtt_ns = max(1, rtt_ns)
        if not self._latest_ns:
            self._smoothed_ns, self._variation_ns = float(rtt_ns), rtt_ns / 2
        else:
            self._variation_ns += (abs(self._smoothed_ns - rtt_ns) - self._variation_ns) / 4
            self._smoothed_ns += (rtt_ns - self._smoothed_ns) / 8
        self._latest_ns = rtt_ns

    def _grow(self, sent_ns: int) -> None:
        """Section 7.3: twice per round trip in slow start, one packet per round trip later, not during recovery."""
        if sent_ns <= self._recovery_from_ns:
            return
        is_used = (len(self._in_flight) + 2 * INITIAL_WINDOW_PACKETS) * self._packet >= self.window
        if not is_used:  # 7.8: a window that pacing or the application leaves empty does not grow
            return
        if self.window < self.threshold:
            self.window += self._packet
        else:
            self.window += self._packet * self._packet / self.window

    def _detect_losses(self, now_ns: int) -> None:
        """Section 6.1: three newer ones were acknowledged, or 9/8 of a round trip is over."""
        patience_ns = max(GRANULARITY_NS, 9 / 8 * max(self._smoothed_ns, self._latest_ns))
        lost = []
        for number, sent_ns in self._in_flight.items():
            if number >= self._largest_acked:
                break
            if number <= self._largest_acked - PACKET_THRESHOLD or sent_ns <= now_ns - patience_ns:
                lost.append((number, sent_ns))
        for number, _ in lost:
            del self._in_flight[number]
        self.lost += len(lost)
        if lost and lost[-1][1] > self._recovery_from_ns:
            self._recovery_from_ns = now_ns
            self.threshold = self.window * LOSS_FACTOR
            self.window = max(self.threshold, LEAST_WINDOW_PACKETS * self._packet)

    def _probe_at_ns(self) -> int:
        """Section 6.2.1, doubled with each timeout in a row."""
        patience_ns = self._smoothed_ns + max(4 * self._variation_ns, GRANULARITY_NS) + ACK_DELAY_NS
        return self._last_sent_ns + int(patience_ns * 2**self._probes)
