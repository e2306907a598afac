"""What a limit counts, and what it leaves for SCION: the sentence that forms and the page of a Link say."""

from __future__ import annotations

from ipaddress import ip_address

from bandwidth_config import Limits, format_kbit

ETHERNET_BYTES, IPV4_BYTES, IPV6_BYTES, UDP_BYTES = 14, 20, 40, 8
FRAME_BYTES = 1500  # of IP in a frame


def counted_sentence(limits: Limits, *, underlay_ip: str, is_vpn: bool, mtu: int) -> str | None:
    """`On the wire: 500 kbit/s leave 486 kbit/s for SCION packets of 1472 bytes.` None where all is blocked.

    `underlay_ip` is an address of the Link, `mtu` its MTU [byte]. What is left of a limit is limit * L / (L + headers),
    rounded down, for packets of L bytes that fill a frame. A limit counts Ethernet frames, on a tun device the IP bytes
    inside the VPN (LIMITER.md; the outer packets are nobody's).
    """
    headers = UDP_BYTES + (IPV6_BYTES if ip_address(underlay_ip).version == 6 else IPV4_BYTES)
    packet = min(mtu, FRAME_BYTES - headers)
    counted = packet + headers + (0 if is_vpn else ETHERNET_BYTES)
    parts = [
        f"{where}{format_kbit(kbit)} leave {format_kbit(kbit * packet // counted)}"
        for kbit, where in _by_direction(limits)
        if kbit
    ]
    if not parts:
        return None
    place = "inside the VPN" if is_vpn else "on the wire"
    return f"Limits include headers {place}: {', '.join(parts)} for SCION packets of {packet} bytes."


def _by_direction(limits: Limits) -> list[tuple[int, str]]:
    if limits.is_symmetric:
        return [(limits.to_user_kbit, "")]
    return [(limits.to_user_kbit, "to the user AS "), (limits.from_user_kbit, "from it ")]
