"""The sentence on forms and pages about what a limit counts and what it leaves for SCION."""

from __future__ import annotations

from bandwidth_config import Limits, format_kbit, format_number
from scionlab.limits.framing import Framing


def counted_sentence(limits: Limits, framing: Framing) -> str | None:
    """`On the wire: 500 kbit/s leave 486 kbit/s for SCION packets of 1 472 bytes.` None if all is blocked. A limit
    leaves limit * L / (L + headers), rounded down, for packets of L bytes that fill a frame; `Framing` defines the
    headers."""
    packet = framing.largest_bytes
    counted = packet + framing.header_bytes
    parts = [
        f"{where}{format_kbit(kbit)} leave {format_kbit(kbit * packet // counted)}"
        for kbit, where in _by_direction(limits)
        if kbit
    ]
    if not parts:
        return None
    place = "inside the VPN" if framing.is_vpn else "on the wire"
    return f"Limits include headers {place}: {', '.join(parts)} for SCION packets of {format_number(packet)} bytes."


def _by_direction(limits: Limits) -> list[tuple[int, str]]:
    if limits.is_symmetric:
        return [(limits.to_user_kbit, "")]
    return [(limits.to_user_kbit, "to the user AS "), (limits.from_user_kbit, "from it ")]
