"""Filters in words: a plan is read by people."""

from __future__ import annotations

import ipaddress

from ap_agent.classify import exempt_filters
from ap_agent.describe import describe_keys
from ap_agent.model import ETH_P_IP, ETH_P_IPV6, INGRESS_HOOK, EngineSettings, Handle, Key
from ap_agent.ops import FilterAdd, TableAdd, describe_filter
from ap_agent.reconcile import plan_cycle
from bandwidth_config import LinkInfo
from tests.property.test_plan_properties import fresh_kernel


def texts(link: LinkInfo, hook: Handle) -> list[str]:
    """The tables and filters of a plan at one hook, without the word `add`."""
    ops = plan_cycle({link.interface_id: link}, EngineSettings(), kernel=fresh_kernel()).plan.ops
    own = [op for op in ops if isinstance(op, TableAdd | FilterAdd) and op.new.hook == hook]
    return [op.what.removeprefix("add ").removeprefix("filter ") for op in own]


def test_the_filters_of_an_ipv4_link_read_like_sentences() -> None:
    local, remote = ipaddress.ip_address("192.0.2.1"), ipaddress.ip_address("192.0.2.11")
    link = LinkInfo(1, 1, True, 500, remote, remote_port=50000, local_ip=local, local_port=50100)
    exact = "src 192.0.2.1 dst 192.0.2.11 udp with ports sport 50100 dport 50000"
    assert texts(link, Handle(1)) == [
        "table 1: of 256 buckets to ip pref 110 at 1:",
        "table 2: of 256 buckets to ip pref 110 at 1:",
        f"ip pref 110 at 1: 2:b:10 {exact} heartbeat -> 1:2001 (link 1, heartbeats, to the user AS)",
        "ip pref 110 at 1: 1:2:1 everything -> table 2: by byte 19",
        "ip pref 110 at 1: heartbeat -> table 1: by byte 18",
        "table 3: of 256 buckets to ip pref 112 at 1:",
        "table 4: of 256 buckets to ip pref 112 at 1:",
        f"ip pref 112 at 1: 4:b:10 {exact} -> 1:1001 (link 1, data, to the user AS)",
        "ip pref 112 at 1: 4:b:800 dst 192.0.2.11 udp with ports -> 1: (passes directly)",
        "ip pref 112 at 1: 4:b:c00 dst 192.0.2.11 udp -> 1:1001 (link 1, data, to the user AS)",
        "ip pref 112 at 1: 3:2:1 everything -> table 4: by byte 19",
        "ip pref 112 at 1: everything -> table 3: by byte 18",
    ]


def test_the_filters_of_an_ipv6_link_read_like_sentences() -> None:
    link = LinkInfo(2, 1, True, 500, ipaddress.ip_address("2001:db8::11"), remote_port=50000)
    place, user = "ipv6 pref 132 at 1: 4:11:", "dst 2001:db8::11"
    data, beats = "1:1002 (link 2, data, to the user AS)", "1:2002 (link 2, heartbeats, to the user AS)"
    rules = [one for one in texts(link, Handle(1)) if user in one]
    assert rules == [
        f"ipv6 pref 130 at 1: 2:11:600 {user} udp dport 50000 heartbeat -> {beats}",
        f"{place}600 {user} udp dport 50000 -> {data}",
        f"{place}800 {user} udp -> 1: (passes directly)",
        f"{place}a00 {user} hop-by-hop before icmpv6 -> 1: (passes directly)",
        f"{place}c00 {user} fragment -> {data}",
        f"{place}c01 {user} hop-by-hop -> {data}",
        f"{place}c02 {user} routing -> {data}",
        f"{place}c03 {user} destination-options -> {data}",
    ]


def test_redirects_and_exemptions_have_words_too() -> None:
    link = LinkInfo(1, 1, True, 500, ipaddress.ip_address("192.0.2.11"))  # without a port: all of it
    assert texts(link, INGRESS_HOOK) == [
        "table 1: of 1 buckets to ip pref 110 at ffff:fff2",
        "table 2: of 256 buckets to ip pref 110 at ffff:fff2",
        "table 3: of 256 buckets to ip pref 110 at ffff:fff2",
        "ip pref 110 at ffff:fff2 3:b:200 src 192.0.2.11 -> table 1:",
        "ip pref 110 at ffff:fff2 2:2:1 everything -> table 3: by byte 15",
        "ip pref 110 at ffff:fff2 1:0:10 everything -> redirect to slbw0",
        "ip pref 110 at ffff:fff2 everything -> table 2: by byte 14",
    ]
    shown = {describe_filter(one) for one in exempt_filters(3)}
    assert "arp pref 100 at 3: everything -> 3:fffd (exempt traffic)" in shown
    assert "ip pref 101 at 3: udp with ports sport 68 dport 67 -> 3:fffd (exempt traffic)" in shown
    assert "ipv6 pref 102 at 3: icmpv6 type 135 -> 3:fffd (exempt traffic)" in shown
    assert not any("@" in one for one in shown)


def test_what_has_no_words_is_shown_as_tc_shows_it() -> None:
    assert describe_keys(ETH_P_IP, (Key(36, 1, 3), Key(12, 0xC0000200, 0xFFFFFF00))) == (
        "00000001/00000003@36 c0000200/ffffff00@12"
    )
    assert describe_keys(ETH_P_IPV6, (Key(8, 0x20010DB8, 0xFFFFFFFF),)) == "20010db8/ffffffff@8"
