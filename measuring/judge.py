"""The arithmetic behind every verdict on measured traffic: pure functions over arrivals at the receiver.

What a token bucket promises (rate r, bucket b, frames of at most m bytes), and what is judged here:

* any window of length T carries at most r*T + b + 2m bytes, m of them because a packet that finds the link's virtual
  queue empty goes straight on, past the bucket (docs/adr/0028). `excess_bytes` finds the worst window of a run. With
  heartbeats it is at most the room of the virtual queue more: they pass at once and are charged to that queue,
  while what was admitted before them still leaves at r.
* once the first bucket is spent and as long as more is offered than r, the long-run rate is r. `steady_rate` takes
  the arrivals from 1 s after the start until the senders stop: by then the bucket is empty (at 2-fold overload it
  lasts b/r, 64 ms at 500 kbit/s, 1 s at 32 kbit/s), and what a leaf still holds
  when the senders stop lies outside. It counts the bytes *after* the first arrival of the window over the time from
  the first to the last, both of the largest size, so that no fraction of a frame is guessed.
* what remains of a deviation is in `rate_tolerance`: a frame of the other kind (a heartbeat that overtook, or data that
  was overtaken) on the wrong side of an edge, and an edge whose packet was taken `CLOCK_SLACK_S` late. Nothing else is
  allowed: (m + r*slack) / (r*T), on both sides.

A sender that stands still (its processor was given to somebody else) offers nothing, and a bucket makes up for its own
4 ms of each pause only. Stations measure their pauses. Those of the sender allow a rate to be lower by the share of
time that they took beyond that. They never excuse a rate that is too high, but for one that spans the beginning of
the window: the bucket is full at its end, and so b more may be counted.

Times are CLOCK_MONOTONIC nanoseconds; a rate without a word is what an Ethernet carries, payload + headers + 14 bytes
without the checksum, because that is what HTB counts there (on tun devices: IP bytes).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from measuring.arrivals import Arrivals
from measuring.framing import Wire
from measuring.scion_packet import HEARTBEAT_INTERVAL_S, HEARTBEAT_MISSES

WARM_UP_S = 1.0
BUCKET_MS, LEAST_BUCKET_BYTES = 4, 4000
RATE_TOLERANCE = 0.02  # what the service promises its users; what a measurement may be off by is `rate_tolerance`
# How much later than the wire a packet's kernel time may be on a busy machine with two processors: the softirq
# that takes it may wait for one tick of 4 ms (HZ=250) behind a running program, and once more on a switch.
CLOCK_SLACK_S = 0.008
FRAME_BYTES = 1514
NS = 1_000_000_000

Span = tuple[int, int]  # from, to; CLOCK_MONOTONIC ns


def steady_rate(
    arrivals: Arrivals, wire: Wire, *, start_ns: int, stop_ns: int, warm_up_s: float = WARM_UP_S
) -> float | None:
    """kbit/s in the steady state (see the module's head), or None when fewer than 3 packets arrived in it."""
    return _rate_of(_cut_at_largest(arrivals.between(start_ns + int(warm_up_s * NS), stop_ns)), wire)


def _rate_of(window: Arrivals, wire: Wire) -> float | None:
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
    return highest_level(arrivals.arrived_ns, map(wire.bytes, arrivals.payload_bytes), limit_kbit)


def highest_level(times_ns: Sequence[int], sizes: Iterable[int], limit_kbit: int) -> float:
    """Of such a bucket, with bytes on the wire. 0 without packets."""
    level = worst = 0.0
    before_ns = times_ns[0] if len(times_ns) else 0
    bytes_per_ns = limit_kbit * 125 / NS
    for at_ns, size in zip(times_ns, sizes, strict=True):
        level = max(0.0, level - (at_ns - before_ns) * bytes_per_ns) + size
        worst = max(worst, level)
        before_ns = at_ns
    return worst


def bucket_bytes(limit_kbit: int) -> int:
    """The burst that the design gives a limit: 4 ms of its rate, at least 4000 bytes (docs/adr/0028)."""
    return max(LEAST_BUCKET_BYTES, limit_kbit * 125 * BUCKET_MS // 1000)


def ahead_bytes(limit_kbit: int, largest_bytes: int = FRAME_BYTES) -> int:
    """What an idle link may carry beyond its rate: a packet that goes straight on, the burst, and a packet that begins
    on the last byte of it (docs/adr/0028)."""
    return bucket_bytes(limit_kbit) + 2 * largest_bytes


def room_bytes(limit_kbit: int) -> int:
    """How much the virtual queue of a limit admits: 100 ms of its rate, at least 20 kB; 14 kB below 100 kbit/s, which
    is a burst of ten frames from an idle control service (docs/adr/0028)."""
    return 14_000 if limit_kbit < 100 else max(20_000, limit_kbit * 125 // 10)


@dataclass(frozen=True)
class RateVerdict:
    """One measured rate against its limit."""

    limit_kbit: int
    measured_kbit: float
    tolerance: float
    paused_share: float = 0.0  # of the measured time, in which the sender stood still
    ahead_share: float = 0.0  # of what the limit passes in that time: a bucket that was full when it began

    @property
    def deviation(self) -> float:
        """Relative: 0.01 is one per cent above the limit."""
        return self.measured_kbit / self.limit_kbit - 1

    @property
    def is_exceeded(self) -> bool:
        """More than the limit arrived."""
        return self.deviation > self.tolerance + self.ahead_share

    @property
    def holds(self) -> bool:
        """The rate is within the tolerance on both sides: nobody gets more, and nobody is cheated of it."""
        return -self.tolerance - self.paused_share <= self.deviation and not self.is_exceeded

    def __str__(self) -> str:
        paused = f", the sender stood still for {self.paused_share:.1%} of the time" if self.paused_share else ""
        return (
            f"measured {self.measured_kbit:.1f} kbit/s at a limit of {self.limit_kbit} kbit/s "
            f"({self.deviation:+.2%}, allowed {self.tolerance:.2%}{paused})"
        )


def rate_tolerance(limit_kbit: float, seconds: float, *, frame_bytes: int = FRAME_BYTES) -> float:
    """How far a steady rate that was measured over so long may be from the limit, relative; see the module's head.

    E.g. over 4 s: 0.23 % at 100 Mbit/s, 0.5 % at 1 Mbit/s, 3.2 % at 100 kbit/s, where a frame is an eighth of a second.
    """
    return bin_tolerance(limit_kbit, seconds, frame_bytes=frame_bytes) + CLOCK_SLACK_S / seconds


def judge_rate(
    arrivals: Arrivals,
    wire: Wire,
    *,
    limit_kbit: int,
    start_ns: int,
    stop_ns: int,
    warm_up_s: float = WARM_UP_S,
    tolerance: float | None = None,
    pauses: Sequence[Span] = (),
) -> RateVerdict:
    """The steady rate against a limit above 0, within `rate_tolerance` unless another one is given.

    `pauses` are the sender's. Too few arrivals to measure count as a rate of 0.
    """
    from_ns = start_ns + int(warm_up_s * NS)
    window = _cut_at_largest(arrivals.between(from_ns, stop_ns))
    measured = _rate_of(window, wire)
    seconds = (stop_ns - from_ns if measured is None else window.arrived_ns[-1] - window.arrived_ns[0]) / NS
    if tolerance is None:
        frame_bytes = max(map(wire.bytes, set(window.payload_bytes)), default=FRAME_BYTES)
        tolerance = rate_tolerance(limit_kbit, seconds, frame_bytes=frame_bytes)
    lost_ns = [min(end, stop_ns) - max(begin, from_ns) - BUCKET_MS * 1_000_000 for begin, end in pauses]
    paused_ns = sum(max(0, one) for one in lost_ns)
    begins_full = any(begin < from_ns <= end + CLOCK_SLACK_S * NS for begin, end in pauses)
    ahead_bytes = bucket_bytes(limit_kbit) if begins_full else 0
    return RateVerdict(
        limit_kbit,
        measured or 0.0,
        tolerance,
        paused_share=paused_ns / (stop_ns - from_ns),
        ahead_share=ahead_bytes / (limit_kbit * 125 * seconds),
    )


def common_pauses(of_each: Sequence[Sequence[Span]]) -> list[Span]:
    """The time in which every one paused: what all of these sorted lists of spans have in common."""
    if not of_each:
        return []
    common = list(of_each[0])
    for other in of_each[1:]:
        overlaps = [(max(a, c), min(b, d)) for a, b in common for c, d in other]
        common = [(begin, end) for begin, end in overlaps if begin < end]
    return common


def all_pauses_s(pauses: Sequence[Span]) -> float:
    """For how long somebody stood still, all pauses together."""
    return sum(end - begin for begin, end in pauses) / NS


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
    """Rate on the wire in each whole bin between start and stop, kbit/s."""
    return _binned(arrivals, list(map(wire.bytes, arrivals.payload_bytes)), start_ns, stop_ns, width_s)


def goodput_kbit(arrivals: Arrivals, *, start_ns: int, stop_ns: int, warm_up_s: float = WARM_UP_S) -> float:
    """Payload of complete datagrams from the end of the warm-up to `stop_ns`, over all of that time, kbit/s.

    Up to one datagram at each end is on the wrong side of the edge: for a mean within x % the time has to be long
    against payload / rate.
    """
    from_ns = start_ns + int(warm_up_s * NS)
    carried = sum(
        size for at, size in zip(arrivals.arrived_ns, arrivals.payload_bytes, strict=True) if from_ns <= at < stop_ns
    )
    return carried * 8 * 1_000_000 / (stop_ns - from_ns)


def goodput_samples(
    arrivals: Arrivals, *, start_ns: int, stop_ns: int, warm_up_s: float = WARM_UP_S, width_s: float = 1.0
) -> list[float]:
    """Payload per whole sample (of a second), aligned to the run's clock, the warm-up left out, kbit/s."""
    from_ns = start_ns + int(warm_up_s * NS)
    return _binned(arrivals, arrivals.payload_bytes, from_ns, stop_ns, width_s)


def _binned(arrivals: Arrivals, sizes: Sequence[int], start_ns: int, stop_ns: int, width_s: float) -> list[float]:
    width_ns = int(width_s * NS)
    bins = [0] * ((stop_ns - start_ns) // width_ns)
    for at_ns, size in zip(arrivals.arrived_ns, sizes, strict=True):
        index = (at_ns - start_ns) // width_ns
        if 0 <= index < len(bins):
            bins[index] += size
    return [count * 8 / width_s / 1000 for count in bins]


def zero_samples(bins: Sequence[float]) -> int:
    """In how many samples nothing at all arrived."""
    return sum(one == 0 for one in bins)


def jain(ratios: Sequence[float]) -> float:
    """Jain's fairness index of achieved / limit: 1 when all are equal, 1/n when one has everything; 1 where all are 0.

    (R. Jain, D. Chiu, W. Hawe: A quantitative measure of fairness, DEC-TR-301, 1984.) Raises `ValueError` for none.
    """
    if not ratios:
        raise ValueError("Jain's index needs at least one ratio")
    squares = sum(one * one for one in ratios)
    return sum(ratios) ** 2 / (len(ratios) * squares) if squares else 1.0


def jain_bound(least: float, most: float) -> float:
    """The lowest index that ratios within [least, most] can have, whatever their number: 4ab / (a + b)^2.

    The worst case has only the two extremes, in the proportion b : a (minimise (pa + qb)^2 / (pa^2 + qb^2), p + q = 1).
    Raises `ValueError` unless 0 < least <= most.
    """
    if not 0 < least <= most:
        raise ValueError(f"Jain's bound needs 0 < least <= most, not {least} and {most}")
    return 4 * least * most / (least + most) ** 2


def bin_tolerance(
    limit_kbit: float, width_s: float, *, burst_bytes: float = 0, frame_bytes: int = FRAME_BYTES
) -> float:
    """How far the rate in a window may be from the limit, relative: (burst + one frame) / (rate * T).

    Above it: a window of length T carries at most rate*T + burst + one frame. Below it, while more is offered: a frame
    that is cut off at each edge together make one at most, and what a burst was ahead before is missing now.
    """
    return (burst_bytes + frame_bytes) * 8 / (limit_kbit * 1000 * width_s)


def delays_ms(arrivals: Arrivals) -> list[float]:
    """One-way delay of each arrival; sender and receiver share one clock."""
    return [(at - sent) / 1_000_000 for at, sent in zip(arrivals.arrived_ns, arrivals.sent_ns, strict=True)]
