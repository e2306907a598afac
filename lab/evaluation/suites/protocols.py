"""What other protocols make of a limit: IPv6, TCP with one and eight flows, and paced UDP that reacts to loss.

A wire per protocol and direction, so that nobody's acknowledgements share a limit with somebody else's data; both
limiters at the same moment. Links are UDP on known ports, so TCP rows use an entry that has only the thesis' four keys
and matches by address alone. The congestion control is cubic, pinned per socket; there are no super-packets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lab.bench.core import Label, Outcome, Series, Step
from lab.evaluation.bed import Bed
from lab.evaluation.core import DIRECTIONS, TO_USER, Claim, EvaluationScale, labels_of
from lab.evaluation.limiters import OURS, THESIS
from lab.evaluation.together import (
    Pair,
    add_all,
    beds,
    beside_bounds,
    disturbable,
    disturbed_s,
    plan,
    ratio_bound,
    receivers,
)
from lab.measuring.quic_like import PAYLOAD_BYTES as QUIC_PAYLOAD_BYTES
from lab.measuring.quic_like import QuicResult, QuicRun
from measuring import judge
from measuring.framing import goodput_bound, tcp_goodput_bound
from measuring.tcp import TcpResult, TcpRun
from measuring.traffic import Results, TrafficRun, data, ends

NAME = "protocols"
TITLE = "IPv6, TCP and paced UDP that reacts to loss"
RATES = (500, 5_000)
LIMITERS = (OURS, THESIS)
UDP6, TCP_1, TCP_8, TCP6_1, QUIC = "UDP, IPv6", "TCP, 1 flow", "TCP, 8 flows", "TCP, 1 flow, IPv6", "QUIC-like"
FLOWS = {TCP_1: 1, TCP_8: 8, TCP6_1: 1}
KINDS = (UDP6, TCP_1, TCP_8, TCP6_1, QUIC)
FULL_PAYLOAD_BYTES = 1452  # over IPv6, in one frame of 1514 bytes
OVERLOAD = 4
DELIVERY_S = 0.55
INTRO = f"""
*{UDP6}*: full frames at {OVERLOAD} times the limit. *TCP*: cubic, pinned per socket, no super-packets, matched by
address. *{QUIC}*: packets of {QUIC_PAYLOAD_BYTES} B, paced, with acknowledgements and a NewReno window in the shape
of RFC 9002, on the link's own ports. Each has wires of its own for each direction and begins at the same moment with
both limiters.

Counted is the payload at the receiver after one second, over what headers leave of the limit: 1452/1514 for UDP over
IPv6, 1448/1514 for TCP (1428/1514 over IPv6), {QUIC_PAYLOAD_BYTES}/{QUIC_PAYLOAD_BYTES + 42} for {QUIC}. What TCP and
{QUIC} send twice is in the limit and not in the payload: a queue that is short costs them repetitions, one that is
long costs everybody delay (section *latency*). Eight flows in one slow limit share it unevenly where its queue is
short: the last table has the price of a short delay.
"""


@dataclass(frozen=True)
class Lane:
    """One wire: one protocol, one direction of data."""

    wire: int
    kind: str
    direction: str

    @property
    def is_ipv6(self) -> bool:
        return self.kind in OVER_IPV6


OVER_IPV6 = (UDP6, TCP6_1)
LANES = tuple(Lane(1 + at, *one) for at, one in enumerate((kind, way) for kind in KINDS for way in DIRECTIONS))


def steps(scale: EvaluationScale) -> list[Step]:
    seconds = scale.pick(6.0, 4.0)
    return [
        disturbable(f"{kbit:,} kbit/s ({number} of {scale.repetitions})", seconds + 6, partial(_measure, kbit, seconds))
        for number in range(1, scale.repetitions + 1)
        for kbit in scale.pick(RATES, RATES[:1])
    ]


def _measure(kbit: int, seconds: float, outcome: Outcome) -> float:
    with beds(LIMITERS, len(LANES)) as found:
        for bed in found.values():
            over_ipv6 = [bed.wire(lane.wire).link(kbit, ipv6=True) for lane in LANES if lane.is_ipv6]
            bed.limit({lane.wire: kbit for lane in LANES if not lane.is_ipv6}, extra=over_ipv6, four_keys=True)
        flows = {
            (bed.limiter, lane): _prepare(bed, lane, seconds)
            for bed in found.values()
            for lane in LANES
            if lane.kind != UDP6
        }
        datagrams = TrafficRun(plan(found, partial(_datagrams, kbit)), seconds=seconds).go()
        for flow in flows.values():
            flow.go(datagrams.start_ns)
        results = datagrams.finish()
        for (limiter, lane), flow in flows.items():
            _note_flow(outcome, Row(lane, limiter, kbit, results), flow.finish())
        for bed in found.values():
            for lane in LANES:
                if lane.kind == UDP6:
                    receiver = dict(receivers(bed))[lane.direction]
                    samples = results.goodput_samples(receiver, bed.wire(lane.wire).name)
                    _note(outcome, Row(lane, bed.limiter, kbit, results), samples)
        return disturbed_s(results)


def _prepare(bed: Bed, lane: Lane, seconds: float) -> TcpRun | QuicRun:
    wire = bed.wire(lane.wire)
    here, there = wire.ends6 if lane.is_ipv6 else wire.ends
    both = (bed.ap, here), (bed.users, there)
    (sender, local), (receiver, remote) = both if lane.direction == TO_USER else both[::-1]
    if lane.kind == QUIC:
        return QuicRun(sender, receiver, local, remote, seconds=seconds)
    return TcpRun(sender, receiver, remote[0], seconds=seconds, flows=FLOWS[lane.kind], source=local[0])


def _datagrams(kbit: int, bed: Bed) -> list[Pair]:
    """The lanes of plain UDP."""
    pairs = []
    for lane in LANES:
        if lane.kind == UDP6:
            wire, streams = bed.wire(lane.wire), {lane.direction: (data(kbit * OVERLOAD, FULL_PAYLOAD_BYTES),)}
            here, there = (streams.get(way, ()) for way in DIRECTIONS)
            pairs.append(ends(wire.name, *wire.ends6, here, right_streams=there))
    return pairs


# --- what was seen ----------------------------------------------------------------------------------------------


def header_share(kind: str) -> float:
    """Of a limit, what headers leave for payload in full packets of this protocol."""
    if kind == QUIC:
        return goodput_bound(1, QUIC_PAYLOAD_BYTES)
    version = 6 if kind in OVER_IPV6 else 4
    return goodput_bound(1, FULL_PAYLOAD_BYTES, version=6) if kind == UDP6 else tcp_goodput_bound(1, version=version)


@dataclass(frozen=True)
class Row:
    """What the samples of one run belong to."""

    lane: Lane
    limiter: str
    kbit: int
    results: Results  # of the run that was under way meanwhile: it knows when the machine stood still

    @property
    def labels(self) -> dict[str, Label]:
        return labels_of(self.lane.kind, self.limiter, self.lane.direction, kbit=self.kbit)


def _note(outcome: Outcome, row: Row, samples: Sequence[float]) -> None:
    """`samples`: payload in each second after the warm-up, kbit/s."""
    add_all(outcome, samples, "kbit/s", what="one second", **row.labels)
    achieved = sum(samples) / len(samples) / (row.kbit * header_share(row.lane.kind))
    outcome.add(achieved, "of what headers leave", what="goodput", **row.labels)
    outcome.add(judge.zero_samples(samples), "samples", what="zeros", **row.labels)
    late_s = 0 if row.lane.kind == UDP6 else DELIVERY_S
    bound = ratio_bound(row.kbit, len(samples), row.results.pauses) + late_s / len(samples)
    outcome.add(bound, "of what headers leave", what="bound", **row.labels)


def _note_flow(outcome: Outcome, row: Row, flow: TcpResult | QuicResult) -> None:
    _note(outcome, row, flow.samples_kbit())
    again = flow.retransmitted if isinstance(flow, TcpResult) else flow.declared_lost
    outcome.add(again, "packets", what="sent again", **row.labels)
    if isinstance(flow, TcpResult) and len(flow.flows) > 1:
        outcome.add(judge.jain([sum(one) for one in flow.flows]), "index", what="jain", **row.labels)


# --- what came out ----------------------------------------------------------------------------------------------


def claims(outcome: Outcome) -> list[Claim]:
    derived = "(one frame + what the rate carries in 8 ms and in the pauses of the machine) / (rate*T)"
    return [
        _claim(outcome, (UDP6,), "UDP over IPv6 gets its limit like UDP over IPv4.", derived),
        _claim(
            outcome,
            tuple(kind for kind in KINDS if kind != UDP6),
            "TCP with one flow and with eight, and paced UDP that reacts to loss, fill the limit and never exceed it.",
            f"{derived}, and {DELIVERY_S:g} s / T: what a flow has got behind a hole reaches the program when the hole "
            "is filled, within a retransmission timeout (200 ms) and a queue (350 ms at 500 kbit/s)",
        ),
    ]


def _claim(outcome: Outcome, kinds: Sequence[str], sentence: str, bound: str) -> Claim:
    """Of medians over the repetitions."""
    found = [one for kind in kinds for one in beside_bounds(outcome, "goodput", experiment=kind, limiter=OURS)]
    off = [abs(by) for _, by, _ in found]
    wrong = [f"{_name(one)}: {1 + by:.4f}, allowed 1 +- {most:.2%}" for one, by, most in found if abs(by) > most]
    measured = "; ".join(wrong) or (f"at most {max(off):.2%} off what headers leave" if off else "nothing")
    return Claim(sentence, bound, measured, holds=bool(off) and not wrong)


def _name(one: Series) -> str:
    return f"{one.labels['experiment']}, {int(one.labels['kbit']):,} kbit/s {one.labels['direction']}"
