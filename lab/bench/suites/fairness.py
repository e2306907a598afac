"""Do TCP flows share one limit, how long do they wait, and what does an idle link lose of a burst?

- Eight flows (cubic, pinned; no super-packets) in one limit, both directions on links of their own: Jain's index of
  their goodput after a second. Beside them a hundredth of the limit in small datagrams on the same link, whose one-way
  delay is counted. Links are matched by address alone.
- Ten packets at once every few seconds on a link that carries only heartbeats otherwise, as control services send them:
  how many are lost, and how late the last one is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lab.bench.core import Label, Outcome, Scale, Step, percentile
from lab.bench.plots import Plot
from lab.bench.wires import DIRECTIONS, FROM_USER, OURS, TCP, THESIS, TO_USER, UDP, Wire, install
from lab.bench.world import IFBS, PREFIX, tear_down
from measuring.framing import wire_bytes
from measuring.judge import NS, delays_ms, jain
from measuring.netns import Lab, Namespace
from measuring.scion_packet import MIN_DATA_BYTES
from measuring.tcp import TcpRun
from measuring.traffic import Endpoint, Stream, TrafficRun, data, ends, heartbeats, run_traffic

NAME = "fairness"
TITLE = "TCP flows in one limit, and bursts on an idle link"
RATES = (32, 100, 500, 1_000, 5_000)
JUDGED = (500, 5_000)
TOOLS = (OURS, THESIS)
FLOWS = 8
WARM_UP_S = 1.0
_WARM_UP_BINS = 10  # of 100 ms
PROBE_SHARE = 0.01
BURST, BURST_BYTES = 10, (1_200, 1_472)
BURST_LINGER_S = 5.0  # ten full frames take 3.8 s at 32 kbit/s


def steps(scale: Scale) -> list[Step]:
    """Both rates that have a target with everybody, several times; the others with ours alone."""
    runs, seconds = scale.pick((5, 50.0), (1, 12.0))
    others = tuple(one for one in RATES if one not in JUDGED)
    bursts, every_s = scale.pick((8, 6.0), (2, 5.0))
    return [
        *(
            Step(f"{FLOWS} flows ({number} of {runs})", seconds + 5, partial(_measure_flows, TOOLS, JUDGED, seconds))
            for number in range(1, runs + 1)
        ),
        *(
            Step(
                f"{FLOWS} flows, other rates ({number})", seconds + 5, partial(_measure_flows, (OURS,), others, seconds)
            )
            for number in range(1, scale.pick(3, 0) + 1)
        ),
        *(
            Step(f"bursts of {BURST} x {size} B", bursts * every_s + 8, partial(_measure_bursts, size, bursts, every_s))
            for size in BURST_BYTES
        ),
    ]


@dataclass(frozen=True)
class _Host:
    """A tool's attachment point with a wire per link, and the users at their other ends."""

    tool: str
    ap: Namespace
    user: Namespace
    wires: tuple[Wire, ...]

    def clear(self) -> None:
        tear_down(self.ap, *(wire.dev for wire in self.wires), *IFBS)


def _hosts(lab: Lab, tools: Sequence[str], kbits: Sequence[int], protocol: str) -> Iterator[_Host]:
    wires = tuple(Wire(number, kbit) for number, kbit in enumerate(kbits, start=1))
    for number, tool in enumerate(tools):
        ap, user = lab.namespace(f"ap{number}"), lab.namespace(f"u{number}")
        for wire in wires:
            lab.veth(ap.nic(wire.dev, f"{wire.ap_address}/30"), user.nic(wire.dev, f"{wire.user_address}/30"))
        install(tool, protocol, ap, wires)
        yield _Host(tool, ap, user, wires)


# --- flows ------------------------------------------------------------------------------------------------------


def _measure_flows(tools: Sequence[str], kbits: Sequence[int], seconds: float, outcome: Outcome) -> None:
    """A link for each rate and direction: nobody's acknowledgements share a limit with somebody else's data."""
    lanes = [(kbit, way) for kbit in kbits for way in DIRECTIONS]
    with Lab(PREFIX) as lab:
        hosts = list(_hosts(lab, tools, [kbit for kbit, _ in lanes], TCP))
        flows = {
            (host, number): _flow(host, number, way, seconds) for host in hosts for number, (_, way) in _numbered(lanes)
        }
        probes = TrafficRun(_probes(hosts, lanes), seconds=seconds, linger_s=1.0).go()
        for flow in flows.values():
            flow.go(probes.start_ns)
        results = probes.finish()
        for (host, number), flow in flows.items():
            kbit, way = lanes[number - 1]
            labels: dict[str, Label] = {"tool": host.tool, "kbit": kbit, "direction": way}
            found = flow.finish()
            outcome.add(jain([sum(one[_WARM_UP_BINS:]) for one in found.flows]), "index", what="jain", **labels)
            outcome.add(found.aborted, "flows", what="aborted", **labels)
            from_ns = results.start_ns + int(WARM_UP_S * NS)
            receiver = host.user if way == TO_USER else host.ap
            arrivals = results.at(receiver, f"wire{number}").data.between(from_ns, results.stop_ns)
            if delays := sorted(delays_ms(arrivals)):
                outcome.add(percentile(delays, 0.5), "ms", what="delay", **labels)
        for host in hosts:
            host.clear()


def _numbered(lanes: Sequence[tuple[int, str]]) -> list[tuple[int, tuple[int, str]]]:
    return list(enumerate(lanes, start=1))


def _flow(host: _Host, number: int, way: str, seconds: float) -> TcpRun:
    wire = host.wires[number - 1]
    if way == TO_USER:
        return TcpRun(host.ap, host.user, wire.user_address, seconds=seconds, flows=FLOWS, source=wire.ap_address)
    return TcpRun(host.user, host.ap, wire.ap_address, seconds=seconds, flows=FLOWS, source=wire.user_address)


def _probes(hosts: Sequence[_Host], lanes: Sequence[tuple[int, str]]) -> dict[Namespace, list[Endpoint]]:
    plan: dict[Namespace, list[Endpoint]] = {}
    for host in hosts:
        for number, (kbit, way) in _numbered(lanes):
            streams = {way: (data(kbit * PROBE_SHARE, MIN_DATA_BYTES),)}
            there, back = (streams.get(one, ()) for one in (TO_USER, FROM_USER))
            one, other = ends(f"wire{number}", *host.wires[number - 1].ends, there, right_streams=back)
            plan.setdefault(host.ap, []).append(one)
            plan.setdefault(host.user, []).append(other)
    return plan


# --- bursts -----------------------------------------------------------------------------------------------------


def burst(payload_bytes: int, at_s: float) -> Stream:
    """So many packets in one moment: one for each ns."""
    kbit = wire_bytes(payload_bytes, family=4) * 8 * 1e6
    return data(kbit, payload_bytes, start_s=at_s, stop_s=at_s + (BURST + 0.5) / NS)


def _measure_bursts(size: int, bursts: int, every_s: float, outcome: Outcome) -> None:
    with Lab(PREFIX) as lab:
        hosts = list(_hosts(lab, TOOLS, RATES, UDP))
        streams = (heartbeats(), *(burst(size, 0.5 + number * every_s) for number in range(bursts)))
        plan: dict[Namespace, list[Endpoint]] = {}
        for host in hosts:
            pairs = [ends(wire.dev, *wire.ends, streams) for wire in host.wires]
            plan[host.ap], plan[host.user] = [one for one, _ in pairs], [other for _, other in pairs]
        results = run_traffic(plan, seconds=bursts * every_s, linger_s=BURST_LINGER_S)
        for host in hosts:
            for wire in host.wires:
                for way, receiver in ((TO_USER, host.user), (FROM_USER, host.ap)):
                    end = results.at(receiver, wire.dev)
                    sent = results.other_end(receiver, wire.dev).sent()
                    labels: dict[str, Label] = {
                        "tool": host.tool, "kbit": wire.kbit, "direction": way, "payload": size
                    }  # fmt: skip
                    outcome.add(sent, "packets", what="sent", **labels)
                    outcome.add(sent - len(end.data), "packets", what="lost", **labels)
                    if delays := delays_ms(end.data):
                        outcome.add(max(delays), "ms", what="last", **labels)
            host.clear()


# --- what came out ----------------------------------------------------------------------------------------------


def worst_jain(outcome: Outcome, kbit: int) -> float | None:
    """Of ours, the lower of both directions' medians; None where it was not measured."""
    found = [one.median for one in outcome.find(tool=OURS, kbit=kbit, what="jain")]
    return min(found) if found else None


def worst_delay_ms(outcome: Outcome, kbit: int) -> float | None:
    """The same of the median delay, the longer one."""
    found = [one.median for one in outcome.find(tool=OURS, kbit=kbit, what="delay")]
    return max(found) if found else None


def lost_of_bursts(outcome: Outcome) -> tuple[float, float]:
    """Packets of bursts that ours lost on idle links, and packets sent."""
    lost, sent = (sum(sum(one.samples) for one in outcome.find(tool=OURS, what=what)) for what in ("lost", "sent"))
    return lost, sent


def plots(outcome: Outcome) -> list[Plot]:
    """A table says it all."""
    del outcome
    return []
