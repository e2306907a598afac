"""The arithmetic behind every verdict on measured traffic: pure functions over arrivals at the receiver.

What a token bucket promises (rate r, bucket b, frames of at most m bytes), and what is judged here:

* any window of length T carries at most r*T + b + m bytes. `excess_bytes` finds the worst window of a run.
* once the first bucket is spent and as long as more is offered than r, the long-run rate is r. `steady_rate` takes
  the arrivals from 1 s after the start until the senders stop: by then the bucket is empty (at 2-fold overload it
  lasts b/r, at most 2*(MTU+14)*8/r = 49 ms at 500 kbit/s, 0.76 s at 32 kbit/s), and what a leaf still holds
  when the senders stop lies outside. It counts the bytes *after* the first arrival of the window over the time from
  the first to the last, both of the largest size, so that no fraction of a frame is guessed; what remains is at most
  one bucket over T, when the kernel catches up after a pause of the machine, and the clock's own error of microseconds.

A machine that stands still (its hypervisor gave both processors to somebody else) sends nothing, and a bucket makes
up for its own 4 ms of each pause only. Pauses are measured, by all stations at once, and allow a rate to be lower by
the share of time that they took beyond that; they never excuse a rate that is too high.

Times are CLOCK_MONOTONIC nanoseconds; a rate without a word is what an Ethernet carries, payload + headers + 14 bytes
without the checksum, because that is what HTB counts there (on tun devices: IP bytes).
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from measuring.scion_packet import HEARTBEAT_INTERVAL_S, HEARTBEAT_MISSES

ETHERNET_BYTES = 14
IPV4_BYTES = 20
IPV6_BYTES = 40
UDP_BYTES = 8
_FRAGMENT_HEADER_BYTES = 8  # IPv6
WARM_UP_S = 1.0
BUCKET_MS = 4
RATE_TOLERANCE = 0.02  # "within 2 % of each limit (L2)": the product's own promise
NS = 1_000_000_000

Span = tuple[int, int]  # from, to; CLOCK_MONOTONIC ns


@dataclass
class Arrivals:
    """What one receiver saw of one kind of packet on one endpoint, in order of arrival."""

    arrived_ns: array[int] = field(default_factory=lambda: array("q"))
    payload_bytes: array[int] = field(default_factory=lambda: array("I"))
    sequence: array[int] = field(default_factory=lambda: array("I"))
    sent_ns: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.arrived_ns)

    def between(self, start_ns: int, stop_ns: int) -> Arrivals:
        """The arrivals in [start, stop]."""
        chosen = [i for i, at in enumerate(self.arrived_ns) if start_ns <= at <= stop_ns]
        return Arrivals(
            array("q", (self.arrived_ns[i] for i in chosen)),
            array("I", (self.payload_bytes[i] for i in chosen)),
            array("I", (self.sequence[i] for i in chosen)),
            array("q", (self.sent_ns[i] for i in chosen)),
        )

    def merged(self, other: Arrivals) -> Arrivals:
        """Both kinds in one, in order of arrival: a limit holds for their sum."""
        rows = sorted(
            [
                *zip(self.arrived_ns, self.payload_bytes, self.sequence, self.sent_ns, strict=True),
                *zip(other.arrived_ns, other.payload_bytes, other.sequence, other.sent_ns, strict=True),
            ]
        )
        return Arrivals(
            array("q", (row[0] for row in rows)),
            array("I", (row[1] for row in rows)),
            array("I", (row[2] for row in rows)),
            array("q", (row[3] for row in rows)),
        )


def wire_bytes(
    payload_bytes: int, *, family: int, mtu_bytes: int = 1500, link_layer_bytes: int = ETHERNET_BYTES
) -> int:
    """What a UDP payload costs on the wire, with the headers of its fragments where it does not fit the MTU.

    `link_layer_bytes` is 14 on an Ethernet and 0 on a tun device.
    """
    datagram = UDP_BYTES + payload_bytes
    ip = IPV4_BYTES if family == 4 else IPV6_BYTES
    if ip + datagram <= mtu_bytes:
        return link_layer_bytes + ip + datagram
    if family == 6:
        ip += _FRAGMENT_HEADER_BYTES
    carried = (mtu_bytes - ip) // 8 * 8  # all fragments but the last carry a multiple of 8 (RFC 791, RFC 8200)
    return datagram + math.ceil(datagram / carried) * (ip + link_layer_bytes)


@dataclass(frozen=True)
class Wire:
    """What one payload costs where the limit counts: the family, and whether an Ethernet header is counted."""

    family: int
    link_layer_bytes: int = ETHERNET_BYTES
    mtu_bytes: int = 1500

    def bytes(self, payload_bytes: int) -> int:
        """See `wire_bytes`."""
        return wire_bytes(
            payload_bytes, family=self.family, mtu_bytes=self.mtu_bytes, link_layer_bytes=self.link_layer_bytes
        )

    def total(self, arrivals: Arrivals) -> int:
        """All of these arrivals together."""
        return sum(self.bytes(size) for size in arrivals.payload_bytes)


def steady_rate(
    arrivals: Arrivals, wire: Wire, *, start_ns: int, stop_ns: int, warm_up_s: float = WARM_UP_S
) -> float | None:
    """kbit/s in the steady state (see the module's head), or None when fewer than 3 packets arrived in it."""
    window = _cut_at_largest(arrivals.between(start_ns + int(warm_up_s * NS), stop_ns))
    if len(window) < 3:
        return None
    elapsed_ns = window.arrived_ns[-1] - window.arrived_ns[0]
    carried = wire.total(window) - wire.bytes(window.payload_bytes[0])
    return carried * 8 * 1_000_000 / elapsed_ns


def _cut_at_largest(window: Arrivals) -> Arrivals:
    """From the first to the last packet of the largest size. A window that began with a heartbeat would count the
    whole frame behind it, most of whose time lies before: up to a frame too much, and the same in every run."""
    if not len(window):
        return window
    largest = max(window.payload_bytes)
    ends = [at for at, size in zip(window.arrived_ns, window.payload_bytes, strict=True) if size == largest]
    return window.between(ends[0], ends[-1])


def excess_bytes(arrivals: Arrivals, wire: Wire, limit_kbit: int) -> float:
    """The most that any window carried above rate*T: at most bucket + one frame where the limit holds.

    It is the highest level of a bucket that fills with each arrival and leaks at the limit's rate.
    """
    level = worst = 0.0
    before_ns: int | None = None
    bytes_per_ns = limit_kbit * 125 / NS
    for at_ns, size in zip(arrivals.arrived_ns, arrivals.payload_bytes, strict=True):
        if before_ns is not None:
            level = max(0.0, level - (at_ns - before_ns) * bytes_per_ns)
        level += wire.bytes(size)
        worst = max(worst, level)
        before_ns = at_ns
    return worst


def bucket_bytes(limit_kbit: int, mtu_bytes: int = 1500) -> int:
    """The burst that the design gives a limit: 4 ms of its rate, at least two full frames (docs/adr/0002)."""
    return max(2 * (mtu_bytes + ETHERNET_BYTES), limit_kbit * 125 * BUCKET_MS // 1000)


@dataclass(frozen=True)
class RateVerdict:
    """One measured rate against its limit."""

    limit_kbit: int
    measured_kbit: float
    tolerance: float
    paused_share: float = 0.0  # of the measured time, in which the whole machine stood still

    @property
    def deviation(self) -> float:
        """Relative: 0.01 is one per cent above the limit."""
        return self.measured_kbit / self.limit_kbit - 1

    @property
    def holds(self) -> bool:
        """The rate is within the tolerance on both sides: nobody gets more, and nobody is cheated of it."""
        return -self.tolerance - self.paused_share <= self.deviation <= self.tolerance

    def __str__(self) -> str:
        paused = f", the machine stood still for {self.paused_share:.1%} of the time" if self.paused_share else ""
        return (
            f"measured {self.measured_kbit:.1f} kbit/s at a limit of {self.limit_kbit} kbit/s "
            f"({self.deviation:+.2%}, allowed {self.tolerance:.0%}{paused})"
        )


def judge_rate(
    arrivals: Arrivals,
    wire: Wire,
    *,
    limit_kbit: int,
    start_ns: int,
    stop_ns: int,
    warm_up_s: float = WARM_UP_S,
    tolerance: float = RATE_TOLERANCE,
    pauses: Sequence[Span] = (),
) -> RateVerdict:
    """The steady rate against a limit above 0. Too few arrivals to measure count as a rate of 0."""
    measured = steady_rate(arrivals, wire, start_ns=start_ns, stop_ns=stop_ns, warm_up_s=warm_up_s)
    from_ns = start_ns + int(warm_up_s * NS)
    lost_ns = [min(end, stop_ns) - max(begin, from_ns) - BUCKET_MS * 1_000_000 for begin, end in pauses]
    paused_ns = sum(max(0, one) for one in lost_ns)
    return RateVerdict(limit_kbit, measured or 0.0, tolerance, paused_ns / (stop_ns - from_ns))


def common_pauses(of_each: Sequence[Sequence[Span]]) -> list[Span]:
    """The time in which every one paused: what all of these sorted lists of spans have in common."""
    if not of_each:
        return []
    common = list(of_each[0])
    for other in of_each[1:]:
        overlaps = [(max(a, c), min(b, d)) for a, b in common for c, d in other]
        common = [(begin, end) for begin, end in overlaps if begin < end]
    return common


@dataclass(frozen=True)
class HeartbeatReport:
    """What the receiver of heartbeats would have concluded (RFC 5880's detection time, three intervals)."""

    received: int
    downs: int
    longest_gap_s: float


def judge_heartbeats(
    arrivals: Arrivals,
    *,
    start_ns: int,
    stop_ns: int,
    interval_s: float = HEARTBEAT_INTERVAL_S,
    misses: int = HEARTBEAT_MISSES,
) -> HeartbeatReport:
    """Apply the three-misses rule from `start_ns` to `stop_ns`: each silence of three intervals is one `down`."""
    times = [start_ns, *(at for at in arrivals.arrived_ns if start_ns <= at <= stop_ns), stop_ns]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    allowed_ns = int(interval_s * misses * NS)
    return HeartbeatReport(
        received=len(arrivals), downs=sum(gap > allowed_ns for gap in gaps), longest_gap_s=max(gaps) / NS
    )


def missing_count(arrivals: Arrivals, sent: int) -> int:
    """How many of `sent` packets, numbered from 0, never arrived; a duplicate does not make up for a loss."""
    return sent - len({number for number in arrivals.sequence if number < sent})


def bins_kbit(arrivals: Arrivals, wire: Wire, *, start_ns: int, stop_ns: int, width_s: float = 0.1) -> list[float]:
    """Rate in each whole bin between start and stop, kbit/s."""
    width_ns = int(width_s * NS)
    bins = [0] * ((stop_ns - start_ns) // width_ns)
    for at_ns, size in zip(arrivals.arrived_ns, arrivals.payload_bytes, strict=True):
        index = (at_ns - start_ns) // width_ns
        if 0 <= index < len(bins):
            bins[index] += wire.bytes(size)
    return [count * 8 / width_s / 1000 for count in bins]


def delays_ms(arrivals: Arrivals) -> list[float]:
    """One-way delay of each arrival; sender and receiver share one clock."""
    return [(at - sent) / 1_000_000 for at, sent in zip(arrivals.arrived_ns, arrivals.sent_ns, strict=True)]
