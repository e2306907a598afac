"""Do SCION's heartbeats arrive while data is offered at twenty times the limit?

A border router sends a BFD packet every 200 ms and takes the link down after three misses in a row. Both ends of each
link send heartbeats and data at once, through a socket with a router's own send buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lab.bench.core import Outcome, Step, interleave
from lab.evaluation.bed import Bed
from lab.evaluation.core import Claim, EvaluationScale, labels_of
from lab.evaluation.limiters import OURS, THESIS
from lab.evaluation.together import Pair, beds, disturbable, disturbed_s, receivers, run, total
from measuring.judge import NS
from measuring.scion_packet import HEARTBEAT_INTERVAL_S, HEARTBEAT_MISSES
from measuring.traffic import ROUTER_SEND_BUFFER_BYTES, Results, data, ends, heartbeats

NAME = "heartbeats"
TITLE = "Heartbeats under overload"
RATES = (32, 100, 500, 2_000)
LIMITERS = (OURS, THESIS)
OVERLOAD = 20
SMALL_BYTES, LARGE_BYTES = 200, 1_000  # small packets find room where a heartbeat does not; at 2 Mbit/s one sender
SMALL_UP_TO_KBIT = 500  # could not make twenty times the limit of them
INTRO = f"""
Both ends of each link send a heartbeat every {HEARTBEAT_INTERVAL_S * 1000:.0f} ms and {OVERLOAD} times the limit in
data packets of {SMALL_BYTES} B ({LARGE_BYTES} B at 2 Mbit/s), through a socket with a border router's own send
buffer, in both directions at once. Counted at the receiver: heartbeats that arrived of those that were due (one that
a blocked socket does not take is due as well), and how often a silence of {HEARTBEAT_MISSES} intervals would have
taken the link down.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    """One limiter after the other: what is offered here keeps a station busy."""
    seconds = scale.pick(4.4, 2.4)
    return [
        disturbable(limiter, seconds + 2, partial(_measure, limiter, seconds))
        for limiter in interleave(LIMITERS, scale.repetitions)
    ]


def payload_bytes(kbit: int) -> int:
    """Of the data that is offered at this limit."""
    return SMALL_BYTES if kbit <= SMALL_UP_TO_KBIT else LARGE_BYTES


def _measure(limiter: str, seconds: float, outcome: Outcome) -> float:
    with beds([limiter], len(RATES)) as found:
        bed = found[limiter]
        bed.limit(dict(enumerate(RATES, start=1)))
        results = run(found, _pairs, seconds)
        _note(bed, results, outcome)
        return disturbed_s(results)


def _pairs(bed: Bed) -> Sequence[Pair]:
    return [
        ends(
            bed.wire(number).name,
            *bed.wire(number).ends,
            (heartbeats(), data(kbit * OVERLOAD, payload_bytes(kbit))),
            send_buffer_bytes=ROUTER_SEND_BUFFER_BYTES,
        )
        for number, kbit in enumerate(RATES, start=1)
    ]


def _note(bed: Bed, results: Results, outcome: Outcome) -> None:
    seconds = (results.stop_ns - results.start_ns) / NS
    for number, kbit in enumerate(RATES, start=1):
        for direction, receiver in receivers(bed):
            seen = results.heartbeats(receiver, bed.wire(number).name)
            sender = results.other_end(receiver, bed.wire(number).name)
            offered = (sender.sent() + sender.refused()) * sender.wire.bytes(payload_bytes(kbit)) / seconds / 125
            labels = labels_of(NAME, bed.limiter, direction, kbit=kbit)
            due = max(sender.sent("heartbeat"), int(seconds / HEARTBEAT_INTERVAL_S))
            outcome.add(due, "packets", what="due", **labels)
            outcome.add(seen.received, "packets", what="arrived", **labels)
            outcome.add(seen.downs, "times", what="down", **labels)
            outcome.add(seen.longest_gap_s, "s", what="longest silence", **labels)
            outcome.add(offered / kbit, "of the limit", what="offered", **labels)


# --- what came out ----------------------------------------------------------------------------------------------


def claims(outcome: Outcome) -> list[Claim]:
    due, arrived, down = (total(outcome, what, limiter=OURS) for what in ("due", "arrived", "down"))
    taken_down = total(outcome, "down", limiter=THESIS)
    return [
        Claim(
            sentence=f"At {OVERLOAD}-fold overload every heartbeat arrives, at every limit from {RATES[0]} kbit/s on, "
            "and no link is taken down.",
            bound="heartbeats do not wait: a bucket at the limit's own rate admits them, faster than a router sends",
            measured=f"{arrived:.0f} of {due:.0f} arrived, {down:.0f} times down",
            holds=0 < due == arrived and down == 0,
        ),
        Claim(
            sentence="The rule can fail: behind the thesis' tree the same traffic takes links down.",
            bound=f"a silence of {HEARTBEAT_MISSES} intervals of {HEARTBEAT_INTERVAL_S * 1000:.0f} ms is one",
            measured=f"{taken_down:.0f} times down",
            holds=taken_down > 0,
        ),
    ]
