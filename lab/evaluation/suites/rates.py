"""Does a limit hold from 100 kbit/s to 100 Mbit/s, in the long run and in every window, and would we notice if not?

UDP in full frames on the link's own ports, offered above the limit in both directions at once, judged at the receiver.
Two controls are measured and judged like ours and have to fail: ours at a rate that nobody asked for, and no limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lab.bench.core import Outcome, Series, Step, interleave
from lab.bench.plots import Plot
from lab.bench.windows import allowed_bytes, busiest_window_bytes
from lab.evaluation.bed import Bed, limit_all
from lab.evaluation.core import DIRECTIONS, Claim, EvaluationScale, labels_of
from lab.evaluation.figures import PALETTE
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WONDERSHAPER, WRONG
from lab.evaluation.together import (
    LATE_WAKE_UP_S,
    Pair,
    add_all,
    beds,
    beside_bounds,
    disturbable,
    disturbed_s,
    limiter_lines,
    longest_pause_s,
    one_second_samples,
    ratio_bound,
    receivers,
    repeated,
    run,
    steady_s,
)
from measuring.traffic import Results, data, ends

NAME = "rates"
TITLE = "100 kbit/s to 100 Mbit/s"
SLOW = (100, 1_000, 10_000)
FAST = (100_000,)
LIMITERS = (OURS, THESIS, WONDERSHAPER, WRONG, NO_LIMIT)
FAST_LIMITERS = (OURS, THESIS)
OVERLOAD = {100_000: 1.2}  # of others 2; two processors send, shape and receive it all
WINDOWS_MS = (10, 100, 1_000)
INTRO = """
Each limit is offered twice its rate (100 Mbit/s: 1.2 times) in frames of 1514 B, both directions at once, on the
link's own ports. Counted is what arrives at the receiver, in bytes of Ethernet frames.

- *long run*: the steady rate over the limit, from one second after the start. The bucket is spent then, so what may
  differ from rate*T is one frame and what the rate carries while a timer is late or the machine stands still.
- *window*: the most that any window of 10 ms, 100 ms or 1 s carried, start included, over rate*T + burst + two frames.
  Above 1 is too much. UDP is judged where it arrives, so what waits behind the limit while the machine gives nobody a
  processor arrives at once: the rate times the longest pause of the run is allowed on top.

*A wrong limit* is our own agent at 1.1 times what was asked for, *no limit* is none: the same judge has to refuse
both. Up to 10 Mbit/s all limiters are loaded at the same moment; 100 Mbit/s goes one limiter after the other. 1
Gbit/s has a section of its own.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    slow = repeated(
        "up to 10 Mbit/s, all limiters",
        scale.repetitions,
        scale.run_s + 6,
        partial(_measure, LIMITERS, SLOW, scale.run_s),
    )
    seconds = scale.pick(3.5, 2.5)
    fast = [
        disturbable(f"100 Mbit/s: {limiter}", seconds + 3, partial(_measure, (limiter,), FAST, seconds))
        for limiter in interleave(scale.pick(FAST_LIMITERS, (OURS,)), scale.repetitions)
    ]
    return [*slow, *fast]


def _measure(limiters: Sequence[str], kbits: Sequence[int], seconds: float, outcome: Outcome) -> float:
    with beds(limiters, len(kbits)) as found:
        limit_all(found.values(), dict(enumerate(kbits, start=1)))
        results = run(found, partial(_pairs, kbits), seconds)
        for bed in found.values():
            for number, kbit in enumerate(kbits, start=1):
                _note(bed, number, kbit, results, outcome)
        return disturbed_s(results)


def _pairs(kbits: Sequence[int], bed: Bed) -> Sequence[Pair]:
    return [
        ends(bed.wire(number).name, *bed.wire(number).ends, (data(kbit * OVERLOAD.get(kbit, 2)),))
        for number, kbit in enumerate(kbits, start=1)
    ]


def _note(bed: Bed, number: int, kbit: int, results: Results, outcome: Outcome) -> None:
    name = bed.wire(number).name
    for direction, receiver in receivers(bed):
        labels = labels_of(NAME, bed.limiter, direction, kbit=kbit)
        add_all(outcome, one_second_samples(results, receiver, name), "kbit/s", what="one second", **labels)
        outcome.add(results.rate_kbit(receiver, name) / kbit, "of the limit", what="long run", **labels)
        outcome.add(ratio_bound(kbit, steady_s(results), results.pauses), "of the limit", what="bound", **labels)
        arrivals = results.at(receiver, name).data
        sizes = [results.at(receiver, name).wire.bytes(size) for size in arrivals.payload_bytes]
        late_s = LATE_WAKE_UP_S + longest_pause_s(results.pauses)
        for window_ms in WINDOWS_MS:
            most = busiest_window_bytes(arrivals.arrived_ns, sizes, window_ms / 1000)
            share = most / (allowed_bytes(kbit, window_ms / 1000) + kbit * 125 * late_s)
            outcome.add(share, "of what may pass", what=f"window {window_ms} ms", **labels)


# --- what came out ----------------------------------------------------------------------------------------------


def plots(outcome: Outcome) -> list[Plot]:
    lines, spread = limiter_lines(outcome, (OURS, THESIS, WONDERSHAPER, WRONG), "long run")
    title = "UDP: rate on the wire over the limit"
    return [
        Plot(
            "rates",
            title,
            "of the limit",
            "limit, kbit/s",
            lines=lines,
            is_log=False,
            mark_y=1.0,
            panels=DIRECTIONS,
            palette={**PALETTE, WRONG: "#888888"},
            spread=spread,
        )
    ]


def claims(outcome: Outcome) -> list[Claim]:
    ours = beside_bounds(outcome, "long run", limiter=OURS)
    wrong = [f"{_name(one)}: {off:+.2%}, allowed {bound:.2%}" for one, off, bound in ours if abs(off) > bound]
    windows = [(one.median, one) for one in outcome.find(limiter=OURS) if str(one.labels["what"]).startswith("window")]
    exceeded = [f"{_name(one)}: {most:.3f}" for most, one in windows if most > 1]
    return [
        Claim(
            sentence="In the long run each link gets its limit, in both directions.",
            bound="(one frame + what the rate carries in 8 ms and in the pauses of the machine) / (rate*T)",
            measured="; ".join(wrong)
            or (f"at most {max(abs(off) for _, off, _ in ours):.3%} off" if ours else "nothing"),
            holds=bool(ours) and not wrong,
        ),
        Claim(
            sentence="No window carries more than the limit, its burst and two frames.",
            bound="rate*T + burst + two frames + what the rate carries in 8 ms and the longest pause of the machine; "
            "medians over the repetitions",
            measured="; ".join(exceeded)
            or (f"at most {max(most for most, _ in windows):.3f} of it" if windows else "nothing"),
            holds=bool(windows) and not exceeded,
        ),
        *(_control(outcome, limiter) for limiter in (WRONG, NO_LIMIT)),
    ]


def _control(outcome: Outcome, limiter: str) -> Claim:
    found = beside_bounds(outcome, "long run", limiter=limiter)
    passed = [_name(one) for one, off, bound in found if abs(off) <= bound]
    least = min((abs(off) for _, off, _ in found), default=0.0)
    return Claim(
        sentence=f"The judge calls {limiter} wrong, at every rate and in both directions.",
        bound="the same bound as for ours",
        measured=f"not noticed: {', '.join(passed)}" if passed else f"at least {least:.1%} off in {len(found)} cases",
        holds=bool(found) and not passed,
    )


def _name(one: Series) -> str:
    what = str(one.labels["what"])
    return f"{int(one.labels['kbit']):,} kbit/s {one.labels['direction']}" + (f", {what}" if what != "long run" else "")
