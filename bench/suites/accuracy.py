"""Does a link get its limit, and never more: 100 kbit/s to 1 Gbit/s, both directions, UDP and TCP.

One attachment point with an interface per rate, so that tools which only know interfaces can take part; one user host
at the other end of all. The same traffic meets each tool in turn: UDP paced at twice the limit (1.3 times at 1 Gbit/s)
with full frames on the link's own ports, judged at the receiving socket; TCP (iperf3, cubic, no super-packets) with an
entry that has only the thesis' four keys, judged by a tap behind the limit. Times are the kernel's.

- `long run` is the steady rate over the limit, from one second after the start.
- `window` is the most that any window of 10 ms, 100 ms or 1 s carried, start included, over what may pass in it:
  rate*T, both bursts and two frames (docs/adr/0003). Above 1 is too much.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bench.core import Label, Outcome, Scale, Series, Step, interleave
from bench.plots import Plot
from bench.report import NOTHING, Table
from bench.windows import allowed_bytes, busiest_window_bytes, long_run_kbit
from bench.wires import (
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
from bench.world import IFB, PREFIX, tear_down
from measuring import tap
from measuring.judge import NS
from measuring.netns import Lab, LabError, Namespace
from measuring.traffic import Endpoint, TrafficRun, data, ends

NAME = "accuracy"
TITLE = "Accuracy"
RATES = (100, 500, 1_000, 10_000, 100_000, 1_000_000)
GIGABIT = 1_000_000
FULL_PAYLOAD_BYTES = 1472
WINDOWS_MS = (10, 100, 1_000)
TOOLS = (OURS, THESIS, SCHEME)
WARM_UP_S, WIND_DOWN_S = 1.0, 0.2
IPERF_PORT = 5201
AHEAD = ("nice", "-n", "-20")  # a flow that has to wait for the processor looks like one that is limited too much
ENOUGH_OFFERED = 1.02


@dataclass(frozen=True)
class Case:
    """One run: which wires at once, in which directions."""

    tool: str
    protocol: str
    kbits: tuple[int, ...]
    directions: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        rates = f"{self.kbits[0]:,} kbit/s" if len(self.kbits) == 1 else f"{len(self.kbits)} rates"
        way = "both directions" if len(self.directions) == 2 else self.directions[0]
        return f"{self.tool}: {self.protocol}, {rates}, {way}"


def steps(scale: Scale) -> list[Step]:
    """A gigabit goes alone and one way at a time: two processors send, shape and receive it."""
    slow = tuple(scale.pick(RATES[:-1], (1_000, 10_000)))
    seconds = scale.pick(6.0, 2.0)
    groups: list[tuple[str, tuple[int, ...], tuple[str, ...], float]] = [(UDP, slow, DIRECTIONS, seconds)]
    groups += [(TCP, slow, (one,), seconds) for one in DIRECTIONS]
    if not scale.quick:
        groups += [(protocol, (GIGABIT,), (one,), 4.0) for protocol in (UDP, TCP) for one in DIRECTIONS]
    cases = [Case(tool, *group) for tool in TOOLS for group in groups]
    cases += [Case(NO_LIMIT, *group) for group in groups if group[0] == TCP and group[1] == (GIGABIT,)]
    return [
        Step(str(case), case.seconds + 2.0, partial(_measure, case)) for case in interleave(cases, scale.pick(2, 1))
    ]


# --- one run ----------------------------------------------------------------------------------------------------


def _measure(case: Case, outcome: Outcome) -> None:
    wires = [Wire(RATES.index(kbit) + 1, kbit) for kbit in case.kbits]
    with Lab(PREFIX) as lab:
        ap, user = lab.namespace("ap"), lab.namespace("user")
        for wire in wires:
            lab.veth(ap.nic(wire.dev, f"{wire.ap_address}/30"), user.nic(wire.dev, f"{wire.user_address}/30"))
        install(case.tool, case.protocol, ap, wires)
        run = _run_udp if case.protocol == UDP else _run_tcp
        for flow in run(case, wires, ap, user):
            _judge(case, flow, outcome)
        tear_down(ap, *(wire.dev for wire in wires), IFB)


@dataclass(frozen=True)
class Flow:
    """What arrived of one wire in one direction: times in ns, bytes on the wire."""

    wire: Wire
    direction: str
    start_ns: int
    times_ns: Sequence[int]
    sizes: Sequence[int]
    offered: float | None = None  # over the limit; None for TCP, which takes what it gets


def _run_udp(case: Case, wires: Sequence[Wire], ap: Namespace, user: Namespace) -> Iterator[Flow]:
    pairs = [(wire, _udp_ends(case, wire)) for wire in wires]
    plan = {ap: [pair[0] for _, pair in pairs], user: [pair[1] for _, pair in pairs]}
    results = TrafficRun(plan, seconds=case.seconds).go().finish()
    for wire in wires:
        for direction, receiver in ((TO_USER, user), (FROM_USER, ap)):
            if direction in case.directions:
                end = results.at(receiver, wire.dev)
                sizes = [end.wire.bytes(size) for size in end.data.payload_bytes]
                sent_bytes = results.other_end(receiver, wire.dev).sent() * end.wire.bytes(FULL_PAYLOAD_BYTES)
                offered = sent_bytes / (wire.kbit * 125 * case.seconds)
                yield Flow(wire, direction, results.start_ns, end.data.arrived_ns, sizes, offered)


def _udp_ends(case: Case, wire: Wire) -> tuple[Endpoint, Endpoint]:
    times = 1.3 if wire.kbit == GIGABIT else 2.0
    streams = {
        one: (data(wire.kbit * times, FULL_PAYLOAD_BYTES),) if one in case.directions else () for one in DIRECTIONS
    }
    return ends(wire.dev, *wire.ends, streams[TO_USER], right_streams=streams[FROM_USER])


def _run_tcp(case: Case, wires: Sequence[Wire], ap: Namespace, user: Namespace) -> Iterator[Flow]:
    """iperf3 runs longer than the taps listen and is ended then: it would wait for full queues to drain."""
    (direction,) = case.directions
    servers = [
        user.popen([*AHEAD, "iperf3", "-s", "-B", wire.user_address, "-p", str(IPERF_PORT + wire.number)])
        for wire in wires
    ]
    time.sleep(0.3)  # until they listen: a client that comes earlier is refused, and the step fails with its words
    taps = [_start_tap(case, wire, ap, user) for wire in wires]
    start_ns = time.monotonic_ns()
    clients = [ap.popen(_iperf_command(case, wire)) for wire in wires]
    captured = [tap.unpack(_finish(one, case.seconds)) for one in taps]
    for client in clients:
        if client.poll() is not None:
            said = client.communicate()
            raise LabError(f"iperf3 ended early: {' '.join(said).strip()[-300:]}")
        ap.lab.stop(client)
    for server in servers:
        user.lab.stop(server)
    for wire, (times, sizes) in zip(wires, captured, strict=True):
        yield Flow(wire, direction, start_ns, times, sizes)


def _iperf_command(case: Case, wire: Wire) -> list[str]:
    """Longer than anyone listens; in the other direction with -R."""
    command = [
        *AHEAD,
        "iperf3",
        "-c",
        wire.user_address,
        "-p",
        str(IPERF_PORT + wire.number),
        "-C",
        "cubic",
        "-t",
        "60",
    ]
    return [*command, *(["-R"] if FROM_USER in case.directions else [])]


def _start_tap(case: Case, wire: Wire, ap: Namespace, user: Namespace) -> subprocess.Popen[str]:
    """Behind the limit: at the user's interface, or where the IFB hands packets back."""
    if FROM_USER in case.directions:
        where, dev, which = ap, wire.dev if case.tool == NO_LIMIT else wire.ifb(case.tool), "--from"
    else:
        where, dev, which = user, wire.dev, "--to"
    started = where.python("measuring.tap", "--dev", dev, which, wire.user_address, "--seconds", str(case.seconds))
    if started.stdout is None or started.stdout.readline().strip() != "ready":
        raise LabError("the tap did not start")
    return started


def _finish(process: subprocess.Popen[str], seconds: float) -> str:
    said, complaints = process.communicate(timeout=seconds + 30)
    if process.returncode != 0:
        raise LabError(f"a tap ended with {process.returncode}: {complaints.strip()[-300:]}")
    return said


def _judge(case: Case, flow: Flow, outcome: Outcome) -> None:
    limit = flow.wire.kbit
    labels: dict[str, Label] = {
        "tool": case.tool,
        "protocol": case.protocol,
        "kbit": limit,
        "direction": flow.direction,
    }
    start_ns, stop_ns = (flow.start_ns + int(s * NS) for s in (WARM_UP_S, case.seconds - WIND_DOWN_S))
    rate = long_run_kbit(flow.times_ns, flow.sizes, start_ns, stop_ns) or 0.0
    if flow.offered is None or flow.offered >= ENOUGH_OFFERED:
        outcome.add(rate / limit, "of the limit", what="long run", **labels)
    else:
        outcome.note(f"{case}: runs in which the sender offered less than {ENOUGH_OFFERED} of the limit are left out.")
    for window_ms in WINDOWS_MS:
        most = busiest_window_bytes(flow.times_ns, flow.sizes, window_ms / 1000)
        share = most / allowed_bytes(limit, window_ms / 1000)
        outcome.add(share, "of what may pass", what=f"window {window_ms} ms", **labels)


# --- what came out ----------------------------------------------------------------------------------------------


def long_run_deviations(outcome: Outcome) -> list[float]:
    """Of ours over UDP, one median per rate and direction: 0.01 is one per cent above the limit."""
    return [one.median - 1 for one in outcome.find(tool=OURS, protocol=UDP, what="long run")]


def window_shares(outcome: Outcome) -> list[float]:
    """Of ours, every run of both protocols: the busiest window over what it may carry."""
    found = [one for one in outcome.find(tool=OURS) if str(one.labels["what"]).startswith("window")]
    return [sample for one in found for sample in one.samples]


def tables(outcome: Outcome) -> list[Table]:
    found = []
    for protocol in (UDP, TCP):
        found.append(_table(outcome, protocol, "long run", _median, "Over the limit, medians."))
        for window_ms in WINDOWS_MS:
            remark = "Over rate*T + both bursts + 2 frames; the worst run."
            found.append(_table(outcome, protocol, f"window {window_ms} ms", _worst, remark))
    return found


def _table(outcome: Outcome, protocol: str, what: str, shown: Callable[[Series], str], remark: str) -> Table:
    def cell(kbit: int, tool: str) -> str:
        ways = [outcome.find(what=what, protocol=protocol, kbit=kbit, tool=tool, direction=one) for one in DIRECTIONS]
        return " / ".join(shown(one[0]) if one else NOTHING for one in ways)

    columns = (*TOOLS, NO_LIMIT) if protocol == TCP else TOOLS
    measured = [kbit for kbit in RATES if outcome.find(protocol=protocol, kbit=kbit, what=what)]
    rows = [[f"{kbit:,}", *(cell(kbit, tool) for tool in columns)] for kbit in measured]
    return Table(f"{protocol}, {what}, to / from user", ["kbit/s", *columns], rows, remark)


def _median(one: Series) -> str:
    return f"{one.median:.4f}"


def _worst(one: Series) -> str:
    return f"{max(one.samples):.3f}"


def plots(outcome: Outcome) -> list[Plot]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for tool in TOOLS:
        for direction in DIRECTIONS:
            series = outcome.find(tool=tool, protocol=TCP, what="long run", direction=direction)
            points = sorted((float(one.labels["kbit"]), one.median) for one in series)
            if points:
                lines[f"{tool}, {direction}"] = points
    title = "TCP: rate on the wire over the limit"
    return [
        Plot(
            "accuracy",
            title,
            "of the limit",
            "limit, kbit/s",
            lines=lines,
            is_log=False,
            mark_y=1.0,
            dashed=[FROM_USER],
        )
    ]
