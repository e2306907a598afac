"""What happens to everybody else while a limited link is flooded: the same address on other ports, and another host.

Behind one interface of the attachment point are the limited link's user and another host. The link is offered forty
times its limit in both directions; meanwhile small questions over UDP and TCP (an SSH session, a configuration pull)
go to both addresses, and a bulk flow that belongs to no link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from lab.bench.core import Outcome, Step
from lab.evaluation.bed import Bed, limit_all
from lab.evaluation.core import Claim, EvaluationScale, labels_of
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS
from lab.evaluation.together import Pair, beds, disturbed_s, plan, receivers, repeated, total
from lab.measuring.probes import Answers, ServedHost, answers
from measuring.traffic import Results, TrafficRun, data, ends

NAME = "bystander"
TITLE = "Everybody else while a link is flooded"
LIMIT_KBIT, OFFERED_KBIT, BULK_KBIT = 500, 20_000, 5_000
LIMITERS = (OURS, THESIS, NO_LIMIT)
SAME, OTHER = "the link's own address", "another host"
TARGETS = (SAME, OTHER)
BULK_PORT = 4_100  # no link's
INTRO = f"""
One link has a limit of {LIMIT_KBIT} kbit/s and is offered {OFFERED_KBIT // 1000} Mbit/s in both directions. Meanwhile
the attachment point asks the link's own user on another port, and another host behind the same interface: 64 bytes
over UDP every 50 ms, and over TCP (connect, ask, close) every fourth time; an answer after more than a second counts
as none. Beside that a bulk flow of {BULK_KBIT // 1000} Mbit/s of UDP that belongs to no link goes to and comes from
both. *No limit* is what the same machine does at the same moment without any. In the thesis' tree all traffic of no
link shares one class of 1 Mbit/s per direction.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    seconds = scale.pick(6.0, 3.0)
    return repeated("all limiters at once", scale.repetitions, seconds + 4, partial(_measure, seconds))


def addresses(bed: Bed) -> dict[str, str]:
    """Whom is asked: the user of the first wire, and a second address there, which stands for another host."""
    return {SAME: bed.wire(1).ends[1][0], OTHER: bed.wire(1).other_user}


def _measure(seconds: float, outcome: Outcome) -> float:
    with beds(LIMITERS, 1) as found:
        for bed in found.values():
            bed.add_other_user(1)
        limit_all(found.values(), {1: LIMIT_KBIT})
        asked = {
            (limiter, target): ServedHost(bed.users, address)
            for limiter, bed in found.items()
            for target, address in addresses(bed).items()
        }
        traffic = TrafficRun(plan(found, _pairs), seconds=seconds).go()
        traffic.sleep_until(0.5)
        asking = {key: host.start_asking(found[key[0]].ap, seconds - 1) for key, host in asked.items()}
        results = traffic.finish()
        for (limiter, target), process in asking.items():
            _note_answers(limiter, target, answers(process), outcome)
        for limiter, bed in found.items():
            _note_bulk(limiter, bed, results, outcome)
        return disturbed_s(results)


def _pairs(bed: Bed) -> Sequence[Pair]:
    """The flooded link, and the bulk flows of nobody's link."""
    here = bed.wire(1).ends[0][0]
    return [
        ends(bed.wire(1).name, *bed.wire(1).ends, (data(OFFERED_KBIT),)),
        *(
            ends(target, (here, BULK_PORT + number), (address, BULK_PORT), (data(BULK_KBIT),))
            for number, (target, address) in enumerate(addresses(bed).items(), start=1)
        ),
    ]


def _note_answers(limiter: str, target: str, found: Mapping[str, Answers], outcome: Outcome) -> None:
    for kind, said in found.items():
        labels = labels_of(NAME, limiter, "both", target=target, kind=kind)
        outcome.add(said.asked, "questions", what="asked", **labels)
        outcome.add(said.answered, "questions", what="answered", **labels)
        if said.median_ms is not None and said.worst_ms is not None:
            outcome.add(said.median_ms, "ms", what="median", **labels)
            outcome.add(said.worst_ms, "ms", what="worst", **labels)


def _note_bulk(limiter: str, bed: Bed, results: Results, outcome: Outcome) -> None:
    for direction, receiver in receivers(bed):
        labels = labels_of(NAME, limiter, direction)
        for target in TARGETS:
            sent = results.other_end(receiver, target).sent()
            outcome.add(sent, "packets", what="sent", target=target, **labels)
            outcome.add(results.lost(receiver, target), "packets", what="lost", target=target, **labels)
        outcome.add(results.rate_kbit(receiver, bed.wire(1).name), "kbit/s", what="flooded link", **labels)


# --- what came out ----------------------------------------------------------------------------------------------


def claims(outcome: Outcome) -> list[Claim]:
    def answered(limiter: str) -> tuple[float, float]:
        return total(outcome, "answered", limiter=limiter), total(outcome, "asked", limiter=limiter)

    def lost(limiter: str) -> tuple[float, float]:
        return total(outcome, "lost", limiter=limiter), total(outcome, "sent", limiter=limiter)

    ours, controls = (*answered(OURS), *lost(OURS)), (*answered(THESIS), *lost(THESIS))
    return [
        Claim(
            sentence="Whatever a limited link is offered, nobody else notices: every question to its own address and "
            "to another host is answered, and no packet of a flow beside it is lost.",
            bound="what belongs to no link passes no class and no queue of ours, so the allowed loss is 0",
            measured=_said(*ours),
            holds=0 < ours[1] == ours[0] and ours[2] == 0 < ours[3],
        ),
        Claim(
            sentence="The same traffic suffers in the thesis' tree.",
            bound=f"its class for everything else carries 1 Mbit/s, and {2 * BULK_KBIT // 1000} Mbit/s are offered",
            measured=_said(*controls),
            holds=controls[2] > 0,
        ),
    ]


def _said(answered: float, asked: float, lost: float, sent: float) -> str:
    return f"{answered:,.0f} of {asked:,.0f} answered, {lost:,.0f} of {sent:,.0f} packets lost"
