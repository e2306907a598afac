"""What must hold for every plan, whatever was there and whatever is wanted."""

from __future__ import annotations

import ipaddress
import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.classify import match_key
from ap_agent.common.errors import ApplyError
from ap_agent.model import (
    ETH_P_IP,
    ETH_P_IPV6,
    FIRST_ROOT_TABLE,
    IFB_MAJOR,
    IFB_NAME,
    INDEX_PREFS,
    INGRESS_HOOK,
    NIC_MAJOR,
    Device,
    EngineSettings,
    Filter,
    Handle,
    HtbClass,
    InstalledFilter,
    Key,
    Qdisc,
    inner_class,
    link_of_class,
)
from ap_agent.ops import FilterAdd
from ap_agent.placement import Route
from ap_agent.reconcile import CycleResult, plan_cycle, reconcile, reset
from bandwidth_config import LinkInfo
from tests.property.fake_kernel import IFB_INDEX, FakeKernel, foreign_objects, verdict

ETH0, ETH1 = Device(2, "eth0", kind="veth"), Device(3, "eth1", kind="veth", mtu_bytes=9000)
TUN0 = Device(4, "tun0", kind="tun", arphrd=65534)
REMOTE = {
    "192.0.2.11": ETH0,
    "192.0.2.12": ETH0,
    "198.51.100.11": ETH1,
    "2001:db8::11": ETH0,
    "10.10.1.2": TUN0,
}
LOCAL = {4: "192.0.2.1", 6: "2001:db8::1"}
RATES = (0, 1, 16, 31, 500, 10_000, 40_000_000, 100_000_000)


def fresh_kernel() -> FakeKernel:
    routes = {ipaddress.ip_address(ip): Route("unicast", device.ifindex) for ip, device in REMOTE.items()}
    own = {ipaddress.ip_address(ip): (ETH0.ifindex,) for ip in LOCAL.values()}
    return FakeKernel((Device(1, "lo", arphrd=772), ETH0, ETH1, TUN0), routes, own)


@st.composite
def link_maps(draw: st.DrawFn) -> dict[int, LinkInfo]:
    found = {}
    for number in draw(st.lists(st.sampled_from([1, 2, 3, 4, 77, 4094]), unique=True, max_size=5)):
        remote = ipaddress.ip_address(draw(st.sampled_from(sorted(REMOTE))))
        port = draw(st.sampled_from([None, 50000, 50001]))
        local = draw(st.sampled_from([None, LOCAL[remote.version]]))
        found[number] = LinkInfo(
            interface_id=number,
            as_id=0xB6,
            is_user_as=draw(st.booleans()) or draw(st.booleans()),
            bandwidth_kbit=draw(st.sampled_from(RATES)),
            remote_ip=remote,
            remote_port=port,
            local_ip=ipaddress.ip_address(local) if local else None,
            local_port=draw(st.sampled_from([None, 50100])),
        )
    return found


modes = st.builds(
    EngineSettings,
    interfaces=st.sampled_from([(), ("eth0", "eth1", "tun0")]),
    unmatched=st.sampled_from(["unlimited", "default"]),
    default_bandwidth_kbit=st.sampled_from([0, 1000, 5000]),
)
# What somebody may do to us between two cycles; the numbers choose the object.
vandalism = st.lists(st.tuples(st.sampled_from("frlcigduht"), st.integers(0, 1000)), max_size=4)


def vandalise(kernel: FakeKernel, deeds: list[tuple[str, int]]) -> None:
    for deed, number in deeds:
        index = sorted(kernel.trees)[number % len(kernel.trees)]
        tree = kernel.trees[index]
        nodes = [one for one in tree.filters if one.node]
        if deed == "f" and nodes:
            tree.filters.remove(nodes[number % len(nodes)])
        elif deed == "d" and (ours := [one for one in nodes if one.meaning]):
            twin = ours[number % len(ours)]
            used = {one.handle for one in nodes}
            tree.filters.append(replace(twin, handle=next(n for n in itertools.count(twin.handle) if n not in used)))
        elif deed == "h" and (heads := [one for one in nodes if one.table >= FIRST_ROOT_TABLE]):
            tree.filters.remove(heads[number % len(heads)])
        elif deed == "t" and (tables := [one for one in tree.filters if one.is_table]):
            gone = tables[number % len(tables)]
            to_it = [one for one in nodes if one.meaning and one.meaning.table == gone.table and one.hook == gone.hook]
            inside = [one for one in tree.filters if one.table == gone.table and one.hook == gone.hook]
            tree.filters = [one for one in tree.filters if one not in to_it and one not in inside]
        elif deed == "r" and tree.root is not None:
            kernel.delete_root(index)
        elif deed == "i" and tree.ingress is not None:
            kernel.delete_ingress(index)
        elif deed == "l" and tree.leaves:
            parent = sorted(tree.leaves)[number % len(tree.leaves)]
            tree.leaves[parent] = Qdisc("pfifo", Handle(0x99), parent) if number % 2 else tree.leaves.pop(parent)
        elif deed == "c" and tree.classes:
            name = sorted(tree.classes)[number % len(tree.classes)]
            tree.classes[name] = replace(tree.classes[name], rate_bytes_s=number + 1)
        elif deed == "g":
            kernel.delete_ifb()
        elif deed == "u" and IFB_INDEX in kernel.devices:
            kernel.devices[IFB_INDEX] = replace(kernel.devices[IFB_INDEX], is_up=False)


def plant_foreign(kernel: FakeKernel) -> None:
    """A class, a leaf and filters that are not ours, wherever there is room for them."""
    for index, tree in kernel.trees.items():
        if tree.root is not None:
            hook = tree.root.handle
            theirs = Handle(hook.major, 0x5000)
            tree.classes[theirs] = HtbClass(theirs, hook, 1000, 1000, 1600, 1600, 1514)
            tree.leaves[theirs] = Qdisc("pfifo", Handle(0x5000), theirs)
            tree.add_filter(Filter(hook, 500, ETH_P_IP, (Key(16, index, 0xFFFFFFFF),), theirs), 0)
        if tree.ingress is not None:
            flower = InstalledFilter(INGRESS_HOOK, 0, 600, ETH_P_IP, "flower", 1)
            tree.filters.append(flower)


# --- the properties --------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(links=link_maps(), mode=modes)
def test_a_second_cycle_plans_nothing(links: dict[int, LinkInfo], mode: EngineSettings) -> None:
    kernel = fresh_kernel()
    first = reconcile(links, mode, kernel=kernel)
    assert [one.code for one in first.problems if one.code != "ambiguous_match"] == []
    assert plan_cycle(links, mode, kernel=kernel).plan.ops == ()


@settings(max_examples=150, deadline=None)
@given(old=link_maps(), new=link_maps(), mode=modes, then=modes, deeds=vandalism, has_foreign=st.booleans())
def test_a_plan_leads_from_any_state_to_the_wanted_one_and_spares_foreign_objects(
    old: dict[int, LinkInfo],
    new: dict[int, LinkInfo],
    mode: EngineSettings,
    then: EngineSettings,
    deeds: list[tuple[str, int]],
    has_foreign: bool,
) -> None:
    kernel = fresh_kernel()
    reconcile(old, mode, kernel=kernel)
    vandalise(kernel, deeds)
    if has_foreign:
        plant_foreign(kernel)
    foreign = foreign_objects(kernel)
    for op in plan_cycle(new, then, kernel=kernel).plan.ops:
        kernel.apply_one(op)  # raises for a step that a kernel would refuse, or that does harm
    assert plan_cycle(new, then, kernel=kernel).plan.ops == ()
    assert foreign_objects(kernel) == foreign
    if not has_foreign:
        wanted = fresh_kernel()
        reconcile(new, then, kernel=wanted)
        # A clsact whose note was removed is nobody's, and stays.
        assert _ours(kernel, bare=bool(deeds)) == _ours(wanted, bare=bool(deeds))


def _shown(one: InstalledFilter) -> str:
    """A filter without what the kernel or the way to it decided: preference of the two, node, table numbers."""
    meaning = one.meaning
    if meaning is None or meaning.selector is not None:
        return ""
    pref = meaning.pref & ~1 if meaning.pref in INDEX_PREFS else meaning.pref
    return repr(replace(meaning, pref=pref, table=None if meaning.table is None else 0))


def _ours(kernel: FakeKernel, *, bare: bool) -> dict[str, object]:
    """Everything but the order and the node numbers."""
    return {
        kernel.devices[index].name: (
            tree.root,
            None if bare else tree.ingress,
            set(tree.classes.values()),
            set(tree.leaves.values()),
            sorted(filter(None, (_shown(one) for one in tree.filters if not (bare and one.chain)))),
        )
        for index, tree in kernel.trees.items()
    }


@settings(max_examples=150, deadline=None)
@given(old=link_maps(), new=link_maps(), mode=modes, deeds=vandalism)
def test_nothing_is_redirected_to_an_ifb_that_is_not_complete(
    old: dict[int, LinkInfo], new: dict[int, LinkInfo], mode: EngineSettings, deeds: list[tuple[str, int]]
) -> None:
    kernel, wanted = fresh_kernel(), fresh_kernel()
    reconcile(old, mode, kernel=kernel)
    vandalise(kernel, deeds)
    reconcile(new, mode, kernel=wanted)
    for op in plan_cycle(new, mode, kernel=kernel).plan.ops:
        if isinstance(op, FilterAdd) and op.new.redirect_to is not None:
            assert kernel.ifb is not None
            assert wanted.ifb is not None
            assert kernel.devices[IFB_INDEX].is_up
            assert set(wanted.ifb.classes.values()) <= set(kernel.ifb.classes.values())
            assert set(wanted.ifb.leaves.values()) <= set(kernel.ifb.leaves.values())
            assert {_shown(one) for one in wanted.ifb.filters} <= {_shown(one) for one in kernel.ifb.filters}
        kernel.apply_one(op)


@settings(max_examples=150, deadline=None)
@given(old=link_maps(), new=link_maps(), mode=modes)
def test_a_link_that_stays_limited_is_limited_after_every_step(
    old: dict[int, LinkInfo], new: dict[int, LinkInfo], mode: EngineSettings
) -> None:
    kernel = fresh_kernel()
    reconcile(old, mode, kernel=kernel)
    keys = {match_key(link) for link in old.values() if link.is_user_as}
    staying = [link for link in new.values() if link.is_user_as and match_key(link) in keys]
    ceilings = [link.bandwidth_kbit for link in (*old.values(), *new.values())]
    for op in plan_cycle(new, mode, kernel=kernel).plan.ops:
        kernel.apply_one(op)
        for link in staying:
            assert _is_limited(kernel, link, max(ceilings)), (str(op), link)


def _is_limited(kernel: FakeKernel, link: LinkInfo, ceiling_kbit: int) -> bool:
    """The link's own packet meets a leaf of some link, in both directions, and its redirect is there."""
    protocol = ETH_P_IP if link.remote_ip.version == 4 else ETH_P_IPV6
    nic = REMOTE[str(link.remote_ip)]
    ways = [(kernel.trees[nic.ifindex], NIC_MAJOR), (kernel.trees[IFB_INDEX], IFB_MAJOR)]
    for tree, major in ways:
        decision = verdict(tree, Handle(major), protocol, packet(link, to_user=major == NIC_MAJOR))
        leaf = decision.flowid if decision is not None else None
        number = link_of_class(leaf)
        if leaf is None or number is None or not tree.is_leaf(leaf):
            return False
        if tree.classes[inner_class(major, number)].rate_bytes_s > max(ceiling_kbit * 125, 1000):
            return False
    redirect = verdict(kernel.trees[nic.ifindex], INGRESS_HOOK, protocol, packet(link, to_user=False))
    return redirect is not None and redirect.redirect_to == IFB_NAME


def packet(link: LinkInfo, *, to_user: bool, payload: bytes = bytes(64)) -> bytes:
    """A UDP datagram of the link, from the network header on."""
    local_ip = link.local_ip or ipaddress.ip_address(LOCAL[link.remote_ip.version])
    ends = [(local_ip, link.local_port or 50100), (link.remote_ip, link.remote_port or 50000)]
    (source, source_port), (destination, destination_port) = ends if to_user else reversed(ends)
    udp = source_port.to_bytes(2) + destination_port.to_bytes(2) + (8 + len(payload)).to_bytes(2) + bytes(2) + payload
    if link.remote_ip.version == 6:
        return (
            bytes([0x60, 0, 0, 0]) + len(udp).to_bytes(2) + bytes([17, 64]) + source.packed + destination.packed + udp
        )
    head = bytes([0x45, 0]) + (20 + len(udp)).to_bytes(2) + bytes([0, 0, 0, 0, 64, 17, 0, 0])
    return head + source.packed + destination.packed + udp


@settings(max_examples=40, deadline=None)
@given(links=link_maps(), mode=modes, order=st.randoms(use_true_random=False))
def test_the_order_of_the_document_does_not_matter(
    links: dict[int, LinkInfo], mode: EngineSettings, order: object
) -> None:
    shuffled = list(links.items())
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random
    assert plan_cycle(dict(shuffled), mode, kernel=fresh_kernel()) == plan_cycle(links, mode, kernel=fresh_kernel())


@settings(max_examples=40, deadline=None)
@given(links=link_maps(), mode=modes)
def test_reset_leaves_nothing_of_ours(links: dict[int, LinkInfo], mode: EngineSettings) -> None:
    kernel = fresh_kernel()
    reconcile(links, mode, kernel=kernel)
    result: CycleResult = reset(mode, kernel=kernel)
    assert result.ok, result.problems
    assert _ours(kernel, bare=False) == _ours(fresh_kernel(), bare=False)


@settings(max_examples=40, deadline=None)
@given(links=link_maps(), mode=modes)
def test_the_state_says_enforced_exactly_when_the_kernel_has_that_rate(
    links: dict[int, LinkInfo], mode: EngineSettings
) -> None:
    result = reconcile(links, mode, kernel=fresh_kernel())
    assert [one.interface_id for one in result.links] == sorted(n for n, one in links.items() if one.is_user_as)
    for state in result.links:
        has_rate = (
            state.to_user is not None
            and state.from_user is not None
            and (state.to_user.rate_kbit, state.from_user.rate_kbit) == state.limits
        )
        assert (state.state == "enforced") == (state.problem is None)
        assert state.state == "error" or has_rate


def test_the_fake_kernel_refuses_what_would_do_harm() -> None:
    """The witness of all the above must itself be able to say no: nothing can be built on a root that is not there."""
    links = {1: LinkInfo(1, 1, True, 500, ipaddress.ip_address("192.0.2.11"), remote_port=50000)}
    ops = plan_cycle(links, EngineSettings(), kernel=fresh_kernel()).plan.ops
    refusals = [op for op in ops if op.kind not in ("ifb-add", "root-add", "clsact-add")]
    refusals = [op for op in refusals if op.kind != "table-add"]
    assert [op.kind for op in refusals].count("class-add") == 2 * 3
    assert [op.kind for op in refusals].count("leaf-add") == 2 * 2
    assert [op.kind for op in refusals].count("filter-add") == 2 * (1 + 3 + 2 * 2) + (1 + 1 + 2)
    for op in refusals:
        with pytest.raises(ApplyError):
            fresh_kernel().apply_one(op)
