"""Datagrams from one frame to the largest there is, at four times the limit: how much arrives, and how evenly?

A link for each size; all sizes of a limit at once, to the user and then from the user (50 Mbit/s: one size at a time).
Counted is the payload of complete datagrams at the receiver.

- `share`: payload after the first datagram over the time from the first to the last one, over what headers and
  fragments leave of the limit; from when the burst and a full queue are behind.
- `gap`: the longest time between two datagrams, against twice the time of one at the limit and 100 ms.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial

from lab.bench.core import Label, Outcome, Scale, Step
from lab.bench.plots import Plot
from lab.bench.wires import DIRECTIONS, FROM_USER, OURS, THESIS, TO_USER, UDP, Wire, install
from lab.bench.world import IFBS, PREFIX, tear_down
from measuring.arrivals import Arrivals
from measuring.framing import goodput_bound, wire_bytes
from measuring.judge import NS, all_pauses_s
from measuring.netns import Lab
from measuring.traffic import data, ends, run_traffic

NAME = "datagrams"
TITLE = "Datagrams of 1000 to 65 507 bytes"
SIZES = (1_000, 1_472, 2_000, 5_000, 10_000, 30_000, 65_507)
QUICK_SIZES = (1_000, 10_000, 65_507)
RATES = (500, 5_000, 50_000)
TOOLS = (OURS, THESIS)
OVERLOAD = 4
ALONE_KBIT = 50_000  # 200 Mbit/s offered to one link
WARM_UP_S = 1.0
GAP_MS = 100.0
NOTEWORTHY_S = 0.02  # a thousandth of a run


@dataclass(frozen=True)
class Case:
    """One run: one tool, one limit, these sizes at once, one direction."""

    tool: str
    kbit: int
    sizes: tuple[int, ...]
    direction: str
    seconds: float

    def __str__(self) -> str:
        sizes = f"{self.sizes[0]:,} B" if len(self.sizes) == 1 else f"{len(self.sizes)} sizes"
        return f"{self.tool}: {self.kbit:,} kbit/s, {sizes}, {self.direction}"


def steps(scale: Scale) -> list[Step]:
    """Ours everything; the thesis' sequence at 500 kbit/s, where one run tells."""
    sizes = scale.pick(SIZES, QUICK_SIZES)
    wanted = [(OURS, kbit) for kbit in scale.pick(RATES, RATES[:2])]
    wanted.append((THESIS, RATES[0]))
    cases = []
    for tool, kbit in wanted:
        seconds = scale.pick({500: 31.0, 5_000: 11.0, 50_000: 6.0}, {500: 14.0, 5_000: 4.0, 50_000: 3.0})[kbit]
        for way in DIRECTIONS:
            groups = [(size,) for size in sizes] if kbit >= ALONE_KBIT else [sizes]
            cases += [Case(tool, kbit, group, way, seconds) for group in groups]
    return [Step(str(case), case.seconds + 3, partial(_measure, case)) for case in cases]


def _measure(case: Case, outcome: Outcome) -> None:
    wires = [Wire(number, case.kbit) for number in range(1, len(case.sizes) + 1)]
    with Lab(PREFIX) as lab:
        ap, user = lab.namespace("ap"), lab.namespace("user")
        for wire in wires:
            lab.veth(ap.nic(wire.dev, f"{wire.ap_address}/30"), user.nic(wire.dev, f"{wire.user_address}/30"))
        install(case.tool, UDP, ap, wires)
        pairs = []
        for wire, size in zip(wires, case.sizes, strict=True):
            streams = {case.direction: (data(case.kbit * OVERLOAD, size),)}
            there, back = (streams.get(one, ()) for one in (TO_USER, FROM_USER))
            pairs.append(ends(wire.dev, *wire.ends, there, right_streams=back))
        results = run_traffic({ap: [one for one, _ in pairs], user: [one for _, one in pairs]}, seconds=case.seconds)
        if (paused_s := all_pauses_s(results.pauses)) > NOTEWORTHY_S:
            outcome.note(f"{case}: the machine stood still for {paused_s:.2f} s.")
        receiver = user if case.direction == TO_USER else ap
        for wire, size in zip(wires, case.sizes, strict=True):
            arrivals = results.at(receiver, wire.dev).data
            _note(case, size, arrivals.between(results.start_ns + int(WARM_UP_S * NS), results.stop_ns), outcome)
        tear_down(ap, *(wire.dev for wire in wires), *IFBS)


def datagram_ms(kbit: int, payload_bytes: int) -> float:
    """How long one takes at its limit, with all its headers."""
    return wire_bytes(payload_bytes, family=4) * 8 / kbit


def _note(case: Case, size: int, arrivals: Arrivals, outcome: Outcome) -> None:
    labels: dict[str, Label] = {"tool": case.tool, "kbit": case.kbit, "payload": size, "direction": case.direction}
    outcome.add(share_of(arrivals, case.kbit, size), "of what headers leave", what="share", **labels)
    longest_ms = (case.seconds - WARM_UP_S) * 1000
    if len(arrivals) > 1:
        longest_ms = max(later - earlier for earlier, later in itertools.pairwise(arrivals.arrived_ns)) / 1e6
    outcome.add(longest_ms, "ms", what="gap", **labels)
    allowed_ms = 2 * datagram_ms(case.kbit, size) + GAP_MS
    outcome.add(longest_ms / allowed_ms, "of what is allowed", what="gap share", **labels)


def share_of(arrivals: Arrivals, kbit: int, payload_bytes: int) -> float:
    """Goodput between the first and the last datagram over what headers leave; 0 with fewer than two."""
    if len(arrivals) < 2:
        return 0.0
    carried = sum(arrivals.payload_bytes[1:])
    elapsed_ns = arrivals.arrived_ns[-1] - arrivals.arrived_ns[0]
    return carried * 8e6 / elapsed_ns / goodput_bound(kbit, payload_bytes)


# --- what came out ----------------------------------------------------------------------------------------------


def worst(outcome: Outcome, what: str) -> tuple[float, str] | None:
    """Of ours: the smallest share, or the largest gap over what is allowed, with where; None without any."""
    found = [
        (sample, f"{int(one.labels['payload']):,} B at {int(one.labels['kbit']):,} kbit/s {one.labels['direction']}")
        for one in outcome.find(tool=OURS, what=what)
        for sample in one.samples
    ]
    choose = min if what == "share" else max
    return choose(found) if found else None


def plots(outcome: Outcome) -> list[Plot]:
    """A table says it all."""
    del outcome
    return []
