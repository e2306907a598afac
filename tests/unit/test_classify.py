"""Rules and filters as values: keys at the right bytes, the order of the rules."""

from __future__ import annotations

import ipaddress

from ap_agent.classify import (
    Order,
    Redirects,
    Side,
    byte,
    exempt_filters,
    half,
    link_indexes,
    merged,
    redirect_everything,
    redirect_indexes,
)
from ap_agent.model import (
    ETH_P_IP,
    EXEMPT_MINOR,
    INDEX_PREFS,
    OUR_PREFS,
    Filter,
    Handle,
    Index,
    Key,
    Rule,
    data_class,
    heartbeat_class,
)
from bandwidth_config import LinkInfo

TO_USER, FROM_USER = Side(1, Handle(1)), Side(3, Handle(3))


def link(number: int, kbit: int, remote: str, port: int | None = 50000, local: str | None = None) -> LinkInfo:
    return LinkInfo(
        number,
        1,
        True,
        kbit,
        ipaddress.ip_address(remote),
        remote_port=port,
        local_ip=ipaddress.ip_address(local) if local else None,
        local_port=50100 if local else None,
    )


def test_keys_of_one_word_are_one_key_in_the_order_of_first_mention() -> None:
    assert merged([half(22, 50000), byte(9, 17), half(20, 50100)]) == (
        Key(20, 50100 << 16 | 50000, 0xFFFFFFFF),
        Key(8, 17 << 16, 0x00FF0000),
    )


def rules(links: list[LinkInfo], side: Side) -> list[Rule]:
    return [rule for index in link_indexes(links, side) for rule in index.rules]


def test_the_exact_rule_of_an_ipv4_link_has_every_condition() -> None:
    found = rules([link(1, 500, "192.0.2.11", local="192.0.2.1")], TO_USER)
    (data,) = [one for one in found if one.flowid == data_class(1, 1) and one.order == Order.EXACT]
    assert data.keys == (
        Key(16, 0xC000020B, 0xFFFFFFFF),  # what tells most packets apart is asked first
        Key(8, 0x00110000, 0x00FF0000),  # UDP
        Key(0, 0x45000000, 0xFF000000),  # no IP options
        Key(4, 0, 0x00001FFF),  # fragment offset 0, more fragments or not
        Key(12, 0xC0000201, 0xFFFFFFFF),
        Key(20, 50100 << 16 | 50000, 0xFFFFFFFF),
    )
    (beats,) = [one for one in found if one.flowid == heartbeat_class(1, 1)]
    assert beats.keys == (*data.keys, Key(32, 203 << 24, 0xFF000000))
    assert data.links == beats.links == {1}


def test_on_the_ifb_the_remote_end_is_the_source() -> None:
    found = rules([link(1, 500, "192.0.2.11", local="192.0.2.1")], FROM_USER)
    (data,) = [one for one in found if one.flowid == data_class(3, 1) and one.order == Order.EXACT]
    assert (data.keys[0], *data.keys[4:]) == (
        Key(12, 0xC000020B, 0xFFFFFFFF),
        Key(16, 0xC0000201, 0xFFFFFFFF),
        Key(20, 50000 << 16 | 50100, 0xFFFFFFFF),
    )


def test_an_ipv6_heartbeat_is_recognised_at_byte_52() -> None:
    found = rules([link(1, 500, "2001:db8::11")], TO_USER)
    (beats,) = [one for one in found if one.flowid == heartbeat_class(1, 1)]
    assert beats.keys == (
        Key(24, 0x20010DB8, 0xFFFFFFFF),
        Key(28, 0, 0xFFFFFFFF),
        Key(32, 0, 0xFFFFFFFF),
        Key(36, 0x11, 0xFFFFFFFF),
        Key(4, 17 << 8, 0xFF00),
        Key(40, 50000, 0xFFFF),
        Key(52, 203 << 24, 0xFF000000),
    )


MIXED = [
    link(1, 500, "192.0.2.11", local="192.0.2.1"),
    link(2, 300, "192.0.2.11", None),
    link(3, 300, "192.0.2.12"),
    link(4, 500, "2001:db8::11", local="2001:db8::1"),
    link(5, 500, "2001:db8::11", None),
]


def test_no_heartbeat_shares_a_preference_with_what_must_follow_it() -> None:
    """u32 leaves a whole list at a packet that is too short for one key: see the module."""
    by_kind: dict[bool, set[int]] = {True: set(), False: set()}
    for index in link_indexes(MIXED, TO_USER):
        reads_beat = [any(key.offset in (32, 52) and key.mask == 0xFF000000 for key in one.keys) for one in index.rules]
        assert set(reads_beat) == {bool(index.head)}
        assert all((one.flowid or Handle(0)).minor & 0xF000 == 0x2000 for one in index.rules) == bool(index.head)
        by_kind[bool(index.head)] |= set(index.prefs)
    assert by_kind == {True: {110, 111, 130, 131}, False: {112, 113, 114, 115, 132, 133, 134, 135}}


def test_only_packets_that_say_heartbeat_are_looked_up_among_the_heartbeats() -> None:
    heads = {index.pref: index.head for index in link_indexes(MIXED, TO_USER)}
    beat = {110: (Key(32, 203 << 24, 0xFF000000),), 130: (Key(52, 203 << 24, 0xFF000000),)}
    assert heads == {**beat, 112: (), 114: (), 132: (), 134: ()}


def test_what_may_lie_beyond_the_end_of_a_packet_is_asked_last() -> None:
    """A packet that is no UDP may have nothing there, and reading it would end the search."""
    for index in link_indexes(MIXED, TO_USER) + link_indexes(MIXED, FROM_USER):
        header, udp = (20, byte(9, 17)) if index.protocol == ETH_P_IP else (40, byte(6, 17))
        for rule in index.rules:
            beyond = [key.offset >= header for key in rule.keys]
            assert beyond == sorted(beyond)
            if any(beyond) and rule.order != Order.PLAIN_ICMPV6:  # behind a header of 8 bytes or more
                assert udp in rule.keys[: beyond.index(True)]


def test_more_exact_links_come_first() -> None:
    local = ipaddress.IPv4Address("192.0.2.1")

    def order(local_ip: ipaddress.IPv4Address | None, local_port: int | None) -> int:
        remote = ipaddress.ip_address("192.0.2.11")
        one = LinkInfo(1, 1, True, 500, remote, remote_port=50000, local_ip=local_ip, local_port=local_port)
        data, beat = (
            next(rule for rule in rules([one], TO_USER) if rule.flowid == make(1, 1) and rule.order < Order.PLAIN_UDP)
            for make in (data_class, heartbeat_class)
        )
        assert data.order == beat.order
        return data.order

    orders = [order(local, 50100), order(None, 50100), order(local, None), order(None, None)]
    assert orders == [0, 1, 2, 3]
    rest = [int(Order.PLAIN_UDP), int(Order.PLAIN_ICMPV6), int(Order.ODD_UDP)]
    assert sorted({*orders, *rest}) == [*orders, *rest]
    assert max(orders) < Order.OWNER


def test_rules_point_at_leaves_or_nowhere_and_stay_in_our_preferences() -> None:
    links = [link(1, 500, "192.0.2.11"), link(2, 0, "192.0.2.11", None), link(3, 1, "2001:db8::11")]
    for side in (TO_USER, FROM_USER):
        for index in link_indexes(links, side):
            assert set(index.prefs) <= INDEX_PREFS <= set(OUR_PREFS)
            assert index.hook == Handle(side.major)
            for rule in index.rules:
                assert rule.flowid is not None
                assert rule.flowid.major == side.major
                assert rule.flowid.minor == 0 or rule.flowid.minor & 0xF000 in (0x1000, 0x2000)
        for one in exempt_filters(side.major):
            assert one.flowid == Handle(side.major, EXEMPT_MINOR)
            assert one.pref in OUR_PREFS
            assert one.pref not in INDEX_PREFS
            assert one.hook == Handle(side.major)


def test_no_preference_has_two_protocols() -> None:
    protocols: dict[int, set[int]] = {}
    for index in link_indexes(MIXED, TO_USER):
        for pref in index.prefs:
            protocols.setdefault(pref, set()).add(index.protocol)
    for one in exempt_filters(1):
        protocols.setdefault(one.pref, set()).add(one.protocol)
    assert {len(found) for found in protocols.values()} == {1}
    assert set(protocols) == {100, 101, 102, *range(110, 116), *range(130, 136)}


def test_what_has_no_ports_goes_to_the_strictest_link_of_the_address() -> None:
    links = [link(1, 500, "192.0.2.11"), link(2, 300, "192.0.2.11", 50001), link(3, 0, "192.0.2.11", 50002)]
    (odd,) = [one for one in rules(links, TO_USER) if one.order == Order.ODD_UDP]
    assert odd.flowid == data_class(1, 2)
    assert odd.links == {1, 2, 3}


def test_every_byte_that_rules_are_looked_up_by_is_fixed_by_every_rule() -> None:
    for index in link_indexes(MIXED, TO_USER) + link_indexes(MIXED, FROM_USER) + redirect_indexes(MIXED):
        for rule in index.rules:
            needed = {*index.address, *(at for at, last in index.splits.items() if rule.order <= last)}
            assert {at for at in needed if _fixes(rule, at)} == needed, (rule, index.splits)


def _fixes(rule: Rule, position: int) -> bool:
    return any(
        key.offset <= position < key.offset + 4 and key.mask >> 8 * (3 - position % 4) & 0xFF == 0xFF
        for key in rule.keys
    )


def sources(links: list[LinkInfo]) -> list[tuple[tuple[Key, ...], Index, Rule]]:
    """For each source: which of its packets are redirected."""
    return [
        (keys, index, rule)
        for index in redirect_indexes(links)
        for rule in index.rules
        for keys in index.redirects[rule.order]
    ]


def test_only_udp_of_a_source_with_ports_is_redirected() -> None:
    ((keys, index, rule),) = sources([link(1, 500, "192.0.2.11"), link(2, 300, "192.0.2.11", 50001)])
    assert keys == (Key(8, 17 << 16, 0xFF0000),)
    assert rule == Rule(Redirects.UDP, (Key(12, 0xC000020B, 0xFFFFFFFF),), links=frozenset({1, 2}))
    assert (index.pref, index.protocol, str(index.hook)) == (110, 0x0800, "ffff:fff2")


def test_what_may_hide_udp_is_redirected_too() -> None:
    found = sources([link(1, 500, "2001:db8::11")])
    assert [keys for keys, _, _ in found] == [(Key(4, number << 8, 0xFF00),) for number in (17, 44, 0, 43, 60)]


def test_every_packet_of_a_source_without_ports_is_redirected() -> None:
    ((keys, _, rule),) = sources([link(1, 500, "192.0.2.11", None)])
    assert keys == ()
    assert rule == Rule(Redirects.EVERYTHING, (Key(12, 0xC000020B, 0xFFFFFFFF),), links=frozenset({1}))


def test_with_a_shared_class_everything_is_redirected_by_one_filter() -> None:
    ((one, served),) = redirect_everything([link(1, 500, "192.0.2.11"), link(2, 1, "2001:db8::11")]).items()
    assert one.keys == (Key(0, 0, 0),)
    assert (one.protocol, one.redirect_to) == (3, "slbw0")
    assert served == {1, 2}


def test_arp_neighbour_discovery_and_dhcp_are_exempt() -> None:
    filters = list(exempt_filters(1))
    assert {one.flowid for one in filters} == {Handle(1, EXEMPT_MINOR)}
    arp = Filter(Handle(1), 100, 0x0806, (Key(0, 0, 0),), Handle(1, EXEMPT_MINOR))
    assert arp in filters
    types = sorted(
        key.value >> 24
        for one in filters
        for key in one.keys
        if key.offset == 40 and key.mask >> 24 == 0xFF and key.mask == 0xFF000000
    )
    assert types == [133, 134, 135, 136, 137]
    assert len(filters) == 1 + 3 + 3 + 5
