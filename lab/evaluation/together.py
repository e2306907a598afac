"""Several limiters under one traffic run, and the arithmetic that their verdicts share.

Each limiter has an attachment point and users of its own, and all meet the same moment of the machine: a disturbance
disturbs everybody. What one run offers stays far below what the machine can move, or the limiters go in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.bench.core import Label, Outcome, Series, Step
from lab.bench.plots import Point, Range
from lab.bench.windows import FRAME_BYTES
from lab.evaluation.bed import Bed, BedLab
from lab.evaluation.core import DIRECTIONS, FROM_USER, TO_USER, WARM_UP_S
from measuring.judge import NS, Span, all_pauses_s, bins_kbit
from measuring.netns import Namespace
from measuring.traffic import Endpoint, Plan, Results, run_traffic

MOST_DISTURBED_S = 0.1  # beyond, a control that is wrong by 10 % is not told from a limit of 100 kbit/s within 3 s
LATE_WAKE_UP_S = 0.008  # two ticks of the kernel (HZ=250) that a softirq may wait behind a running program

MACHINE: dict[str, Label] = {"experiment": "machine", "limiter": "all", "direction": "both", "what": "busy"}

Pair = tuple[Endpoint, Endpoint]


@contextmanager
def beds(limiters: Sequence[str], wires: int) -> Iterator[dict[str, Bed]]:
    """A bed per limiter with so many wires each, in one lab; gone afterwards."""
    with BedLab() as lab:
        yield {limiter: Bed(lab, limiter, wires) for limiter in limiters}


def receivers(bed: Bed) -> tuple[tuple[str, Namespace], ...]:
    """Where each direction is judged."""
    return (TO_USER, bed.users), (FROM_USER, bed.ap)


def plan(found: Mapping[str, Bed], pairs: Callable[[Bed], Sequence[Pair]]) -> Plan:
    """The same conversations in every bed; the attachment point's end comes first in each pair."""
    wanted: dict[Namespace, list[Endpoint]] = {}
    for bed in found.values():
        listed = pairs(bed)
        wanted[bed.ap] = [pair[0] for pair in listed]
        wanted[bed.users] = [pair[1] for pair in listed]
    return wanted


def run(
    found: Mapping[str, Bed], pairs: Callable[[Bed], Sequence[Pair]], seconds: float, *, linger_s: float = 0.3
) -> Results:
    """All beds at the same moment; receivers listen a bit longer than senders send. Raises `LabError`."""
    return run_traffic(plan(found, pairs), seconds=seconds, linger_s=linger_s)


def one_second_samples(results: Results, receiver: Namespace, name: str) -> list[float]:
    """kbit/s on the wire in each whole second after the warm-up, heartbeats included."""
    start_ns = results.start_ns + int(WARM_UP_S * NS)
    wire = results.at(receiver, name).wire
    return bins_kbit(
        results.all_arrivals(receiver, name), wire, start_ns=start_ns, stop_ns=results.stop_ns, width_s=1.0
    )


def add_all(outcome: Outcome, samples: Sequence[float], unit: str, **labels: Label) -> None:
    """Samples of one series, in order of time."""
    for one in samples:
        outcome.add(one, unit, **labels)


def total(outcome: Outcome, what: str, **labels: Label) -> float:
    """Of all samples of all series that have these labels."""
    return sum(sum(one.samples) for one in outcome.find(what=what, **labels))


def beside_bounds(outcome: Outcome, what: str, **labels: Label) -> list[tuple[Series, float, float]]:
    """Each series of a ratio with how far its median is from 1, and with the median of its series `bound`: how far it
    may be."""
    found = []
    for one in outcome.find(what=what, **labels):
        (bound,) = outcome.find(**{**one.labels, "what": "bound"})
        found.append((one, one.median - 1, bound.median))
    return found


def limiter_lines(
    outcome: Outcome, limiters: Sequence[str], what: str, **labels: Label
) -> tuple[dict[str, list[Point]], dict[str, list[Range]]]:
    """Medians over `kbit` for each limiter and direction, and the lowest and the highest of the repetitions."""
    lines: dict[str, list[Point]] = {}
    spread: dict[str, list[Range]] = {}
    for limiter in limiters:
        for direction in DIRECTIONS:
            series = outcome.find(limiter=limiter, direction=direction, what=what, **labels)
            if series:
                name, ordered = f"{limiter}, {direction}", sorted(series, key=lambda one: float(one.labels["kbit"]))
                lines[name] = [(float(one.labels["kbit"]), one.median) for one in ordered]
                spread[name] = [(min(one.samples), max(one.samples)) for one in ordered]
    return lines, spread


def steady_s(results: Results) -> float:
    """How long the senders sent after the warm-up."""
    return (results.stop_ns - results.start_ns) / NS - WARM_UP_S


def disturbable(label: str, expected_s: float, measure: Callable[[Outcome], float]) -> Step:
    """A step of one run: `measure` notes a whole run and returns how long it was disturbed (`disturbed_s`). A run that
    was for too long says nothing about a limiter: it is forgotten, said so, and made once more."""

    def measured(outcome: Outcome) -> None:
        found = Outcome(outcome.suite)
        before = processor_ticks()
        lost_s = measure(found)
        if lost_s > MOST_DISTURBED_S:
            outcome.note(f"{label}: the machine gave no processor for {lost_s:.2f} s; that run was made once more.")
            found = Outcome(outcome.suite)
            before = processor_ticks()
            measure(found)
        found.add(busy_share(before, processor_ticks()), "of the processors' time", **MACHINE)
        merge(outcome, found)

    return Step(label, expected_s, measured)


def repeated(label: str, repetitions: int, expected_s: float, measure: Callable[[Outcome], float]) -> list[Step]:
    """So many disturbable steps of the same, numbered."""
    numbers = range(1, repetitions + 1)
    return [disturbable(f"{label} ({number} of {repetitions})", expected_s, measure) for number in numbers]


def processor_ticks() -> tuple[int, int]:
    """Of all processors since boot: not idle, and altogether (proc(5), the first line of stat)."""
    ticks = [int(one) for one in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]  # idle, and idle while a disk is waited for
    return sum(ticks) - idle, sum(ticks)


def busy_share(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Of the time between two readings of `processor_ticks`, 0 to 1; 0 when there was none."""
    passed = after[1] - before[1]
    return (after[0] - before[0]) / passed if passed else 0.0


def merge(outcome: Outcome, more: Outcome) -> None:
    """Samples and notes of another outcome, behind those that are there."""
    for one in more.series:
        add_all(outcome, one.samples, one.unit, **one.labels)
    for note in more.notes:
        outcome.note(note)


def disturbed_s(results: Results) -> float:
    """For how long the whole machine stood still, or one sender was so far behind that it gave up sending."""
    given_up = [
        stream["skipped"] / max(1, stream["sent"] + stream["refused"] + stream["skipped"])
        for end in results.endpoints.values()
        for stream in end.sent_streams
    ]
    return max(all_pauses_s(results.pauses), max(given_up, default=0.0) * (results.stop_ns - results.start_ns) / NS)


def longest_pause_s(pauses: Sequence[Span]) -> float:
    """For how long the whole machine stood still at most."""
    return max((end - begin for begin, end in pauses), default=0) / NS


def ratio_bound(limit_kbit: int, seconds: float, pauses: Sequence[Span] = ()) -> float:
    """How far achieved/limit may be from 1 over so long, while more is offered all the time.

    The bucket is spent then and fills only while nobody sends: when a timer is late or the machine stands still. It
    holds 4 ms, so HTB gives nothing back of a longer pause, and what several cost adds up. So what may differ from
    rate*T is what the rate carries in all of that time, and one frame that an edge cuts.
    """
    late_s = LATE_WAKE_UP_S + all_pauses_s(pauses)
    return (FRAME_BYTES + limit_kbit * 125 * late_s) / (limit_kbit * 125 * seconds)
