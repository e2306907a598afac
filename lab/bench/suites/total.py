"""A cap for all links of an attachment point: does each get its share, and all together no more than the cap?

Limits up to 1:10 apart, each link offered twice its limit in both directions, some of them silent. The share of a link
is the cap in proportion to the limits of those that send, at most its own limit. Counted at the receiver, in bytes on
the wire from `SETTLED_S` on, heartbeats included. Large datagrams count as payload over what headers and fragments
leave of the share. Every case has an attachment point of its own; all meet the same moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from contract.link_info import check_link_info
from lab.bench.core import Label, Outcome, Scale, Step
from lab.bench.engines import Engine
from lab.bench.plots import Plot
from lab.bench.wires import FROM_USER, TO_USER, UDP, Wire
from lab.bench.world import IFBS, PREFIX, tear_down
from measuring.framing import goodput_bound
from measuring.judge import NS, steady_rate
from measuring.netns import Lab, Namespace
from measuring.traffic import Endpoint, Results, Stream, data, ends, heartbeats, run_traffic

NAME = "total"
TITLE = "A cap for all links together"
OVERLOAD = 2
SETTLED_S = 5.0
LARGE_BYTES = 10_000
FULL_PAYLOAD_BYTES = 1472


@dataclass(frozen=True)
class Case:
    """The cap, the limits of its links, and which of these (by place, from 0) send nothing."""

    name: str
    cap_kbit: int
    kbits: tuple[int, ...]
    silent: frozenset[int] = frozenset()
    payload_bytes: int = FULL_PAYLOAD_BYTES
    has_heartbeats: bool = False

    def shares(self) -> dict[int, float]:
        """kbit/s by place, of those that send; all of them want more than they get."""
        busy = {place: kbit for place, kbit in enumerate(self.kbits) if place not in self.silent}
        part = min(1.0, self.cap_kbit / sum(busy.values()))
        return {place: kbit * part for place, kbit in busy.items()}


CASES = (
    Case("2 links, 1:10", 1_000, (300, 3_000)),
    Case("3 links", 1_000, (500, 1_000, 2_000)),
    Case("3 links, one silent", 1_000, (500, 1_000, 2_000), frozenset({1})),
    Case("10 links, 1:10", 2_000, tuple(range(200, 2_001, 200))),
    Case("10 links, five silent", 2_000, tuple(range(200, 2_001, 200)), frozenset(range(0, 10, 2))),
    Case("3 links, 10 000 B", 1_000, (500, 1_000, 2_000), payload_bytes=LARGE_BYTES),
    Case("3 links, with heartbeats", 1_000, (500, 1_000, 2_000), has_heartbeats=True),
    Case("3 links below the cap", 4_000, (500, 1_000, 2_000)),
)


def steps(scale: Scale) -> list[Step]:
    runs, seconds = scale.pick((3, 35.0), (1, 15.0))
    return [
        Step(f"all cases ({number} of {runs})", seconds + 8, partial(_measure, seconds))
        for number in range(1, runs + 1)
    ]


def _measure(seconds: float, outcome: Outcome) -> None:
    with Lab(PREFIX) as lab, ExitStack() as stack:
        hosts = {case: _capped(lab, stack, number, case) for number, case in enumerate(CASES)}
        plan: dict[Namespace, list[Endpoint]] = {}
        for case, (ap, user, wires) in hosts.items():
            pairs = [
                ends(wire.dev, *wire.ends, _streams(case, wire))
                for place, wire in enumerate(wires)
                if place not in case.silent
            ]
            plan[ap], plan[user] = [one for one, _ in pairs], [other for _, other in pairs]
        results = run_traffic(plan, seconds=seconds)
        for case, (ap, user, wires) in hosts.items():
            _note(case, {TO_USER: user, FROM_USER: ap}, wires, results, outcome)
            tear_down(ap, *(wire.dev for wire in wires), *IFBS)


def _capped(lab: Lab, stack: ExitStack, number: int, case: Case) -> tuple[Namespace, Namespace, list[Wire]]:
    ap, user = lab.namespace(f"ap{number}"), lab.namespace(f"u{number}")
    wires = [Wire(place, kbit) for place, kbit in enumerate(case.kbits, start=1)]
    for wire in wires:
        lab.veth(ap.nic(wire.dev, f"{wire.ap_address}/30"), user.nic(wire.dev, f"{wire.user_address}/30"))
    engine = stack.enter_context(Engine(ap))
    engine.enforce(check_link_info({str(wire.number): wire.entry(UDP) for wire in wires}))
    engine.set_cap(case.cap_kbit)
    return ap, user, wires


def _streams(case: Case, wire: Wire) -> tuple[Stream, ...]:
    beats = (heartbeats(),) if case.has_heartbeats else ()
    return (*beats, data(wire.kbit * OVERLOAD, case.payload_bytes))


def _note(
    case: Case, receivers: Mapping[str, Namespace], wires: Sequence[Wire], results: Results, outcome: Outcome
) -> None:
    from_ns = results.start_ns + int(SETTLED_S * NS)
    for direction, receiver in receivers.items():
        labels: dict[str, Label] = {"case": case.name, "direction": direction}
        together = 0.0
        for place, share in case.shares().items():
            end = results.at(receiver, wires[place].dev)
            arrivals = results.all_arrivals(receiver, wires[place].dev)
            rate = steady_rate(arrivals, end.wire, start_ns=from_ns, stop_ns=results.stop_ns, warm_up_s=0.0) or 0.0
            together += rate
            limit = wires[place].kbit
            outcome.add(rate, "kbit/s", what="rate", link=limit, share=f"{share:.0f}", **labels)
            outcome.add(rate / share - 1, "of its share", what="off", link=limit, **labels)
            if case.payload_bytes > FULL_PAYLOAD_BYTES:
                window = end.data.between(from_ns, results.stop_ns)
                carried = sum(window.payload_bytes[1:]) * 8e6 / (window.arrived_ns[-1] - window.arrived_ns[0])
                outcome.add(
                    carried / goodput_bound(share, LARGE_BYTES), "of what headers leave", what="large", **labels
                )
            if case.has_heartbeats:
                report = results.heartbeats(receiver, wires[place].dev)
                outcome.add(report.downs, "times", what="down", **labels)
        outcome.add(together / min(case.cap_kbit, sum(case.shares().values())), "of the cap", what="all", **labels)


# --- what came out ----------------------------------------------------------------------------------------------


def worst_off(outcome: Outcome) -> tuple[float, str] | None:
    """The median that is furthest from its share, with its link; None without any."""
    found = [
        (one.median, f"{one.labels['case']}, limit {one.labels['link']} kbit/s, {one.labels['direction']}")
        for one in outcome.find(what="off")
    ]
    return max(found, key=lambda one: abs(one[0])) if found else None


def worst(outcome: Outcome, what: str) -> float | None:
    """The smallest median of large datagrams, or the largest of all links together."""
    found = [one.median for one in outcome.find(what=what)]
    return (min(found) if what == "large" else max(found)) if found else None


def plots(outcome: Outcome) -> list[Plot]:
    """A table says it all."""
    del outcome
    return []
