"""A grid of cells (datagram size, offered rate) measured at once: one wire per cell, all limiters, both directions.

The thesis' figures 6.1 to 6.8 are such grids at 500 kbit/s. What is offered and what arrives is payload, as iperf3
counts it; arrivals are judged at the receiver in samples of one second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lab.bench.core import Label, Outcome, Step
from lab.evaluation.bed import Bed, limit_all
from lab.evaluation.core import WARM_UP_S, EvaluationScale, labels_of
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WONDERSHAPER, WRONG
from lab.evaluation.together import Pair, add_all, beds, receivers, run
from measuring.framing import frame_count, goodput_bound, offered_on_wire
from measuring.judge import NS, ahead_bytes, bucket_bytes, goodput_samples, zero_samples
from measuring.netns import Namespace
from measuring.traffic import Results, data, ends

LIMIT_KBIT = 500
LIMITERS = (OURS, THESIS, WONDERSHAPER, WRONG, NO_LIMIT)
# The queue holds more than 100 ms at this limit; a station gives up what it is more than 50 ms behind with.
MAX_GIVEN_UP_S = 0.05
ENOUGH = 0.95  # of what is offered has to arrive where nothing limits, or the machine was the limit


@dataclass(frozen=True)
class Cell:
    """One wire: payload per datagram, and payload offered per second."""

    payload_bytes: int
    offered_kbit: int

    @property
    def is_whole_frame(self) -> bool:
        return frame_count(self.payload_bytes, family=4) == 1

    @property
    def bound_kbit(self) -> float:
        """Goodput that a limiter can reach: what is offered, or what headers leave of the limit."""
        return min(self.offered_kbit, goodput_bound(LIMIT_KBIT, self.payload_bytes))

    def allowed_kbit(self, seconds: float) -> float:
        """Payload by which the average of a window may differ from `bound_kbit`: a burst and two frames more or
        less than rate*T, and one datagram that an edge cuts."""
        burst_bytes = ahead_bytes(LIMIT_KBIT)
        share = goodput_bound(1, self.payload_bytes)
        return burst_bytes * 8 / seconds / 1000 * share + self.edge_kbit(seconds)

    def edge_kbit(self, seconds: float) -> float:
        """One datagram that an edge of the window cuts."""
        return self.payload_bytes * 8 / seconds / 1000


# --- measuring --------------------------------------------------------------------------------------------------


def steps(experiment: str, cells: Sequence[Cell], scale: EvaluationScale) -> list[Step]:
    """A step per repetition: beds made anew, one run of all cells."""
    label = f"{len(cells)} cells, {len(LIMITERS)} limiters at once"
    return [
        Step(
            f"{label} ({number} of {scale.repetitions})",
            scale.run_s + 7,
            partial(_measure, experiment, cells, scale, number),
        )
        for number in range(1, scale.repetitions + 1)
    ]


def _measure(experiment: str, cells: Sequence[Cell], scale: EvaluationScale, number: int, outcome: Outcome) -> None:
    """Once more, and said so, when the machine was the limit."""
    with beds(LIMITERS, len(cells)) as found:
        limit_all(found.values(), dict.fromkeys(range(1, len(cells) + 1), LIMIT_KBIT))
        results = run(found, partial(_pairs, cells), scale.run_s)
        if (why := _inconclusive(found, cells, results)) is not None:
            outcome.note(f"Run {number} said nothing ({why}) and was repeated.")
            results = run(found, partial(_pairs, cells), scale.run_s)
        for bed in found.values():
            _note(outcome, experiment, bed, cells, results, number=number)
        paused = dict[str, Label](experiment=experiment, limiter="all", direction="both", what="paused")
        outcome.add(paused_s(results), "s", **paused)


def _pairs(cells: Sequence[Cell], bed: Bed) -> list[Pair]:
    """Both directions at once; they do not share a queue."""
    pairs = []
    for wire, cell in zip(bed.wires(), cells, strict=True):
        stream = data(offered_on_wire(cell.offered_kbit, cell.payload_bytes), cell.payload_bytes)
        pairs.append(ends(wire.name, *wire.ends, [stream]))
    return pairs


def paused_s(results: Results) -> float:
    """Time in which the machine stood still after the warm-up, beyond what a bucket of the limit makes up for."""
    bucket_ns = bucket_bytes(LIMIT_KBIT) * NS // (LIMIT_KBIT * 125)
    from_ns = results.start_ns + int(WARM_UP_S * NS)
    spans = [(max(begin, from_ns), min(end, results.stop_ns)) for begin, end in results.pauses]
    return sum(max(0, end - begin - bucket_ns) for begin, end in spans) / NS


def _inconclusive(found: Mapping[str, Bed], cells: Sequence[Cell], results: Results) -> str | None:
    """Why this run says nothing about limits; None when it does."""
    unlimited = found[NO_LIMIT]
    for direction, receiver in receivers(unlimited):
        for wire, cell in zip(unlimited.wires(), cells, strict=True):
            samples = _samples(results, receiver, wire.name)
            arrived = sum(samples) / len(samples) + cell.edge_kbit(len(samples))
            if arrived < ENOUGH * cell.offered_kbit:
                return f"without any limit {arrived:.0f} of {cell.offered_kbit} kbit/s arrived, {direction}"
    behind_s = max(
        _given_up_s(cell, results, bed, number) for bed in found.values() for number, cell in enumerate(cells)
    )
    if behind_s > MAX_GIVEN_UP_S:
        return f"a sender did not get the processor for {behind_s * 1000:.0f} ms"
    return None


def _given_up_s(cell: Cell, results: Results, bed: Bed, index: int) -> float:
    """How much of its time a sender of this wire gave up, because it was too far behind; the later of both ends."""
    name = bed.wires()[index].name
    streams = [stream for host in (bed.ap, bed.users) for stream in results.at(host, name).sent_streams]
    skipped: int = max(stream["skipped"] for stream in streams)
    return skipped * cell.payload_bytes * 8 / (cell.offered_kbit * 1000)


def _samples(results: Results, receiver: Namespace, name: str) -> list[float]:
    arrivals = results.at(receiver, name).data
    return goodput_samples(arrivals, start_ns=results.start_ns, stop_ns=results.stop_ns)


def _note(outcome: Outcome, experiment: str, bed: Bed, cells: Sequence[Cell], results: Results, *, number: int) -> None:
    for direction, receiver in receivers(bed):
        for wire, cell in zip(bed.wires(), cells, strict=True):
            labels = labels_of(
                experiment, bed.limiter, direction, payload=cell.payload_bytes, offered=cell.offered_kbit
            )
            samples = _samples(results, receiver, wire.name)
            add_all(outcome, samples, "kbit/s", **labels, what="sample", repetition=number)
            outcome.add(sum(samples) / len(samples), "kbit/s", **labels, what="average")
            outcome.add(zero_samples(samples), "samples", **labels, what="zeros")
