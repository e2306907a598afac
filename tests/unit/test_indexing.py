"""From tables as they are to rules as they should be: when they grow, when they are built anew, what is read back."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import pytest

from ap_agent.classify import Side, link_indexes, redirect_indexes
from ap_agent.draft import Draft
from ap_agent.hashing import REBUILD_ABOVE, Table, design, longest, read, spread
from ap_agent.indexing import is_root
from ap_agent.model import INGRESS_HOOK, EngineSettings, Handle, Index, InstalledFilter
from ap_agent.ops import FilterAdd, FilterDel, HeadSwitch, Op, Stage, TableAdd, TableDel
from ap_agent.plan import Plan
from ap_agent.reconcile import plan_cycle, reconcile
from bandwidth_config import LinkInfo
from tests.property.crowds import CROWDS, ONE_REMOTE, link, remote_ports
from tests.property.fake_kernel import FakeKernel, FakeTree, tables_without_use
from tests.property.test_classification_properties import ETH0, by_id, kernel_for

SETTINGS = EngineSettings()
EGRESS = Side(1, Handle(1))


def after(links: list[LinkInfo], *more: list[LinkInfo]) -> FakeKernel:
    kernel = kernel_for(links, *more)
    assert reconcile(by_id(links), SETTINGS, kernel=kernel).ok
    return kernel


def plan_of(kernel: FakeKernel, links: list[LinkInfo]) -> Plan:
    return plan_cycle(by_id(links), SETTINGS, kernel=kernel).plan


def at(ops: Iterable[Op], hook: Handle) -> list[Op]:
    """What happens to filters and tables of one hook."""
    own = (TableAdd, FilterAdd, TableDel, FilterDel)
    return [op for op in ops if isinstance(op, own) and (getattr(op, "new", None) or op.old).hook == hook]  # type: ignore[union-attr]


def tables_of(tree: FakeTree, index: Index, pref: int) -> Table | None:
    filters = [one for one in tree.filters if one.list_key == (index.hook, 0, pref)]
    nodes: dict[tuple[int, int], list[InstalledFilter]] = {}
    for one in filters:
        if one.node and not is_root(one):
            nodes.setdefault((one.table, one.bucket), []).append(one)
    roots = [one for one in filters if is_root(one) and one.node]
    return read(index, roots, {one.table: one.buckets or 1 for one in filters if one.is_table}, nodes)


def shape(table: Table) -> object:
    return table.selector, {bucket: shape(one) for bucket, one in sorted(table.branches.items())}


@pytest.mark.parametrize("crowd", CROWDS)
def test_what_was_built_is_read_as_it_was_designed(crowd: str) -> None:
    links = CROWDS[crowd](200)
    kernel = after(links)
    for index in (*link_indexes(links, EGRESS), *redirect_indexes(links)):
        found = tables_of(kernel.trees[ETH0.ifindex], index, index.pref)
        assert found is not None
        designed = design(index)
        spots = spread(index, designed)
        assert shape(found) == shape(designed)
        assert found.below == designed.below
        read_spots = spread(index, found)
        assert shape(found) == shape(designed)  # nothing was missing
        assert sorted(len(spot.rules) for spot in read_spots) == sorted(len(spot.rules) for spot in spots)
    numbers = {one.table for tree in kernel.trees.values() for one in tree.filters if one.is_table}
    assert max(numbers) < 0x800


def test_one_link_more_touches_only_what_is_its_own() -> None:
    links = remote_ports(10)
    kernel = after(links)
    ops = plan_of(kernel, [*links, link(11, ONE_REMOTE, 60000)]).ops
    assert [op.kind for op in at(ops, Handle(1))] == ["filter-add"] * 2  # its heartbeats, its data
    assert at(ops, INGRESS_HOOK) == []
    assert {op.links for op in at(ops, Handle(1))} == {frozenset({11})}


def test_tables_grow_in_place_until_a_bucket_is_long() -> None:
    few = remote_ports(2)
    # Two rules are behind those of the links: for what is no link's, and for what has no ports.
    short, long = remote_ports(REBUILD_ABOVE - 2), remote_ports(REBUILD_ABOVE - 1)
    kernel = after(few, long)
    assert not [op for op in plan_of(kernel, short).ops if isinstance(op, TableAdd | TableDel | HeadSwitch)]
    switched = [op for op in plan_of(kernel, long).ops if isinstance(op, HeadSwitch)]
    assert {op.new.pref for op in switched} == {113}  # the heartbeats have two rules less
    assert [op.device.name for op in switched] == ["slbw0", "eth0"]


def test_a_rebuild_switches_when_everything_is_there_and_removes_nothing_before() -> None:
    few, crowd = remote_ports(2), remote_ports(60)
    ops = plan_of(after(few, crowd), crowd).ops
    for hook in (Handle(1), Handle(3)):
        own = at(ops, hook)
        stages = [op.stage for op in own]
        switches = [number for number, op in enumerate(own) if isinstance(op, HeadSwitch)]
        assert [own[number].new.pref for number in switches] == [111, 113]  # type: ignore[attr-defined]
        assert max(number for number, one in enumerate(stages) if one is Stage.BUILD) < switches[-1]
        assert switches[-1] < min(number for number, one in enumerate(stages) if one in (Stage.REMOVE, Stage.CLEAR))
        for number in switches:
            pref = own[number].new.pref  # type: ignore[attr-defined]
            built = [
                place for place, op in enumerate(own) if isinstance(op, TableAdd | FilterAdd) and op.new.pref == pref
            ]
            assert built[-1] == number


def test_of_a_rebuild_nothing_is_left() -> None:
    few, crowd = remote_ports(2), remote_ports(60)
    kernel = after(few, crowd)
    assert reconcile(by_id(crowd), SETTINGS, kernel=kernel).ok
    assert {one.pref for one in kernel.trees[ETH0.ifindex].filters if one.hook == Handle(1)} == {111, 113}
    assert tables_without_use(kernel) == []
    for index in link_indexes(crowd, EGRESS):
        found = tables_of(kernel.trees[ETH0.ifindex], index, index.pref + 1)
        assert found is not None
        assert longest(spread(index, found)) <= 16


def test_tables_that_serve_well_enough_stay_when_links_go() -> None:
    few, crowd = remote_ports(2), remote_ports(60)
    ops = plan_of(after(crowd), few).ops
    assert not [op for op in ops if isinstance(op, TableAdd | TableDel)]
    assert {op.kind for op in at(ops, Handle(1))} == {"filter-del"}


def test_the_same_plan_is_made_of_the_same_kernel() -> None:
    few, crowd = remote_ports(2), remote_ports(60)
    kernel = after(few, crowd)
    assert plan_of(kernel, crowd) == plan_of(kernel, crowd)


def test_a_bucket_that_cannot_be_split_is_no_reason_to_build_anew_every_time() -> None:
    """Local addresses without ports may not be passed by rules with local ports, so they stay in one bucket."""
    first = int(ipaddress.IPv4Address("203.0.112.0"))
    links = [link(n, ONE_REMOTE, local_ip=ipaddress.IPv4Address(first + n)) for n in range(1, 100)]
    kernel = after(links)
    assert plan_of(kernel, links).ops == ()
    more = [*links, link(100, ONE_REMOTE, 50001)]
    assert not [op for op in plan_of(kernel, more).ops if isinstance(op, HeadSwitch | TableAdd)]


def test_more_links_than_one_bucket_has_room_for_are_named_and_counted_as_not_enforced() -> None:
    first = int(ipaddress.IPv4Address("203.0.112.0"))
    alike = [link(n, ONE_REMOTE, local_ip=ipaddress.IPv4Address(first + n)) for n in range(1, 521)]
    other = link(1000, ipaddress.ip_address("192.0.2.12"))
    kernel = kernel_for([*alike, other])
    result = reconcile(by_id([*alike, other]), SETTINGS, kernel=kernel)
    assert {one.code for one in result.problems} == {"too_many_alike"}
    enforced = {one.interface_id for one in result.links if one.state == "enforced"}
    tree = kernel.trees[ETH0.ifindex]
    have = {one.meaning.flowid.minor & 0xFFF for one in tree.filters if one.meaning and one.meaning.flowid}
    # One bucket has node ids for 512 rules of one order; nobody is said to be enforced without a filter.
    assert enforced == have - {0} == {*range(1, 513), 1000}
    assert plan_cycle(by_id([*alike, other]), SETTINGS, kernel=kernel).plan.ops == ()


def test_without_numbers_for_a_rebuild_tables_grow_where_they_are() -> None:
    few, crowd = remote_ports(2), remote_ports(60)
    kernel = after(few, crowd)
    taken = {one.table for one in kernel.trees[ETH0.ifindex].filters if one.hook == Handle(1)}
    for number in set(range(1, 0x800)) - taken:
        foreign = InstalledFilter(Handle(1), 0, 500, 0x0800, "u32", number << 20, buckets=1)
        kernel.trees[ETH0.ifindex].filters.append(foreign)
    result = reconcile(by_id(crowd), SETTINGS, kernel=kernel)
    assert result.ok, result.problems
    assert {one.pref for one in kernel.trees[ETH0.ifindex].filters if one.hook == Handle(1)} == {110, 112, 500}


def test_a_draft_knows_the_numbers_that_are_taken_at_a_hook() -> None:
    kernel = after(remote_ports(2))
    state = kernel.observe()
    draft = Draft(ETH0, 1, state.trees[ETH0.ifindex])
    assert draft.table_numbers(Handle(1)) == {1, 2, 3, 4}
    assert draft.table_numbers(INGRESS_HOOK) == {1, 2, 3}
