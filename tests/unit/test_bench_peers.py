"""The peers get what they ask for."""

from __future__ import annotations

import struct

import pytest

from lab.bench.packets import FRAME_BYTES, udp_frame
from lab.bench.peers import thesis, tree, wondershaper
from lab.bench.world import make_links, remote_port, user_addresses, with_limit
from lab.measuring import tap
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


def test_the_classes_of_ours_are_told_as_an_administrator_would_write_them() -> None:
    lines = tree.tree_lines(make_links(2, kbit=500))
    rate = "rate 500kbit ceil 500kbit burst 4000 cburst 4000 quantum 1514"
    assert lines[:4] == [
        "qdisc add dev slbw0 root handle 51b0: htb default 0",
        "qdisc add dev slbw1 root handle 51b0: htb default 0",
        f"class add dev slbw0 parent 51b0: classid 51b0:1 htb {rate}",
        "qdisc add dev slbw0 parent 51b0:1 handle 1: bfifo limit 160000",
    ]
    assert lines[4] == f"class add dev slbw1 parent 51b0: classid 51b0:1001 htb {rate}"
    assert len(lines) == 2 + 2 * 4


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


def test_the_tap_takes_ipv4_with_one_address_and_cuts_it() -> None:
    lines = list(struct.iter_unpack("=HBBI", tap.program(tap.DESTINATION_OFFSET, "192.0.2.6")))
    assert lines[2:4] == [(0x20, 0, 0, 30), (0x15, 0, 1, 0xC0000206)]
    assert lines[4:] == [(0x06, 0, 0, 64), (0x06, 0, 0, 0)]
    # Not IPv4: past the return of the packet, to the return of nothing.
    assert lines[1] == (0x15, 0, 3, 0x0800)
