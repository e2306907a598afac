"""Whom datagrams larger than the MTU touch: traffic beside them on the same link, behind the same address, and others'.

The same traffic behind our limiter and behind the thesis' tree, at the same moment: both kinds on one link, either
alone, a neighbour's link, and neighbours behind the same address. What a packet costs is measured by `./dev bench`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lab.bench.core import Outcome, Series, Step
from lab.bench.windows import FRAME_BYTES
from lab.evaluation import beside
from lab.evaluation.beside import (
    LARGE_BYTES,
    LAXER,
    LIMIT_KBIT,
    MIXED,
    NEIGHBOUR,
    ONLY_LARGE,
    ONLY_SMALL,
    SMALL_BYTES,
    STRICTER,
)
from lab.evaluation.core import FROM_USER, Claim, EvaluationScale
from lab.evaluation.limiters import OURS, THESIS
from lab.evaluation.together import LATE_WAKE_UP_S, repeated, total
from measuring.framing import wire_bytes
from measuring.judge import room_bytes
from measuring.scion_packet import HEARTBEAT_INTERVAL_S, HEARTBEAT_MISSES

NAME = "beside"
TITLE = "Whom datagrams larger than the MTU touch"
STARVED = 0.5  # of what would be in proportion

INTRO = f"""
Every link carries heartbeats beside its data, in both directions at once. *{MIXED}*: 1 Mbit/s in datagrams of
{SMALL_BYTES:,} bytes and 1 Mbit/s in datagrams of {LARGE_BYTES:,} bytes (7 fragments) at a limit of {LIMIT_KBIT}
kbit/s: who is admitted depends on the queue and not on the size, so that each kind should get a quarter of what it
offers. *alone*: 2 Mbit/s of one kind. *Neighbours* offer 60 % of their limit in datagrams of {SMALL_BYTES:,} bytes
while the others flood; those behind the same address share it with a link that is offered four times its limit in
datagrams of {LARGE_BYTES:,} bytes, whose later fragments have no ports. Counted at the receiver: bytes on the wire over
what was offered, datagrams that never arrived, one-way delays (99 of 100 datagrams arrive within the delay shown), and
how often {HEARTBEAT_MISSES} heartbeats in a row were missing.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    return repeated("beside fragments", scale.repetitions, scale.run_s + 5, partial(beside.measure, scale))


# --- what came out ------------------------------------------------------------------------------------------------


def _mean(found: Sequence[Series]) -> float | None:
    samples = [one for series in found for one in series.samples]
    return sum(samples) / len(samples) if samples else None


# --- claims -------------------------------------------------------------------------------------------------------


def claims(outcome: Outcome) -> list[Claim]:
    return [_in_proportion(outcome), _heartbeats(outcome), _neighbours(outcome), _delay(outcome), _control(outcome)]


def _in_proportion(outcome: Outcome) -> Claim:
    """A quarter of what each offers, whatever the size."""
    found = outcome.find(what="share", limiter=OURS, case=MIXED)
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
    down = total(outcome, "down", limiter=OURS)
    return Claim(
        sentence="Beside fragments no link is taken down.",
        bound=f"0 silences of {HEARTBEAT_MISSES} * {HEARTBEAT_INTERVAL_S * 1000:.0f} ms: heartbeats do not wait",
        measured=f"{down:.0f}",
        holds=bool(outcome.find(what="down", limiter=OURS)) and down == 0,
    )


def _neighbours(outcome: Outcome) -> Claim:
    cases = (NEIGHBOUR, LAXER, STRICTER)
    found = [one for case in cases for one in outcome.find(what="lost", limiter=OURS, case=case)]
    lost = max((max(one.samples) for one in found), default=1.0)
    return Claim(
        sentence="A neighbour's link loses nothing while others flood the attachment point with fragments, behind "
        "another address or the same one, whoever has the lower limit.",
        bound="0 datagrams of a link that is offered 60 % of its limit",
        measured=f"{lost:.2%} in the worst run",
        holds=bool(found) and lost == 0,
    )


def allowed_delay_ms() -> float:
    """The queue holds room and the datagram that was admitted last, a frame may be on its way, and a timer be late."""
    ahead = room_bytes(LIMIT_KBIT) + wire_bytes(SMALL_BYTES, family=4) + FRAME_BYTES
    return ahead * 8 / LIMIT_KBIT + LATE_WAKE_UP_S * 1000


def _delay(outcome: Outcome) -> Claim:
    found = outcome.find(what="delay", limiter=OURS, case=ONLY_SMALL)
    worst = max((max(one.samples) for one in found), default=0.0)
    room = room_bytes(LIMIT_KBIT)
    return Claim(
        sentence="A link without fragments has no longer a queue than its room.",
        bound=f"{allowed_delay_ms():.0f} ms for 99 of 100: {room:,} bytes of room, a datagram and a frame",
        measured=f"{worst:.0f} ms",
        holds=0 < worst <= allowed_delay_ms(),
    )


def _control(outcome: Outcome) -> Claim:
    """What it looks like where nobody admits whole datagrams."""
    share = _mean(outcome.find(what="share", limiter=THESIS, case=ONLY_LARGE, direction=FROM_USER))
    lost = _mean(outcome.find(what="lost", limiter=THESIS, case=STRICTER, direction=FROM_USER))
    due = beside.LIMIT_KBIT / (beside.OVERLOAD * beside.LIMIT_KBIT)
    return Claim(
        sentence="The measurement can see harm: in the thesis' tree larger datagrams from the user do not arrive, and "
        "a neighbour behind the same address loses to them.",
        bound=f"less than {STARVED:.0%} of what is in proportion; more than nothing lost",
        measured=f"{share or 0.0:.1%} of what was offered arrived; {lost or 0.0:.1%} lost",
        holds=share is not None and share < STARVED * due and lost is not None and lost > 0,
    )
