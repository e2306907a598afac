"""How long a packet waits behind a limit that is overloaded, on the link itself: one-way delays, and a small question.

Every link is offered twice its limit in full frames, through a socket with the buffer of a border router, and beside it
a small packet twenty times a second on the same 5-tuple, as somebody's typing would be: it waits in the same queue.
Sender and receiver share a clock, so that each packet carries its own delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.core import Label, Outcome, Step, percentile
from bench.plots import Plot
from bench.report import NOTHING, Table, figure
from bench.windows import FRAME_BYTES
from evaluation.bed import Bed, limit_all
from evaluation.core import DIRECTIONS, WARM_UP_S, Claim, EvaluationScale
from evaluation.figures import PALETTE
from evaluation.limiters import OURS, THESIS, WONDERSHAPER
from evaluation.together import LATE_WAKE_UP_S, Pair, add_all, beds, longest_pause_s, receivers, run
from measuring.judge import NS, Arrivals, delays_ms
from measuring.traffic import ROUTER_SEND_BUFFER_BYTES, Results, data, ends

NAME = "latency"
TITLE = "Latency under load"
RATES = (100, 500, 2_000, 10_000)
LIMITERS = (OURS, THESIS, WONDERSHAPER)
QUESTION_BYTES, QUESTION_WIRE_BYTES = 100, 142
QUESTIONS_PER_S = 20
OVERLOAD = 2
LARGE, SMALL = "data", "small"
EVERY = 20  # of the data packets one in so many goes into the published samples
SHARES = {"median": 0.5, "95 %": 0.95, "99 %": 0.99, "worst": 1.0}
QUEUE_MS, FEWEST_FRAMES = 100, 4  # docs/adr/0002: what a leaf of ours holds
INTRO = f"""
Each link is offered {OVERLOAD} times its limit in full frames through a socket with a border router's own send buffer
(212,992 B), and on the same 5-tuple {QUESTIONS_PER_S} small packets a second, which wait in the same queue. Counted
is the time from `send` to the kernel's arrival stamp, of every packet that arrived; a packet that was dropped has no
delay. The *echo* is the sum of both directions' medians: what a question and its answer need inside the link. Of the
data packets' delays one in {EVERY} is in the published samples.

Our queue holds {QUEUE_MS} ms of the rate, and at least {FEWEST_FRAMES} full frames. The thesis' tree and
wondershaper's scheme leave the queue that the kernel gives by itself: 1000 packets on the interface (24 s at 500
kbit/s) and 32 on the IFB. How much of that fills depends on how long the overload lasts, and on the sender's own
buffer in front of it.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    return [
        Step(f"all limiters at once ({number} of {scale.repetitions})", scale.run_s + 4, partial(_measure, scale.run_s))
        for number in range(1, scale.repetitions + 1)
    ]


def _measure(seconds: float, outcome: Outcome) -> None:
    with beds(LIMITERS, len(RATES)) as found:
        limit_all(found.values(), dict(enumerate(RATES, start=1)))
        results = run(found, _pairs, seconds)
        for limiter, bed in found.items():
            _note(limiter, bed, results, outcome)


def _pairs(bed: Bed) -> Sequence[Pair]:
    return [
        ends(
            bed.wire(number).name,
            *bed.wire(number).ends,
            (
                data(kbit * OVERLOAD),
                data(QUESTIONS_PER_S * QUESTION_WIRE_BYTES * 8 / 1000, QUESTION_BYTES),
            ),
            send_buffer_bytes=ROUTER_SEND_BUFFER_BYTES,
        )
        for number, kbit in enumerate(RATES, start=1)
    ]


def _note(limiter: str, bed: Bed, results: Results, outcome: Outcome) -> None:
    from_ns = results.start_ns + int(WARM_UP_S * NS)
    for number, kbit in enumerate(RATES, start=1):
        name = bed.wire(number).name
        for direction, receiver in receivers(bed):
            labels: dict[str, Label] = {"experiment": NAME, "limiter": limiter, "direction": direction, "kbit": kbit}
            steady = results.at(receiver, name).data.between(from_ns, results.stop_ns)
            for packet, is_small in ((LARGE, False), (SMALL, True)):
                delays = _delays(steady, is_small)
                for what, share in SHARES.items() if delays else ():
                    outcome.add(percentile(delays, share), "ms", what=what, packet=packet, **labels)
                add_all(outcome, delays[:: 1 if is_small else EVERY], "ms", what="delay", packet=packet, **labels)
            arrived = len(_delays(steady, True)) / (QUESTIONS_PER_S * (results.stop_ns - from_ns) / NS)
            outcome.add(arrived, "of those sent", what="arrived", packet=SMALL, **labels)
            outcome.add(longest_pause_s(results.pauses) * 1000, "ms", what="longest pause", **labels)


def _delays(arrivals: Arrivals, is_small: bool) -> list[float]:
    return [
        delay
        for delay, size in zip(delays_ms(arrivals), arrivals.payload_bytes, strict=True)
        if (size == QUESTION_BYTES) == is_small
    ]


def delay_bound_ms(kbit: int) -> float:
    """A full queue, and the frame that is being sent, at the limit's rate (bit / (kbit/s) = ms)."""
    queue_bytes = max(kbit * 125 * QUEUE_MS / 1000, FEWEST_FRAMES * FRAME_BYTES)
    return (queue_bytes + FRAME_BYTES) * 8 / kbit


# --- what came out ----------------------------------------------------------------------------------------------


def tables(outcome: Outcome) -> list[Table]:
    return [
        Table(
            "One-way delay of data packets on an overloaded link, to / from user, ms",
            ["kbit/s", "ours: bound", *(f"{limiter}, {what}" for limiter in LIMITERS for what in ("median", "99 %"))],
            [
                [
                    f"{kbit:,}",
                    figure(delay_bound_ms(kbit)),
                    *(_both(outcome, kbit, who, what, LARGE) for who in LIMITERS for what in ("median", "99 %")),
                ]
                for kbit in RATES
            ],
            "Medians over the repetitions.",
        ),
        Table(
            "Small packets on the same link: echo (there and back, medians), and how many arrived, to / from user",
            ["kbit/s", *(f"{limiter}, {what}" for limiter in LIMITERS for what in ("echo, ms", "arrived"))],
            [
                [
                    f"{kbit:,}",
                    *(cell for who in LIMITERS for cell in (_echo(outcome, kbit, who), _arrived(outcome, kbit, who))),
                ]
                for kbit in RATES
            ],
            "Of a queue that is counted in packets and always full, somebody who sends rarely finds no place.",
        ),
    ]


def _both(outcome: Outcome, kbit: int, limiter: str, what: str, packet: str) -> str:
    found = [outcome.median(limiter=limiter, direction=one, kbit=kbit, what=what, packet=packet) for one in DIRECTIONS]
    return " / ".join(NOTHING if one is None else figure(one) for one in found)


def _arrived(outcome: Outcome, kbit: int, limiter: str) -> str:
    found = [
        outcome.median(limiter=limiter, direction=one, kbit=kbit, what="arrived", packet=SMALL) for one in DIRECTIONS
    ]
    return " / ".join(NOTHING if one is None else f"{one:.0%}" for one in found)


def _echo(outcome: Outcome, kbit: int, limiter: str) -> str:
    found = [
        outcome.median(limiter=limiter, direction=one, kbit=kbit, what="median", packet=SMALL) for one in DIRECTIONS
    ]
    return NOTHING if None in found else figure(sum(one for one in found if one is not None))


def plots(outcome: Outcome) -> list[Plot]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for limiter in LIMITERS:
        for direction in DIRECTIONS:
            series = outcome.find(limiter=limiter, direction=direction, what="median", packet=LARGE)
            points = sorted((float(one.labels["kbit"]), one.median) for one in series)
            if points:
                lines[f"{limiter}, {direction}"] = points
    if not lines:
        return []
    title = "An overloaded link: median one-way delay of a data packet"
    return [Plot("latency", title, "ms", "limit, kbit/s", lines=lines, panels=DIRECTIONS, palette=PALETTE)]


def claims(outcome: Outcome) -> list[Claim]:
    late: list[str] = []
    worst = 0.0
    for one in outcome.find(limiter=OURS, what="worst"):
        kbit = int(one.labels["kbit"])
        pauses = outcome.find(limiter=OURS, what="longest pause", kbit=kbit, direction=one.labels["direction"])
        for delay, pause in zip(one.samples, pauses[0].samples, strict=True):
            allowed = delay_bound_ms(kbit) + LATE_WAKE_UP_S * 1000 + pause
            worst = max(worst, delay / allowed)
            if delay > allowed:
                late.append(f"{figure(delay)} ms at {kbit} kbit/s {one.labels['direction']}, allowed {figure(allowed)}")
    return [
        Claim(
            sentence="Whatever is offered, no packet waits longer in our limit than a full queue takes to drain.",
            bound=f"(max({QUEUE_MS} ms of the rate, {FEWEST_FRAMES} frames) + 1 frame) / rate, plus "
            f"{LATE_WAKE_UP_S * 1000:g} ms for the kernel's timers and the longest pause of the machine",
            measured="; ".join(late) or f"the worst packet took {worst:.2f} of its bound",
            holds=bool(worst) and not late,
        )
    ]
