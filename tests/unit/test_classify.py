"""Filters as values: keys at the right bytes, the order of the rules."""

from __future__ import annotations

import ipaddress

from ap_agent.classify import Side, byte, exempt_filters, half, link_filters, merged, redirect_filters
from ap_agent.model import (
    EXEMPT_MINOR,
    OUR_PREFS,
    Filter,
    Handle,
    Key,
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


def test_keys_of_one_word_are_one_key_in_the_order_of_the_packet() -> None:
    assert merged([half(22, 50000), byte(9, 17), half(20, 50100)]) == (
        Key(8, 17 << 16, 0x00FF0000),
        Key(20, 50100 << 16 | 50000, 0xFFFFFFFF),
    )


def test_the_exact_filter_of_an_ipv4_link_has_every_condition() -> None:
    filters = link_filters([link(1, 500, "192.0.2.11", local="192.0.2.1")], TO_USER)
    (data,) = [one for one in filters if one.flowid == data_class(1, 1) and one.pref == 111]
    assert data.keys == (
        Key(0, 0x45000000, 0xFF000000),  # no IP options
        Key(4, 0, 0x00001FFF),  # fragment offset 0, more fragments or not
        Key(8, 0x00110000, 0x00FF0000),  # UDP
        Key(12, 0xC0000201, 0xFFFFFFFF),
        Key(16, 0xC000020B, 0xFFFFFFFF),
        Key(20, 50100 << 16 | 50000, 0xFFFFFFFF),
    )
    (beats,) = [one for one in filters if one.flowid == heartbeat_class(1, 1)]
    assert beats.keys == (*data.keys, Key(32, 203 << 24, 0xFF000000))
    assert beats.pref < data.pref


def test_on_the_ifb_the_remote_end_is_the_source() -> None:
    filters = link_filters([link(1, 500, "192.0.2.11", local="192.0.2.1")], FROM_USER)
    (data,) = [one for one in filters if one.flowid == data_class(3, 1) and one.pref == 111]
    assert data.keys[3:] == (
        Key(12, 0xC000020B, 0xFFFFFFFF),
        Key(16, 0xC0000201, 0xFFFFFFFF),
        Key(20, 50000 << 16 | 50100, 0xFFFFFFFF),
    )


def test_an_ipv6_heartbeat_is_recognised_at_byte_52() -> None:
    filters = link_filters([link(1, 500, "2001:db8::11")], TO_USER)
    (beats,) = [one for one in filters if one.flowid == heartbeat_class(1, 1)]
    assert beats.keys == (
        Key(4, 17 << 8, 0xFF00),
        Key(24, 0x20010DB8, 0xFFFFFFFF),
        Key(28, 0, 0xFFFFFFFF),
        Key(32, 0, 0xFFFFFFFF),
        Key(36, 0x11, 0xFFFFFFFF),
        Key(40, 50000, 0xFFFF),
        Key(52, 203 << 24, 0xFF000000),
    )


def test_no_heartbeat_shares_a_preference_with_what_must_follow_it() -> None:
    """u32 leaves a whole list at a packet that is too short for one key: see the module."""
    links = [
        link(1, 500, "192.0.2.11", local="192.0.2.1"),
        link(2, 300, "192.0.2.11", None),
        link(3, 300, "192.0.2.12"),
        link(4, 500, "2001:db8::11", local="2001:db8::1"),
        link(5, 500, "2001:db8::11", None),
    ]
    filters = link_filters(links, TO_USER)
    beats = {one.pref for one in filters if any(key.offset in (32, 52) and key.mask == 0xFF000000 for key in one.keys)}
    others = {one.pref for one in filters if one.flowid is not None and one.flowid.minor & 0xF000 != 0x2000}
    assert beats == {110, 116, 118, 130, 138}
    assert not beats & others


def test_more_exact_links_come_first() -> None:
    filters = link_filters(
        [link(1, 500, "192.0.2.11"), link(2, 300, "192.0.2.11", local="192.0.2.1")],
        TO_USER,
    )
    pref = {one.flowid: one.pref for one in filters if one.pref < 118}
    assert pref[data_class(1, 2)] < pref[heartbeat_class(1, 1)] < pref[data_class(1, 1)]


def test_filters_point_at_leaves_or_nowhere_and_stay_in_our_preferences() -> None:
    links = [link(1, 500, "192.0.2.11"), link(2, 0, "192.0.2.11", None), link(3, 1, "2001:db8::11")]
    for side in (TO_USER, FROM_USER):
        for one in {**link_filters(links, side), **exempt_filters(side.major)}:
            assert one.flowid is not None
            assert one.flowid.minor == 0 or one.flowid.minor & 0xF000 in (0x1000, 0x2000, 0xF000)
            assert one.pref in OUR_PREFS
            assert one.hook == Handle(side.major)


def test_no_preference_has_two_protocols() -> None:
    links = [link(1, 500, "192.0.2.11"), link(2, 5, "192.0.2.12", None), link(3, 1, "2001:db8::11")]
    protocols: dict[int, set[int]] = {}
    for one in {**link_filters(links, TO_USER), **exempt_filters(1)}:
        protocols.setdefault(one.pref, set()).add(one.protocol)
    assert {len(found) for found in protocols.values()} == {1}


def test_what_has_no_ports_goes_to_the_strictest_link_of_the_address() -> None:
    links = [link(1, 500, "192.0.2.11"), link(2, 300, "192.0.2.11", 50001), link(3, 0, "192.0.2.11", 50002)]
    filters = link_filters(links, TO_USER)
    (odd,) = [one for one in filters if one.pref == 121]
    assert odd.flowid == data_class(1, 2)
    assert filters[odd] == {1, 2, 3}


def test_only_udp_of_a_source_with_ports_is_redirected() -> None:
    filters = redirect_filters([link(1, 500, "192.0.2.11"), link(2, 300, "192.0.2.11", 50001)], everything=False)
    (one,) = filters
    assert one.keys == (Key(8, 17 << 16, 0xFF0000), Key(12, 0xC000020B, 0xFFFFFFFF))
    assert (one.redirect_to, filters[one]) == ("slbw0", {1, 2})


def test_every_packet_of_a_source_without_ports_is_redirected() -> None:
    (one,) = redirect_filters([link(1, 500, "192.0.2.11", None)], everything=False)
    assert one.keys == (Key(12, 0xC000020B, 0xFFFFFFFF),)


def test_with_a_shared_class_everything_is_redirected_by_one_filter() -> None:
    (one,) = redirect_filters([link(1, 500, "192.0.2.11"), link(2, 1, "2001:db8::11")], everything=True)
    assert one.keys == (Key(0, 0, 0),)
    assert one.protocol == 3


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
