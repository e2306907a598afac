"""What the kernel should have, from placed links and settings. Pure: same input in any order, same value.

The formulas are those of docs/adr/0002 (rates, bursts, queues) and docs/adr/0003 (heartbeats inside the limit).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ap_agent.classify import (
    Side,
    exempt_filters,
    limit_on,
    link_indexes,
    match_key,
    redirect_everything,
    redirect_indexes,
)
from ap_agent.document.timetable import strictest_of_each
from ap_agent.model import (
    EGRESS_HOOK,
    EXEMPT_MINOR,
    IFB_ALIAS,
    IFB_MAJOR,
    IFB_NAME,
    INGRESS_HOOK,
    NIC_MAJOR,
    UNMATCHED_MINOR,
    Desired,
    DesiredTree,
    Device,
    EngineSettings,
    Finding,
    Handle,
    HtbClass,
    Problem,
    Qdisc,
    data_class,
    heartbeat_class,
    inner_class,
    leaf_handle,
)
from ap_agent.tcmsg import kept_bytes
from ap_agent.whole.entry import Entry
from ap_agent.whole.hooks import slots_of
from ap_agent.whole.wanted import Admitted, datagram_bytes, fragment_links
from bandwidth_config import HEARTBEAT_KBIT, IPAddress, Limits, LinkInfo, bytes_per_second

BLOCKED_RATE_BYTES_S = 1000  # 8 kbit/s for the classes of a blocked link: HTB refuses 0; its leaves drop everything
BURST_MS = 4  # one tick of a kernel with HZ=250: 0.1 % accurate up to 1 Gbit/s (docs/adr/0002)
QUEUE_MS = 100  # bounds the delay, and keeps a router's socket (212,992 B send buffer) from filling up behind one link
MIN_QUEUE_FRAMES = 4
MAX_QUANTUM_BYTES = 60_000
# Exempt means "not in the shared class", not "a way around every limit": 29 000 ARP frames a second are plenty.
EXEMPT_KBIT = 10_000


@dataclass(frozen=True)
class PlacedLink:
    """A limited link and where it is enforced: `nic` None means only from the user AS (see placement)."""

    link: LinkInfo
    nic: Device | None


@dataclass(frozen=True)
class Rates:
    """How a limit is divided, in byte/s; the children's rates add up to the limit, so nobody gains by marking data."""

    limit: int
    heartbeat: int

    @property
    def data(self) -> int:
        return self.limit - self.heartbeat


def rates_of(bandwidth_kbit: int) -> Rates:
    limit = bytes_per_second(bandwidth_kbit) or BLOCKED_RATE_BYTES_S
    return Rates(limit, min(bytes_per_second(HEARTBEAT_KBIT), limit // 2))


def burst_bytes(ceil_bytes_s: int, frame_bytes: int) -> int:
    """Both buckets of a class: two frames, or what the ceil lets through within a tick of the kernel."""
    return max(2 * frame_bytes, ceil_bytes_s * BURST_MS // 1000)


def queue_bytes(rate_bytes_s: int, frame_bytes: int) -> int:
    return max(rate_bytes_s * QUEUE_MS // 1000, MIN_QUEUE_FRAMES * frame_bytes)


def _class(handle: Handle, parent: Handle, rate: int, ceil: int, frame: int, *, prio: int = 0) -> HtbClass:
    burst, quantum = burst_bytes(ceil, frame), min(frame, MAX_QUANTUM_BYTES)
    return HtbClass(handle, parent, rate, ceil, kept_bytes(burst, rate), kept_bytes(burst, ceil), quantum, prio)


def _leaf(parent: Handle, limit_bytes: int) -> Qdisc:
    return Qdisc("bfifo", leaf_handle(parent), parent, limit_bytes)


def link_classes(major: int, link: LinkInfo, frame_bytes: int) -> tuple[HtbClass, HtbClass, HtbClass]:
    """Inner, heartbeat, data."""
    rates, number = rates_of(limit_on(major, link)), link.interface_id
    inner = inner_class(major, number)
    return (
        replace(_class(inner, Handle(major), rates.limit, rates.limit, frame_bytes), quantum_bytes=0),
        _class(heartbeat_class(major, number), inner, rates.heartbeat, rates.heartbeat, frame_bytes, prio=0),
        _class(data_class(major, number), inner, rates.data, rates.limit, frame_bytes, prio=1),
    )


def link_leaves(major: int, link: LinkInfo, frame_bytes: int, depth_bytes: int | None = None) -> tuple[Qdisc, Qdisc]:
    """Heartbeat, data. A limit of 0 bytes drops every packet, and counts it. `depth_bytes` is that of the data leaf
    where something in front of it keeps its queue short."""
    kbit = limit_on(major, link)
    rates, blocked = rates_of(kbit), kbit == 0
    depth = queue_bytes(rates.limit, frame_bytes) if depth_bytes is None else depth_bytes
    return (
        _leaf(heartbeat_class(major, link.interface_id), 0 if blocked else queue_bytes(rates.heartbeat, frame_bytes)),
        _leaf(data_class(major, link.interface_id), 0 if blocked else depth),
    )


def _admitted(links: Sequence[LinkInfo], major: int, device: Device) -> dict[IPAddress, Admitted]:
    """Let in is what the leaf holds without this option, so that the delay stays. The leaf itself holds that twice, for
    times in which the machine stands still and HTB loses what it may send, and the datagram that was the last to be let
    in. Behind a shared address that may be another link's: then the link's own packets have its place too, or somebody
    else's fragments would cost them what they had without."""
    found = {}
    sharing = Counter(link.remote_ip for link in links)
    for address, link in fragment_links(links, major).items():
        kbit = limit_on(major, link)
        room = queue_bytes(rates_of(kbit).limit, device.frame_bytes)
        depth = 2 * room + datagram_bytes(device)
        own = room + datagram_bytes(device) if sharing[address] > 1 else None
        entry = Entry(kbit, room, depth, link.remote_port, link.local_port, link.local_ip, own)
        found[address] = Admitted(entry, link.interface_id)
    return found


def _shared(major: int, minor: int, bandwidth_kbit: int, frame: int) -> tuple[HtbClass, Qdisc]:
    """A class directly under the root with its leaf: exempt or unmatched traffic."""
    rate, handle = rates_of(bandwidth_kbit).limit, Handle(major, minor)
    limit = 0 if bandwidth_kbit == 0 else queue_bytes(rate, frame)
    return _class(handle, Handle(major), rate, rate, frame), _leaf(handle, limit)


def _shared_of(major: int, settings: EngineSettings, frame: int) -> Iterator[tuple[HtbClass, Qdisc]]:
    if settings.unmatched == "default":
        yield _shared(major, EXEMPT_MINOR, EXEMPT_KBIT, frame)
        yield _shared(major, UNMATCHED_MINOR, settings.default_bandwidth_kbit, frame)


def _tree(
    device: Device, major: int, links: Sequence[LinkInfo], settings: EngineSettings, *, is_shallow: bool = False
) -> DesiredTree:
    frame, is_default = device.frame_bytes, settings.unmatched == "default"
    if not links and not is_default:  # attaching a root may cost a packet: not where nothing is limited
        return DesiredTree(device, major, has_root=False)
    side = Side(major, Handle(major, UNMATCHED_MINOR if is_default else 0))
    shared = tuple(_shared_of(major, settings, frame))
    admitted = _admitted(links, major, device) if settings.whole_datagrams and not is_shallow else {}
    depths = {one.link: one.entry.depth_bytes for one in admitted.values()}
    return DesiredTree(
        device=device,
        major=major,
        has_root=True,
        classes=(
            *(one for link in links for one in link_classes(major, link, frame)),
            *(one for one, _ in shared),
        ),
        leaves=(
            *(one for link in links for one in link_leaves(major, link, frame, depths.get(link.interface_id))),
            *(one for _, one in shared),
        ),
        filters=exempt_filters(major) if is_default else {},
        indexes=link_indexes(links, side),
        admitted=admitted,
    )


def desired(
    placed: Iterable[PlacedLink],
    managed: Iterable[Device],
    settings: EngineSettings,
    obstructed: Container[tuple[int, Handle]] = frozenset(),
) -> Desired:
    """Nothing at all when no link is limited; then the AP is left as it was found.

    `obstructed` are hooks (interface, hook) where no program can sit that would admit whole datagrams.
    """
    ordered = sorted(placed, key=lambda one: one.link.interface_id)
    devices = sorted(managed, key=lambda one: one.ifindex)
    if not ordered or not devices:
        return Desired()
    links = [one.link for one in ordered]
    is_default = settings.unmatched == "default"
    redirects = redirect_everything(links) if is_default else {}
    indexes = () if is_default else redirect_indexes(links)
    # Packets of a link may arrive on any managed interface, so the IFB's classes fit the largest frame of them all.
    largest = max(devices, key=lambda one: one.frame_bytes)
    device_of_ifb = replace(largest, ifindex=0, name=IFB_NAME, kind="ifb", alias=IFB_ALIAS)
    ifb = _tree(device_of_ifb, IFB_MAJOR, links, settings)
    trees = []
    for device in devices:
        own = [one.link for one in ordered if one.nic and one.nic.ifindex == device.ifindex]
        tree = _tree(device, NIC_MAJOR, own, settings, is_shallow=(device.ifindex, EGRESS_HOOK) in obstructed)
        is_open = bool(ifb.admitted) and (device.ifindex, INGRESS_HOOK) not in obstructed
        programs = slots_of(device.ifindex, has_egress=bool(tree.admitted), has_ingress=is_open)
        trees.append(replace(tree, redirects=redirects, redirect_indexes=indexes, programs=programs))
    return Desired(tuple(trees), ifb)


def without_ambiguous(links: Iterable[LinkInfo]) -> tuple[list[LinkInfo], list[Finding]]:
    """Of links that match exactly the same packets the strictest limits are enforced, at one of them; the others are
    errors of the document, and that one too where it asked for more in a direction."""
    groups: dict[tuple[object, ...], list[LinkInfo]] = {}
    for link in sorted(links, key=lambda one: one.interface_id):
        groups.setdefault(match_key(link), []).append(link)
    winners, findings = [], []
    for group in groups.values():
        # Blocking counts as strict here: these links ask for the same packets, and one of them says none may pass.
        winner = min(group, key=lambda one: (one.bandwidth_kbit, one.interface_id))
        limits = strictest_of_each([one.limits for one in group])
        winners.append(winner if winner.limits == limits else winner.with_limits(limits))
        findings += [_ambiguous(group[0], later, winner, limits) for later in group[1:]]
    return winners, findings


def _ambiguous(first: LinkInfo, later: LinkInfo, winner: LinkInfo, limits: Limits) -> Finding:
    port = "every port" if later.remote_port is None else f"UDP port {later.remote_port}"
    message = (
        f"Links {first.interface_id} and {later.interface_id} both match exactly the packets of {later.remote_ip}, "
        f"{port}; the stricter limit of {limits} (link {winner.interface_id}) is enforced "
        f"for both. Give one of them another port."
    )
    in_error = {later.interface_id} | ({first.interface_id} if winner is not first else set())
    if winner.limits != limits:
        in_error.add(winner.interface_id)
    return Finding(Problem("ambiguous_match", f"link {later.interface_id}", message), frozenset(in_error))
