"""A limit that is changed while packets flow: how soon the new one holds, and what that costs a neighbour.

The link is offered more than any of its limits all the time, both directions, through a lowering, a raising and a 0.
Ours is a running engine that is told a new limit; the thesis' way is its whole sequence again, from
removing everything on. A neighbour on the same interface stays below its own limit and must not lose a packet.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from bandwidth_config import Limits
from lab.bench.core import Label, Outcome, Step
from lab.bench.plots import Plot
from lab.evaluation.bed import Bed
from lab.evaluation.core import DIRECTIONS, Claim, EvaluationScale, labels_of
from lab.evaluation.figures import PALETTE
from lab.evaluation.holding import SETTLED_S, Change, hold_after_s, too_much_bytes
from lab.evaluation.limiters import OURS, THESIS, Link, rebuild_thesis
from lab.evaluation.together import (
    LATE_WAKE_UP_S,
    Pair,
    beds,
    disturbed_s,
    longest_pause_s,
    plan,
    receivers,
    repeated,
    total,
)
from measuring.judge import NS, bins_kbit
from measuring.traffic import Results, TrafficRun, data, ends

NAME = "change"
TITLE = "A limit changed in mid-stream"
LIMITERS = (OURS, THESIS)
LIMITS = (500, 1_000, 250, 0, 500)
OFFERED_KBIT = 2_000
CHANGED, NEIGHBOUR = "changed", "neighbour"
NEIGHBOUR_KBIT, NEIGHBOUR_OFFERED_KBIT, NEIGHBOUR_BYTES = 4_000, 2_000, 458  # 500 bytes on the wire, 500 a second
IDLE_LINKS = 5
PLOT_BIN_S = 0.25
INTRO = f"""
A link is offered {OFFERED_KBIT // 1000} Mbit/s in both directions while its limit goes
{" → ".join(str(one) for one in LIMITS)} kbit/s. Ours: a running engine, counted from the moment on at which it is told
(`./dev bench save` counts from the page on). The thesis' way: its command sequence
for the same links, which removes all and builds it again, counted from its first command on. {IDLE_LINKS} more links
are there and idle; a neighbour with a limit of {NEIGHBOUR_KBIT // 1000} Mbit/s sends {NEIGHBOUR_OFFERED_KBIT // 1000}
Mbit/s in packets of 500 B.

- *holds after*: from then on the cumulated bytes stay within one frame, and what the rate carries in 8 ms and the
  longest pause of the machine, of the line of the new rate until the next change. That line can be met a little early
  (by that many bytes over the difference of the rates), so this much is added: the figure is an upper bound. For 0:
  the last packet that arrived.
- *too much*: bytes of the worst window between this change and the next one, above the higher of both limits,
  burst and two frames.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    phase_s = scale.pick(2.5, 1.8)
    seconds = phase_s * len(LIMITS)
    return repeated(f"{len(LIMITS) - 1} changes", scale.repetitions, seconds + 5, partial(_measure, phase_s))


# --- one run ----------------------------------------------------------------------------------------------------


def _measure(phase_s: float, outcome: Outcome) -> float:
    with beds(LIMITERS, 1) as found:
        for bed in found.values():
            bed.add_other_user(1)
            bed.limit({}, extra=_links(bed, LIMITS[0]))
        traffic = TrafficRun(plan(found, _pairs), seconds=phase_s * len(LIMITS)).go()
        with ExitStack() as stack:
            # A worker each: one who is slow keeps nobody else waiting.
            at_work = {limiter: stack.enter_context(ThreadPoolExecutor(max_workers=1)) for limiter in LIMITERS}
            offered: dict[str, list[Future[int]]] = {limiter: [] for limiter in LIMITERS}
            for number, kbit in enumerate(LIMITS[1:], start=1):
                traffic.sleep_until(phase_s * number)
                for limiter, bed in found.items():
                    offered[limiter].append(at_work[limiter].submit(_change, bed, kbit))
        results = traffic.finish()
        for limiter, bed in found.items():
            moments = [one.result() for one in offered[limiter]]
            _note(bed, _changes(moments, results.stop_ns), results, outcome)
        return disturbed_s(results)


def _links(bed: Bed, kbit: int) -> list[Link]:
    wire = bed.wire(1)
    (here, local_port), (there, port) = wire.ends
    idle = there.removesuffix(".2")
    return [
        Link(1, wire.dev, (here, local_port), (there, port), Limits.both(kbit)),
        Link(2, wire.dev, (here, local_port + 1), (wire.other_user, port), Limits.both(NEIGHBOUR_KBIT)),
        *(
            Link(2 + one, wire.dev, (here, local_port + 1 + one), (f"{idle}.{100 + one}", port), Limits.both(1_000))
            for one in range(1, IDLE_LINKS + 1)
        ),
    ]


def _pairs(bed: Bed) -> Sequence[Pair]:
    changed, neighbour, *_ = _links(bed, LIMITS[0])
    paced = (data(NEIGHBOUR_OFFERED_KBIT, NEIGHBOUR_BYTES),)
    return [
        ends(CHANGED, changed.local, changed.remote, (data(OFFERED_KBIT),)),
        ends(NEIGHBOUR, neighbour.local, neighbour.remote, paced),
    ]


def _change(bed: Bed, kbit: int) -> int:
    """Returns when it began, CLOCK_MONOTONIC ns."""
    links = _links(bed, kbit)
    began_ns = time.monotonic_ns()
    if bed.own is not None:
        bed.enforce(links)
        return began_ns
    rebuild_thesis(bed.ap, links)
    return began_ns


def _changes(offered_ns: Sequence[int], stop_ns: int) -> list[Change]:
    ends_ns = [*offered_ns[1:], stop_ns]
    return [
        Change(number, LIMITS[number - 1], LIMITS[number], begin, end)
        for number, (begin, end) in enumerate(zip(offered_ns, ends_ns, strict=True), start=1)
    ]


def _note(bed: Bed, changes: Sequence[Change], results: Results, outcome: Outcome) -> None:
    late_s = LATE_WAKE_UP_S + longest_pause_s(results.pauses)
    for direction, receiver in receivers(bed):
        labels = labels_of(NAME, bed.limiter, direction)
        end = results.at(receiver, CHANGED)
        for change in changes:
            row: dict[str, Label] = {**labels, "change": change.name, "number": change.number}
            after_s = hold_after_s(end.data, end.wire, change, late_s)
            if after_s is not None:
                outcome.add(after_s, "s", what="holds after", **row)
            outcome.add(after_s is None, "times", what="never held", **row)
            outcome.add(too_much_bytes(end.data, end.wire, change, late_s), "bytes", what="too much", **row)
            if change.kbit == 0:
                blocked = end.data.between(change.offered_ns + int(SETTLED_S * NS), change.until_ns)
                outcome.add(len(blocked), "packets", what="passed at 0", **row)
        outcome.add(results.other_end(receiver, NEIGHBOUR).sent(), "packets", what="sent", **labels)
        outcome.add(results.lost(receiver, NEIGHBOUR), "packets", what="lost", **labels)
        bins = bins_kbit(end.data, end.wire, start_ns=results.start_ns, stop_ns=results.stop_ns, width_s=PLOT_BIN_S)
        for number, rate in enumerate(bins):
            outcome.add(rate, "kbit/s", what="rate", bin=number, **labels)


# --- what came out ----------------------------------------------------------------------------------------------


def plots(outcome: Outcome) -> list[Plot]:
    lines = {}
    for limiter in LIMITERS:
        for direction in DIRECTIONS:
            bins = outcome.find(limiter=limiter, direction=direction, what="rate")
            if bins:
                lines[f"{limiter}, {direction}"] = [(int(one.labels["bin"]) * PLOT_BIN_S, one.median) for one in bins]
    phase_s = max((x for points in lines.values() for x, _ in points), default=0.0) / len(LIMITS)
    stairs = [(phase_s * (number + more), float(kbit)) for number, kbit in enumerate(LIMITS) for more in (0, 1)]
    title = f"A limit of {' → '.join(str(one) for one in LIMITS)} kbit/s under an offer of {OFFERED_KBIT} kbit/s"
    return [
        Plot(
            NAME,
            title,
            "kbit/s on the wire",
            "s",
            lines=lines,
            is_log=False,
            is_log_x=False,
            panels=DIRECTIONS,
            palette=PALETTE,
            references={"limit": stairs},
        )
    ]


def claims(outcome: Outcome) -> list[Claim]:
    slowest = max((one.median for one in outcome.find(limiter=OURS, what="holds after")), default=0.0)
    never = total(outcome, "never held", limiter=OURS)
    lost, sent = total(outcome, "lost", limiter=OURS), total(outcome, "sent", limiter=OURS)
    most = max((one.median for one in outcome.find(limiter=OURS, what="too much")), default=0.0)
    passed = total(outcome, "passed at 0", limiter=OURS)
    lost_by_thesis = total(outcome, "lost", limiter=THESIS)
    return [
        Claim(
            sentence="A new limit, up or down, holds within a second.",
            bound="1 s (the design's target); medians over the repetitions, each an upper bound",
            measured=f"{slowest:.2f} s at most" if not never else f"{never:.0f} times it never held",
            holds=0 < slowest < 1 and not never,
        ),
        Claim(
            sentence="Meanwhile no neighbour loses a packet, and no byte passes above the limits.",
            bound="0 packets; 0 bytes above the higher of both limits, burst, two frames and a late timer",
            measured=f"{lost:,.0f} of {sent:,.0f} packets, {most:,.0f} bytes",
            holds=lost == 0 < sent and most == 0,
        ),
        Claim(
            sentence="At 0 nothing passes.",
            bound=f"0 packets, from {SETTLED_S:g} s after the change on",
            measured=f"{passed:,.0f} packets",
            holds=bool(sent) and passed == 0,
        ),
        Claim(
            sentence="The same count notices what the thesis' rebuild costs a neighbour.",
            bound="its queues are deleted with what is in them",
            measured=f"{lost_by_thesis:,.0f} of {total(outcome, 'sent', limiter=THESIS):,.0f} packets",
            holds=lost_by_thesis > 0,
        ),
    ]
