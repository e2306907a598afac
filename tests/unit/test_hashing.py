"""How rules are spread over tables: every packet is led to its rules, no bucket is long, the order is kept."""

from __future__ import annotations

import functools
import ipaddress
import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.classify import Side, link_indexes, match_key, redirect_indexes
from ap_agent.hashing import (
    LINK_NODES,
    MAX_SPLITS,
    NODES_PER_ORDER,
    Spot,
    Table,
    byte_of,
    design,
    guard_of,
    longest,
    nodes_of,
    spread,
)
from ap_agent.model import Handle, Index, Key, Rule, Selector
from bandwidth_config import LinkInfo
from tests.property.crowds import CROWDS, LOCALS, LOCALS6, MANY, REMOTES, REMOTES6, crowded, link, sample

SIDES = {"to the user AS": Side(1, Handle(1)), "from the user AS": Side(3, Handle(3))}
PACKET_BYTES = 96
U32_MAX_DEPTH = 8  # TC_U32_MAXDEPTH, linux/pkt_cls.h


@functools.cache
def indexes_of(crowd: str) -> tuple[Index, ...]:
    """On the IFB, and on the ingress that leads there; the other side differs in offsets only."""
    links = CROWDS[crowd](MANY)
    return (*link_indexes(links, SIDES["from the user AS"]), *redirect_indexes(links))


@functools.cache
def designs_of(crowd: str) -> tuple[Found, ...]:
    return tuple(Found(index, design(index)) for index in indexes_of(crowd))


def packet_of(keys: tuple[Key, ...]) -> bytes:
    """One that these keys match; where they leave something open, it is 0xEE."""
    packet = bytearray([0xEE]) * PACKET_BYTES
    for key in keys:
        word = int.from_bytes(packet[key.offset : key.offset + 4]) & ~key.mask | key.value
        packet[key.offset : key.offset + 4] = word.to_bytes(4)
    return bytes(packet)


def matches(keys: tuple[Key, ...], packet: bytes) -> bool:
    return all(int.from_bytes(packet[key.offset : key.offset + 4]) & key.mask == key.value for key in keys)


def way(index: Index, top: Table, packet: bytes) -> Iterator[tuple[Table, int]]:
    """The buckets that a packet comes by, in the order in which they are left: the deepest first."""
    table, passed = top, []
    while True:
        bucket = packet[table.selector.position]
        passed.append((table, bucket))
        branch = table.branches.get(bucket)
        if branch is None or not matches(guard_of(index, branch.selector), packet):
            return reversed(passed)
        table = branch


class Found:
    """What `spread` says, and what a packet finds of it."""

    def __init__(self, index: Index, top: Table) -> None:
        self.index, self.top = index, top
        self.spots = spread(index, top)
        self._at: dict[tuple[int, int], Spot] = {(id(one.table), one.bucket): one for one in self.spots}

    def asked(self, packet: bytes) -> list[Rule]:
        """Every rule that u32 looks at for a packet, in its order."""
        spots = (self._at.get((id(table), bucket)) for table, bucket in way(self.index, self.top, packet))
        return [rule for spot in spots if spot for rule in sorted(spot.rules, key=lambda one: one.order)]

    def decisive(self, packet: bytes) -> Rule | None:
        return next((rule for rule in self.asked(packet) if matches(rule.keys, packet)), None)


def expected(index: Index, packet: bytes) -> set[Rule]:
    """The rules that may decide: those of the lowest order among all that match."""
    found = [rule for rule in index.rules if matches(rule.keys, packet)]
    lowest = min((rule.order for rule in found), default=0)
    return {rule for rule in found if rule.order == lowest}


def depth(table: Table) -> int:
    """Links that lead to the deepest table, with the one from the first table of the preference."""
    return 1 + max((depth(one) for one in table.branches.values()), default=0)


@pytest.mark.parametrize("crowd", CROWDS)
def test_no_bucket_of_a_new_design_is_long(crowd: str) -> None:
    lengths = {one.index.pref: longest(one.spots) for one in designs_of(crowd)}
    assert max(lengths.values()) <= 16, lengths


@pytest.mark.parametrize("crowd", CROWDS)
def test_every_rule_is_where_its_packets_are_led(crowd: str) -> None:
    for found in designs_of(crowd):
        index = found.index
        assert sum(len(spot.rules) for spot in found.spots) == len(index.rules)
        lost = [rule for rule in index.rules if rule not in found.asked(packet_of(rule.keys))]
        assert lost == []


@pytest.mark.parametrize("crowd", CROWDS)
def test_tables_do_not_change_which_rule_decides(crowd: str) -> None:
    """A sample of them, since the reference asks every rule."""
    for found in designs_of(crowd):
        for rule in sample(found.index.rules, min(12, len(found.index.rules))):
            packet = packet_of(rule.keys)
            assert found.decisive(packet) in expected(found.index, packet)


@pytest.mark.parametrize("crowd", CROWDS)
def test_no_table_is_deeper_than_u32_follows(crowd: str) -> None:
    for found in designs_of(crowd):
        to_redirects = 1 if found.index.redirects else 0
        assert depth(found.top) + to_redirects <= 2 + MAX_SPLITS < U32_MAX_DEPTH


@pytest.mark.parametrize("crowd", CROWDS)
def test_tables_are_few_enough_to_be_built_beside_the_old_ones(crowd: str) -> None:
    """The kernel numbers 2047 of them at one hook, for all indexes together."""
    found = [one for one in designs_of(crowd) if not one.index.redirects]  # these are at another hook
    tables = [sum(1 for _ in one.top.walk()) for one in found]
    assert sum(tables) + max(tables) < 0x800 - 1, tables


def test_byte_of_a_rule() -> None:
    keys = (Key(8, 0x00110000, 0x00FF0000), Key(16, 0xC000020B, 0xFFFFFFFF))
    assert [byte_of(keys, at) for at in (8, 9, 15, 16, 19, 20)] == [None, 17, None, 0xC0, 0x0B, None]


def test_a_rule_that_leaves_the_byte_open_is_a_programming_error() -> None:
    (index,) = redirect_indexes([link(1, ipaddress.ip_address("192.0.2.11"))])
    with pytest.raises(ValueError, match="leaves byte 9 open"):
        spread(index, Table(Selector(9)))


def test_bytes_in_which_all_addresses_agree_are_not_looked_at() -> None:
    """What two fixed bytes would do: all 300 links in one bucket."""
    links = CROWDS["ipv6_subnets"](300)
    for index in link_indexes(links, SIDES["to the user AS"]):
        top = design(index)
        assert top.below is not None
        assert (top.selector.position, top.below.position) == (24 + 5, 24 + 6)  # bytes 5 and 6 of the destination
        assert longest(spread(index, top)) <= 7  # as many rules as one address has


def test_ports_are_looked_at_only_where_there_are_some() -> None:
    found = next(one for one in designs_of("remote_ports") if not one.index.head)
    index, top = found.index, found.top
    splits = [table.selector for table in top.walk() if table.selector.position not in index.address]
    assert splits == [Selector(21)]  # 4094 ports in a row: 16 for each value of their lower byte
    assert {guard_of(index, one) for one in splits} == {
        (Key(8, 0x00110000, 0x00FF0000), Key(0, 0x45000000, 0xFF000000), Key(4, 0, 0x1FFF))
    }
    assert guard_of(index, top.selector) == ()


def test_links_come_before_rules_and_rules_by_their_order() -> None:
    ranges = [LINK_NODES, *(nodes_of(order) for order in range(7))]
    ends = [(one.start, one.stop) for one in ranges]
    assert ends[0] == (1, 16)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ends))
    assert ends[-1][1] <= 0x1000
    assert ends[1:3] == [(0x10, 0x200), (0x200, 2 * NODES_PER_ORDER)]


# --- sets that nobody thought of ---------------------------------------------------------------------------------


def check(found: Found) -> None:
    """Of packets that match a rule, and of such that match two if any packet can, the lowest order decides."""
    rules = found.index.rules
    for number, rule in enumerate(rules):
        for other in (rule, *(rules[(number * 7 + step) % len(rules)] for step in range(1, 9))):
            packet = packet_of((*rule.keys, *other.keys))
            wanted = expected(found.index, packet)
            assert (found.decisive(packet) in wanted) if wanted else (found.decisive(packet) is None), packet.hex()


@settings(max_examples=60, deadline=None)
@given(links=crowded(), side=st.sampled_from(sorted(SIDES)))
def test_whatever_the_links_the_rule_of_the_lowest_order_decides(links: list[LinkInfo], side: str) -> None:
    for index in (*link_indexes(links, SIDES[side]), *redirect_indexes(links)):
        top = design(index)
        check(Found(index, top))
        assert depth(top) <= 2 + MAX_SPLITS


@settings(max_examples=40, deadline=None)
@given(before=crowded(), after=crowded(), side=st.sampled_from(sorted(SIDES)))
def test_tables_that_were_designed_for_other_links_lead_as_well(
    before: list[LinkInfo], after: list[LinkInfo], side: str
) -> None:
    old = {(one.pref, one.hook): design(one) for one in link_indexes(before, SIDES[side])}
    for index in link_indexes(after, SIDES[side]):
        if (index.pref, index.hook) in old:
            found = Found(index, old[index.pref, index.hook])
            assert sum(len(spot.rules) for spot in found.spots) == len(index.rules)
            check(found)


@pytest.mark.parametrize("version", [4, 6])
def test_rules_that_may_not_be_passed_stay_where_they_are(version: int) -> None:
    """Twenty links by their local addresses, which a link that names a local port must be asked before."""
    remote, locals_ = (REMOTES[0], LOCALS) if version == 4 else (REMOTES6[0], LOCALS6)
    by_address = [link(number + 1, remote, local_ip=locals_[number]) for number in range(20)]
    both = [link(number + 101, remote, local_ip=locals_[number], local_port=50100) for number in range(20)]
    by_port = link(99, remote, local_port=50100)
    for index in link_indexes([*by_address, *both, by_port], SIDES["to the user AS"]):
        found = Found(index, design(index))
        assert len(list(found.top.walk())) == 3  # split, and not only by addresses
        for rule in index.rules:
            for other in index.rules:
                packet = packet_of((*rule.keys, *other.keys))
                assert found.decisive(packet) in {*expected(index, packet)}


@given(links=crowded(20), data=st.data())
def test_a_design_does_not_depend_on_the_order_of_the_links(links: list[LinkInfo], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(links))
    assert len({match_key(one) for one in links}) == len(links)
    side = SIDES["to the user AS"]
    for one, other in zip(link_indexes(links, side), link_indexes(shuffled, side), strict=True):
        assert _shape(design(one)) == _shape(design(other))


def _shape(table: Table) -> object:
    return table.selector, table.below, {bucket: _shape(one) for bucket, one in sorted(table.branches.items())}
