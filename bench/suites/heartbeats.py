"""Do SCION's heartbeats arrive while data is offered at twenty times the limit, in small packets and full frames?

A border router sends a BFD packet every 200 ms and takes the link down after three misses in a row. Both ends of three
links send heartbeats and data at once, through a socket with a router's own send buffer.
"""

from __future__ import annotations

from functools import partial

from bench.core import Label, Outcome, Scale, Step
from bench.plots import Plot
from bench.report import Table
from bench.wires import FROM_USER, OURS, THESIS, TO_USER, UDP, Wire, install
from bench.world import IFB, PREFIX, tear_down
from measuring.netns import Lab
from measuring.traffic import ROUTER_SEND_BUFFER_BYTES, Endpoint, data, ends, heartbeats, run_traffic

NAME = "heartbeats"
TITLE = "Heartbeats under overload"
RATES = (32, 100, 2_000)
TOOLS = (OURS, THESIS)
OVERLOAD = 20


def steps(scale: Scale) -> list[Step]:
    seconds = scale.pick(8.0, 2.0)
    return [
        Step(f"{tool}, {size} bytes of data", seconds + 3, partial(_measure, tool, size, seconds))
        for size in scale.pick((200, 1472), (200,))
        for tool in TOOLS
    ]


def _measure(tool: str, payload_bytes: int, seconds: float, outcome: Outcome) -> None:
    wires = [Wire(number, kbit) for number, kbit in enumerate(RATES, start=1)]
    with Lab(PREFIX) as lab:
        ap, user = lab.namespace("ap"), lab.namespace("user")
        for wire in wires:
            lab.veth(ap.nic(wire.dev, f"{wire.ap_address}/30"), user.nic(wire.dev, f"{wire.user_address}/30"))
        install(tool, UDP, ap, wires)
        pairs = [_ends(wire, payload_bytes) for wire in wires]
        plan = {ap: [pair[0] for pair in pairs], user: [pair[1] for pair in pairs]}
        results = run_traffic(plan, seconds=seconds, linger_s=1.0)
        for wire in wires:
            for direction, receiver in ((TO_USER, user), (FROM_USER, ap)):
                report = results.heartbeats(receiver, wire.dev)
                labels: dict[str, Label] = {
                    "tool": tool,
                    "kbit": wire.kbit,
                    "payload": payload_bytes,
                    "direction": direction,
                }
                # Those that a blocked socket did not take were due as well: a router would have sent them.
                due = max(results.other_end(receiver, wire.dev).sent("heartbeat"), int(seconds / 0.2))
                outcome.add(due, "packets", what="due", **labels)
                outcome.add(report.received, "packets", what="arrived", **labels)
                outcome.add(report.downs, "times", what="down", **labels)
        tear_down(ap, *(wire.dev for wire in wires), IFB)


def _ends(wire: Wire, payload_bytes: int) -> tuple[Endpoint, Endpoint]:
    streams = (heartbeats(), data(wire.kbit * OVERLOAD, payload_bytes))
    return ends(wire.dev, *wire.ends, streams, send_buffer_bytes=ROUTER_SEND_BUFFER_BYTES)


def totals(outcome: Outcome, tool: str) -> tuple[float, float, float]:
    """Heartbeats due, heartbeats arrived, and times that a link was taken down; of all links and directions."""
    due, arrived, down = (
        sum(sum(one.samples) for one in outcome.find(tool=tool, what=what)) for what in ("due", "arrived", "down")
    )
    return due, arrived, down


def tables(outcome: Outcome) -> list[Table]:
    rows = []
    for kbit in RATES:
        for payload in outcome.values("payload", kbit=kbit):
            rows.append([f"{kbit:,}", str(payload), *(_cell(outcome, tool, kbit, payload) for tool in TOOLS)])
    title = f"Heartbeats that arrived at {OVERLOAD}-fold overload, both directions together"
    remark = "In brackets: how often the three-misses rule took the link down."
    return [Table(title, ["kbit/s", "data, bytes", *TOOLS], rows, remark)]


def _cell(outcome: Outcome, tool: str, kbit: int, payload: Label) -> str:
    due, arrived, down = (
        sum(sum(one.samples) for one in outcome.find(tool=tool, kbit=kbit, payload=payload, what=what))
        for what in ("due", "arrived", "down")
    )
    return f"{arrived:.0f} of {due:.0f} ({down:.0f})"


def plots(outcome: Outcome) -> list[Plot]:
    """A table says it all."""
    del outcome
    return []
