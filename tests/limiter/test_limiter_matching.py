"""Which packets are each link's on this host, and what it is called where that cannot be told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ap_agent.common.settings import Settings
from ap_agent.dataplane.devices import Device, Host
from ap_agent.dataplane.program import Key
from ap_agent.limiter.matching import Matcher, Matching, match
from bandwidth_config import Limits
from contract.link_info import LinkInfo
from contract.link_tests import UDP, WATCH, LinkTest

REMOTE, OTHER = ip_address("192.0.2.11"), ip_address("192.0.2.12")
OURS, ABSENT = ip_address("198.51.100.1"), ip_address("198.51.100.99")
FAR, NEAR = ip_address("fe80::7"), ip_address("fe80::1")
HOST = Host(
    (
        Device(1, "lo", is_loopback=True),
        Device(2, "eth0"),
        Device(3, "eth1"),
        Device(4, "br0", "bridge"),
        Device(5, "port0", master=4),
        Device(6, "port1", master=4),
    ),
    {
        OURS: frozenset({2}),
        NEAR: frozenset({2, 3}),
        ip_address("fe80::2"): frozenset({3}),
        ip_address("fe80::4"): frozenset({4}),
    },
)
SETTINGS = Settings()


def link(number: int, remote: Any = REMOTE, port: int | None = 50_000, kbit: int = 500, **fields: Any) -> LinkInfo:
    return LinkInfo(number, 182, True, kbit, remote, remote_port=port, **fields)


def matched(*links: LinkInfo, settings: Settings = SETTINGS, host: Host = HOST, **options: Any) -> Matching:
    return match({one.interface_id: one for one in links}, host, settings, **options)


def codes(found: Matching) -> list[tuple[str, str]]:
    return [(one.code, one.subject) for one in found.problems]


def test_a_link_is_known_by_both_addresses_and_both_ports() -> None:
    found = matched(link(7, local_ip=OURS, local_port=50_001))

    assert found.wanted.links[7].keys == (Key(REMOTE, 50_000, OURS, 50_001),)
    assert (found.wanted.links[7].to_user_kbit, found.wanted.links[7].from_user_kbit) == (500, 500)
    assert (found.errors, found.problems) == ({}, ())


def test_each_direction_has_its_own_limit_and_what_has_no_link_its() -> None:
    settings = Settings(unmatched="default", default_bandwidth_kbit=1000, interfaces=("eth0",))
    found = matched(link(7, kbit=200, directions=Limits(200, 900)), settings=settings).wanted

    assert (found.links[7].to_user_kbit, found.links[7].from_user_kbit) == (200, 900)
    assert (found.unmatched_kbit, found.interfaces) == (1000, ("eth0",))
    assert matched(settings=settings).wanted.unmatched_kbit is None, "without a link the host is as it was"


# --- local addresses ------------------------------------------------------------------------------------------------


def test_link_without_its_local_address_is_matched_by_the_rest_with_a_problem() -> None:
    found = matched(link(7, local_ip=ABSENT, local_port=50_001), link(8, OTHER, local_ip=OURS))

    assert found.wanted.links[7].keys == (Key(REMOTE, 50_000, None, 50_001),)
    assert codes(found) == [("local_address_missing", "link 7")]
    assert sorted(found.errors) == [7]


@pytest.mark.parametrize("is_user_as", [True, False])
def test_host_with_none_of_the_local_addresses_is_another_one_and_limits_nothing(is_user_as: bool) -> None:
    other = link(8, OTHER, local_ip=ip_address("198.51.100.98"))
    found = matched(link(7, local_ip=ABSENT), replace(other, is_user_as=is_user_as), link(9, OTHER, port=7))

    assert dict(found.wanted.links) == {}
    assert codes(found) == [("wrong_host", "host")]
    assert sorted(found.errors) == ([7, 8, 9] if is_user_as else [7, 9])
    assert "198.51.100.98, 198.51.100.99" in found.errors[7]
    assert "its own token" in found.errors[7]
    assert found.problems[0].message == found.errors[7]


def test_address_of_a_link_that_is_not_limited_is_the_hosts_too() -> None:
    found = matched(link(7, local_ip=ABSENT), replace(link(8, OTHER, local_ip=OURS), is_user_as=False))

    assert codes(found) == [("local_address_missing", "link 7")]


def test_links_that_only_an_absent_local_address_tells_apart_keep_it_with_a_problem() -> None:
    found = matched(link(7, local_ip=ABSENT), link(8, local_ip=OURS), link(9, local_ip=ip_address("198.51.100.98")))

    assert codes(found) == [("local_address_missing", "link 7"), ("local_address_missing", "link 9")]
    assert found.wanted.links[7].keys == (Key(REMOTE, 50_000, ABSENT),)
    assert sorted(found.errors) == [7, 9]
    assert sorted(found.wanted.links) == [7, 8, 9]
    assert "The local address 198.51.100.99 of link 7" in found.errors[7]
    assert "add the address, or correct the bind IP" in found.errors[7]


def test_own_address_is_an_error_of_that_link_alone() -> None:
    found = matched(link(7, OURS), link(8))

    assert codes(found) == [("own_address", "link 7")]
    assert sorted(found.wanted.links) == [8]
    assert "is an address of this host" in found.errors[7]


# --- link-local addresses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("local", "interfaces", "ifindexes"),
    [
        ("fe80::2", (), [3]),
        ("fe80::4", (), [5, 6]),  # a bridge: its ports are looked at
        (None, ("eth1",), [3]),
        ("fe80::1", ("eth1",), [3]),  # two interfaces have it
        (None, (), None),
        (None, ("eth0", "eth1"), None),
        ("fe80::1", (), None),
        (None, ("eth9",), None),
    ],
)
def test_link_local_address_is_matched_on_one_interface(
    local: str | None, interfaces: tuple[str, ...], ifindexes: list[int] | None
) -> None:
    one = link(7, FAR, local_ip=ip_address(local) if local is not None else None)
    found = matched(one, link(8), settings=Settings(interfaces=interfaces))

    if ifindexes is None:
        assert codes(found) == [("ambiguous_interface", "link 7")]
        assert sorted(found.wanted.links) == [8]
    else:
        assert [key.ifindex for key in found.wanted.links[7].keys] == ifindexes
        assert found.problems == ()


# --- the same packets -----------------------------------------------------------------------------------------------


def test_of_links_with_the_same_packets_the_strictest_limit_of_each_direction_holds() -> None:
    found = matched(
        link(7, kbit=300, directions=Limits(300, 900)), link(8, kbit=400, directions=Limits(800, 400)), link(9, OTHER)
    )

    assert sorted(found.wanted.links) == [7, 9]
    assert (found.wanted.links[7].to_user_kbit, found.wanted.links[7].from_user_kbit) == (300, 400)
    assert codes(found) == [("ambiguous_match", "link 8")]
    assert sorted(found.errors) == [7, 8]
    assert found.errors[8] == (
        "Links 7 and 8 match the same packets of 192.0.2.11, UDP port 50000; the stricter limit of "
        "300\u00a0kbit/s to the user AS and 400\u00a0kbit/s from it (link 7) is enforced for both. Change the port of "
        "one of them."
    )


def test_a_blocked_link_is_the_strictest_of_its_packets_and_its_own_limit_is_no_error() -> None:
    found = matched(link(7, kbit=300), link(8, kbit=0))

    assert sorted(found.wanted.links) == [8]
    assert (found.wanted.links[8].to_user_kbit, found.wanted.links[8].from_user_kbit) == (0, 0)
    assert sorted(found.errors) == [7, 8]
    assert sorted(matched(link(7, kbit=0), link(8, kbit=300)).errors) == [8]


# --- observe only ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by_operator", "by_document", "observed"), [(False, False, [8]), (True, False, [7, 8]), (False, True, [7, 8])]
)
def test_observe_only_is_of_the_operator_of_the_document_or_of_a_link(
    by_operator: bool, by_document: bool, observed: list[int]
) -> None:
    links = (link(7), link(8, OTHER, is_observed=True))
    found = matched(*links, settings=Settings(observe_only=by_operator), is_observe_only=by_document)

    assert [number for number, one in found.wanted.links.items() if one.is_observed] == observed


@pytest.mark.parametrize(
    ("by_operator", "by_document", "kbit"), [(False, False, 1000), (True, False, None), (False, True, None)]
)
def test_observe_only_drops_nothing_of_unmatched_traffic_either(
    by_operator: bool, by_document: bool, kbit: int | None
) -> None:
    settings = Settings(unmatched="default", default_bandwidth_kbit=1000, observe_only=by_operator)
    assert matched(link(7), settings=settings, is_observe_only=by_document).wanted.unmatched_kbit == kbit


def test_observing_one_of_two_links_with_the_same_packets_lifts_no_limit() -> None:
    assert not matched(link(7), link(8, is_observed=True)).wanted.links[7].is_observed


# --- tests that send ------------------------------------------------------------------------------------------------

T0 = datetime(2026, 11, 22, 12, tzinfo=UTC)


def sending(port: int = 30_300, number: int = 1, kind: str = UDP) -> LinkTest:
    return LinkTest(T0, T0 + timedelta(seconds=20), f"{number:032x}", kind, port if kind == UDP else None)


def test_test_adds_a_key_of_its_port_with_any_port_of_the_user() -> None:
    found = matched(link(7, local_ip=OURS, local_port=50_001, tests=(sending(), sending(kind=WATCH))), link(8, OTHER))

    assert found.wanted.links[7].keys == (Key(REMOTE, 50_000, OURS, 50_001), Key(REMOTE, None, None, 30_300))
    assert found.wanted.links[8].keys == (Key(OTHER, 50_000),)
    assert (found.errors, found.problems) == ({}, ())


def test_test_of_a_link_local_address_has_the_interfaces_of_its_link() -> None:
    found = matched(link(7, FAR, local_ip=ip_address("fe80::4"), tests=(sending(),)))
    assert found.tests == {7: (Key(FAR, None, None, 30_300, 5), Key(FAR, None, None, 30_300, 6))}


@pytest.mark.parametrize(
    "links",
    [
        (link(7, is_observed=True, tests=(sending(),)),),
        (link(7, kbit=0, tests=(sending(),)),),
        (link(7, OURS, tests=(sending(),)),),  # of an address of this host
        (link(7, tests=(sending(),)), link(8)),  # not told from another one
        (link(7, tests=(sending(),)), link(8, port=50_001, tests=(sending(number=2),))),  # one port, two links
        (link(7, tests=(sending(),)), link(8, port=None, local_port=30_300)),  # the port of a border router
        (link(7, port=None, local_port=30_300, tests=(sending(),)),),
        (replace(link(7, tests=(sending(),)), is_user_as=False),),
    ],
)
def test_no_test_of_a_link_whose_limit_would_not_hold_or_whose_packets_would_not_be_known(
    links: tuple[LinkInfo, ...],
) -> None:
    found = matched(*links)
    plain = matched(*(replace(one, tests=()) for one in links))
    assert (found.tests, found.wanted) == ({}, plain.wanted)


# --- a few of many --------------------------------------------------------------------------------------------------

LINKS = st.builds(
    link,
    st.integers(1, 6),
    st.sampled_from([REMOTE, OTHER, OURS, FAR]),
    st.sampled_from([None, 50_000]),
    st.sampled_from([0, 500, 800]),
    local_ip=st.sampled_from([None, OURS, ABSENT]),
    local_port=st.sampled_from([None, None, 30_300]),
    is_observed=st.booleans(),
    tests=st.sampled_from([(), (), (sending(),), (sending(30_301, 2), sending(number=3)), (sending(kind=WATCH),)]),
)


@given(
    st.lists(st.tuples(st.lists(LINKS, max_size=6), st.booleans()), max_size=5),
    st.sampled_from([SETTINGS, Settings(observe_only=True)]),
)
def test_what_is_remembered_changes_nothing_that_is_wanted(
    documents: list[tuple[list[LinkInfo], bool]], settings: Settings
) -> None:
    matcher = Matcher()
    links: dict[int, LinkInfo] = {}
    for several, is_observe_only in documents:
        links = {**links, **{one.interface_id: one for one in several}}
        found = matcher.match(links, HOST, settings, is_observe_only=is_observe_only)
        assert found == match(links, HOST, settings, is_observe_only=is_observe_only)


def test_one_changed_limit_leaves_all_other_links_as_the_same_objects() -> None:
    links = {number: link(number, port=50_000 + number) for number in range(1, 20)}
    matcher = Matcher()
    before = matcher.match(links, HOST, SETTINGS).wanted
    assert matcher.match(dict(links), HOST, SETTINGS).wanted is before
    after = matcher.match({**links, 7: link(7, port=50_007, kbit=900)}, HOST, SETTINGS).wanted

    assert [number for number in links if after.links[number] is not before.links[number]] == [7]
    assert after.links[7].to_user_kbit == 900
