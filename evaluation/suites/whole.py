"""What admitting whole datagrams costs, and whom it touches: traffic beside datagrams that are larger than the MTU.

The same traffic behind our agent with and without the option, at the same moment: both kinds on one link, either
alone, a neighbour's link, and neighbours behind the same address. The price per packet is `evaluation.whole_cost`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ap_agent.whole.admission import Direction
from bench.core import Label, Outcome, Series, Step
from bench.plots import Plot
from bench.report import NOTHING, Table, figure
from bench.windows import FRAME_BYTES
from evaluation import beside
from evaluation.bed import PREFIX
from evaluation.beside import (
    CASES,
    LARGE,
    LARGE_BYTES,
    LAXER,
    LIMIT_KBIT,
    MIXED,
    NEIGHBOUR,
    ONLY_LARGE,
    ONLY_SMALL,
    SMALL,
    SMALL_BYTES,
    STRICTER,
)
from evaluation.core import DIRECTIONS, FROM_USER, TO_USER, Claim, EvaluationScale
from evaluation.limiters import OURS, WHOLE
from evaluation.together import LATE_WAKE_UP_S, disturbable, total
from evaluation.whole_cost import EXPERIMENT as COST
from evaluation.whole_cost import SIZES, TRAFFIC, WITH, WITHOUT, memory_bytes
from evaluation.whole_cost import measure as measure_cost
from measuring.framing import wire_bytes
from measuring.scion_packet import HEARTBEAT_INTERVAL_S, HEARTBEAT_MISSES

NAME = "whole"
TITLE = "What whole datagrams cost, and whom they touch"
ROOM_BYTES = max(LIMIT_KBIT * 125 // 10, 4 * FRAME_BYTES)  # 100 ms of the rate: the leaf without the option
COST_ROUNDS, QUICK_COST_ROUNDS = 15, 3
STARVED = 0.5  # of what would be in proportion
_DIRECTIONS: dict[str, Direction] = {TO_USER: "to_user", FROM_USER: "from_user"}

INTRO = f"""
Every link carries heartbeats beside its data, in both directions at once, behind our agent with and without
`whole_datagrams`, at the same moment. *{MIXED}*: 1 Mbit/s in datagrams of {SMALL_BYTES:,} bytes and 1 Mbit/s
in datagrams of {LARGE_BYTES:,} bytes (7 fragments) at a limit of {LIMIT_KBIT} kbit/s: who is admitted depends on the
queue and not on the size, so that each kind should get a quarter of what it offers. *alone*: 2 Mbit/s of one kind.
*Neighbours* offer 60 % of their limit in datagrams of {SMALL_BYTES:,} bytes while the others flood; those behind
the same address share it with a link that is offered four times its limit in datagrams of {LARGE_BYTES:,}
bytes. Later fragments have no ports: they end in the strictest link of their address, with the option as without, so
that a neighbour with the lower limit has them in its class; with the option its own packets have more room there than
they. Counted at the receiver: bytes on the wire over what was offered, datagrams that never arrived, one-way delays (99
of 100 datagrams arrive within the delay shown), and how often {HEARTBEAT_MISSES} heartbeats in a row were missing.

The price is CPU time per packet of a link, of everything that it sets off in the kernel, with the program in front of
the tree and without: `hot` is one address, `random` all of them in turn, `nobody` an address without a limit, `refused`
a packet that is kept out.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    """What is beside fragments, then the price."""
    found = [
        disturbable(
            f"beside fragments ({number} of {scale.repetitions})", scale.run_s + 5, partial(beside.measure, scale)
        )
        for number in range(1, scale.repetitions + 1)
    ]
    rounds, sizes = scale.pick((COST_ROUNDS, SIZES), (QUICK_COST_ROUNDS, SIZES[:1]))
    return [
        *found,
        *(Step(f"price, {one}", rounds * 0.4 + 2, partial(_price, one, rounds, sizes)) for one in DIRECTIONS),
    ]


def _price(direction: str, rounds: int, sizes: Sequence[int], outcome: Outcome) -> None:
    measure_cost(outcome, direction, rounds=rounds, sizes=sizes, prefix=PREFIX)
    labels: dict[str, Label] = {"experiment": COST, "limiter": WITH, "direction": direction, "what": "memory"}
    outcome.add(memory_bytes(_DIRECTIONS[direction]), "bytes", **labels)


# --- what came out ------------------------------------------------------------------------------------------------


def _mean(found: Sequence[Series]) -> float | None:
    samples = [one for series in found for one in series.samples]
    return sum(samples) / len(samples) if samples else None


def _limiters(outcome: Outcome) -> list[str]:
    return [one for one in (WHOLE, OURS) if outcome.find(limiter=one, experiment=beside.EXPERIMENT)]


def tables(outcome: Outcome) -> list[Table]:
    return [_beside_table(outcome), _delays_table(outcome), _price_table(outcome)]


def _both(outcome: Outcome, shape: str, **labels: Label) -> str:
    """To the user / from it."""
    found = [_mean(outcome.find(direction=one, **labels)) for one in DIRECTIONS]
    return " / ".join(NOTHING if one is None else format(one, shape) for one in found)


def _rows(outcome: Outcome, limiter: str, what: str, shape: str) -> list[str]:
    cells = []
    for case in CASES:
        for stream in case.second_streams or case.streams:
            kind = SMALL if stream.payload_bytes == SMALL_BYTES else LARGE
            cells.append(_both(outcome, shape, limiter=limiter, what=what, case=case.name, kind=kind))
    return cells


def _names() -> list[str]:
    """Of the rows: a case, and the kind where it has several."""
    found = []
    for case in CASES:
        judged = case.second_streams or case.streams
        for stream in judged:
            kind = SMALL if stream.payload_bytes == SMALL_BYTES else LARGE
            found.append(f"{case.name}: {kind}" if len(judged) > 1 else case.name)
    return found


def _table_of(outcome: Outcome, what: str, shape: str, title: str, remark: str) -> Table:
    limiters = _limiters(outcome)
    columns = [_names(), *(_rows(outcome, one, what, shape) for one in limiters)]
    return Table(title, ["to / from user", *limiters], list(zip(*columns, strict=True)), remark)


def _beside_table(outcome: Outcome) -> Table:
    downs = ", ".join(f"{one}: {total(outcome, 'down', limiter=one):.0f}" for one in _limiters(outcome))
    remark = f"Means. Silences of {HEARTBEAT_MISSES} heartbeats on all links together: {downs}."
    return _table_of(outcome, "share", ".1%", "What arrived of what was offered", remark)


def _delays_table(outcome: Outcome) -> Table:
    return _table_of(outcome, "delay", ".0f", "One-way delay, ms, of 99 of 100 datagrams", "Means.")


def _price_table(outcome: Outcome) -> Table:
    rows = []
    for direction in DIRECTIONS:
        for size in SIZES:
            for traffic in TRAFFIC:
                labels: dict[str, Label] = {
                    "experiment": COST, "direction": direction, "size": size, "traffic": traffic
                }  # fmt: skip
                found = [outcome.median(limiter=one, **labels) for one in (WITHOUT, WITH)]
                if None in found:
                    continue
                without, price = (one or 0.0 for one in found)
                addresses = f"{size:,} address{'es' if size > 1 else ''}"
                rows.append(
                    [f"{direction}, {addresses}, {traffic}", figure(without), figure(price), f"{price - without:+.0f}"]
                )
    memory = {one: outcome.median(what="memory", direction=one) for one in DIRECTIONS}
    held = ", ".join(f"{value / 1e6:.1f} MB {one}" for one, value in memory.items() if value)
    remark = f"Medians. Maps for 4096 addresses: {held}." if held else "Not measured."
    return Table("CPU time per packet, ns", ["", WITHOUT, WITH, "more"], rows, remark)


def plots(outcome: Outcome) -> list[Plot]:
    """Tables say it all."""
    del outcome
    return []


# --- claims -------------------------------------------------------------------------------------------------------


def claims(outcome: Outcome) -> list[Claim]:
    return [_in_proportion(outcome), _heartbeats(outcome), _neighbours(outcome), _delay(outcome), _control(outcome)]


def _in_proportion(outcome: Outcome) -> Claim:
    """A quarter of what each offers, whatever the size."""
    found = outcome.find(what="share", limiter=WHOLE, case=MIXED)
    due = LIMIT_KBIT / (beside.OVERLOAD * LIMIT_KBIT)
    shares = {f"{one.labels['kind']}, {one.labels['direction']}": (_mean([one]) or 0.0) / due for one in found}
    worst = min(shares, key=lambda one: shares[one], default="nothing")
    return Claim(
        sentence="On one link, datagrams within the MTU and larger ones share the limit as they offer.",
        bound=f"each gets at least {STARVED:.0%} of what is in proportion",
        measured=f"{worst}: {shares.get(worst, 0.0):.0%}",
        holds=bool(shares) and min(shares.values()) >= STARVED,
    )


def _heartbeats(outcome: Outcome) -> Claim:
    down = total(outcome, "down", limiter=WHOLE)
    return Claim(
        sentence="Beside fragments no link is taken down.",
        bound=f"0 silences of {HEARTBEAT_MISSES} * {HEARTBEAT_INTERVAL_S * 1000:.0f} ms: heartbeats are never refused",
        measured=f"{down:.0f}",
        holds=bool(outcome.find(what="down", limiter=WHOLE)) and down == 0,
    )


def _neighbours(outcome: Outcome) -> Claim:
    cases = (NEIGHBOUR, LAXER, STRICTER)
    found = [one for case in cases for one in outcome.find(what="lost", limiter=WHOLE, case=case)]
    lost = max((max(one.samples) for one in found), default=1.0)
    return Claim(
        sentence="A neighbour's link loses nothing while others flood the attachment point with fragments, behind "
        "another address or the same one, whoever has the lower limit.",
        bound="0 datagrams of a link that is offered 60 % of its limit",
        measured=f"{lost:.2%} in the worst run",
        holds=bool(found) and lost == 0,
    )


def allowed_delay_ms() -> float:
    """The queue holds room and the datagram that was admitted last, two frames may be in front (one of the heartbeats),
    and a timer may be late."""
    ahead = ROOM_BYTES + wire_bytes(SMALL_BYTES, family=4) + 2 * FRAME_BYTES
    return ahead * 8 / LIMIT_KBIT + LATE_WAKE_UP_S * 1000


def _delay(outcome: Outcome) -> Claim:
    found = outcome.find(what="delay", limiter=WHOLE, case=ONLY_SMALL)
    worst = max((max(one.samples) for one in found), default=0.0)
    return Claim(
        sentence="The deeper leaf makes nobody wait: a link without fragments has no longer a queue than without it.",
        bound=f"{allowed_delay_ms():.0f} ms for 99 of 100: {ROOM_BYTES:,} bytes of room, a datagram and two frames",
        measured=f"{worst:.0f} ms",
        holds=0 < worst <= allowed_delay_ms(),
    )


def _control(outcome: Outcome) -> Claim:
    """What it looks like where nobody admits whole datagrams."""
    share = _mean(outcome.find(what="share", limiter=OURS, case=ONLY_LARGE))
    lost = _mean(outcome.find(what="lost", limiter=OURS, case=STRICTER))
    due = beside.LIMIT_KBIT / (beside.OVERLOAD * beside.LIMIT_KBIT)
    return Claim(
        sentence="The measurement can see harm: without the option larger datagrams do not arrive, and a neighbour who "
        "has the lower limit of an address loses to the fragments in its class.",
        bound=f"less than {STARVED:.0%} of what is in proportion; more than nothing lost",
        measured=f"{share or 0.0:.1%} of what was offered arrived; {lost or 0.0:.1%} lost",
        holds=share is not None and share < STARVED * due and lost is not None and lost > 0,
    )
