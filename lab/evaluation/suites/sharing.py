"""Links that share something: an address, an AS, an interface. Does each get its own limit, and no more?

Two user ASes behind one public address differ in their UDP port alone; one AS with two links has one AS number; an
attachment point has thousands of links on one interface, of which a random tenth is busy.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from bandwidth_config import Limits
from lab.bench.core import Label, Outcome, Step
from lab.evaluation.bed import Bed, BedLab
from lab.evaluation.core import Claim, EvaluationScale, labels_of
from lab.evaluation.limiters import OURS, THESIS, Link, rebuild_thesis
from lab.evaluation.together import (
    Pair,
    add_all,
    beds,
    disturbed_s,
    ratio_bound,
    receivers,
    repeated,
    run,
    steady_s,
)
from measuring import judge
from measuring.traffic import Results, data, ends

NAME = "sharing"
TITLE = "Links that share an address, an AS or an interface"
LIMITERS = (OURS, THESIS)
ONE_ADDRESS, ONE_AS = "Two user ASes behind one address", "Two links of one AS"
PAIRS = {ONE_ADDRESS: (300, 900), ONE_AS: (400, 800)}
OFFERED_KBIT = 2_000
AS_NUMBER = 182
CROWD = "crowd"
CROWDS, QUICK_CROWDS = ((2, 100), (4_000,)), ((2, 300),)  # at the same moment
CROWD_KBITS = (100, 150, 200)
CROWD_OVERLOAD = 1.3
MOST_LINKS_OF_THE_THESIS = 100  # beyond, building it takes longer than all the rest here; at 2048 links it ends
CROWD_NET = "10.250"  # /16, on the first wire
INTRO = f"""
*{ONE_ADDRESS}*: same IP address, different UDP ports, limits of {PAIRS[ONE_ADDRESS][0]} and {PAIRS[ONE_ADDRESS][1]}
kbit/s. *{ONE_AS}*: two addresses, one AS number, limits of {PAIRS[ONE_AS][0]} and {PAIRS[ONE_AS][1]} kbit/s. Each
link is offered {OFFERED_KBIT // 1000} Mbit/s in both directions.

*Crowd*: so many links to different addresses on one interface, with limits of {CROWD_KBITS[0]}, {CROWD_KBITS[1]} and
{CROWD_KBITS[2]} kbit/s; a random tenth (at least two, another tenth in each repetition) is offered {CROWD_OVERLOAD}
times its limit at once, in both directions. Counted is the long-run rate on the wire over the limit of each busy
link, Jain's index of these ratios, and the lowest and the highest one. *Installed* is the time until the kernel has
all links.
"""


def steps(scale: EvaluationScale) -> list[Step]:
    seconds = scale.pick(6.0, 4.0)
    pairs = repeated("pairs", scale.repetitions, seconds + 3, partial(_measure_pairs, seconds))
    crowds = [
        Step(
            f"{' and '.join(f'{count:,}' for count in counts)} links",
            5 + max(counts) ** 2 / 5e5 + scale.repetitions * (seconds + 2),
            partial(_measure_crowds, counts, scale.repetitions, seconds),
        )
        for counts in scale.pick(CROWDS, QUICK_CROWDS)
    ]
    return [*pairs, *crowds]


# --- two links --------------------------------------------------------------------------------------------------


def _measure_pairs(seconds: float, outcome: Outcome) -> float:
    """The pair behind one address on the first wire, that of one AS on the second."""
    with beds(LIMITERS, len(PAIRS)) as found:
        for limiter, bed in found.items():
            bed.add_other_user(2)
            if limiter == THESIS:
                _build_thesis(bed)
            else:
                bed.limit({}, extra=[link for links in _pair_links(bed).values() for link in links])
        results = run(found, _pair_ends, seconds)
        for bed in found.values():
            for experiment, links in _pair_links(bed).items():
                for link in links:
                    _note(experiment, bed, link, results, outcome)
        return disturbed_s(results)


def _pair_links(bed: Bed) -> dict[str, list[Link]]:
    found = {}
    for wire, (experiment, (low, high)) in zip(bed.wires(), PAIRS.items(), strict=True):
        (here, local_port), (there, port) = wire.ends
        other = there if experiment == ONE_ADDRESS else wire.other_user
        found[experiment] = [
            Link(wire.number, wire.dev, (here, local_port), (there, port), Limits.both(low)),
            Link(10 + wire.number, wire.dev, (here, local_port + 10), (other, port + 10), Limits.both(high)),
        ]
    return found


def _build_thesis(bed: Bed) -> None:
    """Its class is the number of the AS, so that the second link of one AS finds its class taken; nobody looks."""
    for experiment, links in _pair_links(bed).items():
        numbered = [replace(one, interface_id=AS_NUMBER) for one in links] if experiment == ONE_AS else links
        rebuild_thesis(bed.ap, numbered)


def _pair_ends(bed: Bed) -> Sequence[Pair]:
    return [
        ends(f"link{link.interface_id}", link.local, link.remote, (data(OFFERED_KBIT),))
        for links in _pair_links(bed).values()
        for link in links
    ]


# --- many links -------------------------------------------------------------------------------------------------


def crowd_kbit(number: int) -> int:
    """Limit of the n-th link of a crowd."""
    return CROWD_KBITS[number % len(CROWD_KBITS)]


def crowd_address(number: int) -> str:
    """Of the n-th user, from 1."""
    return f"{CROWD_NET}.{number // 250}.{1 + number % 250}"


def busy(count: int, seed: int) -> list[int]:
    """A random tenth of so many links, at least two; the same seed gives the same ones."""
    order = random.Random(seed)
    return sorted(order.sample(range(1, count + 1), max(2, count // 10)))


def _measure_crowds(counts: Sequence[int], runs: int, seconds: float, outcome: Outcome) -> None:
    """Crowds of these sizes, each with attachment points of its own, busy at the same moment."""
    with BedLab() as lab:
        found: dict[str, Bed] = {}
        sizes: dict[str, int] = {}
        for count in counts:
            for limiter in LIMITERS if count <= MOST_LINKS_OF_THE_THESIS else (OURS,):
                bed = Bed(lab, limiter, 1)
                found[bed.ap.name], sizes[bed.ap.name] = bed, count
                _install_crowd(bed, count, outcome)
        for seed in range(1, runs + 1):
            chosen = {name: busy(count, seed) for name, count in sizes.items()}
            results = run(found, partial(_busy_ends, chosen), seconds)
            for name, bed in found.items():
                _note_crowd(bed, sizes[name], chosen[name], results, outcome)


def _install_crowd(bed: Bed, count: int, outcome: Outcome) -> None:
    links = _crowd(bed, range(1, count + 1))
    bed.ap.ip("route", "add", f"{CROWD_NET}.0.0/16", "via", bed.wire(1).ends[1][0])  # one neighbour, not thousands
    bed.users.ip_batch(f"addr add {link.remote[0]}/32 dev {link.dev}" for link in links)
    bed.limit({}, extra=links[:1])  # a running limiter has a link already
    began = time.monotonic()
    bed.limit({}, extra=links)
    labels = labels_of(CROWD, bed.limiter, "both", links=count)
    outcome.add(time.monotonic() - began, "s", what="installed", **labels)


def _crowd(bed: Bed, numbers: Sequence[int]) -> list[Link]:
    dev, here = bed.wire(1).dev, bed.wire(1).ends[0][0]
    return [
        Link(one, dev, (here, 51_000 + one), (crowd_address(one), 50_000), Limits.both(crowd_kbit(one)))
        for one in numbers
    ]


def _busy_ends(chosen: Mapping[str, Sequence[int]], bed: Bed) -> Sequence[Pair]:
    """`chosen` by the attachment point's namespace."""
    return [
        ends(f"link{one.interface_id}", one.local, one.remote, (data(one.limits.lowest_kbit * CROWD_OVERLOAD),))
        for one in _crowd(bed, chosen[bed.ap.name])
    ]


# --- what was seen ----------------------------------------------------------------------------------------------


def _note(experiment: str, bed: Bed, link: Link, results: Results, outcome: Outcome) -> None:
    kbit = link.limits.lowest_kbit
    for direction, receiver in receivers(bed):
        labels = labels_of(experiment, bed.limiter, direction, kbit=kbit)
        rate = results.rate_kbit(receiver, f"link{link.interface_id}")
        outcome.add(rate, "kbit/s", what="rate", **labels)
        outcome.add(ratio_bound(kbit, steady_s(results), results.pauses), "of the limit", what="bound", **labels)


def _note_crowd(bed: Bed, count: int, numbers: Sequence[int], results: Results, outcome: Outcome) -> None:
    for direction, receiver in receivers(bed):
        labels = labels_of(CROWD, bed.limiter, direction, links=count)
        ratios = [results.rate_kbit(receiver, f"link{one}") / crowd_kbit(one) for one in numbers]
        bounds = [ratio_bound(crowd_kbit(one), steady_s(results), results.pauses) for one in numbers]
        add_all(outcome, ratios, "of the limit", what="ratio", **labels)
        outcome.add(judge.jain(ratios), "index", what="jain", **labels)
        outcome.add(min(ratios), "of the limit", what="lowest", **labels)
        outcome.add(max(ratios), "of the limit", what="highest", **labels)
        outcome.add(max(bounds), "of the limit", what="bound", **labels)
        outcome.add(len(numbers), "links", what="busy", **labels)


# --- what came out ----------------------------------------------------------------------------------------------


def claims(outcome: Outcome) -> list[Claim]:
    return [*(_pair_claim(outcome, experiment) for experiment in PAIRS), *_crowd_claims(outcome)]


def _pair_claim(outcome: Outcome, experiment: str) -> Claim:
    off, wrong = [], []
    rates = outcome.find(experiment=experiment, limiter=OURS, what="rate")
    for one in rates:
        kbit = int(one.labels["kbit"])
        (bounds,) = outcome.find(**{**one.labels, "what": "bound"})
        for rate, bound in zip(one.samples, bounds.samples, strict=True):
            off.append(abs(rate / kbit - 1))
            if off[-1] > bound:
                wrong.append(f"{rate:.1f} kbit/s at {kbit} {one.labels['direction']}, allowed {bound:.2%}")
    return Claim(
        sentence=f"{experiment}: each gets its own limit.",
        bound="(one frame + what the rate carries in 8 ms and in the pauses of the machine) / (rate*T)",
        measured="; ".join(wrong) or (f"at most {max(off):.2%} off" if off else "nothing"),
        holds=bool(off) and not wrong,
    )


def _crowd_claims(outcome: Outcome) -> list[Claim]:
    found = []
    for count in outcome.values("links", experiment=CROWD):
        labels: dict[str, Label] = {"experiment": CROWD, "limiter": OURS, "links": count}
        jains, lowest, highest, bounds = (
            [sample for one in outcome.find(what=what, **labels) for sample in one.samples]
            for what in ("jain", "lowest", "highest", "bound")
        )
        allowed = max(bounds)
        floor = judge.jain_bound(1 - allowed, 1 + allowed)
        found.append(
            Claim(
                sentence=f"Each busy link of {count:,} gets its limit, whatever the others do.",
                bound=f"every ratio within 1 +- {allowed:.2%} (one frame and a late timer or pause, over rate*T), so "
                f"Jain's index >= 4ab/(a+b)^2 = {floor:.5f}",
                measured=f"ratios {min(lowest):.4f} to {max(highest):.4f}, index >= {min(jains):.5f}",
                holds=min(jains) >= floor
                and all(
                    1 - bound <= low and high <= 1 + bound
                    for low, high, bound in zip(lowest, highest, bounds, strict=True)
                ),
            )
        )
    return found
