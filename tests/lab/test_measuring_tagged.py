"""Frames with priority tags, byte by byte."""

from __future__ import annotations

import pytest

from measuring.tagged import PRIORITY_TAG, SERVICE_TAG, Tagged, headers

MACS = ("02:00:00:00:00:02", "02:00:00:00:00:01")
IPV4 = "45000020000040004011b6c0c000020bc0000201"  # 32 bytes, "don't fragment", UDP, its checksum
IPV6 = "60000000000c114020010db8000000000000000000000011" + "20010db8000000000000000000000001"
UDP = "c351c739000c0000"  # 50 001 to 51 001, 12 bytes, no checksum


@pytest.mark.parametrize(
    ("tags", "tag_bytes"), [((PRIORITY_TAG,), "8100a000"), ((SERVICE_TAG, PRIORITY_TAG), "88a8a0008100a000")]
)
def test_a_frame_has_its_tags_between_addresses_and_protocol(tags: tuple[int, ...], tag_bytes: str) -> None:
    front = headers(Tagged("u0", *MACS, tags), ("192.0.2.11", 50_001), ("192.0.2.1", 51_001), 4)
    assert front.hex() == "020000000001" + "020000000002" + tag_bytes + "0800" + IPV4 + UDP


def test_ipv6_has_its_payload_length() -> None:
    front = headers(Tagged("u0", *MACS), ("2001:db8::11", 50_001), ("2001:db8::1", 51_001), 4)
    assert front.hex() == "020000000001" + "020000000002" + "8100a000" + "86dd" + IPV6 + UDP
