"""Runs with datagrams larger than the MTU: what is sent on which link, behind which limiter, and what is noted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lab.bench.core import Label, Outcome, Step
from lab.evaluation.bed import Bed, BedLab, at_once
from lab.evaluation.core import EvaluationScale, labels_of
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WRONG
from lab.evaluation.taps import Tapping
from lab.evaluation.together import Pair, add_all, disturbable, disturbed_s, plan, receivers
from measuring.framing import goodput_bound
from measuring.judge import goodput_samples, highest_level, zero_samples
from measuring.traffic import Results, TrafficRun, data, ends

LIMIT_KBIT = 500
OVERLOAD = 4
SIZES = tuple(range(1000, 10_001, 1000))
QUICK_SIZES = (1000, 2000, 5000, 10_000)
LARGE_BYTES, LARGEST_BYTES = 10_000, 65_507
OTHER_LIMITS = (100, 2_000, 10_000)
V6_SIZES = (2000, 5000, 10_000)
LIMITERS = (OURS, THESIS, WRONG, NO_LIMIT)
TAPPED = (OURS, THESIS, WRONG)
SETUP_S = 6.0


@dataclass(frozen=True)
class Slot:
    """One link: its wire, what is sent on it, and which experiment that belongs to."""

    wire: int
    experiment: str
    payload_bytes: int
    kbit: int = LIMIT_KBIT
    version: int = 4
    overload: float = OVERLOAD

    @property
    def bound_kbit(self) -> float:
        """Goodput: what headers and fragments leave of the limit."""
        return goodput_bound(self.kbit, self.payload_bytes, version=self.version)


def sizes_slots(scale: EvaluationScale) -> list[Slot]:
    """All sizes at 500 kbit/s, and the largest datagram there is."""
    sizes = [*scale.pick(SIZES, QUICK_SIZES), LARGEST_BYTES]
    return [Slot(number, "sizes", size) for number, size in enumerate(sizes, start=1)]


def all_slots(scale: EvaluationScale) -> list[Slot]:
    """The same, with other limits and with IPv6."""
    found = sizes_slots(scale)
    for kbit in OTHER_LIMITS:
        overload = OVERLOAD if kbit < max(OTHER_LIMITS) else 2  # 40 Mbit/s per link would be the machine's limit
        found.append(Slot(len(found) + 1, "limits", LARGE_BYTES, kbit, overload=overload))
    for size in V6_SIZES:
        found.append(Slot(len(found) + 1, "IPv6", size, version=6))
    return found


def steps(scale: EvaluationScale) -> list[Step]:
    return [
        disturbable(
            f"all limiters at once ({number} of {scale.repetitions})",
            scale.run_s + SETUP_S,
            partial(_measure, scale, number),
        )
        for number in range(1, scale.repetitions + 1)
    ]


# --- measuring ----------------------------------------------------------------------------------------------------


def _measure(scale: EvaluationScale, number: int, outcome: Outcome) -> float:
    """Returns for how long the machine was disturbed, s."""
    with BedLab() as lab:
        plans = {one: all_slots(scale) if one == OURS else sizes_slots(scale) for one in LIMITERS}
        beds = {one: Bed(lab, one, len(slots)) for one, slots in plans.items()}
        at_once(beds.values(), lambda bed: _limit(bed, plans[bed.limiter]))
        return _Run(beds, plans, number).measure(scale.run_s, outcome)


def _limit(bed: Bed, slots: Sequence[Slot]) -> None:
    v4 = {one.wire: one.kbit for one in slots if one.version == 4}
    bed.limit(v4, extra=[bed.wire(one.wire).link(one.kbit, ipv6=True) for one in slots if one.version == 6])


@dataclass(frozen=True)
class _Run:
    """Beds by name, and what is sent in each."""

    beds: Mapping[str, Bed]
    plans: Mapping[str, Sequence[Slot]]
    number: int  # of the repetition

    def measure(self, seconds: float, outcome: Outcome) -> float:
        """One run of all, with taps where windows are judged. Returns for how long the machine was disturbed, s.

        Raises `LabError`, or `ValueError` when a tap missed packets.
        """
        run = TrafficRun(plan(self.beds, self._pairs), seconds=seconds)
        taps = [
            (name, slot, Tapping(self.beds[name], self.beds[name].wire(slot.wire), seconds + 1))
            for name, slot in self._tapped()
        ]
        results = run.go().finish()
        for name in self.beds:
            for slot in self.plans[name]:
                self._note(outcome, name, slot, results)
        for name, slot, tapping in taps:
            for direction, seen in tapping.finish().items():
                worst = highest_level(*seen, slot.kbit)
                outcome.add(worst, "bytes", what="excess", **_labels(slot, name, direction))
        return disturbed_s(results)

    def _pairs(self, bed: Bed) -> list[Pair]:
        return [_pair(bed, one) for one in self.plans[bed.limiter]]

    def _tapped(self) -> Iterator[tuple[str, Slot]]:
        for name in self.beds:
            for slot in self.plans[name]:
                if name in TAPPED and (slot.experiment, slot.payload_bytes) == ("sizes", LARGE_BYTES):
                    yield name, slot

    def _note(self, outcome: Outcome, name: str, slot: Slot, results: Results) -> None:
        bed = self.beds[name]
        for direction, receiver in receivers(bed):
            end = results.at(receiver, bed.wire(slot.wire).name)
            labels = _labels(slot, name, direction)
            samples = goodput_samples(end.data, start_ns=results.start_ns, stop_ns=results.stop_ns)
            add_all(outcome, samples, "kbit/s", what="sample", repetition=self.number, **labels)
            share = sum(samples) / len(samples) / slot.bound_kbit
            outcome.add(share, "of what headers leave", what="share", **labels)
            outcome.add(zero_samples(samples), "samples", what="zeros", **labels)


def _pair(bed: Bed, slot: Slot) -> Pair:
    wire = bed.wire(slot.wire)
    stream = data(slot.kbit * slot.overload, slot.payload_bytes)
    return ends(wire.name, *(wire.ends if slot.version == 4 else wire.ends6), [stream])


def _labels(slot: Slot, limiter: str, direction: str) -> dict[str, Label]:
    return labels_of(slot.experiment, limiter, direction, payload=slot.payload_bytes, kbit=slot.kbit)
