"""How long a packet waits behind a limit that is overloaded, on the link itself: one-way delays, and questions.

Every link is offered twice its limit in full frames, through a socket with the buffer of a border router. On the same
5-tuple the attachment point asks small questions and gets answers, as somebody's typing would: they wait in the same
queues. Sender and receiver share a clock, so that each packet carries its own delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lab.bench.core import Label, Outcome, Step, percentile
from lab.bench.plots import Plot
from lab.bench.report import figure
from lab.bench.windows import FRAME_BYTES
from lab.evaluation import together
from lab.evaluation.bed import Bed, limit_all
from lab.evaluation.core import DIRECTIONS, WARM_UP_S, Claim, EvaluationScale, labels_of
from lab.evaluation.figures import PALETTE
from lab.evaluation.limiters import OURS, THESIS, WONDERSHAPER
from lab.evaluation.together import Pair
from measuring.arrivals import Arrivals
from measuring.judge import NS, delays_ms, room_bytes
from measuring.traffic import ROUTER_SEND_BUFFER_BYTES, Results, data, echoes, ends

NAME = "latency"
TITLE = "Latency under load"
RATES = (100, 500, 2_000, 10_000)
LIMITERS = (OURS, THESIS, WONDERSHAPER)
QUESTION_S = 0.05
PATIENCE_S = 1.5
OVERLOAD = 2
EVERY = 20  # of the data packets one in so many goes into the published samples
SHARES = {"median": 0.5, "95 %": 0.95, "99 %": 0.99, "worst": 1.0}
INTRO = f"""
Each link is offered {OVERLOAD} times its limit in full frames, both directions, through a socket with a border
router's own send buffer (212,992 B). *One-way delay*: from `send` to the kernel's arrival stamp, of every data packet
that arrived (one in {EVERY} is in the published samples); a packet that was dropped has none. *Echo*: on the same
5-tuple the attachment point asks {1 / QUESTION_S:.0f} times a second in small packets, and the user's end answers;
questions and answers wait in the link's queues. Both count from one second after the start on; an answer later than
{PATIENCE_S:g} s after the end counts as none.

Our queue holds 100 ms of the rate, at least 20 kB (14 kB below 100 kbit/s): ten frames at once, as idle control
services send them, lose none there. The thesis' tree and wondershaper's scheme
leave the queue that the kernel gives by itself: 1000 packets on the interface (24 s at 500
kbit/s) and 32 on the IFB. How much of that fills depends on how long the overload lasts, and on the sender's own
buffer in front of it.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    seconds = scale.pick(8.0, 4.0)
    return together.repeated("all limiters at once", scale.repetitions, seconds + 4, partial(_measure, seconds))


def _measure(seconds: float, outcome: Outcome) -> float:
    with together.beds(LIMITERS, len(RATES)) as found:
        limit_all(found.values(), dict(enumerate(RATES, start=1)))
        results = together.run(found, _pairs, seconds, linger_s=PATIENCE_S)
        for bed in found.values():
            _note(bed, results, outcome)
        return together.disturbed_s(results)


def _pairs(bed: Bed) -> Sequence[Pair]:
    return [
        ends(
            bed.wire(number).name,
            *bed.wire(number).ends,
            (data(kbit * OVERLOAD), echoes(QUESTION_S)),
            right_streams=(data(kbit * OVERLOAD),),
            send_buffer_bytes=ROUTER_SEND_BUFFER_BYTES,
        )
        for number, kbit in enumerate(RATES, start=1)
    ]


def _note(bed: Bed, results: Results, outcome: Outcome) -> None:
    from_ns = results.start_ns + int(WARM_UP_S * NS)
    for number, kbit in enumerate(RATES, start=1):
        name = bed.wire(number).name
        for direction, receiver in together.receivers(bed):
            labels = labels_of("data", bed.limiter, direction, kbit=kbit)
            delays = delays_ms(results.at(receiver, name).data.between(from_ns, results.stop_ns))
            for what, share in SHARES.items() if delays else ():
                outcome.add(percentile(delays, share), "ms", what=what, **labels)
            together.add_all(outcome, delays[::EVERY], "ms", what="delay", **labels)
            outcome.add(together.longest_pause_s(results.pauses) * 1000, "ms", what="longest pause", **labels)
        times_ms = round_trips_ms(results.at(bed.ap, name).received["answer"], from_ns)
        both = labels_of("echo", bed.limiter, "both", kbit=kbit)
        due = int(together.steady_s(results) / QUESTION_S)
        outcome.add(due, "questions", what="due", **both)
        outcome.add(len(times_ms), "questions", what="answered", **both)
        for what, share in SHARES.items() if times_ms else ():
            outcome.add(percentile(times_ms, share), "ms", what=what, **both)
        together.add_all(outcome, times_ms, "ms", what="round trip", **both)


def round_trips_ms(answers: Arrivals, from_ns: int) -> list[float]:
    """Of the questions that were asked from then on, ascending; an answer carries the time of its question."""
    return sorted(
        took for took, asked_ns in zip(delays_ms(answers), answers.sent_ns, strict=True) if asked_ns >= from_ns
    )


def delay_bound_ms(kbit: int) -> float:
    """A full queue, the frame admitted last and the one on its way, at the limit's rate (bit / (kbit/s) = ms)."""
    return (room_bytes(kbit) + 2 * FRAME_BYTES) * 8 / kbit


# --- what came out ----------------------------------------------------------------------------------------------


def plots(outcome: Outcome) -> list[Plot]:
    lines, spread = together.limiter_lines(outcome, LIMITERS, "median", experiment="data")
    title = "An overloaded link: median one-way delay of a data packet"
    return [
        Plot("latency", title, "ms", "limit, kbit/s", lines=lines, panels=DIRECTIONS, palette=PALETTE, spread=spread)
    ]


def claims(outcome: Outcome) -> list[Claim]:
    """Not of the worst packet alone: that of the whole machine's worst moment is among them."""
    late: list[str] = []
    longest, worst = 0.0, 0.0
    for one in outcome.find(limiter=OURS, what="99 %", experiment="data"):
        kbit, direction = int(one.labels["kbit"]), one.labels["direction"]
        labels: dict[str, Label] = {"limiter": OURS, "kbit": kbit, "direction": direction}
        pause = outcome.median(what="longest pause", experiment="data", **labels) or 0.0
        allowed = delay_bound_ms(kbit) + together.LATE_WAKE_UP_S * 1000 + pause
        longest = max(longest, one.median / allowed)
        worst = max(
            worst, *(found.median / allowed for found in outcome.find(what="worst", experiment="data", **labels))
        )
        if one.median > allowed:
            late.append(f"{figure(one.median)} ms at {kbit} kbit/s {direction}, allowed {figure(allowed)}")
    return [
        Claim(
            sentence="Whatever is offered, 99 of 100 packets wait no longer in our limit than a full queue takes to "
            "drain.",
            bound=f"(room + 2 frames) / rate, plus {together.LATE_WAKE_UP_S * 1000:g} ms for the kernel's timers and "
            "the longest pause of the machine; medians over the repetitions",
            measured="; ".join(late) or f"{longest:.2f} of it; the worst packet of a run {worst:.2f}",
            holds=bool(longest) and not late,
        )
    ]
