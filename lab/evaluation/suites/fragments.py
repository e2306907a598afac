"""Chapter 6.3.3 of the thesis: datagrams larger than the MTU under overload, with what solves it.

A datagram in fragments is lost when one of them is. A shallow leaf that drops the newest packet keeps a part of nearly
every datagram and a whole one of almost none: it spends the limit on fragments that nobody can use.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.bench.core import Label, Outcome, Series
from lab.bench.windows import allowed_bytes
from lab.evaluation.core import DIRECTIONS, Claim
from lab.evaluation.fragment_runs import LARGE_BYTES, LIMIT_KBIT, OVERLOAD, Slot, steps
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WRONG

__all__ = ["INTRO", "NAME", "TITLE", "claims", "steps"]

NAME = "fragments"
TITLE = "Datagrams larger than the MTU (chapter 6.3.3)"
WANTED_SHARE = 0.95  # of what headers leave of the limit
MTU_PAYLOAD_BYTES = 1472
INTRO = f"""
Each link is offered {OVERLOAD} times its limit (2 Mbit/s at 500 kbit/s, L2) in datagrams of one size, in both
directions at once. Counted at the receiver: payload of complete datagrams per second, after one second of warm-up, and
how many of the one-second samples are zero. *Share* is the mean over what headers and fragments leave of the limit for
this size: a datagram of 10,000 bytes takes 7 frames and 10,246 bytes on the wire, so 97.6 % of the limit. *Excess* is
the most that any window carried above rate*T, in bytes of frames seen by a tap behind the limit; allowed are the
burst and two frames.

*Ours* admits a datagram whole or not at all ([ADR 0028](adr/0028-one-program-finds-and-admits.md)). What was tried
before failed, measured on 2026-11-23: HTB alone with leaves of 16, 64 and 256 kB and with one that drops at its head
give the first seconds away before they lose, and every packet waits that long. The rate limit of nftables sees whole
datagrams and counts no frame headers; its bucket is one second of the rate, which no option makes smaller, and it has
no queue: a datagram that is larger than the bucket never passes.
"""


# --- what came out ------------------------------------------------------------------------------------------------


def _mean(one: Series) -> float:
    return sum(one.samples) / len(one.samples)


# --- claims -------------------------------------------------------------------------------------------------------


def claims(outcome: Outcome) -> list[Claim]:
    controls = [*(_control(outcome, one) for one in (WRONG, NO_LIMIT)), _windows(outcome, WRONG)]
    solved = [_mean_share(outcome), _every_share(outcome), _no_zeros(outcome), _windows(outcome, OURS)]
    return [*solved, _failed(outcome), *controls]


def _judged(outcome: Outcome, what: str, limiter: str, **labels: Label) -> list[Series]:
    """Every size to 10 000 bytes, every limit, both families."""
    found = outcome.find(what=what, limiter=limiter, **labels)
    return [one for one in found if int(one.labels["payload"]) <= LARGE_BYTES]


def _average(found: Sequence[Series]) -> float:
    """Of their means; 0 of nothing: then no claim holds."""
    return sum(map(_mean, found)) / len(found) if found else 0.0


def _mean_share(outcome: Outcome) -> Claim:
    averages = {one: _average(_judged(outcome, "share", OURS, direction=one)) for one in DIRECTIONS}
    return Claim(
        sentence="What headers leave of a limit arrives as goodput in the mean, both ways.",
        bound=f"at least {WANTED_SHARE:.0%}, mean of all sizes to {LARGE_BYTES:,} bytes, limits and IPv6",
        measured=", ".join(f"{value:.1%} {direction}" for direction, value in averages.items()),
        holds=min(averages.values()) >= WANTED_SHARE,
    )


def _slot_of(one: Series) -> Slot:
    labels = one.labels
    version = 6 if labels["experiment"] == "IPv6" else 4
    return Slot(0, str(labels["experiment"]), int(labels["payload"]), int(labels["kbit"]), version)


def _seconds(outcome: Outcome, one: Series) -> float:
    """Length of one run behind this series: its one-second samples of one repetition."""
    labels = {key: value for key, value in one.labels.items() if key != "what"}
    return float(len(outcome.find(what="sample", **labels)[0].samples))


def _every_share(outcome: Outcome) -> Claim:
    margins = {}
    for one in _judged(outcome, "share", OURS):
        labels, least = one.labels, _least_share(outcome, one)
        where = f"{labels['payload']:,} bytes at {labels['kbit']:,} kbit/s, {labels['experiment']}"
        margins[f"{_mean(one):.1%}, allowed {least:.1%} ({where}, {labels['direction']})"] = _mean(one) - least
    return Claim(
        sentence="That holds for every size, limit, family and direction by itself.",
        bound=f"{WANTED_SHARE:.0%} less one datagram that the edge of a run cuts",
        measured=f"nearest: {min(margins, key=lambda one: margins[one], default='nothing')}",
        holds=min(margins.values(), default=-1.0) >= 0,
    )


def _least_share(outcome: Outcome, one: Series) -> float:
    """An edge of a run cuts a datagram: at 100 kbit/s a second has only 1.2 of 10 000 bytes."""
    return WANTED_SHARE - edge_share(_slot_of(one), _seconds(outcome, one))


def edge_share(slot: Slot, seconds: float) -> float:
    """One datagram over what headers leave in so many seconds."""
    return slot.payload_bytes * 8 / 1000 / (slot.bound_kbit * seconds)


def _no_zeros(outcome: Outcome) -> Claim:
    zeros = sum(sum(one.samples) for one in _judged(outcome, "zeros", OURS))
    samples = sum(len(one.samples) for one in _judged(outcome, "sample", OURS))
    return Claim(
        sentence="No one-second sample is zero.",
        bound=f"0; the slowest link (100 kbit/s) completes a datagram of {LARGE_BYTES:,} bytes every 0.82 s",
        measured=f"{zeros:.0f} of {samples}",
        holds=samples > 0 and zeros == 0,
    )


def _windows(outcome: Outcome, limiter: str) -> Claim:
    worst = max((max(one.samples) for one in outcome.find(what="excess", limiter=limiter)), default=0.0)
    allowed = allowed_bytes(LIMIT_KBIT)
    is_control = limiter == WRONG
    return Claim(
        sentence=f"The judge of windows calls {limiter} wrong."
        if is_control
        else "HTB stays exact: no window carries more than rate*T + burst + two frames.",
        bound=f"{allowed:,.0f} bytes above rate*T",
        measured=f"{worst:,.0f} bytes",
        holds=worst > allowed if is_control else 0 < worst <= allowed,
    )


def _failed(outcome: Outcome) -> Claim:
    worst = {THESIS: min(_above_mtu(outcome, THESIS, direction) for direction in DIRECTIONS)}
    return Claim(
        sentence="The measurement sees the thesis' chapter 6.3.3 behind the thesis' own tree.",
        bound=f"below {WANTED_SHARE:.0%} in the mean of sizes above the MTU, in the worse direction",
        measured=", ".join(f"{limiter} {share:.1%}" for limiter, share in worst.items()),
        holds=all(outcome.find(limiter=one) for one in worst) and max(worst.values()) < WANTED_SHARE,
    )


def _above_mtu(outcome: Outcome, limiter: str, direction: str) -> float:
    """Average share of the sizes that do not fit a frame."""
    found = _judged(outcome, "share", limiter, experiment="sizes", direction=direction)
    return _average([one for one in found if int(one.labels["payload"]) > MTU_PAYLOAD_BYTES])


def _control(outcome: Outcome, limiter: str) -> Claim:
    """Judged within the MTU, where every limiter delivers all that it lets pass."""
    found = [
        one
        for one in outcome.find(what="share", experiment="sizes", limiter=limiter)
        if int(one.labels["payload"]) <= MTU_PAYLOAD_BYTES
    ]
    least = min(map(_mean, found), default=0.0)
    seconds = min((_seconds(outcome, one) for one in found), default=1.0)
    allowed = 1 + allowed_bytes(LIMIT_KBIT) / (LIMIT_KBIT * 125 * seconds)
    return Claim(
        sentence=f"The judge calls {limiter} wrong.",
        bound=f"at most {allowed:.1%} of what headers leave: burst and two frames more",
        measured=f"{least:.1%}",
        holds=least > allowed,
    )
