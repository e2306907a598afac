"""Which packets meet which class, whatever the links: the trees in the fake kernel against `reference`.

Also between any two steps from one set of links to another: a packet belongs to whom it belonged before, or to whom it
will belong, and never to anybody else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ap_agent.model import (
    ETH_P_IP,
    IFB_NAME,
    INGRESS_HOOK,
    UNMATCHED_MINOR,
    Device,
    EngineSettings,
    Filter,
    Handle,
    link_of_class,
)
from ap_agent.ops import FilterAdd, FilterDel, HeadSwitch, ListDel, Op, TableDel
from ap_agent.placement import Route
from ap_agent.reconcile import plan_cycle, reconcile
from bandwidth_config import IPAddress, LinkInfo
from tests.property.crowds import CROWDS, LOCALS, LOCALS6, PORTS, REMOTES, REMOTES6, crowded
from tests.property.fake_kernel import IFB_INDEX, FakeKernel, Walker, tables_without_use
from tests.property.reference import EXTENSIONS, HOP_BY_HOP, ICMPV6, TCP, UDP, Probe, is_redirected, owner_of

ETH0 = Device(2, "eth0", kind="veth")
UNLIMITED, DEFAULT = EngineSettings(interfaces=("eth0",)), EngineSettings(interfaces=("eth0",), unmatched="default")
HEARTBEAT = bytes([0, 0, 0, 0, 203]) + bytes(19)


def kernel_for(*sets: Sequence[LinkInfo]) -> FakeKernel:
    """One interface by which everybody is reached, with every local address that is named."""
    links = [link for links in sets for link in links]
    own: dict[IPAddress, tuple[int, ...]] = dict.fromkeys((*LOCALS, *LOCALS6), (ETH0.ifindex,))
    own |= {link.local_ip: (ETH0.ifindex,) for link in links if link.local_ip is not None}
    routes = {link.remote_ip: Route("unicast", ETH0.ifindex) for link in links}
    return FakeKernel((ETH0,), routes, own)


def by_id(links: Sequence[LinkInfo]) -> dict[int, LinkInfo]:
    return {link.interface_id: link for link in links}


# --- probes ----------------------------------------------------------------------------------------------------


@st.composite
def probes_of(draw: st.DrawFn, links: Sequence[LinkInfo]) -> Probe:
    """A packet of one of these links, or one that is almost of it."""
    link = draw(st.sampled_from(links))
    version = link.remote_ip.version
    remotes: list[IPAddress] = [*REMOTES] if version == 4 else [*REMOTES6]
    locals_: list[IPAddress] = [*LOCALS] if version == 4 else [*LOCALS6]
    near = ipaddress.ip_address(int(link.remote_ip) ^ 1 << draw(st.integers(0, link.remote_ip.max_prefixlen - 1)))
    local, local_port = link.local_ip or locals_[0], link.local_port or 50100
    body = draw(st.sampled_from([bytes(40), HEARTBEAT, HEARTBEAT[:8], HEARTBEAT[:7], b"abc", b""]))
    probe = Probe(link.remote_ip, local, link.remote_port or 50000, local_port, body=body)
    changes: dict[str, st.SearchStrategy[object]] = {
        "remote": st.sampled_from([*remotes, near]),
        "local": st.sampled_from(locals_),
        "remote_port": st.sampled_from([*PORTS, 40000]),
        "local_port": st.sampled_from([*PORTS, 40000]),
        "protocol": st.sampled_from([TCP, 1, ICMPV6, UDP]),
        "has_more_fragments": st.just(value=version == 4),
        "offset": st.sampled_from([1, 185, 0x1FFF] if version == 4 else [0]),
        "has_options": st.just(value=version == 4),
        "extension": st.sampled_from([*EXTENSIONS] if version == 6 else [None]),
    }
    for name in draw(st.lists(st.sampled_from(sorted(changes)), max_size=3, unique=True)):
        probe = replace(probe, **{name: draw(changes[name])})  # type: ignore[arg-type]  # each has its own
    return probe


def listener_report(link: LinkInfo) -> Probe:
    return Probe(link.remote_ip, LOCALS6[0], protocol=ICMPV6, extension=HOP_BY_HOP, body=bytes([143]) + bytes(19))


@st.composite
def links_and_probes(draw: st.DrawFn, sets: int = 1) -> tuple[list[list[LinkInfo]], list[Probe]]:
    found = [draw(crowded(90 if sets == 1 else 40)) for _ in range(sets)]
    every = [link for links in found for link in links]
    probes = draw(st.lists(probes_of(every), min_size=20, max_size=20))
    probes += [listener_report(link) for link in every[:1] if link.remote_ip.version == 6]
    return found, probes


# --- what the kernel does ----------------------------------------------------------------------------------------


class Trees:
    """The three places where a packet is looked at, as they were at the last look."""

    def __init__(self, kernel: FakeKernel) -> None:
        self._kernel = kernel
        self.look(Handle(1), Handle(3), INGRESS_HOOK)

    def look(self, *hooks: Handle) -> None:
        nic, ifb = self._kernel.trees[ETH0.ifindex], self._kernel.ifb
        for hook in hooks:
            if hook == Handle(1):
                self._egress = Walker(nic, hook)
            elif hook == INGRESS_HOOK:
                self._ingress = Walker(nic, hook)
            else:
                self._ifb = Walker(ifb, hook) if ifb is not None else None

    def to_user(self, probe: Probe) -> Handle | None:
        return _class_of(self._egress.verdict(probe.ethertype, probe.packed(to_user=True)))

    def from_user(self, probe: Probe) -> Handle | None:
        return _class_of(self._ifb.verdict(probe.ethertype, probe.packed(to_user=False))) if self._ifb else None

    def is_redirected(self, probe: Probe) -> bool:
        decision = self._ingress.verdict(probe.ethertype, probe.packed(to_user=False))
        assert decision is None or decision.redirect_to == IFB_NAME
        return decision is not None


def _class_of(decision: Filter | None) -> Handle | None:
    """None for what passes directly or falls into the class of unmatched packets: to nobody's limit."""
    flowid = decision.flowid if decision is not None else None
    return None if flowid is None or flowid.minor in (0, UNMATCHED_MINOR) else flowid


def built(links: Sequence[LinkInfo], mode: EngineSettings) -> FakeKernel:
    kernel = kernel_for(links)
    result = reconcile(by_id(links), mode, kernel=kernel)
    assert result.ok, result.problems
    return kernel


def _hook_of(op: Op) -> Handle | None:
    """Where it changes which filter decides."""
    match op:
        case TableDel(old=one) | FilterDel(old=one) | ListDel(old=one):
            return one.hook
        case FilterAdd(new=new):
            return new.hook
    return None


def _owners(probe: Probe, old: Sequence[LinkInfo], new: Sequence[LinkInfo], major: int) -> set[int | None]:
    return {link_of_class(owner_of(probe, links, major)) for links in (old, new)}


many = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
few = settings(many, max_examples=10)


@many
@given(case=links_and_probes(), mode=st.sampled_from([UNLIMITED, DEFAULT]))
def test_every_packet_meets_the_class_of_its_owner(
    case: tuple[list[list[LinkInfo]], list[Probe]], mode: EngineSettings
) -> None:
    (links,), probes = case
    trees = Trees(built(links, mode))
    for probe in probes:
        assert trees.to_user(probe) == owner_of(probe, links, 1), probe
        assert trees.from_user(probe) == owner_of(probe, links, 3), probe
        assert trees.is_redirected(probe) == (mode is DEFAULT or is_redirected(probe, links)), probe


@many
@given(case=links_and_probes(), data=st.data())
def test_a_packet_that_ends_anywhere_meets_nobody_elses_class(
    case: tuple[list[list[LinkInfo]], list[Probe]], data: st.DataObject
) -> None:
    """Shorter than its headers say; u32 leaves a preference at a key behind the end."""
    (links,), probes = case
    trees = Trees(built(links, UNLIMITED))
    for probe in probes:
        whole = probe.packed(to_user=True)
        cut = replace(probe, cut=data.draw(st.integers(20 if probe.remote.version == 4 else 40, len(whole))))
        met = link_of_class(trees.to_user(cut))
        mine = {one.interface_id for one in links if one.remote_ip == probe.remote}
        assert met is None or met in mine
        if len(cut.packed(to_user=True)) == len(whole):
            assert trees.to_user(cut) == owner_of(probe, links, 1)


@many
@given(case=links_and_probes(2), mode=st.sampled_from([UNLIMITED, DEFAULT]))
def test_between_two_steps_a_packet_belongs_to_its_old_owner_or_its_new_one(
    case: tuple[list[list[LinkInfo]], list[Probe]], mode: EngineSettings
) -> None:
    (old, new), probes = case
    kernel = kernel_for(old, new)
    reconcile(by_id(old), mode, kernel=kernel)
    trees = Trees(kernel)
    owners = {major: [_owners(probe, old, new, major) for probe in probes] for major in (1, 3)}
    sources = [{is_redirected(probe, links) for links in (old, new)} for probe in probes]
    for op in plan_cycle(by_id(new), mode, kernel=kernel).plan.ops:
        kernel.apply_one(op)
        hook = _hook_of(op)
        if hook is not None:
            trees.look(hook)
        for number, probe in enumerate(probes):
            if hook == Handle(1):
                assert link_of_class(trees.to_user(probe)) in owners[1][number], (str(op), probe)
            elif hook == Handle(3):
                assert link_of_class(trees.from_user(probe)) in owners[3][number], (str(op), probe)
            elif hook == INGRESS_HOOK and mode is UNLIMITED:
                assert trees.is_redirected(probe) in sources[number], (str(op), probe)
    assert plan_cycle(by_id(new), mode, kernel=kernel).plan.ops == ()
    assert tables_without_use(kernel) == []


@few
@given(case=links_and_probes(2), data=st.data())
def test_killed_between_any_two_steps_the_next_cycle_gets_there_and_leaves_no_table(
    case: tuple[list[list[LinkInfo]], list[Probe]], data: st.DataObject
) -> None:
    (old, new), probes = case
    kernel = kernel_for(old, new)
    reconcile(by_id(old), UNLIMITED, kernel=kernel)
    ops = plan_cycle(by_id(new), UNLIMITED, kernel=kernel).plan.ops
    for op in ops[: data.draw(st.integers(0, len(ops)))]:
        kernel.apply_one(op)
    staying = [one for one in probes if owner_of(one, old, 1) and owner_of(one, old, 1) == owner_of(one, new, 1)]
    trees = Trees(kernel)
    for op in plan_cycle(by_id(new), UNLIMITED, kernel=kernel).plan.ops:
        kernel.apply_one(op)
        if _hook_of(op) == Handle(1):
            trees.look(Handle(1))
            for probe in staying:
                assert link_of_class(trees.to_user(probe)) == link_of_class(owner_of(probe, new, 1)), (op, probe)
    assert plan_cycle(by_id(new), UNLIMITED, kernel=kernel).plan.ops == ()
    assert tables_without_use(kernel) == []
    trees = Trees(kernel)
    for probe in probes:
        assert trees.to_user(probe) == owner_of(probe, new, 1), probe


@few
@given(case=links_and_probes(2), data=st.data())
def test_preferences_that_were_deleted_by_hand_are_built_again_with_other_table_numbers(
    case: tuple[list[list[LinkInfo]], list[Probe]], data: st.DataObject
) -> None:
    (old, new), probes = case
    kernel = kernel_for(old, new)
    reconcile(by_id(old), UNLIMITED, kernel=kernel)
    for index in (ETH0.ifindex, IFB_INDEX):
        keys = sorted({one.list_key for one in kernel.trees[index].filters if one.is_table})
        for key in data.draw(st.lists(st.sampled_from(keys), unique=True)):
            kernel.delete_list(index, key)
    orphans = set(kernel.orphans)
    result = reconcile(by_id(new), UNLIMITED, kernel=kernel)
    assert result.ok, result.problems
    assert plan_cycle(by_id(new), UNLIMITED, kernel=kernel).plan.ops == ()
    assert tables_without_use(kernel) == []
    assert kernel.orphans <= orphans
    trees = Trees(kernel)
    for probe in probes:
        assert trees.to_user(probe) == owner_of(probe, new, 1), probe
        assert trees.from_user(probe) == owner_of(probe, new, 3), probe


# --- a crowd of each kind ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("crowd", CROWDS)
def test_a_crowd_meets_its_classes_in_both_directions(crowd: str) -> None:
    links = CROWDS[crowd](300)
    trees = Trees(built(links, UNLIMITED))
    for link in links:
        local = link.local_ip or (LOCALS if link.remote_ip.version == 4 else LOCALS6)[0]
        for body in (bytes(40), HEARTBEAT, b""):
            probe = Probe(link.remote_ip, local, link.remote_port or 50000, link.local_port or 50100, body=body)
            assert trees.to_user(probe) == owner_of(probe, links, 1) is not None
            assert trees.from_user(probe) == owner_of(probe, links, 3)
            assert trees.is_redirected(probe)


@pytest.mark.parametrize("crowd", ["remote_ports", "local_addresses"])
def test_a_rebuild_is_noticed_by_no_link_and_can_be_cut_anywhere(crowd: str) -> None:
    """Two links become forty, more than the tables of two are good for."""
    few, many_ = CROWDS[crowd](2), CROWDS[crowd](40)
    probes = [
        Probe(one.remote_ip, one.local_ip or LOCALS[0], one.remote_port or 0, one.local_port or 50100, body=body)
        for one in few
        for body in (bytes(40), HEARTBEAT, b"")
    ]
    kernel = kernel_for(few, many_)
    reconcile(by_id(few), UNLIMITED, kernel=kernel)
    ops = plan_cycle(by_id(many_), UNLIMITED, kernel=kernel).plan.ops
    assert sum(isinstance(op, HeadSwitch) for op in ops) == 4  # heartbeats and the rest, on both devices
    for number, op in enumerate(ops):
        kernel.apply_one(op)
        trees = Trees(kernel)
        for probe in probes:
            assert trees.to_user(probe) == owner_of(probe, few, 1) is not None, (str(op), probe)
            assert trees.from_user(probe) == owner_of(probe, few, 3), (str(op), probe)
            assert trees.is_redirected(probe)
        if number % 50 == 0:
            cut = deepcopy(kernel)
            for more in plan_cycle(by_id(many_), UNLIMITED, kernel=cut).plan.ops:
                cut.apply_one(more)
                assert all(Trees(cut).to_user(probe) == owner_of(probe, few, 1) for probe in probes[::3]), str(more)
            assert plan_cycle(by_id(many_), UNLIMITED, kernel=cut).plan.ops == ()
            assert tables_without_use(cut) == []
    assert tables_without_use(kernel) == []


def test_the_reference_knows_the_rules_of_the_domain() -> None:
    """It decides about everything above, so a few of its answers are written down."""
    remote, local = REMOTES[0], LOCALS[0]
    one = LinkInfo(1, 1, True, 500, remote, remote_port=50000)
    two = LinkInfo(2, 1, True, 300, remote, remote_port=50001)
    zero = LinkInfo(3, 1, True, 0, remote, remote_port=50002)
    links = [one, two, zero]
    plain = Probe(remote, local, 50000)
    assert owner_of(plain, links, 1) == Handle(1, 0x1001)
    assert owner_of(replace(plain, body=HEARTBEAT), links, 3) == Handle(3, 0x2001)
    assert owner_of(replace(plain, remote_port=40000), links, 1) is None
    assert owner_of(replace(plain, protocol=TCP), links, 1) is None
    assert owner_of(replace(plain, offset=185), links, 1) == Handle(1, 0x1002)  # the strictest that is not blocked
    assert owner_of(replace(plain, has_more_fragments=True), links, 1) == Handle(1, 0x1001)
    assert owner_of(replace(plain, remote=REMOTES[1]), links, 1) is None
    assert owner_of(plain, [*links, replace(one, interface_id=4, local_port=50100)], 1) == Handle(1, 0x1004)
    assert [is_redirected(replace(plain, protocol=number), links) for number in (UDP, TCP)] == [True, False]
    assert plain.packed(to_user=True).hex(" ", 4).startswith("45000044 00000000 40110000 cb007101 c000020b c3b4c350")
    assert plain.ethertype == ETH_P_IP
