"""What headers and fragments leave of a limit, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from measuring.framing import (
    VXLAN_BYTES,
    Wire,
    frame_count,
    goodput_bound,
    offered_on_wire,
    tcp_goodput_bound,
    wire_bytes,
)


@pytest.mark.parametrize(
    ("payload", "version", "mtu", "frames", "wire"),
    [
        (1000, 4, 1500, 1, 1042),  # L + 42
        (1472, 4, 1500, 1, 1514),
        (1500, 4, 1500, 2, 1508 + 2 * 34),  # 1480 + 28
        (10_000, 4, 1500, 7, 10_008 + 7 * 34),
        (1452, 6, 1500, 1, 1514),
        (10_000, 6, 1500, 7, 10_008 + 7 * 62),  # 1448 per frame, each with a fragment header
        (10_000, 4, 1400, 8, 10_008 + 8 * 34),  # 1380 is no multiple of 8: 1376
        (4_132, 4, 1400, 4, 4_140 + 4 * 34),  # three times 1380
        (8972, 4, 9000, 1, 9014),
    ],
)
def test_a_datagram_costs_the_headers_of_each_frame(
    payload: int, version: int, mtu: int, frames: int, wire: int
) -> None:
    assert frame_count(payload, family=version, mtu_bytes=mtu) == frames
    assert wire_bytes(payload, family=version, mtu_bytes=mtu) == wire
    assert goodput_bound(wire, payload, mtu, version) == pytest.approx(payload)


def test_an_offer_of_payload_is_more_on_the_wire_and_back() -> None:
    assert offered_on_wire(2000, 1472) == pytest.approx(2000 * 1514 / 1472)
    for payload, version in ((1000, 4), (10_000, 6)):
        wire_kbit = offered_on_wire(2000, payload, version=version)
        assert goodput_bound(wire_kbit, payload, version=version) == pytest.approx(2000)


def test_tcp_leaves_full_segments_and_a_vxlan_its_outer_headers() -> None:
    assert tcp_goodput_bound(1514) == pytest.approx(1448)
    assert tcp_goodput_bound(1514, version=6) == pytest.approx(1428)
    assert VXLAN_BYTES == 64
    assert tcp_goodput_bound(1514, 1450, link_layer_bytes=VXLAN_BYTES) == pytest.approx(1398)
    assert Wire(4, VXLAN_BYTES, 1450).bytes(1422) == 1514


def test_on_a_tun_device_ip_bytes_count() -> None:
    assert Wire(4, link_layer_bytes=0).goodput_bound(1400, 1372) == pytest.approx(1372)
