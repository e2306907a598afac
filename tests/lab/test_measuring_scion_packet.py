"""The heartbeats of the lab are what DOMAIN section 7 says, byte by byte."""

from __future__ import annotations

import struct

import pytest

from measuring.scion_packet import (
    NEXT_HEADER_BFD,
    build_heartbeat,
    heartbeat_payload_bytes,
)


@pytest.mark.parametrize(("family", "size", "header_units"), [(4, 92, 17), (6, 116, 23)])
def test_a_heartbeat_is_a_bfd_packet_behind_a_one_hop_path(family: int, size: int, header_units: int) -> None:
    packet = build_heartbeat(family=family)
    assert len(packet) == size == heartbeat_payload_bytes(family)
    assert struct.unpack_from(">I", packet, 0)[0] == 0x0B80DEAD  # version 0, traffic class 0xb8, flow id 0xdead
    assert packet[4] == NEXT_HEADER_BFD
    assert packet[5] == header_units
    assert struct.unpack_from(">H", packet, 6) == (24,)
    assert packet[8] == 2  # one-hop path
    bfd = packet[-24:]
    assert header_units * 4 + len(bfd) == size
    assert bfd[0] >> 5 == 1  # version
    assert bfd[1] >> 6 == 3  # state Up
    assert bfd[2] == 3  # detection multiplier
    assert bfd[3] == 24  # length
    assert struct.unpack_from(">II", bfd, 12) == (200_000, 200_000)
