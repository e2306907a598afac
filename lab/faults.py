"""What somebody can do to a limited host, one fault each: how it is done, and how to see that it is healed.

    with FaultWorld("slbw") as world:
        print(measure(world, FAULTS["the IFB is deleted"]))

`measure` breaks the world in the middle of traffic. The clock of the repair is tc's and ip's view, looked at every few
milliseconds; how long anything was unlimited or lost is read from the numbered packets that arrived. Tests assert that
it heals; the times are the benchmark's.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from lab import witness
from lab.fault_world import IFB, LIMIT_KBIT, NETS, OFFERED_KBIT, PAYLOAD_BYTES, FaultWorld
from measuring.judge import NS, Arrivals, bucket_bytes, excess_bytes
from measuring.netns import Namespace
from measuring.traffic import Results, TrafficRun

HEAL_DEADLINE_S = 5.0
RUN_S = 2.5
_CAUSE_AT_S = 0.6
_END_S = 0.5  # the last part of a run, in which everything is as before
_FRAME_BYTES = 1514
_CLOCK_SLACK_S = 0.008  # a packet's kernel time may be late by two ticks on a busy machine
_VERDICT_SLACK_S = 0.3  # a yes or no must not hang on a program that waits for the processor, like the tunnel's

Act = Callable[[FaultWorld], None]
See = Callable[[FaultWorld], bool]


@dataclass(frozen=True)
class Fault:
    """`is_healed` looks at the kernel, or for what is not ours at the report. `leaves_unlimited`: until somebody takes
    it away again, for it is not the agent's to remove."""

    cause: Act
    is_healed: See
    prepare: Act | None = None
    leaves_unlimited: bool = False


@dataclass(frozen=True)
class Stretch:
    """One direction of one link. Above its limit for so long in all; the longest silence, without the usual pause."""

    unlimited_ms: float
    silent_ms: float
    lost: int
    limited_at_end: bool
    flows_at_end: bool


@dataclass(frozen=True)
class Report:
    """From the first command of the fault: until it was done, until it was seen healed; and what packets say."""

    fault: str
    cause_ms: float
    healed_ms: float
    stretches: dict[str, Stretch] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


# --- measuring ----------------------------------------------------------------------------------------------------


def measure(world: FaultWorld, fault: Fault, name: str = "") -> Report:
    """Break it under traffic and wait until it is healed. Raises `LabError` where it is not, in five seconds."""
    if fault.prepare is not None:
        fault.prepare(world)
    run = TrafficRun(world.traffic(), seconds=RUN_S).go()
    run.sleep_until(_CAUSE_AT_S)
    began = time.monotonic()
    fault.cause(world)
    caused = time.monotonic()
    healed = world.until(lambda: fault.is_healed(world), HEAL_DEADLINE_S)
    results = run.finish()
    stretches = {
        f"link{link} {direction}": _stretch(results, host, link)
        for link in LIMIT_KBIT
        for host, direction in ((world.user, "to the user"), (world.ap, "from the user"))
    }
    return Report(name, (caused - began) * 1000, (healed - began) * 1000, stretches)


def _stretch(results: Results, host: Namespace, link: int) -> Stretch:
    name, limit, offered = f"link{link}", LIMIT_KBIT[link], OFFERED_KBIT[link]
    arrivals = results.at(host, name).data
    start_ns = results.start_ns + int(_CAUSE_AT_S * NS)
    end_ns = results.stop_ns - int(_END_S * NS)
    tail = arrivals.between(end_ns, results.stop_ns)
    frame_bytes = results.at(host, name).wire.bytes(PAYLOAD_BYTES[link])
    above = _excess(results, host, link, arrivals.between(start_ns, results.stop_ns), _CLOCK_SLACK_S)
    return Stretch(
        unlimited_ms=max(0.0, above) * 8 / max(offered - limit, 1) if offered > limit else 0.0,
        silent_ms=_silence_ms(arrivals, start_ns, results.stop_ns, frame_bytes * 8 / min(limit, offered)),
        lost=results.lost(host, name) if offered < limit else 0,
        limited_at_end=_excess(results, host, link, tail, _VERDICT_SLACK_S) <= 0,
        flows_at_end=len(tail) > 0,
    )


def _excess(results: Results, host: Namespace, link: int, arrivals: Arrivals, slack_s: float) -> float:
    """Bytes beyond what rate*T, the buckets of both leaves and late clocks explain, in the worst window."""
    limit = LIMIT_KBIT[link]
    explained = 2 * bucket_bytes(limit) + 2 * _FRAME_BYTES + limit * 125 * slack_s
    return excess_bytes(arrivals, results.at(host, f"link{link}").wire, limit) - explained


def _silence_ms(arrivals: Arrivals, start_ns: int, stop_ns: int, usual_ms: float) -> float:
    """The longest pause between two arrivals, less the pause that the rate itself makes between two packets."""
    inside = [at for at in arrivals.arrived_ns if start_ns <= at <= stop_ns]
    longest = max(later - earlier for earlier, later in itertools.pairwise([start_ns, *inside, stop_ns]))
    return max(0.0, longest / 1_000_000 - usual_ms)


# --- faults ---------------------------------------------------------------------------------------------------------


def _ip(*lines: str) -> Act:
    return lambda world: world.ap.ip_batch(lines)


def _tc(*lines: str) -> Act:
    def act(world: FaultWorld) -> None:
        for line in lines:
            world.tc(*line.split())

    return act


def _limited(dev: str, *links: int) -> See:
    return lambda world: all(world.is_limited_on(dev, link) for link in links)


def _same_filters(dev: str, *at: str, wanted: int | None = None) -> tuple[Act, See]:
    """As many lines of filters as before."""
    before: list[int] = []

    def count(world: FaultWorld) -> None:
        before[:] = [world.filter_lines(dev, *at)]

    return count, lambda world: world.filter_lines(dev, *at) == (wanted if wanted is not None else before[0])


def _with_filters(break_it: str, dev: str, *at: str) -> Fault:
    count, are_back = _same_filters(dev, *at)
    return Fault(_tc(break_it), are_back, prepare=count)


def _is_redirected(world: FaultWorld) -> bool:
    """Into the IFB that is there and up now, with its classes."""
    link = witness.links(world.ap).get(IFB)
    shown = world.ap.run("tc", "filter", "show", "dev", "eth0", "ingress", check=False)
    is_up = link is not None and "UP" in link["flags"]
    return is_up and f"to device {IFB}" in shown and "device *" not in shown and world.is_limited_on("eth0", 1)


def _new_wire(world: FaultWorld) -> None:
    world.ap.ip("link", "del", "eth0")
    world.connect("eth0")
    world.route_over(NETS["eth0"])


def _move_addresses(world: FaultWorld) -> None:
    for host, address in ((world.user, "192.0.2.11/24"), (world.ap, "192.0.2.1/24")):
        host.ip_batch([f"addr del {address} dev eth0", f"addr add {address} dev eth1"])
    world.route_over(NETS["eth0"])


def _add_rule(world: FaultWorld) -> None:
    world.ap.ip("rule", "add", "to", "203.0.113.11", "lookup", "77")


def _down_and_up(world: FaultWorld) -> None:
    """The route is lost with the link, as on every host without a routing daemon; whoever sets it up adds it again."""
    world.ap.ip_batch(["link set eth0 down", "link set eth0 up"])
    world.route_over(NETS["eth0"])


def _wait_for_report(world: FaultWorld) -> None:
    _tc("qdisc replace dev eth0 root handle 7: pfifo limit 500")(world)
    world.until(lambda: world.problems().get("foreign_root") == "eth0", HEAL_DEADLINE_S)


def _has_burst(world: FaultWorld) -> bool:
    found = witness.classes(world.ap, "eth0").get("1:1")
    return found is not None and found.burst_bytes == 2 * (1400 + 14)


def _has_leaf(world: FaultWorld) -> bool:
    return any(
        one["handle"] == "1001:" and one["options"]["limit"] < 900_000 for one in witness.qdiscs(world.ap, "eth0")
    )


FAULTS: dict[str, Fault] = {
    "the link goes down and up": Fault(_down_and_up, _limited("eth0", 1, 2)),
    "the interface gets another name": Fault(_ip("link set eth0 name wan0"), _limited("wan0", 1, 2)),
    "the interface gets another MTU": Fault(_ip("link set eth0 mtu 1400"), _has_burst),
    "the interface is made anew": Fault(
        _new_wire, lambda world: _limited("eth0", 1, 2)(world) and _is_redirected(world)
    ),
    "the tun device is made anew": Fault(FaultWorld.renew_tunnel, _limited("tun0", 3)),
    "the address moves": Fault(_move_addresses, _limited("eth1", 1, 2)),
    "the route moves": Fault(lambda world: world.route_over(NETS["eth1"]), _limited("eth1", 1)),
    "a rule moves the route": Fault(
        _add_rule, _limited("eth1", 1), prepare=_ip("route add 203.0.113.11 via 198.51.100.11 src 203.0.113.1 table 77")
    ),
    "the IFB is deleted": Fault(_ip("link del slbw0"), _is_redirected),
    "the IFB goes down": Fault(_ip("link set slbw0 down"), _is_redirected),
    "the root is replaced by another tool": Fault(
        _tc("qdisc replace dev eth0 root handle 7: pfifo limit 500"),
        lambda world: world.problems().get("foreign_root") == "eth0",
        leaves_unlimited=True,
    ),
    "the other tool's root goes": Fault(
        _tc("qdisc del dev eth0 root"),
        lambda world: _limited("eth0", 1, 2)(world) and "foreign_root" not in world.problems(),
        prepare=_wait_for_report,
    ),
    "the root is deleted": Fault(_tc("qdisc del dev eth0 root"), _limited("eth0", 1, 2)),
    "the clsact is deleted": Fault(_tc("qdisc del dev eth0 clsact"), _is_redirected),
    "the IFB's root is deleted": Fault(_tc("qdisc del dev slbw0 root"), _limited("eth0", 1, 2)),
    "filters are deleted": _with_filters("filter del dev eth0 parent 1:", "eth0", "parent", "1:"),
    "filters of the IFB are deleted": _with_filters("filter del dev slbw0 parent 3:", IFB, "parent", "3:"),
    "redirects are deleted": _with_filters("filter del dev eth0 ingress", "eth0", "ingress"),
    "a class is changed by hand": Fault(
        _tc(
            "class change dev eth0 classid 1:1 htb rate 1gbit ceil 1gbit",
            "class change dev eth0 classid 1:1001 htb rate 1gbit ceil 1gbit",
        ),
        _limited("eth0", 1),
    ),
    "a leaf is changed by hand": Fault(_tc("qdisc change dev eth0 handle 1001: bfifo limit 900000"), _has_leaf),
}
