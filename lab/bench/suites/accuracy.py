"""Does a link get its limit, and never more: 32 kbit/s to 1 Gbit/s, both directions.

One attachment point for each tool with an interface per rate, so that tools which only know interfaces can take part;
one user host at the other end of all. UDP in full frames on the link's own ports at twice the limit (1.3 times at 100
Mbit/s), both directions at once, judged at the receiving socket by the kernel's times. Up to 10 Mbit/s all tools meet
the same moment.

- `slope`: bytes after the first frame over the time from the first to the last one, from when the burst is spent.
- `window`: the most that any window of any length carried above rate*T, over burst + room + two frames. Above 1 is too
  much.
- 1 Gbit/s is TCP (cubic, 8 flows) in super-packets, as every host makes them: payload over what headers leave. It is
  judged where the same wire moves twice as much without a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lab.bench.core import Label, Outcome, Scale, Step, interleave
from lab.bench.plots import Plot
from lab.bench.windows import allowed_bytes, long_run_kbit
from lab.bench.wires import (
    DIRECTIONS,
    FROM_USER,
    NO_LIMIT,
    OURS,
    SCHEME,
    TCP,
    THESIS,
    TO_USER,
    UDP,
    Wire,
    install,
)
from lab.bench.world import IFBS, PREFIX, tear_down
from measuring.arrivals import Arrivals
from measuring.framing import Wire as FrameWire
from measuring.framing import tcp_goodput_bound
from measuring.judge import NS, bucket_bytes, excess_bytes
from measuring.netns import MAX_SEGMENTS, Lab, Namespace
from measuring.tcp import run_tcp
from measuring.traffic import Endpoint, Stream, TrafficRun, data, ends

NAME = "accuracy"
TITLE = "Accuracy"
SLOW, MIDDLE, FAST, GIGABIT = (32, 100), (500, 1_000, 10_000), (100_000,), 1_000_000
RATES = (*SLOW, *MIDDLE, *FAST)
TOOLS = (OURS, THESIS, SCHEME)
FULL_PAYLOAD_BYTES = 1472
OVERLOAD = {100_000: 1.3}  # of others 2; two processors send, shape and receive it all
ENOUGH_OFFERED = 1.02
FLOWS, TCP_WARM_UP_S = 8, 1.0
WIRE = FrameWire(4)
ABOVE = "above burst and two frames"


@dataclass(frozen=True)
class Case:
    """One run: which tools and rates at once."""

    tools: tuple[str, ...]
    kbits: tuple[int, ...]
    seconds: float

    def __str__(self) -> str:
        rates = f"{min(self.kbits):,} to {max(self.kbits):,}" if len(self.kbits) > 1 else f"{self.kbits[0]:,}"
        return f"{rates} kbit/s, {', '.join(self.tools)}"


def steps(scale: Scale) -> list[Step]:
    """100 Mbit/s goes one tool after the other, 1 Gbit/s also one direction after the other."""
    cases = [Case(TOOLS, MIDDLE, scale.pick(30.0, 4.0))]
    cases += scale.pick([Case(TOOLS, SLOW, 200.0)], [])
    cases += [Case((tool,), FAST, scale.pick(30.0, 3.0)) for tool in scale.pick(TOOLS, (OURS,))]
    tcp_s = scale.pick(10.0, 2.0)
    chosen = scale.pick((NO_LIMIT, *TOOLS), (NO_LIMIT, OURS))
    found = [Step(str(case), case.seconds + 4, partial(_measure, case)) for case in cases]
    return found + [
        Step(f"1 Gbit/s of TCP, {tool}, {way}", tcp_s + 2, partial(_measure_tcp, tool, way, tcp_s))
        for tool, way in interleave([(tool, way) for tool in chosen for way in DIRECTIONS], scale.pick(3, 1))
    ]


# --- UDP --------------------------------------------------------------------------------------------------------


def _measure(case: Case, outcome: Outcome) -> None:
    wires = [Wire(number, kbit) for number, kbit in enumerate(case.kbits, start=1)]
    with Lab(PREFIX) as lab:
        pairs = {tool: _hosts(lab, str(number), wires) for number, tool in enumerate(case.tools)}
        for tool, (ap, _) in pairs.items():
            install(tool, UDP, ap, wires)
        plan: dict[Namespace, list[Endpoint]] = {}
        for ap, user in pairs.values():
            both = [ends(wire.dev, *wire.ends, (_stream(wire.kbit),)) for wire in wires]
            plan[ap], plan[user] = [one for one, _ in both], [other for _, other in both]
        results = TrafficRun(plan, seconds=case.seconds).go().finish()
        for tool, (ap, user) in pairs.items():
            for wire in wires:
                for direction, receiver in ((TO_USER, user), (FROM_USER, ap)):
                    end = results.at(receiver, wire.dev)
                    sent = results.other_end(receiver, wire.dev).sent() * end.wire.bytes(FULL_PAYLOAD_BYTES)
                    offered = sent / (wire.kbit * 125 * case.seconds)
                    flow = Flow(tool, wire.kbit, direction, offered, results.start_ns, results.stop_ns)
                    _judge(flow, end.data, [end.wire.bytes(size) for size in end.data.payload_bytes], outcome)
            tear_down(ap, *(wire.dev for wire in wires), *IFBS)


def _hosts(lab: Lab, short: str, wires: Sequence[Wire]) -> tuple[Namespace, Namespace]:
    ap, user = lab.namespace(f"ap{short}"), lab.namespace(f"u{short}")
    for wire in wires:
        lab.veth(ap.nic(wire.dev, f"{wire.ap_address}/30"), user.nic(wire.dev, f"{wire.user_address}/30"))
    return ap, user


def _stream(kbit: int) -> Stream:
    return data(kbit * OVERLOAD.get(kbit, 2.0), FULL_PAYLOAD_BYTES)


@dataclass(frozen=True)
class Flow:
    """What one link was offered in one direction, over its limit, and when."""

    tool: str
    kbit: int
    direction: str
    offered: float
    start_ns: int
    stop_ns: int


def warm_up_s(kbit: int) -> float:
    """Until the burst is spent while twice the limit (1.3 times: 100 Mbit/s) is offered, and half a second more."""
    return 0.5 + bucket_bytes(kbit) / (kbit * 125) / (OVERLOAD.get(kbit, 2.0) - 1)


def _judge(flow: Flow, arrivals: Arrivals, sizes: Sequence[int], outcome: Outcome) -> None:
    labels: dict[str, Label] = {
        "tool": flow.tool, "protocol": UDP, "kbit": flow.kbit, "direction": flow.direction
    }  # fmt: skip
    if flow.offered < ENOUGH_OFFERED:
        outcome.note(
            f"{flow.tool}: at {flow.kbit:,} kbit/s the sender offered less than {ENOUGH_OFFERED} of the limit."
        )
    else:
        from_ns = flow.start_ns + int(warm_up_s(flow.kbit) * NS)
        slope = long_run_kbit(arrivals.arrived_ns, sizes, from_ns, flow.stop_ns) or 0.0
        outcome.add(slope / flow.kbit, "of the limit", what="slope", **labels)
    most = excess_bytes(arrivals, WIRE, flow.kbit)
    allowed = allowed_bytes(flow.kbit, has_heartbeats=True)
    outcome.add(most / allowed, "of burst + room + two frames", what="window", **labels)
    outcome.add(most - allowed_bytes(flow.kbit), "bytes", what=ABOVE, **labels)


# --- 1 Gbit/s ---------------------------------------------------------------------------------------------------


def _measure_tcp(tool: str, direction: str, seconds: float, outcome: Outcome) -> None:
    wire = Wire(1, GIGABIT)
    with Lab(PREFIX) as lab:
        ap, user = _hosts(lab, "0", [wire])
        for host in (ap, user):
            host.ip("link", "set", wire.dev, "gso_max_segs", str(MAX_SEGMENTS))
        install(tool, TCP, ap, [wire])
        sender, receiver, address = (
            (ap, user, wire.user_address) if direction == TO_USER else (user, ap, wire.ap_address)
        )
        result = run_tcp(sender, receiver, address, flows=FLOWS, seconds=seconds)
        share = result.goodput_kbit(warm_up_s=TCP_WARM_UP_S) / tcp_goodput_bound(GIGABIT)
        outcome.add(share, "of the limit", what="slope", tool=tool, protocol=TCP, kbit=GIGABIT, direction=direction)
        tear_down(ap, wire.dev, *IFBS)


# --- what came out ----------------------------------------------------------------------------------------------


def deviations(outcome: Outcome, kbits: Sequence[int]) -> dict[str, float]:
    """Of ours over UDP, one median for each rate and direction: 0.01 is one per cent above the limit."""
    return {
        f"{int(one.labels['kbit']):,} kbit/s {one.labels['direction']}": one.median - 1
        for kbit in kbits
        for one in outcome.find(tool=OURS, protocol=UDP, what="slope", kbit=kbit)
    }


def gigabit_deviations(outcome: Outcome) -> dict[str, float]:
    """Of ours, where no limit moves at least twice as much."""
    found = {}
    for way in DIRECTIONS:
        ours, free = (
            outcome.median(tool=tool, protocol=TCP, kbit=GIGABIT, direction=way, what="slope")
            for tool in (OURS, NO_LIMIT)
        )
        if ours is not None and free is not None and free >= 2:
            found[f"1 Gbit/s {way}"] = ours - 1
    return found


def window_shares(outcome: Outcome) -> list[float]:
    """Of ours, every run: the busiest window over what it may carry above rate*T."""
    return [sample for one in outcome.find(tool=OURS, what="window") for sample in one.samples]


def plots(outcome: Outcome) -> list[Plot]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for tool in TOOLS:
        for direction in DIRECTIONS:
            series = outcome.find(tool=tool, protocol=UDP, what="slope", direction=direction)
            points = sorted((float(one.labels["kbit"]), one.median) for one in series)
            if points:
                lines[f"{tool}, {direction}"] = points
    title = "UDP: slope over the limit"
    plot = Plot("accuracy", title, "of the limit", "limit, kbit/s", lines=lines, is_log=False, mark_y=1.0)
    return [plot] if lines else []
