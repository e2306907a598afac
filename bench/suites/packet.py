"""What one packet costs, with few links and with many: classification on the way out, and the ingress hook.

Frames of 100 bytes go through AF_PACKET into HTB on a device that drops them; see `bench.packets` for what is counted.
No class is ever short of rate, so that no packet waits.

- `hot`: all packets belong to one link, the one whose filter stands worst. `random`: all links in random order.
  `unmatched`: an address that has no link.
- `class given` is the floor of our own tree: each packet names its class (SO_PRIORITY), so that HTB looks up nothing
  and touches the same classes in the same order. What naming it costs is measured with one class, and subtracted.
- Ingress: frames arrive through a veth pair and are dropped by the receiving IP layer, so the figure holds sending,
  receiving, and between them the hook.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ap_agent.model import DATA_OFFSET
from bench.core import Label, Outcome, Scale, Step, interleave
from bench.packets import CpuMeter, Load, cost_ns, open_socket, udp_frame
from bench.peers import flat, thesis
from bench.plots import Plot
from bench.report import NOTHING, Table, figure, pivot
from bench.world import (
    LOCAL,
    NIC,
    PREFIX,
    attachment_point,
    enforce,
    local_port,
    make_links,
    remote_port,
    sink,
    tear_down,
    user_addresses,
)
from lab.witness import classes
from measuring.netns import Lab, Namespace

NAME = "packet"
TITLE = "CPU time per packet"
UNIT = "ns/packet"
OURS, FLOOR, SHAPE, LINEAR, THESIS = (
    "ours",
    "no filter, one class",
    "no filter, three classes",
    "one list of filters",
    "one preference per filter",
)
NO_LOOKUP = "ours, class given"  # by the sender: our classes, touched in the same order, and no lookup at all
FLOOR_GIVEN = "no filter, class given"  # for what the giving costs
VARIANTS = (FLOOR, SHAPE, NO_LOOKUP, OURS, LINEAR, THESIS)
TRAFFIC = ("hot", "random", "unmatched")
INGRESS = "ingress"
NO_CLSACT, NOT_LIMITED, LIMITED = "no clsact", "source without a link", "source with a link"
EVERYTHING = "thesis: everything redirected"
UNLIMITED_ADDRESS = {4: "198.18.0.1", 6: "2001:db8::ffff"}  # of no link
PACKETS = 32_768  # about 40 ms where a packet costs 1.2 us
SLOW_PACKETS = 4_096

Sample = Callable[[], float]


def steps(scale: Scale) -> list[Step]:
    rounds = scale.pick(15, 3)
    sizes = scale.pick(
        [(1, 11.0), (10, 11.0), (100, 11.0), (1000, 15.0), (thesis.MAX_LINKS, 20.0), (4000, 45.0)],
        [(1, 3.0), (100, 3.0)],
    )
    v6_sizes = scale.pick([(10, 3.0), (1000, 6.0)], [(10, 3.0)])
    ingress_sizes = scale.pick([(10, 5.0), (1000, 8.0)], [(10, 3.0)])
    return [
        *(Step(f"{size} links", s, partial(_measure_egress, size, 4, rounds)) for size, s in sizes),
        *(Step(f"{size} links, IPv6", s, partial(_measure_egress, size, 6, rounds)) for size, s in v6_sizes),
        *(Step(f"{size} links, ingress", s, partial(_measure_ingress, size, rounds)) for size, s in ingress_sizes),
    ]


# --- the way out ------------------------------------------------------------------------------------------------


def _measure_egress(size: int, family: int, rounds: int, outcome: Outcome) -> None:
    with Lab(PREFIX) as lab:
        host = attachment_point(lab)
        devices = _build(host, size, family)
        host.call(lambda: _egress_rounds(devices, size, family, rounds, outcome))
        _check_that_classes_counted(host, size)
        tear_down(host, *devices.values())


def _build(host: Namespace, size: int, family: int) -> dict[str, str]:
    """A device per variant, with its tree. Peers that cannot do this size, or IPv6 in this form, are left out."""
    links = make_links(size, family=family)
    enforce(host, links)
    trees = {FLOOR: flat.without_filter("floor0"), SHAPE: flat.three_classes_without_filter("shape0")}
    devices = {OURS: NIC, NO_LOOKUP: NIC, FLOOR: "floor0", FLOOR_GIVEN: "floor0", SHAPE: "shape0"}
    if family == 4:
        trees[LINEAR] = flat.linear("linear0", links)
        devices[LINEAR] = "linear0"
    if family == 4 and size <= thesis.MAX_LINKS:
        listed = [thesis.ThesisLink(one.interface_id, str(one.remote_ip), one.bandwidth_kbit) for one in links.values()]
        commands = thesis.device_commands("thesis0", 1, listed, "dst", default_kbit=listed[0].kbit)
        trees[THESIS] = [" ".join(command[1:]) for command in commands]
        devices[THESIS] = "thesis0"
    for variant, lines in trees.items():
        sink(host, devices[variant])
        host.run("tc", "-batch", "-", stdin="\n".join(lines) + "\n", timeout_s=120)
    return devices


def _loads(size: int, family: int) -> dict[tuple[str, str], Load]:
    """By traffic and variant; `hot` is the end of each variant's list, and just any link of ours."""
    addresses = user_addresses(size, family)

    def frame(number: int) -> bytes:
        return udp_frame(LOCAL[family], addresses[number - 1], local_port(number), remote_port(number))

    unmatched = Load([udp_frame(LOCAL[family], UNLIMITED_ADDRESS[family], local_port(1), 9)])
    everyone = Load([frame(number) for number in range(1, size + 1)])
    last, first = Load([frame(size)]), Load([frame(1)])
    data_classes = [0x1_0000 + DATA_OFFSET + number for number in range(1, size + 1)]
    found = {
        ("hot", NO_LOOKUP): Load([frame(size)], class_ids=data_classes[-1:]),
        ("random", NO_LOOKUP): Load([frame(number) for number in range(1, size + 1)], class_ids=data_classes),
        ("hot", FLOOR_GIVEN): Load([frame(size)], class_ids=[0x1_0001]),
    }
    for variant in (FLOOR, SHAPE, OURS, LINEAR, THESIS):
        found["hot", variant] = first if variant == THESIS else last  # a new preference goes in front of the others
        found["random", variant] = everyone
        found["unmatched", variant] = unmatched
    return found


def _egress_rounds(devices: dict[str, str], size: int, family: int, rounds: int, outcome: Outcome) -> None:
    meter = CpuMeter()
    loads = _loads(size, family)
    sockets = {variant: open_socket(dev) for variant, dev in devices.items()}
    cells = [cell for cell in loads if cell[1] in devices]
    for traffic, variant in interleave(cells, rounds):
        packets = SLOW_PACKETS if size >= 1000 and variant in (LINEAR, THESIS) else PACKETS
        value = cost_ns(meter, sockets[variant], loads[traffic, variant], packets)
        outcome.add(value, UNIT, traffic=traffic, family=family, size=size, variant=variant)
    for one in sockets.values():
        one.close()


def _check_that_classes_counted(host: Namespace, size: int) -> None:
    """Without it a filter that matches nothing would look fast."""
    found = classes(host, NIC)
    counted = [found[f"1:{DATA_OFFSET + number:x}"].sent_packets for number in (1, (size + 1) // 2, size)]
    if min(counted) == 0:
        raise RuntimeError(f"packets missed the classes of their links: {counted}")


# --- the way in -------------------------------------------------------------------------------------------------


def _measure_ingress(size: int, rounds: int, outcome: Outcome) -> None:
    with Lab(PREFIX) as lab:
        source = lab.namespace("src")
        ours, bare, redirecting = (lab.namespace(name) for name in ("ours", "bare", "thesis"))
        for host in (ours, bare, redirecting):
            lab.veth(host.nic("eth0", f"{LOCAL[4]}/24"), source.nic(f"to-{host.short}"))
            host.ip("route", "add", "10.0.0.0/8", "dev", "eth0")
        links = make_links(size)
        enforce(ours, links)
        for command in (
            thesis.enforce_commands(
                "eth0",
                [thesis.ThesisLink(one.interface_id, str(one.remote_ip), one.bandwidth_kbit) for one in links.values()],
                default_kbit=links[1].bandwidth_kbit,
            )
            if size <= 100
            else []
        ):
            redirecting.run(*command, check=False)
        variants = [(NO_CLSACT, "to-bare", False), (NOT_LIMITED, "to-ours", False), (LIMITED, "to-ours", True)]
        variants += [(EVERYTHING, "to-thesis", True)] if size <= 100 else []
        source.call(lambda: _ingress_rounds(variants, size, rounds, outcome))
        if classes(ours, "slbw0")["3:1001"].sent_packets == 0:
            raise RuntimeError("packets from a user AS missed the class of their link")
        tear_down(ours, "eth0", "slbw0")


def _ingress_rounds(variants: Sequence[tuple[str, str, bool]], size: int, rounds: int, outcome: Outcome) -> None:
    meter = CpuMeter()
    address = user_addresses(size)[0]
    loads = {
        True: Load([udp_frame(address, LOCAL[4], remote_port(1), local_port(1))]),
        False: Load([udp_frame(UNLIMITED_ADDRESS[4], LOCAL[4], 9, local_port(1))]),
    }
    sockets = {dev: open_socket(dev) for dev in {dev for _, dev, _ in variants}}
    for variant, dev, is_limited in interleave(variants, rounds):
        value = cost_ns(meter, sockets[dev], loads[is_limited], PACKETS)
        outcome.add(value, UNIT, traffic=INGRESS, family=4, size=size, variant=variant)
    for one in sockets.values():
        one.close()


# --- what came out ----------------------------------------------------------------------------------------------


def tables(outcome: Outcome) -> list[Table]:
    sizes = sorted(int(one) for one in outcome.values("size", family=4, traffic="hot"))
    found = [
        Table(
            f"CPU time per packet to the user AS, {words}, ns",
            ["links", *VARIANTS],
            [[str(size), *(_cell(outcome, traffic, 4, size, variant=one) for one in VARIANTS)] for size in sizes],
        )
        for traffic, words in (
            ("hot", "all packets on one link (the worst placed)"),
            ("random", "links in random order"),
            ("unmatched", "an address without a link"),
        )
    ]
    return [*found, *_v6_table(outcome), *_ingress_table(outcome)]


def given(outcome: Outcome, traffic: str, family: int, size: int) -> float | None:
    """Our classes without any lookup, without what it costs to name the class; None where it was not measured."""
    where: dict[str, Label] = {"family": family, "size": size}
    raw = outcome.median(traffic=traffic, variant=NO_LOOKUP, **where)
    floors = [outcome.median(traffic="hot", variant=one, **where) for one in (FLOOR, FLOOR_GIVEN)]
    if raw is None or floors[0] is None or floors[1] is None:
        return None
    return raw - (floors[1] - floors[0])


def _v6_table(outcome: Outcome) -> list[Table]:
    sizes = sorted(int(one) for one in outcome.values("size", family=6))
    rows = [
        [
            f"{size}, {traffic}",
            *(_cell(outcome, traffic, 6, size, variant=variant) for variant in (FLOOR, SHAPE, NO_LOOKUP, OURS)),
        ]
        for size in sizes
        for traffic in TRAFFIC
    ]
    return [Table("The same over IPv6, ns", ["links, traffic", FLOOR, SHAPE, NO_LOOKUP, OURS], rows)] if rows else []


def _ingress_table(outcome: Outcome) -> list[Table]:
    order = (NO_CLSACT, NOT_LIMITED, LIMITED, EVERYTHING)
    sizes = sorted(int(one) for one in outcome.values("size", traffic=INGRESS))
    rows = pivot(outcome, "size", "variant", row_order=sizes, column_order=order, traffic=INGRESS)
    return [Table("CPU time per received packet (sending it included), ns", ["links", *order], rows)] if rows else []


def _cell(outcome: Outcome, traffic: str, family: int, size: int, *, variant: str) -> str:
    value = (
        given(outcome, traffic, family, size)
        if variant == NO_LOOKUP
        else outcome.median(traffic=traffic, family=family, size=size, variant=variant)
    )
    return NOTHING if value is None else figure(value)


def plots(outcome: Outcome) -> list[Plot]:
    """Cost over the number of links, all packets on the worst placed link."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for variant in (FLOOR, OURS, LINEAR, THESIS):
        series = outcome.find(traffic="hot", family=4, variant=variant)
        points = sorted((float(one.labels["size"]), one.median) for one in series)
        if points:
            lines[variant] = points
    title = "One hot link: CPU time per packet over the number of links"
    return [Plot("packet", title, "ns per packet", "links", lines=lines)] if lines else []
