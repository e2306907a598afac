"""What a limit counts for each SCION packet on a Link, and what it leaves for SCION. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from bandwidth_config import Limits, format_kbit, format_number
from scionlab.testbed.models import Link

ETHERNET_BYTES: Final = 14
IP_BYTES: Final = {4: 20, 6: 40}
UDP_BYTES: Final = 8
FRAME_BYTES: Final = 1500  # IP packet in a frame

# A heartbeat is a BFD packet of 24 bytes with SCION's headers of a one-hop path: common 12, addresses 24 (IPv4) or 48
# (IPv6), path 32. It is sent every 150 to 200 ms (`bandwidth_config.HEARTBEAT_MINIMUM_KBIT`).
_HEARTBEAT_BYTES: Final = {4: 92, 6: 116}
_HEARTBEATS_PER_S: Final = (1 / 0.2, 1 / 0.15)


@dataclass(frozen=True)
class Framing:
    """A limit counts Ethernet frames without preamble, checksum and gap; on a tun device, IP bytes inside the VPN,
    whose outer packets belong to no Link (docs/agent.md). `mtu` is the Link's [byte]."""

    ip_version: int
    is_vpn: bool
    mtu: int

    @classmethod
    def of(cls, link: Link) -> Framing:
        end = link.interface_b
        return cls(ip_address(end.public_ip).version, end.vpn_client_id is not None, link.mtu)

    @property
    def parts(self) -> list[tuple[str, int]]:
        """Names and bytes of the headers counted with each SCION packet, innermost first."""
        around = [] if self.is_vpn else [("Ethernet", ETHERNET_BYTES)]
        return [("UDP", UDP_BYTES), (f"IPv{self.ip_version}", IP_BYTES[self.ip_version]), *around]

    @property
    def header_bytes(self) -> int:
        return sum(size for _, size in self.parts)

    @property
    def largest_bytes(self) -> int:
        """Largest SCION packet that fits the Link's MTU without fragments."""
        return min(self.mtu, FRAME_BYTES - UDP_BYTES - IP_BYTES[self.ip_version])

    @property
    def heartbeat_bytes(self) -> int:
        return _HEARTBEAT_BYTES[self.ip_version] + self.header_bytes

    @property
    def heartbeat_kbit(self) -> tuple[float, float]:
        """Minimum and maximum share of heartbeats in each direction [kbit/s]."""
        least, most = (self.heartbeat_bytes * 8 * rate / 1000 for rate in _HEARTBEATS_PER_S)
        return least, most


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
