"""What a limit counts, to the byte."""

from __future__ import annotations

import pytest

from scionlab.limits.framing import Framing

IPV4, IPV6, VPN = Framing(4, False, 1472), Framing(6, False, 1472), Framing(4, True, 1472)


@pytest.mark.parametrize(
    ("framing", "headers", "largest", "heartbeat"), [(IPV4, 42, 1472, 134), (IPV6, 62, 1452, 178), (VPN, 28, 1472, 120)]
)
def test_headers_and_heartbeats_are_those_of_the_underlay(
    framing: Framing, headers: int, largest: int, heartbeat: int
) -> None:
    """134 and 178 bytes are those of `bandwidth_config.HEARTBEAT_MINIMUM_KBIT`."""
    assert (framing.header_bytes, framing.largest_bytes, framing.heartbeat_bytes) == (headers, largest, heartbeat)
    assert framing.heartbeat_kbit == pytest.approx((heartbeat * 8 / 200, heartbeat * 8 / 150))
