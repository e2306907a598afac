"""What a limit leaves for SCION, as forms and pages say it."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from bandwidth_config import Limits
from measuring.framing import goodput_bound
from scionlab.limits.framing import Framing, counted_sentence


def sentence(limits: Limits, ip: str = "192.0.2.1", *, is_vpn: bool = False) -> str | None:
    found = counted_sentence(limits, Framing(ip_address(ip).version, is_vpn, 1472))
    return None if found is None else found.replace("\N{NO-BREAK SPACE}", " ")


def test_a_limit_counts_ethernet_frames() -> None:
    assert sentence(Limits.both(500)) == (
        "Limits include headers on the wire: 500 kbit/s leave 486 kbit/s for SCION packets of 1 472 bytes."
    )
    assert sentence(Limits(500, 100)) == (
        "Limits include headers on the wire: to the user AS 500 kbit/s leave 486 kbit/s, from it 100 kbit/s leave "
        "97 kbit/s for SCION packets of 1 472 bytes."
    )
    assert sentence(Limits.both(0)) is None


@pytest.mark.parametrize(
    ("ip", "is_vpn", "payload", "family", "link_layer"),
    [("192.0.2.1", False, 1472, 4, 14), ("2001:db8::1", False, 1452, 6, 14), ("10.10.1.2", True, 1472, 4, 0)],
)
def test_it_is_the_formula_that_measurements_are_judged_by(
    ip: str, is_vpn: bool, payload: int, family: int, link_layer: int
) -> None:
    bound = goodput_bound(100_000, payload, version=family, link_layer_bytes=link_layer)
    said = sentence(Limits.both(100_000), ip, is_vpn=is_vpn) or ""
    place = "inside the VPN" if is_vpn else "on the wire"
    assert f"headers {place}: 100 Mbit/s leave {int(bound) / 1000:.3f} Mbit/s" in said
    assert said.endswith(f"for SCION packets of 1 {payload % 1000} bytes.")
