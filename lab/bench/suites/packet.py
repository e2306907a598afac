"""What one packet costs the processor, with few links and with many, to the user and from the user.

Frames of 100 bytes go through AF_PACKET over a wire between two hosts, at whose other end the IP layer drops them: CPU
time of the sending thread and of all that the kernel does for the packet, sending and receiving included, see
`lab.bench.packets`. No link is ever short of rate, so no packet waits.

- `hot`: all packets belong to one link. `random`: all links in random order. `nobody`: an address that has no link.
- The floor is a wire without a clsact, one with an empty one (which the kernel skips), and one with a filter that
  answers at once: what any program at a hook costs.
- `nobody, flooded`: the same while another processor sends packets of a limited link as fast as it can; beside the
  filter that answers at once, which tells what two busy processors cost each other.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from lab.bench.core import Label, Outcome, Scale, Step, interleave
from lab.bench.engines import Engine, Entry
from lab.bench.packets import CpuMeter, Load, bound, cost_ns, open_socket, udp_frame
from lab.bench.peers import thesis
from lab.bench.plots import Plot
from lab.bench.report import Verdict, at_most, figure
from lab.bench.world import (
    IFBS,
    LOCAL,
    NIC,
    PREFIX,
    attachment_point,
    local_port,
    make_links,
    remote_port,
    tear_down,
    user_addresses,
    users_of,
    with_limit,
)
from measuring.iproute import LabError
from measuring.netns import Lab, Namespace

NAME = "packet"
TITLE = "CPU time per packet"
UNIT = "ns/packet"
BARE, EMPTY, INSTANT = "no clsact", "empty clsact", "a filter that answers at once"
OURS = "ours"
TO_USER, FROM_USER = DIRECTIONS = ("to user", "from user")
THESIS = "the thesis' sequence"
VARIANTS = (BARE, EMPTY, INSTANT, OURS, THESIS)
HOT, RANDOM, NOBODY, FLOODED = "hot", "random", "nobody", "nobody, flooded"
TRAFFIC = (HOT, RANDOM, NOBODY)
NOBODYS_ADDRESS = {4: "198.18.0.1", 6: "2001:db8::ffff"}  # of no link
NOBODY_NS, FLOODED_FACTOR = 120.0, 1.05
HOT_FACTOR, DIRECTIONS_FACTOR = 1.0, 1.1
PACKETS = 16_384
SLOW_PACKETS = 2_048
FLOODED_KBIT = 10_000
# Direct action, "let it go on": the classifier is one instruction.
ANSWERS_AT_ONCE = ("bpf", "direct-action", "bytecode", "1,6 0 0 0")


def steps(scale: Scale) -> list[Step]:
    rounds = scale.pick(15, 3)
    sizes = scale.pick([(1, 20.0), (100, 20.0), (1000, 30.0), (4000, 90.0)], [(1, 4.0), (200, 5.0)])
    v6_sizes = scale.pick([(1000, 20.0)], [(20, 3.0)])
    flooded, flooded_s = scale.pick((4000, 60.0), (200, 6.0))
    return [
        *(Step(f"{size} links", s, partial(_measure, size, 4, rounds)) for size, s in sizes),
        *(Step(f"{size} links, IPv6", s, partial(_measure, size, 6, rounds)) for size, s in v6_sizes),
        Step(f"{flooded} links, one flooded", flooded_s, partial(_measure_flooded, flooded, rounds)),
    ]


# --- hosts ------------------------------------------------------------------------------------------------------


class _Hosts:
    """An attachment point per variant, with so many links; `sockets` send to and from the users of each."""

    def __init__(self, lab: Lab, stack: ExitStack, links: dict[int, Entry], variants: Sequence[str]) -> None:
        self.found: dict[str, Namespace] = {}
        self.sockets: dict[tuple[str, str], socket.socket] = {}
        self.ours: Engine | None = None
        for number, variant in enumerate(variants):
            host = attachment_point(lab, f"h{number}")
            if variant == THESIS and len(links) > thesis.MAX_LINKS:
                continue
            engine = _install(variant, host, links, stack)
            self.ours = engine or self.ours
            self.found[variant] = host
            for direction, where in ((TO_USER, host), (FROM_USER, users_of(host))):
                self.sockets[variant, direction] = where.call(lambda: open_socket(NIC))

    def close(self) -> None:
        for one in self.sockets.values():
            one.close()
        for host in self.found.values():
            tear_down(host, NIC, *IFBS)


def _install(variant: str, host: Namespace, links: dict[int, Entry], stack: ExitStack) -> Engine | None:
    if variant in (EMPTY, INSTANT):
        host.run("tc", "qdisc", "add", "dev", NIC, "clsact")
    if variant == INSTANT:
        for hook in ("egress", "ingress"):
            host.run("tc", "filter", "add", "dev", NIC, hook, "pref", "1", "protocol", "all", *ANSWERS_AT_ONCE)
    elif variant == OURS:
        engine = stack.enter_context(Engine(host))
        engine.enforce(links)
        return engine
    elif variant == THESIS:
        known = [thesis.ThesisLink(n, one["IP-Address"], one["Bandwidth"]) for n, one in links.items()]
        listing = thesis.enforce_commands(NIC, known, default_kbit=known[0].kbit)[len(thesis.remove_commands("", "")) :]
        host.ip_batch([" ".join(command[1:]) for command in listing[:2]])
        lines = [" ".join(command[1:]) for command in listing[2:]]
        host.run("tc", "-batch", "-", stdin="\n".join(lines) + "\n", timeout_s=180)
    return None


# --- frames -----------------------------------------------------------------------------------------------------


def _loads(size: int, family: int) -> dict[tuple[str, str], Load]:
    """By traffic and direction."""
    addresses = user_addresses(size, family)

    def frame(address: str, number: int, direction: str) -> bytes:
        here, there = (LOCAL[family], local_port(number)), (address, remote_port(number))
        (source, source_port), (destination, port) = (here, there) if direction == TO_USER else (there, here)
        return udp_frame(source, destination, source_port, port)

    found = {}
    for way in DIRECTIONS:
        found[RANDOM, way] = Load([frame(one, number, way) for number, one in enumerate(addresses, start=1)])
        found[HOT, way] = Load([frame(addresses[-1], size, way)])
        found[NOBODY, way] = Load([frame(NOBODYS_ADDRESS[family], 1, way)])
    return found


# --- measuring --------------------------------------------------------------------------------------------------


def _measure(size: int, family: int, rounds: int, outcome: Outcome) -> None:
    with Lab(PREFIX) as lab, ExitStack() as stack:
        variants = tuple(one for one in VARIANTS if family == 4 or one != THESIS)  # the thesis' way is IPv4 here
        hosts = _Hosts(lab, stack, make_links(size, family=family), variants)
        stack.callback(hosts.close)
        bound(lambda: _rounds(hosts, size, family, rounds, outcome))
        _check_that_links_counted(hosts, size)


def _rounds(hosts: _Hosts, size: int, family: int, rounds: int, outcome: Outcome) -> None:
    loads = _loads(size, family)
    meter = CpuMeter()
    labels: dict[str, Label] = {"family": family, "size": size}
    cells = [(variant, traffic, way) for variant, way in hosts.sockets for traffic in TRAFFIC]
    for variant, traffic, way in cells:  # warm up, and notice a wire that does not take packets
        cost_ns(meter, hosts.sockets[variant, way], loads[traffic, way], SLOW_PACKETS)
    for variant, traffic, way in interleave(cells, rounds):
        packets = SLOW_PACKETS if variant == THESIS else PACKETS
        value = cost_ns(meter, hosts.sockets[variant, way], loads[traffic, way], packets)
        outcome.add(value, UNIT, variant=variant, traffic=traffic, direction=way, **labels)


def _check_that_links_counted(hosts: _Hosts, size: int) -> None:
    """Without it a filter that matches nothing would look fast."""
    if hosts.ours is not None:  # who need not wait is in no class
        carried = sum(way == "to_user" and one.passed_bytes > 0 for (_, way), one in hosts.ours.counters().items())
        if carried < size:
            raise RuntimeError(f"{OURS}: {carried} of {size} links have counted packets")


def _measure_flooded(size: int, rounds: int, outcome: Outcome) -> None:
    """Nobody's packets, with and without a flood on one link of the same attachment point."""
    if len(os.sched_getaffinity(0)) == 1:
        outcome.note("One processor cannot flood a link and measure at the same time.")
        return
    links = with_limit(make_links(size), 1, FLOODED_KBIT)
    with Lab(PREFIX) as lab, ExitStack() as stack:
        hosts = _Hosts(lab, stack, links, (INSTANT, OURS))
        stack.callback(hosts.close)
        bound(lambda: _flooded_rounds(hosts, links[1], size, rounds, outcome))


def _flooded_rounds(hosts: _Hosts, link: Entry, size: int, rounds: int, outcome: Outcome) -> None:
    loads = _loads(size, 4)
    meter = CpuMeter()
    cells = [(variant, way, traffic) for variant, way in hosts.sockets for traffic in (NOBODY, FLOODED)]
    for variant, way, traffic in interleave(cells, rounds):
        with _flood(hosts.found[variant], link, way) if traffic == FLOODED else contextlib.nullcontext():
            value = cost_ns(meter, hosts.sockets[variant, way], loads[NOBODY, way], PACKETS)
        labels: dict[str, Label] = {"family": 4, "size": size, "part": "flood"}
        outcome.add(value, UNIT, variant=variant, traffic=traffic, direction=way, **labels)


@contextlib.contextmanager
def _flood(host: Namespace, link: Entry, direction: str) -> Iterator[None]:
    """Packets of this link, from another processor."""
    here = [link["Local-IP"], str(link["Local-Port"])]
    there = [link["IP-Address"], str(link["Port"])]
    where, ends = (host, [*here, *there]) if direction == TO_USER else (users_of(host), [*there, *here])
    process = where.python("lab.bench.flood", NIC, *ends, stdin=subprocess.PIPE)
    try:
        if process.stdout is None or not select.select([process.stdout], [], [], 10.0)[0]:
            raise LabError("the flood did not begin")
        process.stdout.readline()
        yield
    finally:
        host.lab.stop(process)


# --- what came out ----------------------------------------------------------------------------------------------


def cost(outcome: Outcome, variant: str, traffic: str, direction: str, size: int, *, family: int = 4) -> float | None:
    """The median, ns; None where it was not measured."""
    found = [
        one
        for one in outcome.find(variant=variant, traffic=traffic, direction=direction, size=size, family=family)
        if "part" not in one.labels
    ]
    return found[0].median if found else None


def flooded_ratio(outcome: Outcome, variant: str, direction: str) -> float | None:
    """Nobody's packet while a link is flooded over the same without; None where it was not measured."""
    flooded, alone = (
        outcome.median(variant=variant, traffic=traffic, direction=direction, part="flood")
        for traffic in (FLOODED, NOBODY)
    )
    return None if flooded is None or alone is None else flooded / alone


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    sizes = sorted(int(one) for one in outcome.values("size", family=4, variant=OURS, traffic=HOT))
    for size in sizes[-1:]:
        yield from _nobody(outcome, size)
        yield from _limited(outcome, sizes[0], size)


def _nobody(outcome: Outcome, size: int) -> Iterator[Verdict]:
    for way in DIRECTIONS:
        ours, instant = (cost(outcome, one, NOBODY, way, size) for one in (OURS, INSTANT))
        if ours is not None and instant is not None:
            target = f"nobody's packet {way}, {size} links: <= {NOBODY_NS:g} ns above a filter that answers at once"
            measured = f"{ours - instant:+.0f} ns ({figure(ours)} to {figure(instant)})"
            yield Verdict(target, measured, ours - instant <= NOBODY_NS)
        if (ratio := flooded_ratio(outcome, OURS, way)) is not None:
            control = flooded_ratio(outcome, INSTANT, way) or 0.0
            target = f"nobody's packet {way} while a limited link is flooded: <= {FLOODED_FACTOR:g}x"
            measured = f"{ratio:.3f}x (with the filter that answers at once {control:.3f}x)"
            yield Verdict(target, measured, ratio <= FLOODED_FACTOR)


def _limited(outcome: Outcome, smallest: int, size: int) -> Iterator[Verdict]:
    for way in DIRECTIONS:
        ours, thesis = (cost(outcome, one, HOT, way, smallest) for one in (OURS, THESIS))
        target = f"limited packet {way}, hot, links: {smallest}: <= {HOT_FACTOR:g}x of the thesis' sequence"
        yield from at_most(target, ours, thesis, HOT_FACTOR, "ns")
    to_user, from_user = (cost(outcome, OURS, RANDOM, way, size) for way in DIRECTIONS)
    target = f"limited packet to the user over one from the user, random order: <= {DIRECTIONS_FACTOR:g}x"
    yield from at_most(target, to_user, from_user, DIRECTIONS_FACTOR, "ns")


def plots(outcome: Outcome) -> list[Plot]:
    """Cost over the number of links, packets to the user in random order."""
    lines: dict[str, list[tuple[float, float]]] = {}
    sizes = sorted(int(one) for one in outcome.values("size", family=4, traffic=RANDOM))
    for variant in VARIANTS:
        points = [(float(size), cost(outcome, variant, RANDOM, TO_USER, size)) for size in sizes]
        if measured := [(size, value) for size, value in points if value is not None]:
            lines[variant] = measured
    title = "CPU time per packet to the user over the number of links, random order"
    return [Plot("packet", title, "ns per packet", "links", lines=lines)]
