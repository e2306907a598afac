"""Plans of traffic, the packing of arrivals and the tunnel's table: the parts of the lab that need no kernel."""

from __future__ import annotations

from array import array

import pytest

from lab.tunnel import parse_outer, peer_of
from measuring.arrivals import Arrivals
from measuring.netns import Lab
from measuring.station import pack_arrivals, unpack_arrivals
from measuring.traffic import data, ends, heartbeats

AP = ("192.0.2.1", 50_000)
USER = ("192.0.2.11", 50_001)


def test_both_ends_of_a_link_mirror_each_other() -> None:
    left, right = ends("l1", AP, USER, (data(1000), heartbeats()))
    assert (left.local, left.remote) == (AP, USER) == (right.remote, right.local)
    assert left.streams == right.streams
    assert left.streams[0].kbit == 1000
    assert left.streams[1].kind == "heartbeat"
    assert ends("l1", AP, USER, (data(1000),), right_streams=())[1].streams == ()


def test_arrivals_survive_the_pipe() -> None:
    before = Arrivals(array("q", [1, 2**40]), array("I", [92, 1472]), array("I", [0, 2**32 - 1]), array("q", [-1, 7]))
    assert unpack_arrivals(pack_arrivals(before)) == before


@pytest.mark.parametrize("prefix", ["", "Lab", "a-b", "waytoolongprefix", "1lab"])
def test_a_lab_prefix_is_short_and_plain(prefix: str) -> None:
    with pytest.raises(ValueError, match="not a lab prefix"):
        Lab(prefix)


def _packet(destination: str) -> bytes:
    header = bytearray(28)
    header[0] = 0x45
    header[16:20] = bytes(map(int, destination.split(".")))
    return bytes(header)


def test_a_tunnel_sends_a_packet_to_the_peer_of_its_destination() -> None:
    peers = {"10.10.1.2": parse_outer("192.0.2.11:1194"), "10.10.1.3": parse_outer("192.0.2.12:1195")}
    assert peer_of(_packet("10.10.1.3"), peers) == ("192.0.2.12", 1195)
    assert peer_of(_packet("10.10.1.9"), peers) is None
    assert peer_of(_packet("10.10.1.9"), {**peers, "default": ("192.0.2.1", 1194)}) == ("192.0.2.1", 1194)
    assert peer_of(b"\x60" + bytes(60), peers) is None
