"""Traffic beside datagrams that are larger than the MTU: which links there are, what is sent on them, what is noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lab.bench.core import Label, Outcome, median, percentile
from lab.evaluation.bed import Bed, at_once
from lab.evaluation.core import EvaluationScale, labels_of
from lab.evaluation.limiters import OURS, THESIS, Link
from lab.evaluation.together import Pair, beds, disturbed_s, plan, receivers
from measuring.judge import NS, WARM_UP_S, delays_ms
from measuring.traffic import EndpointResult, Results, Stream, data, ends, heartbeats, run_traffic

EXPERIMENT = "beside"
SMALL_BYTES, LARGE_BYTES = 1000, 10_000
SMALL, LARGE = "within the MTU", "larger than the MTU"
LIMIT_KBIT, OTHER_KBIT = 500, 1000
OVERLOAD = 4
SECOND_LINK, SECOND_PORT = 100, 5000  # of a wire: added to its number, and to its ports

MIXED, ONLY_SMALL, ONLY_LARGE = "both kinds on one link", "within the MTU alone", "larger than the MTU alone"
NEIGHBOUR = "a neighbour's link"
LAXER = "a neighbour behind the same address, limit above"
STRICTER = "a neighbour behind the same address, limit below"


@dataclass(frozen=True)
class Case:
    """One wire: the limit of its link and what that sends; with a second link behind the same address, its limit and
    what the second sends. `judged` is whom the name speaks of: the second, where there is one."""

    name: str
    kbit: int
    streams: tuple[Stream, ...]
    second_kbit: int = 0
    second_streams: tuple[Stream, ...] = ()


def small(kbit: float) -> Stream:
    return data(kbit, SMALL_BYTES)


def large(kbit: float) -> Stream:
    return data(kbit, LARGE_BYTES)


_FLOOD, _MODEST = OVERLOAD * LIMIT_KBIT, LIMIT_KBIT * 0.6
CASES = (
    Case(MIXED, LIMIT_KBIT, (small(_FLOOD / 2), large(_FLOOD / 2))),
    Case(ONLY_SMALL, LIMIT_KBIT, (small(_FLOOD),)),
    Case(ONLY_LARGE, LIMIT_KBIT, (large(_FLOOD),)),
    Case(NEIGHBOUR, LIMIT_KBIT, (small(_MODEST),)),
    Case(LAXER, LIMIT_KBIT, (large(_FLOOD),), OTHER_KBIT, (small(2 * _MODEST),)),
    Case(STRICTER, OTHER_KBIT, (large(OVERLOAD * OTHER_KBIT),), LIMIT_KBIT, (small(_MODEST),)),
)


def measure(scale: EvaluationScale, outcome: Outcome) -> float:
    """One run of all cases behind both. Returns for how long the machine was disturbed, s. Raises `LabError`."""
    with beds((OURS, THESIS), len(CASES)) as found:
        at_once(found.values(), _limit)
        results = run_traffic(plan(found, _pairs), seconds=scale.run_s)
        for bed in found.values():
            for number, case in enumerate(CASES, start=1):
                _note(outcome, bed, number, case, results)
    return disturbed_s(results)


def _limit(bed: Bed) -> None:
    limits = {number: case.kbit for number, case in enumerate(CASES, start=1)}
    bed.limit(limits, extra=[_second(bed, number, case) for number, case in enumerate(CASES, 1) if case.second_kbit])


def _second(bed: Bed, number: int, case: Case) -> Link:
    """Another link between the same addresses, on other ports."""
    first = bed.wire(number).link(case.second_kbit)
    (here, here_port), (there, there_port) = first.local, first.remote
    return replace(
        first,
        interface_id=SECOND_LINK + number,
        local=(here, here_port + SECOND_PORT),
        remote=(there, there_port + SECOND_PORT),
    )


def _pairs(bed: Bed) -> Sequence[Pair]:
    pairs = []
    for number, case in enumerate(CASES, start=1):
        wire = bed.wire(number)
        pairs.append(ends(wire.name, *wire.ends, (heartbeats(), *case.streams)))
        if case.second_kbit:
            link = _second(bed, number, case)
            pairs.append(ends(_second_name(number), link.local, link.remote, (heartbeats(), *case.second_streams)))
    return pairs


def _second_name(number: int) -> str:
    return f"second{number}"


def _note(outcome: Outcome, bed: Bed, number: int, case: Case, results: Results) -> None:
    """Heartbeats of every link; of data those of the link that the case is about, by kind."""
    names = [bed.wire(number).name, *([_second_name(number)] if case.second_kbit else [])]
    for direction, receiver in receivers(bed):
        labels = labels_of(EXPERIMENT, bed.limiter, direction, case=case.name)
        downs = sum(results.heartbeats(receiver, one).downs for one in names)
        outcome.add(downs, "times", what="down", **labels)
        judged = case.second_streams or case.streams
        for stream in judged:
            _note_kind(outcome, results, results.at(receiver, names[-1]), stream, labels)
        if len(judged) == 1:
            sent = results.other_end(receiver, names[-1]).sent()
            outcome.add(results.lost(receiver, names[-1]) / max(1, sent), "of those sent", what="lost", **labels)


def _note_kind(
    outcome: Outcome, results: Results, end: EndpointResult, stream: Stream, labels: Mapping[str, Label]
) -> None:
    """What arrived of one stream after the warm-up: over what it offered, and how long it was on its way."""
    from_ns = results.start_ns + int(WARM_UP_S * NS)
    arrivals = end.data.between(from_ns, results.stop_ns)
    kind = SMALL if stream.payload_bytes == SMALL_BYTES else LARGE
    sizes, delays = arrivals.payload_bytes, delays_ms(arrivals)
    own = [delay for delay, size in zip(delays, sizes, strict=True) if size == stream.payload_bytes]
    kbit = len(own) * end.wire.bytes(stream.payload_bytes) * 8 / 1000 / ((results.stop_ns - from_ns) / NS)
    outcome.add(kbit, "kbit/s on the wire", what="arrived", kind=kind, **labels)
    outcome.add(kbit / stream.kbit, "of what was offered", what="share", kind=kind, **labels)
    if own:
        outcome.add(median(own), "ms", what="median delay", kind=kind, **labels)
        outcome.add(percentile(own, 0.99), "ms", what="delay", kind=kind, **labels)
