"""What a payload costs where a limit counts it, and so what headers and fragments leave of a limit.

A limit of ours counts what an Ethernet carries: payload + headers + 14 bytes, without checksum and preamble, because
that is what HTB counts there (on tun devices: IP bytes). For UDP over IPv4 in one frame the goodput that a limit L2
leaves is L2 * L / (L + 42) for a payload of L bytes: 8 of UDP, 20 of IPv4, 14 of Ethernet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

ETHERNET_BYTES = 14
IPV4_BYTES = 20
IPV6_BYTES = 40
UDP_BYTES = 8
TCP_BYTES = 32  # with the time stamp option (12 bytes, RFC 7323) that Linux puts into every segment
IPV6_FRAGMENT_BYTES = 8
VXLAN_BYTES = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES + 8 + ETHERNET_BYTES  # in front of the inner IP header (RFC 7348)
MTU_BYTES = 1500


def ip_header_bytes(version: int) -> int:
    """20 for IPv4, 40 for IPv6, without options and extension headers."""
    return IPV4_BYTES if version == 4 else IPV6_BYTES


def frame_count(payload_bytes: int, *, family: int, mtu_bytes: int = MTU_BYTES) -> int:
    """How many frames one UDP datagram takes: 1, or the number of its fragments."""
    datagram = UDP_BYTES + payload_bytes
    ip = ip_header_bytes(family)
    return 1 if ip + datagram <= mtu_bytes else math.ceil(datagram / _carried_bytes(family, mtu_bytes))


def _carried_bytes(family: int, mtu_bytes: int) -> int:
    """IP payload of a full fragment: all but the last carry a multiple of 8 (RFC 791, RFC 8200); 1480 or 1448."""
    extra = IPV6_FRAGMENT_BYTES if family == 6 else 0
    return (mtu_bytes - ip_header_bytes(family) - extra) // 8 * 8


def wire_bytes(
    payload_bytes: int, *, family: int, mtu_bytes: int = MTU_BYTES, link_layer_bytes: int = ETHERNET_BYTES
) -> int:
    """What a UDP payload costs on the wire, with the headers of its fragments where it does not fit the MTU.

    `link_layer_bytes` is what is counted in front of each (inner) IP header: 14 on an Ethernet, 0 on a tun device,
    `VXLAN_BYTES` where the outer frames of a VXLAN over IPv4 are counted (the MTU is the inner one then).
    """
    frames = frame_count(payload_bytes, family=family, mtu_bytes=mtu_bytes)
    extra = IPV6_FRAGMENT_BYTES if family == 6 and frames > 1 else 0
    return UDP_BYTES + payload_bytes + frames * (ip_header_bytes(family) + extra + link_layer_bytes)


def goodput_bound(
    limit_kbit: float,
    payload_bytes: int,
    mtu_bytes: int = MTU_BYTES,
    version: int = 4,
    *,
    link_layer_bytes: int = ETHERNET_BYTES,
) -> float:
    """What headers and fragments leave of a limit for UDP payload, kbit/s: limit * payload / wire.

    In one frame over IPv4: L2 * L / (L + 42). In fragments each frame costs its own 34 bytes (62 over IPv6, with the
    fragment header) and carries 1480 (1448) bytes of UDP; the first carries the UDP header. E.g. 10 000 bytes over
    IPv4: 7 frames, 10 246 bytes, 97.6 % of the limit. For `link_layer_bytes` see `wire_bytes`.
    """
    wire = wire_bytes(payload_bytes, family=version, mtu_bytes=mtu_bytes, link_layer_bytes=link_layer_bytes)
    return limit_kbit * payload_bytes / wire


def offered_on_wire(
    payload_kbit: float,
    payload_bytes: int,
    mtu_bytes: int = MTU_BYTES,
    version: int = 4,
    *,
    link_layer_bytes: int = ETHERNET_BYTES,
) -> float:
    """Rate on the wire [kbit/s] of a sender that counts payload, as iperf3's `-b` does; `goodput_bound` inverted."""
    return payload_kbit / goodput_bound(1, payload_bytes, mtu_bytes, version, link_layer_bytes=link_layer_bytes)


def tcp_segment_bytes(mtu_bytes: int = MTU_BYTES, version: int = 4) -> int:
    """Payload of a full segment with time stamps: 1448 at an MTU of 1500 over IPv4, 1428 over IPv6."""
    return mtu_bytes - ip_header_bytes(version) - TCP_BYTES


def tcp_goodput_bound(
    limit_kbit: float,
    mtu_bytes: int = MTU_BYTES,
    version: int = 4,
    *,
    link_layer_bytes: int = ETHERNET_BYTES,
) -> float:
    """What headers leave of a limit for TCP payload, kbit/s: 1448 / 1514 of it over IPv4 in full segments.

    Behind a VXLAN over IPv4 (inner MTU 1450, `link_layer_bytes=VXLAN_BYTES`) 1398 / 1514. Segments that were lost and
    sent again, and the other direction's acknowledgements, come out of the limit as well: a flow reaches a bit less.
    """
    return limit_kbit * tcp_segment_bytes(mtu_bytes, version) / (mtu_bytes + link_layer_bytes)


class Payloads(Protocol):
    """Anything that has the payloads of packets [bytes], such as `arrivals.Arrivals`."""

    @property
    def payload_bytes(self) -> Sequence[int]: ...


@dataclass(frozen=True)
class Wire:
    """What one payload costs where the limit counts: the family, and what is counted in front of the IP header."""

    family: int
    link_layer_bytes: int = ETHERNET_BYTES
    mtu_bytes: int = MTU_BYTES

    def bytes(self, payload_bytes: int) -> int:
        """See `wire_bytes`."""
        return wire_bytes(
            payload_bytes, family=self.family, mtu_bytes=self.mtu_bytes, link_layer_bytes=self.link_layer_bytes
        )

    def goodput_bound(self, limit_kbit: float, payload_bytes: int) -> float:
        """See `goodput_bound`, kbit/s."""
        return limit_kbit * payload_bytes / self.bytes(payload_bytes)

    def total(self, arrivals: Payloads) -> int:
        """All of these arrivals together, bytes."""
        return sum(map(self.bytes, arrivals.payload_bytes))
