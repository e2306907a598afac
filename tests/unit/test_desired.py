"""Rates, bursts and queues of a limit; which link takes what cannot be told apart; exact values."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ap_agent.classify import Order, strictest
from ap_agent.desired import (
    PlacedLink,
    desired,
    link_classes,
    link_leaves,
    rates_of,
    without_ambiguous,
)
from ap_agent.model import IFB_MAJOR, NIC_MAJOR, Desired, Device, EngineSettings, Handle
from ap_agent.tcmsg import MAX_U32, bytes_of_ticks, kept_bytes, ticks
from bandwidth_config import MAX_BANDWIDTH_KBIT, Limits, LinkInfo

ETH0 = Device(2, "eth0")
TUN0 = Device(4, "tun0", arphrd=65534)


def link(number: int, kbit: int, remote: str = "192.0.2.11", port: int | None = 50000, **more: object) -> LinkInfo:
    return LinkInfo(number, 0xB6, True, kbit, ipaddress.ip_address(remote), remote_port=port, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kbit", "limit", "heartbeat", "data"),
    [
        (500, 62_500, 2_000, 60_500),
        (32, 4_000, 2_000, 2_000),
        (31, 3_875, 1_937, 1_938),
        (1, 125, 62, 63),
        (0, 1_000, 500, 500),  # nominal: the leaves drop everything
        (100_000_000, 12_500_000_000, 2_000, 12_499_998_000),
    ],
)
def test_a_limit_is_divided_exactly(kbit: int, limit: int, heartbeat: int, data: int) -> None:
    rates = rates_of(kbit)
    assert (rates.limit, rates.heartbeat, rates.data) == (limit, heartbeat, data)


@given(st.integers(0, MAX_BANDWIDTH_KBIT), st.integers(68, 65_549))
def test_children_never_have_more_than_their_link(kbit: int, frame: int) -> None:
    inner, heartbeat, data = link_classes(1, link(1, kbit), frame)
    assert heartbeat.rate_bytes_s + data.rate_bytes_s == inner.rate_bytes_s == inner.ceil_bytes_s == data.ceil_bytes_s
    assert heartbeat.ceil_bytes_s == heartbeat.rate_bytes_s > 0
    assert heartbeat.prio < data.prio
    for one in (inner, heartbeat, data):
        assert ticks(one.burst_bytes, one.rate_bytes_s) <= MAX_U32
        assert kept_bytes(one.burst_bytes, one.rate_bytes_s) == one.burst_bytes  # as it will be read back
        assert kept_bytes(one.cburst_bytes, one.ceil_bytes_s) == one.cburst_bytes


@given(st.integers(1, MAX_U32), st.integers(62, 12_500_000_000))
def test_a_burst_read_back_is_a_fixed_point(tick_count: int, rate: int) -> None:
    read = bytes_of_ticks(tick_count, rate)
    assert kept_bytes(read, rate) == read


@pytest.mark.parametrize(
    ("kbit", "frame", "burst", "queue", "heartbeat_queue"),
    [
        (500, 1514, 3_028, 6_250, 6_056),
        (100, 1514, 3_028, 6_056, 6_056),
        (10_000, 1514, 5_000, 125_000, 6_056),
        (1_000_000, 1514, 500_000, 12_500_000, 6_056),
        (10_000, 1500, 5_000, 125_000, 6_000),
        (500, 9014, 18_028, 36_056, 36_056),
        (0, 1514, 3_028, 0, 0),
    ],
)
def test_bursts_and_queues_follow_the_rate(kbit: int, frame: int, burst: int, queue: int, heartbeat_queue: int) -> None:
    inner, _, _ = link_classes(1, link(1, kbit), frame)
    beats, data = link_leaves(1, link(1, kbit), frame)
    assert inner.burst_bytes == inner.cburst_bytes == burst
    assert (data.limit_bytes, beats.limit_bytes) == (queue, heartbeat_queue)


def test_the_strictest_link_is_never_a_blocked_one_unless_all_are() -> None:
    for major in (NIC_MAJOR, IFB_MAJOR):
        assert strictest([link(1, 500), link(2, 0), link(3, 300)], major).interface_id == 3
        assert strictest([link(4, 0), link(2, 0)], major).interface_id == 2
        assert strictest([link(4, 300), link(2, 300)], major).interface_id == 2


def test_of_links_that_match_the_same_packets_the_strictest_is_kept_and_the_others_named() -> None:
    winners, findings = without_ambiguous([link(2, 300), link(1, 500), link(3, 400, port=50001)])
    assert [one.interface_id for one in winners] == [2, 3]
    (finding,) = findings
    assert (finding.problem.code, finding.problem.subject) == ("ambiguous_match", "link 2")
    assert finding.links == {1, 2}
    assert finding.problem.message == (
        "Links 1 and 2 both match exactly the packets of 192.0.2.11, UDP port 50000; the stricter limit of "
        "300\N{NO-BREAK SPACE}kbit/s (link 2) is enforced for both. Give one of them another port."
    )


def test_the_first_of_two_equal_links_is_enforced_when_it_is_the_stricter() -> None:
    _, (finding,) = without_ambiguous([link(1, 300), link(2, 500)])
    assert finding.links == {2}


def test_nothing_is_wanted_when_no_link_is_limited() -> None:
    for unmatched in ("unlimited", "default"):
        settings = EngineSettings(unmatched=unmatched)  # type: ignore[arg-type]
        assert desired([], [ETH0], settings) == Desired()


def test_an_interface_without_links_gets_no_root_unless_everything_shares_a_class() -> None:
    placed = [PlacedLink(link(1, 500), ETH0)]
    unlimited = desired(placed, [ETH0, TUN0], EngineSettings())
    assert [one.has_root for one in unlimited.nics] == [True, False]
    assert [len(one.redirect_indexes) for one in unlimited.nics] == [1, 1]
    assert [len(one.redirects) for one in unlimited.nics] == [0, 0]
    shared = desired(placed, [ETH0, TUN0], EngineSettings(unmatched="default"))
    assert [one.has_root for one in shared.nics] == [True, True]
    assert [(len(one.redirects), one.redirect_indexes) for one in shared.nics] == [(1, ()), (1, ())]
    assert [len(one.indexes) for one in shared.nics] == [2, 0]  # heartbeats and exact, where the link is
    assert [one.handle for one in shared.nics[1].classes] == [Handle(1, 0xFFFD), Handle(1, 0xFFFE)]


def test_the_ifb_fits_the_largest_frame_of_all_managed_interfaces() -> None:
    jumbo = Device(3, "eth1", mtu_bytes=9000)
    wanted = desired([PlacedLink(link(1, 500), ETH0)], [ETH0, jumbo], EngineSettings())
    assert wanted.ifb is not None
    assert wanted.ifb.classes[0].burst_bytes == 2 * 9014
    assert wanted.nics[0].classes[0].burst_bytes == 2 * 1514


def test_unmatched_traffic_at_0_is_blocked_like_a_link() -> None:
    wanted = desired(
        [PlacedLink(link(1, 500), ETH0)], [ETH0], EngineSettings(unmatched="default", default_bandwidth_kbit=0)
    )
    limits = {one.parent.minor: one.limit_bytes for one in wanted.nics[0].leaves}
    assert limits[0xFFFE] == 0
    assert limits[0xFFFD] == 125_000


def test_each_direction_has_a_limit_of_its_own() -> None:
    """Link 1 has 500 kbit/s to and 2000 from the user AS, link 2 the other way round."""
    both = [link(1, 1).with_limits(Limits(500, 2000)), link(2, 1, port=50001).with_limits(Limits(2000, 500))]
    found = desired([PlacedLink(one, ETH0) for one in both], [ETH0], EngineSettings())
    assert found.ifb is not None
    to_user, from_user = found.nics[0], found.ifb
    for tree, major, rates in ((to_user, NIC_MAJOR, (500, 2000)), (from_user, IFB_MAJOR, (2000, 500))):
        ceilings = {one.handle: one.ceil_bytes_s for one in tree.classes}
        assert [ceilings[Handle(major, number)] for number in (1, 2)] == [kbit * 125 for kbit in rates]
        # Fragments go to whichever is the stricter in that direction.
        odd = {rule.flowid for index in tree.indexes for rule in index.rules if rule.order == Order.ODD_UDP}
        assert odd == {Handle(major, 0x1001 if rates[0] == 500 else 0x1002)}
