"""The peers get what they ask for."""

from __future__ import annotations

import struct

import pytest

from bench.packets import FRAME_BYTES, udp_frame
from bench.peers import flat, retell, thesis, wondershaper
from bench.world import make_links, remote_port, user_addresses, with_limit
from measuring import tap
from measuring.scion_packet import recognise


def test_the_thesis_sequence_is_that_of_its_listing() -> None:
    links = [
        thesis.ThesisLink(1, "fe80::20c:29ff:fe08:993c", 500),
        thesis.ThesisLink(2, "192.168.17.129", 500),
    ]
    commands = [" ".join(one) for one in thesis.enforce_commands("ens33", links)]
    assert commands == [
        "tc qdisc del dev ens33 root",
        "tc qdisc del dev ens33 ingress",
        "ip link del ifb0",
        "ip link add ifb0 type ifb",
        "ip link set ifb0 up",
        "tc qdisc add dev ens33 root handle 1: htb default 9999",
        "tc class add dev ens33 parent 1:0 classid 1:9999 htb rate 1000kbit ceil 1000kbit burst 5k prio 9999 mtu 1500",
        "tc class add dev ens33 parent 1:0 classid 1:1 htb rate 500kbit ceil 500kbit burst 5k prio 1 mtu 1500",
        "tc class add dev ens33 parent 1:0 classid 1:2 htb rate 500kbit ceil 500kbit burst 5k prio 2 mtu 1500",
        "tc filter add dev ens33 u32 match ip6 dst fe80::20c:29ff:fe08:993c/128 flowid 1:1",
        "tc filter add dev ens33 u32 match ip dst 192.168.17.129/32 flowid 1:2",
        "tc qdisc add dev ens33 handle ffff: ingress",
        "tc filter add dev ens33 parent ffff: protocol ip u32 match ip src 0.0.0.0/0 "
        "action mirred egress redirect dev ifb0",
        "tc filter add dev ens33 parent ffff: protocol ipv6 u32 match ip6 src ::0/0 "
        "action mirred egress redirect dev ifb0",
        "tc qdisc add dev ifb0 root handle 2: htb default 9999",
        "tc class add dev ifb0 parent 2:0 classid 2:9999 htb rate 1000kbit ceil 1000kbit burst 5k prio 9999 mtu 1500",
        "tc class add dev ifb0 parent 2:0 classid 2:1 htb rate 500kbit ceil 500kbit burst 5k prio 1 mtu 1500",
        "tc class add dev ifb0 parent 2:0 classid 2:2 htb rate 500kbit ceil 500kbit burst 5k prio 2 mtu 1500",
        "tc filter add dev ifb0 u32 match ip6 src fe80::20c:29ff:fe08:993c/128 flowid 2:1",
        "tc filter add dev ifb0 u32 match ip src 192.168.17.129/32 flowid 2:2",
    ]


def test_wondershaper_is_called_as_its_version_wants() -> None:
    assert wondershaper.set_command("1.1a-10.1", "eth0", 500) == ["wondershaper", "eth0", "500", "500"]
    assert wondershaper.set_command("1.4.1-6", "eth0", 500) == ["wondershaper", "-a", "eth0", "-d", "500", "-u", "500"]
    assert "ceil 475kbit" in wondershaper.scheme("eth0", "ifb0", 500)[2]


def test_a_linear_list_numbers_its_filters_from_first_to_last() -> None:
    links = make_links(3)
    filters = [line for line in flat.linear("d0", links) if line.startswith("filter")]
    assert [line.split("handle ")[1].split()[0] for line in filters] == ["800:0:1", "800:0:2", "800:0:3"]
    assert f"match ip dst {links[3].remote_ip}/32 match ip dport 50003 0xffff flowid 1:3" in filters[2]


def test_links_differ_in_address_and_are_the_same_every_time() -> None:
    for family in (4, 6):
        assert len(set(user_addresses(4000, family))) == 4000
        assert user_addresses(50, family) == user_addresses(50, family)
        assert user_addresses(50, family) != sorted(user_addresses(50, family))  # spread, not in a row
    changed = with_limit(make_links(5, kbit=2_000), 3, 5_000)
    assert [one.bandwidth_kbit for one in changed.values()] == [2_000, 2_000, 5_000, 2_000, 2_000]
    assert changed[3].remote_ip == make_links(5)[3].remote_ip


@pytest.mark.parametrize(
    ("source", "destination", "ports_at"), [("192.0.2.1", "10.1.2.3", 34), ("2001:db8::1", "2001:db8::2", 54)]
)
def test_frames_of_the_load_are_full_and_carry_the_ports(source: str, destination: str, ports_at: int) -> None:
    frame = udp_frame(source, destination, 56_001, remote_port(1))
    assert len(frame) == FRAME_BYTES
    assert struct.unpack_from("!HH", frame, ports_at) == (56_001, 50_001)
    assert frame[ports_at + 8 + 4] == 17  # SCION's next header: data, not a heartbeat
    assert recognise(frame[ports_at + 8 :]) is None


SHOWN = """\
filter protocol ip pref 112 u32 chain 0 
filter protocol ip pref 112 u32 chain 0 fh 2: ht divisor 256 
filter protocol ip pref 112 u32 chain 0 fh 2:5:1 order 1 key ht 2 bkt 5 *flowid 1:1001 not_in_hw 
  match c0000205/ffffffff at 16
  match 00110000/00ff0000 at 8
filter protocol ip pref 112 u32 chain 0 fh 800: ht divisor 1 
filter protocol ip pref 112 u32 chain 0 fh 800::801 order 2049 key ht 800 bkt 0 link 2: not_in_hw 
    hash mask 000000ff at 16
filter protocol ip pref 110 u32 chain 7 fh 801::800 order 2048 key ht 801 bkt 0 terminal flowid not_in_hw 
  match 0a216364/ffffffff at 12
	action order 1: mirred (Egress Redirect to device slbw0) stolen
	index 1 ref 1 bind 1
"""  # noqa: W291 - as tc prints it


def test_filters_are_told_again_as_tc_shows_them() -> None:
    start = "filter add dev d0 parent 1: chain 0 protocol ip pref 112"
    assert retell.filters(SHOWN, "d0", "parent 1:") == [
        f"{start} handle 2: u32 divisor 256",
        f"{start} handle 2:5:1 u32 ht 2:5: match u32 0xc0000205 0xffffffff at 16 "
        "match u32 0x00110000 0x00ff0000 at 8 flowid 1:1001",
        f"{start} u32 match u32 0x0 0x0 at 0 link 2: hashkey mask 0x000000ff at 16",
        "filter add dev d0 parent 1: chain 7 protocol ip pref 110 u32 match u32 0x0a216364 0xffffffff at 12 "
        "action mirred egress redirect dev slbw0",
    ]


def test_what_cannot_be_told_again_is_an_error() -> None:
    with pytest.raises(retell.RetellError):
        retell.filters("filter protocol all pref 1 bpf chain 0 handle 0x1 a.o:[x]", "d0", "parent 1:")
    with pytest.raises(retell.RetellError, match="variable offset"):
        retell.filters(
            SHOWN.replace("    hash mask", "    offset 0f00>>6 at 0  eat \n    hash mask"), "d0", "parent 1:"
        )


def test_the_tap_takes_ipv4_with_one_address_and_cuts_it() -> None:
    lines = list(struct.iter_unpack("=HBBI", tap.program(tap.DESTINATION_OFFSET, "192.0.2.6")))
    assert lines[2:4] == [(0x20, 0, 0, 30), (0x15, 0, 1, 0xC0000206)]
    assert lines[4:] == [(0x06, 0, 0, 64), (0x06, 0, 0, 0)]
    # Not IPv4: past the return of the packet, to the return of nothing.
    assert lines[1] == (0x15, 0, 3, 0x0800)
