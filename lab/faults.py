"""What somebody can do to a limited host, one fault each: how it is done, and how to see that it is healed.

    with FaultWorld("slbw") as world:
        print(measure(world, FAULTS["the IFB is deleted"]))

`measure` breaks the world in the middle of traffic. That it heals is tc's and ip's view, looked at every few
milliseconds; how long anything was unlimited or silent is read from the packets that arrived.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass

from lab import bpf, witness
from lab.fault_world import LIMIT_KBIT, NETS, OFFERED_KBIT, PAYLOAD_BYTES, FaultWorld
from measuring.arrivals import Arrivals
from measuring.judge import NS, bucket_bytes, excess_bytes
from measuring.netns import Namespace
from measuring.traffic import Results, TrafficRun

HEAL_DEADLINE_S = 5.0
RUN_S = 2.5
_CAUSE_AT_S = 0.6
_END_S = 0.5  # the last part of a run, in which everything is as before
_FRAME_BYTES = 1514
_CLOCK_SLACK_S = 0.008  # a packet's kernel time may be late by two ticks on a busy machine
DEVICES = ("eth0", "eth1", "tun0")
_VERDICT_SLACK_S = 0.3  # a yes or no must not hang on a program that waits for the processor, like the tunnel's

Act = Callable[[FaultWorld], None]
See = Callable[[FaultWorld], bool]


@dataclass(frozen=True)
class Fault:
    """`is_healed` looks at the kernel, or for what is not ours at the report. Some leave a link unlimited, or
    silent, until somebody takes them away again."""

    cause: Act
    is_healed: See
    prepare: Act | None = None
    leaves_unlimited: bool = False
    leaves_silent: bool = False


@dataclass(frozen=True)
class Stretch:
    """One direction of one link. Above its limit for so long in all; the longest silence, without the usual pause."""

    unlimited_ms: float
    silent_ms: float
    limited_at_end: bool
    flows_at_end: bool


# --- measuring ----------------------------------------------------------------------------------------------------


def measure(world: FaultWorld, fault: Fault) -> dict[str, Stretch]:
    """Break it under traffic and wait until it is healed; what packets say of each link and direction. Raises
    `LabError` where it is not healed in five seconds."""
    if fault.prepare is not None:
        fault.prepare(world)
    run = TrafficRun(world.traffic(), seconds=RUN_S).go()
    run.sleep_until(_CAUSE_AT_S)
    fault.cause(world)
    world.programs.until(lambda: fault.is_healed(world), HEAL_DEADLINE_S)
    results = run.finish()
    return {
        f"link{link} {direction}": _stretch(results, host, link)
        for link in LIMIT_KBIT
        for host, direction in ((world.user, "to the user"), (world.ap, "from the user"))
    }


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
        limited_at_end=_excess(results, host, link, tail, _VERDICT_SLACK_S) <= 0,
        flows_at_end=len(tail) > 0,
    )


def _excess(results: Results, host: Namespace, link: int, arrivals: Arrivals, slack_s: float) -> float:
    """Bytes beyond what rate*T, two buckets (one may be of a class made anew) and late clocks explain, at worst."""
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


def _stands(*devices: str) -> See:
    return lambda world: world.stands(*(devices or DEVICES))


def _is_told(code: str, device: str) -> See:
    return lambda world: world.programs.problems().get(code) == device


def _new_wire(world: FaultWorld) -> None:
    world.ap.ip("link", "del", "eth0")
    world.connect("eth0")
    world.route_over(NETS["eth0"])


def _another_wire(world: FaultWorld) -> None:
    """A third card, and link 1 goes over it from now on."""
    world.connect("eth2")
    world.route_over(NETS["eth2"])


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


def _attach_tcx(world: FaultWorld) -> None:
    """A program that lets every packet pass, in front of everything at the hook that users' packets come by."""

    def attach() -> None:
        program = bpf.load(bpf.answer(bpf.PASS))
        bpf.attach(program, "eth0", bpf.TCX_INGRESS)
        os.close(program)

    world.ap.call(attach)


def _set_priorities(world: FaultWorld) -> None:
    """A filter in front of ours that gives all packets a priority, as HTB classes of somebody else would want it."""
    path = f"{world.programs.folder}/bpf/priority"

    def pin() -> None:
        program = bpf.load(bpf.set_priority(0x1_0001, bpf.NEXT))
        bpf.pin(program, path)
        os.close(program)

    world.ap.call(pin)
    world.tc(*f"filter add dev eth0 egress pref 5 protocol all bpf direct-action pinned {path}".split())


def _delete_names(world: FaultWorld) -> None:
    """Of the program and its maps, behind the limiter's back."""
    for path in sorted((world.programs.folder / "bpf" / "maps").iterdir()):
        path.unlink()


def _has_names(world: FaultWorld) -> bool:
    folder = world.programs.folder / "bpf" / "maps"
    return folder.is_dir() and any(one.name.startswith("lanes-") for one in folder.iterdir())


def _has_leaf(world: FaultWorld) -> bool:
    leaves = (one for one in witness.qdiscs(world.ap, "slbw0") if one["handle"] == "1:")
    return any(one["options"]["limit"] < 900_000 for one in leaves)


FAULTS: dict[str, Fault] = {
    "the link goes down and up": Fault(_down_and_up, _stands()),
    "the interface gets another name": Fault(_ip("link set eth0 name wan0"), _stands("wan0", "eth1", "tun0")),
    "the interface gets another MTU": Fault(_ip("link set eth0 mtu 1400"), _stands()),
    "the interface is made anew": Fault(_new_wire, _stands()),
    "the tun device is made anew": Fault(FaultWorld.renew_tunnel, _stands()),
    "there is another card, and a link moves there": Fault(_another_wire, _stands(*DEVICES, "eth2")),
    "the address moves": Fault(_move_addresses, _stands()),
    "the route moves": Fault(lambda world: world.route_over(NETS["eth1"]), _stands()),
    "a rule moves the route": Fault(
        _add_rule, _stands(), prepare=_ip("route add 203.0.113.11 via 198.51.100.11 src 203.0.113.1 table 77")
    ),
    "the IFB is deleted": Fault(_ip("link del slbw0"), _stands()),
    "the other IFB is deleted": Fault(_ip("link del slbw1"), _stands()),
    "the IFB goes down": Fault(_ip("link set slbw1 down"), _stands()),
    "the IFB gets another name": Fault(_ip("link set slbw0 name ifbx"), _stands()),
    "the IFB's root is deleted": Fault(_tc("qdisc del dev slbw0 root"), _stands()),
    "the card's root is another tool's": Fault(_tc("qdisc replace dev eth0 root handle 7: pfifo limit 500"), _stands()),
    "the card's root is deleted": Fault(
        _tc("qdisc del dev eth0 root"), _stands(), prepare=_tc("qdisc replace dev eth0 root handle 7: pfifo limit 500")
    ),
    "the clsact is deleted": Fault(_tc("qdisc del dev eth0 clsact"), _stands()),
    "filters are deleted": Fault(_tc("filter del dev eth0 egress"), _stands()),
    "redirects are deleted": Fault(_tc("filter del dev eth0 ingress pref 21"), _stands()),
    "a class is deleted": Fault(_tc("class del dev slbw1 classid 51b0:1001"), _stands()),
    "a class is changed by hand": Fault(
        _tc("class change dev slbw0 classid 51b0:1 htb rate 1gbit ceil 1gbit"), _stands()
    ),
    "a leaf is changed by hand": Fault(_tc("qdisc change dev slbw0 handle 1: bfifo limit 900000"), _has_leaf),
    "the names of the maps are deleted": Fault(_delete_names, _has_names),
    "a tcx program is in front": Fault(_attach_tcx, _is_told("hook_obstructed", "eth0"), leaves_unlimited=True),
    # It meets what comes back from the IFB once more, and hides it from ours.
    "a filter in front sets the priority": Fault(
        _set_priorities, _is_told("hook_obstructed", "eth0"), leaves_silent=True
    ),
}
