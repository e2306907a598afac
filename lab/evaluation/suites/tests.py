"""Tests of links that send (`scionlab-bw test`): both ends over our limiter, and what their figures are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import fmean

from lab.bench.core import Outcome, Step
from lab.bench.report import NOTHING
from lab.evaluation import tests_latency, tests_tcp, together
from lab.evaluation.bed import Bed
from lab.evaluation.conversations import WAYS, Ends, converse, labels, limit_tested
from lab.evaluation.core import DIRECTIONS, TO_USER, Claim, EvaluationScale
from lab.evaluation.limiters import OURS
from measuring.traffic import Results, ends, heartbeats
from station.plan import Phase, frame_bytes

NAME = "tests"
TITLE = "Tests of links that send"
RATES = (100, 1_000, 10_000, 100_000)
ALONE_KBIT = 5_000
OVERLOAD_PERCENT, UNDERLOAD_PERCENT = 150, 50
SMALL_PAYLOAD, FULL_PAYLOAD = 200, 1452
CONTROL_S = 3
MOST_OFF = 0.01
MOST_REPETITIONS = 3  # each takes four minutes
INTRO = f"""
Both ends of a test (`station/`), the attachment point's as a child without rights, over the link that the test is for.
*Accuracy*: {OVERLOAD_PERCENT} % of the limit is sent each way, one way after the other; what arrived in whole seconds,
the first and the last left out, beside what the headers leave of the limit ({SMALL_PAYLOAD} B of payload at
{RATES[0]} kbit/s, so that a second has packets enough, else {FULL_PAYLOAD} B). *Counted*: {UNDERLOAD_PERCENT} % of the
limit is sent, and the class of the link says what passed. *Without the entry* for the test's port in the limiter the
class must count nothing, and everything must arrive: the negative control. *Another key*: the user's end has a wrong
one. *Together*: two links are tested alone, then at the same time, and heartbeats go
over both links all the while. *TCP*: the tool `tcp`, over one and two connections;
what arrived in whole seconds from the second one on, beside what headers leave of the limit (1448 of 1514). At 1 Gbit/s
hosts hand over super-packets, as their own TCP does; those are charged with the headers of all their segments. *From
the command to the verdict*: a whole service, its agent and limiter, and `scionlab-bw test` on the host of the AS; then
an end is killed.
"""


def payload_of(kbit: int) -> int:
    return SMALL_PAYLOAD if kbit < 500 else FULL_PAYLOAD


def left_kbit(kbit: int) -> float:
    """What headers leave of a limit for payload."""
    return kbit * payload_of(kbit) / frame_bytes(payload_of(kbit), 4)


def phases(kbit: int, percent: int, seconds: int) -> tuple[Phase, ...]:
    """A stream each way, at that share of the limit."""
    ways = enumerate(WAYS.values())
    return tuple(
        Phase(number, "stream", way, kbit * percent // 100, payload_of(kbit), seconds * 1000, 0) for number, way in ways
    )


def steps(scale: EvaluationScale) -> list[Step]:
    seconds, short = scale.pick(12, 6), scale.pick(8, 5)
    repetitions = min(MOST_REPETITIONS, scale.repetitions)
    found = []
    for number in range(1, repetitions + 1):
        again = f" ({number} of {repetitions})"
        found += [
            _accuracy("three links at once" + again, RATES[:3], seconds, repetitions),
            _accuracy(f"{RATES[3] // 1000} Mbit/s" + again, RATES[3:], seconds, repetitions),
            together.disturbable("two links, alone and together" + again, 6 * short + 12, partial(_together, short)),
        ]
        found += tests_tcp.steps(again, scale.pick((1, 2), (2,)))
    runs = scale.pick(7, 3)  # a test begins with a whole second, so a single one says little
    return [
        *found,
        Step("counted, without the entry, another key", 24, _controls),
        Step(tests_latency.EXPERIMENT, 60 + 22 * runs, partial(tests_latency.measure, runs)),
    ]


def _accuracy(what: str, rates: Sequence[int], seconds: int, repetitions: int) -> Step:
    """A single run that is off is made once more: a pause of the machine of 0.1 s is 2 % of it."""

    def measured(outcome: Outcome) -> None:
        found = _received(rates, seconds)
        worst = max((abs(one - 1) for one in _accuracies(found).values()), default=1.0)
        if repetitions == 1 and worst > MOST_OFF:
            outcome.note(f"A first run of {what} was made once more: {worst:.2%} off.")
            found = _received(rates, seconds)
        together.merge(outcome, found)

    return Step(f"accuracy, {what}", 2 * seconds + 8, measured)


def _received(rates: Sequence[int], seconds: int) -> Outcome:
    outcome, limits = Outcome(NAME), dict(enumerate(rates, start=1))
    with together.beds([OURS], len(rates)) as found:
        bed = found[OURS]
        limit_tested(bed, limits)
        ends = converse(bed, {wire: phases(kbit, OVERLOAD_PERCENT, seconds) for wire, kbit in limits.items()})
    for wire, kbit in limits.items():
        for way, rows in _received_kbit(ends[wire], seconds).items():
            together.add_all(outcome, rows, "kbit/s", **labels("accuracy", way, kbit))
    return outcome


def _together(seconds: int, outcome: Outcome) -> float:
    """For how long the machine stood still."""
    plan, disturbed_s = phases(ALONE_KBIT, OVERLOAD_PERCENT, seconds), 0.0
    with together.beds([OURS], 2) as found:
        bed = found[OURS]
        limit_tested(bed, dict.fromkeys((1, 2), ALONE_KBIT))
        for experiment, wires in (("alone", (1,)), ("alone", (2,)), ("together", (1, 2))):
            both, results = _beside_heartbeats(found, dict.fromkeys(wires, plan), 2 * seconds + 2)
            disturbed_s += together.disturbed_s(results)
            for wire, reports in both.items():
                for way, rows in _received_kbit(reports, seconds).items():
                    together.add_all(outcome, rows, "kbit/s", wire=wire, **labels(experiment, way, ALONE_KBIT))
            for way, receiver in together.receivers(bed):
                for one in bed.wires():
                    here = labels("heartbeats", way, ALONE_KBIT)
                    due = results.other_end(receiver, one.name).sent("heartbeat")
                    outcome.add(due, "packets", what="due", **here)
                    outcome.add(results.heartbeats(receiver, one.name).received, "packets", what="arrived", **here)
    return disturbed_s


def _beside_heartbeats(
    found: Mapping[str, Bed], plans: Mapping[int, Sequence[Phase]], seconds: float
) -> tuple[dict[int, Ends], Results]:
    """The tests, and meanwhile heartbeats both ways over every link."""

    def pairs(bed: Bed) -> Sequence[together.Pair]:
        return [ends(one.name, *one.ends, (heartbeats(),)) for one in bed.wires()]

    with ThreadPoolExecutor(1) as pool:
        beating = pool.submit(together.run, found, pairs, seconds)
        return converse(found[OURS], plans), beating.result()


def _controls(outcome: Outcome) -> None:
    kbit = ALONE_KBIT
    with together.beds([OURS], 1) as found:
        bed = found[OURS]
        for experiment, has_entry, has_key, percent in (
            ("counted", True, True, UNDERLOAD_PERCENT),
            ("without the entry", False, True, OVERLOAD_PERCENT),
            ("another key", True, False, UNDERLOAD_PERCENT),
        ):
            limit_tested(bed, {1: kbit}, has_entry=has_entry)
            before = _passed(bed)
            both = converse(bed, {1: phases(kbit, percent, CONTROL_S)}, has_key=has_key)[1]
            after = _passed(bed)
            for way in DIRECTIONS:
                sender, receiver = (both.ap, both.user) if way == TO_USER else (both.user, both.ap)
                here = labels(experiment, way, kbit)
                counted = after[way] - before[way]
                sent = sum(one.sent_packets for one in sender.phases)
                outcome.add(counted, "packets", what="counted", **here)
                outcome.add(sent, "packets", what="sent", **here)
                received = sum(one.received_bytes for one in receiver.phases)
                outcome.add(received, "bytes", what="received", **here)
            if not has_key:
                continue
            for way, rows in _received_kbit(both, CONTROL_S).items():
                together.add_all(outcome, rows, "kbit/s", what="rate", **labels(experiment, way, kbit))


def _passed(bed: Bed) -> dict[str, int]:
    """Packets of link 1 that its class let pass, and those that were refused."""
    found = bed.own.counters() if bed.own is not None else {}
    both = {way: found[1, name] for way, name in WAYS.items()}
    return {way: one.passed_packets + one.refused_packets for way, one in both.items()}


def _received_kbit(both: Ends, seconds: int) -> dict[str, list[float]]:
    """By direction: payload in each second of a stream that lasts so long, the first and the last left out."""
    found: dict[str, list[float]] = {}
    for way, name in WAYS.items():
        report = both.user if way == TO_USER else both.ap
        rows = [one.seconds for one in report.phases if one.direction == name]
        found[way] = [received * 8 / 1000 for *_, received in rows[0][1 : seconds - 1]] if rows else []
    return found


# --- what came out ----------------------------------------------------------------------------------------------


def _accuracies(outcome: Outcome) -> dict[tuple[int, str], float]:
    """By limit and direction: what arrived, as a share of what headers leave."""
    return {
        (int(one.labels["kbit"]), str(one.labels["direction"])): fmean(one.samples) / left_kbit(int(one.labels["kbit"]))
        for one in outcome.find(experiment="accuracy")
    }


def _changes(outcome: Outcome) -> dict[tuple[int, str], float]:
    """By link and direction: the rate while the other link was tested, as a share of that alone."""
    found = {}
    for one in outcome.find(experiment="alone"):
        wire, way = int(one.labels["wire"]), str(one.labels["direction"])
        for other in outcome.find(experiment="together", wire=wire, direction=way):
            found[wire, way] = fmean(other.samples) / fmean(one.samples)
    return found


def _total(outcome: Outcome, experiment: str, what: str) -> float:
    return together.total(outcome, what, experiment=experiment)


def claims(outcome: Outcome) -> list[Claim]:
    shares, changes = _accuracies(outcome), _changes(outcome)
    worst = max((abs(one - 1) for one in shares.values()), default=None)
    moved = max((abs(one - 1) for one in changes.values()), default=None)
    sent, counted = _total(outcome, "counted", "sent"), _total(outcome, "counted", "counted")
    escaped_sent, escaped = (_total(outcome, "without the entry", what) for what in ("sent", "counted"))
    rates = [one.samples for one in outcome.find(experiment="without the entry", what="rate")]
    above = min((fmean(one) / left_kbit(ALONE_KBIT) for one in rates if one), default=0.0)
    due, beats = (_total(outcome, "heartbeats", what) for what in ("due", "arrived"))
    no_key = outcome.find(experiment="another key", what="received")
    moved_bytes = sum(sum(one.samples) for one in no_key)
    return [
        Claim(
            "A test says what the limit lets pass, from 100 kbit/s to 100 Mbit/s, in both directions.",
            f"within {MOST_OFF:.0%} of what headers leave of the limit",
            NOTHING if worst is None else f"at most {worst:.2%} off",
            worst is not None and len(shares) == 2 * len(RATES) and worst <= MOST_OFF,
        ),
        Claim(
            "Everything that a test sends is counted in the class of its link.",
            "packets counted of data packets sent, both ends: 1, and at most 5 % more for the conversation itself",
            f"{counted:,.0f} of {sent:,.0f}",
            sent > 0 and 1 <= counted / sent <= 1.05,
        ),
        Claim(
            "Without the entry for its port a test escapes the limit (negative control).",
            "the class counts nothing, and 1.4 times the limit or more arrives",
            f"{escaped:,.0f} packets counted of {escaped_sent:,.0f}; {above:.2f} times the limit",
            escaped_sent > 0 and escaped == 0 and above >= 1.4,
        ),
        Claim(
            "A user's end with another key moves nothing.",
            "0 bytes of payload, in both directions",
            f"{moved_bytes:,.0f} B",
            bool(no_key) and moved_bytes == 0 and _total(outcome, "another key", "sent") == 0,
        ),
        Claim(
            "Tests of two links at one attachment point do not change each other.",
            f"the rate beside another test within {MOST_OFF:.0%} of that alone",
            NOTHING if moved is None else f"at most {moved:.2%} off",
            moved is not None and len(changes) == 4 and moved <= MOST_OFF,
        ),
        Claim(
            "Heartbeats pass while a link is tested.",
            "each that was sent, over the tested links and the one beside them",
            f"{beats:,.0f} of {due:,.0f}",
            0 < due == beats,
        ),
        *tests_tcp.claims(outcome),
        *tests_latency.claims(outcome),
    ]
