"""What a limit leaves for SCION, as forms and pages say it."""

from __future__ import annotations

import pytest

from bandwidth_config import Limits
from measuring.framing import goodput_bound
from scionlab.limits.pages.counted import counted_sentence


def sentence(limits: Limits, ip: str = "192.0.2.1", *, is_vpn: bool = False) -> str | None:
    found = counted_sentence(limits, underlay_ip=ip, is_vpn=is_vpn, mtu=1472)
    return None if found is None else found.replace("\N{NO-BREAK SPACE}", " ")


def test_a_limit_counts_ethernet_frames() -> None:
    assert sentence(Limits.both(500)) == (
        "Limits include headers on the wire: 500 kbit/s leave 486 kbit/s for SCION packets of 1 472 bytes."
    )
    assert sentence(Limits.both(10_000_000)) == (
        "Limits include headers on the wire: 10 000 Mbit/s leave 9 722.589 Mbit/s for SCION packets of 1 472 bytes."
    )


def test_over_ipv6_headers_are_longer_and_packets_that_fit_a_frame_shorter() -> None:
    assert sentence(Limits.both(500), "2001:db8::1") == (
        "Limits include headers on the wire: 500 kbit/s leave 479 kbit/s for SCION packets of 1 452 bytes."
    )


def test_inside_the_vpn_no_ethernet_header_is_counted() -> None:
    assert sentence(Limits.both(500), "10.10.1.2", is_vpn=True) == (
        "Limits include headers inside the VPN: 500 kbit/s leave 490 kbit/s for SCION packets of 1 472 bytes."
    )


def test_directions_that_differ_are_both_named_and_blocked_ones_left_out() -> None:
    assert sentence(Limits(500, 100)) == (
        "Limits include headers on the wire: to the user AS 500 kbit/s leave 486 kbit/s, from it 100 kbit/s leave "
        "97 kbit/s for SCION packets of 1 472 bytes."
    )
    assert sentence(Limits(0, 100)) == (
        "Limits include headers on the wire: from it 100 kbit/s leave 97 kbit/s for SCION packets of 1 472 bytes."
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
    assert f"leave {int(bound) / 1000:.3f} Mbit/s" in said
