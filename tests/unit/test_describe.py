"""Filters in words: a plan is read by people."""

from __future__ import annotations

import ipaddress

from ap_agent.classify import Side, exempt_filters, link_filters, redirect_filters
from ap_agent.describe import describe_keys
from ap_agent.model import ETH_P_IP, ETH_P_IPV6, Handle, Key
from ap_agent.ops import describe_filter
from bandwidth_config import LinkInfo


def texts(link: LinkInfo) -> list[str]:
    filters = link_filters([link], Side(1, Handle(1)))
    return [describe_filter(one) for one in sorted(filters, key=lambda one: one.sort_key)]


def test_the_filters_of_an_ipv4_link_read_like_sentences() -> None:
    local, remote = ipaddress.ip_address("192.0.2.1"), ipaddress.ip_address("192.0.2.11")
    link = LinkInfo(1, 1, True, 500, remote, remote_port=50000, local_ip=local, local_port=50100)
    exact = "src 192.0.2.1 dst 192.0.2.11 udp with ports sport 50100 dport 50000"
    assert texts(link) == [
        f"ip pref 110 at 1: {exact} heartbeat -> 1:2001 (link 1, heartbeats, to the user AS)",
        f"ip pref 111 at 1: {exact} -> 1:1001 (link 1, data, to the user AS)",
        "ip pref 119 at 1: dst 192.0.2.11 udp with ports -> 1: (passes directly)",
        "ip pref 121 at 1: dst 192.0.2.11 udp -> 1:1001 (link 1, data, to the user AS)",
    ]


def test_the_filters_of_an_ipv6_link_read_like_sentences() -> None:
    link = LinkInfo(2, 1, True, 500, ipaddress.ip_address("2001:db8::11"), remote_port=50000)
    data = "-> 1:1002 (link 2, data, to the user AS)"
    assert texts(link) == [
        "ipv6 pref 136 at 1: dst 2001:db8::11 udp dport 50000 heartbeat -> 1:2002 (link 2, heartbeats, to the user AS)",
        f"ipv6 pref 137 at 1: dst 2001:db8::11 udp dport 50000 {data}",
        "ipv6 pref 139 at 1: dst 2001:db8::11 udp -> 1: (passes directly)",
        "ipv6 pref 140 at 1: dst 2001:db8::11 hop-by-hop before icmpv6 -> 1: (passes directly)",
        f"ipv6 pref 141 at 1: dst 2001:db8::11 fragment {data}",
        f"ipv6 pref 142 at 1: dst 2001:db8::11 hop-by-hop {data}",
        f"ipv6 pref 143 at 1: dst 2001:db8::11 routing {data}",
        f"ipv6 pref 144 at 1: dst 2001:db8::11 destination-options {data}",
    ]


def test_redirects_and_exemptions_have_words_too() -> None:
    link = LinkInfo(1, 1, True, 500, ipaddress.ip_address("192.0.2.11"))
    (one,) = redirect_filters([link], everything=False)
    assert describe_filter(one) == "ip pref 125 at ffff:fff2 src 192.0.2.11 -> redirect to slbw0"
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
