"""Which addresses are admitted whole, for whom, and how deep the queue behind is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ap_agent.desired import PlacedLink, desired, queue_bytes, rates_of
from ap_agent.model import (
    EGRESS_HOOK,
    FROM_USER_SLOT,
    IFB_MAJOR,
    INGRESS_HOOK,
    NIC_MAJOR,
    Desired,
    Device,
    EngineSettings,
    Handle,
)
from ap_agent.whole.entry import Entry
from ap_agent.whole.wanted import Admitted, datagram_bytes, fragment_links
from bandwidth_config import Limits, LinkInfo, parse_ip

ETH0 = Device(2, "eth0")
TUN0 = Device(5, "tun0", arphrd=65534)
ON = EngineSettings(whole_datagrams=True)
USER = parse_ip("192.0.2.11")


def link(number: int, kbit: int, port: int | None = 50000, **more: object) -> LinkInfo:
    made = LinkInfo(number, 1, True, kbit, USER, remote_port=port)
    return replace(made, **more)  # type: ignore[arg-type]  # the fields of a link


def whose(*links: LinkInfo, major: int = NIC_MAJOR) -> int | None:
    found = fragment_links(links, major)
    return found[USER].interface_id if found else None


@pytest.mark.parametrize(
    ("mtu", "arphrd", "frames", "frame"),
    [(1500, 1, 46, 1514), (1472, 1, 47, 1486), (9000, 1, 8, 9014), (1500, 65534, 46, 1500), (65535, 772, 2, 65535)],
)
def test_a_leaf_has_room_for_the_largest_datagram_in_frames_of_its_device(
    mtu: int, arphrd: int, frames: int, frame: int
) -> None:
    assert datagram_bytes(Device(2, "eth0", mtu, arphrd)) == frames * frame


def test_fragments_of_a_shared_address_are_admitted_by_its_strictest_link() -> None:
    assert whose(link(1, 900), link(2, 500, 50001), link(3, 0, 50002)) == 2
    assert whose(link(1, 0), link(2, 0, 50001)) is None


def test_each_direction_has_its_own_strictest_link() -> None:
    both = (link(1, 900).with_limits(Limits(900, 100)), link(2, 500, 50001))

    assert whose(*both) == 2
    assert whose(*both, major=IFB_MAJOR) == 1


@pytest.mark.parametrize(
    ("other", "is_told_apart"),
    [
        ({"port": 50001}, True),
        ({"local_port": 51001}, True),
        ({"local_ip": parse_ip("192.0.2.2")}, True),
        ({"local_port": None}, False),
        ({"local_ip": None}, False),
        ({"port": None}, True),  # it owns what no other link's ports claim
    ],
)
def test_nobody_is_refused_for_a_limit_of_somebody_else(other: dict[str, object], is_told_apart: bool) -> None:
    here: dict[str, object] = {"local_ip": parse_ip("192.0.2.1"), "local_port": 51000}
    strict = link(1, 500, **here)  # type: ignore[arg-type]  # no port among them
    generous = link(2, 900, **{**here, **other})  # type: ignore[arg-type]  # port, or fields of a link

    assert (whose(strict, generous) == 1) is is_told_apart


def test_an_entry_without_a_port_admits_only_where_it_is_alone() -> None:
    assert whose(link(1, 500, None)) == 1
    assert whose(link(1, 500, None), link(2, 900)) is None


def found_for(*links: LinkInfo, nic: Device = ETH0, obstructed: frozenset[tuple[int, Handle]] = frozenset()) -> Desired:
    return desired([PlacedLink(one, nic) for one in links], [ETH0, TUN0], ON, obstructed)


def depths(wanted: Desired, number: int, nic: int = 0) -> list[int | None]:
    """Of the data leaves: to the user, from the user."""
    assert wanted.ifb is not None
    trees = (wanted.nics[nic], wanted.ifb)
    return [leaf.limit_bytes for tree in trees for leaf in tree.leaves if leaf.handle.major == 0x1000 + number]


def test_what_is_let_in_is_what_a_leaf_holds_otherwise_and_the_leaf_holds_that_twice_and_a_datagram() -> None:
    wanted = found_for(link(1, 500).with_limits(Limits(500, 2000)))

    rooms = [queue_bytes(rates_of(kbit).limit, 1514) for kbit in (500, 2000)]
    spare = datagram_bytes(ETH0)
    assert rooms == [6250, 25000]
    assert depths(wanted, 1) == [2 * room + spare for room in rooms]
    entries = [Entry(kbit, room, 2 * room + spare, 50000) for kbit, room in zip((500, 2000), rooms, strict=True)]
    assert [dict(tree.admitted) for tree in (wanted.nics[0], wanted.ifb)] == [  # type: ignore[union-attr]
        {USER: Admitted(one, 1)} for one in entries
    ]
    assert [dict(tree.programs) for tree in wanted.nics] == [
        {INGRESS_HOOK: FROM_USER_SLOT, EGRESS_HOOK: 2},
        {INGRESS_HOOK: FROM_USER_SLOT},
    ]


def test_behind_a_shared_address_others_fragments_leave_room_for_the_links_own_packets() -> None:
    shared = found_for(link(1, 500), link(2, 0, 50001)).nics[0].admitted[USER]

    assert (shared.link, shared.entry.room_bytes) == (1, 6250)
    assert shared.entry.own_room_bytes == 6250 + datagram_bytes(ETH0) < shared.entry.depth_bytes
    assert found_for(link(1, 500)).nics[0].admitted[USER].entry.own_room_bytes is None


def test_only_the_link_whose_queue_is_guarded_gets_a_deep_leaf() -> None:
    wanted = found_for(link(1, 500), link(2, 900, 50001))

    assert depths(wanted, 2) == [queue_bytes(112_500, 1514)] * 2


def test_a_blocked_link_stays_closed_and_needs_no_program() -> None:
    wanted = found_for(link(1, 0))

    assert depths(wanted, 1) == [0, 0]
    assert [tree.programs for tree in wanted.nics] == [{}, {}]


def test_without_the_hook_for_what_is_sent_the_leaf_there_stays_shallow() -> None:
    wanted = found_for(link(1, 500), obstructed=frozenset({(2, EGRESS_HOOK)}))

    assert depths(wanted, 1) == [6250, 2 * 6250 + datagram_bytes(ETH0)]
    assert wanted.nics[0].programs == {INGRESS_HOOK: FROM_USER_SLOT}


def test_without_the_option_nothing_of_it_is_wanted() -> None:
    off = desired([PlacedLink(link(1, 500), ETH0)], [ETH0], EngineSettings())

    assert (off.nics[0].programs, off.nics[0].admitted, depths(off, 1)) == ({}, {}, [6250, 6250])
