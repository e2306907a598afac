"""Who a packet belongs to, written down again from DOMAIN section 2 and docs/adr/0002, without tables or filters.

A `Probe` is a packet as a person would describe it. The engine sees its bytes only, the reference its description.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ap_agent.model import ETH_P_IP, ETH_P_IPV6, Handle, data_class, heartbeat_class
from bandwidth_config import IPAddress, LinkInfo

UDP, TCP, ICMPV6 = 17, 6, 58
HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS = 0, 43, 44, 60
EXTENSIONS = (HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS)


@dataclass(frozen=True)
class Probe:
    """`offset` is that of an IPv4 fragment in 8 bytes; `extension` an IPv6 header in front of `protocol`.

    `body` follows the ports of UDP, or the IP header of everything else. A `cut` packet ends after so many bytes.
    """

    remote: IPAddress
    local: IPAddress
    remote_port: int = 50000
    local_port: int = 50100
    protocol: int = UDP
    body: bytes = bytes(40)
    has_more_fragments: bool = False
    offset: int = 0
    has_options: bool = False
    extension: int | None = None
    cut: int | None = None

    @property
    def ethertype(self) -> int:
        return ETH_P_IP if self.remote.version == 4 else ETH_P_IPV6

    @property
    def has_ports_at_their_place(self) -> bool:
        return self.protocol == UDP and not (self.offset or self.has_options or self.extension is not None)

    @property
    def is_heartbeat(self) -> bool:
        """The fifth byte of the payload says BFD; less than 8 bytes are no heartbeat, whatever they say."""
        return len(self.body) >= 8 and self.body[4] == 203

    def packed(self, *, to_user: bool) -> bytes:
        """From the network header on."""
        ends = [(self.local, self.local_port), (self.remote, self.remote_port)]
        (source, source_port), (destination, destination_port) = ends if to_user else reversed(ends)
        rest = self.body
        if self.protocol == UDP and not self.offset:
            length = 8 + len(self.body)
            rest = b"".join(one.to_bytes(2) for one in (source_port, destination_port, length, 0)) + self.body
        pack = self._ipv4 if self.remote.version == 4 else self._ipv6
        return pack(source.packed + destination.packed, rest)[: self.cut]

    def _ipv4(self, addresses: bytes, rest: bytes) -> bytes:
        options = bytes([1, 1, 1, 1]) if self.has_options else b""
        length, flags = 20 + len(options) + len(rest), 0x2000 * self.has_more_fragments | self.offset
        head = bytes([0x46 if options else 0x45, 0]) + length.to_bytes(2) + bytes(2) + flags.to_bytes(2)
        return head + bytes([64, self.protocol, 0, 0]) + addresses + options + rest

    def _ipv6(self, addresses: bytes, rest: bytes) -> bytes:
        first = self.protocol
        if self.extension is not None:
            first, rest = self.extension, bytes([self.protocol, 0, 1, 4, 0, 0, 0, 0]) + rest
        return bytes([0x60, 0, 0, 0]) + len(rest).to_bytes(2) + bytes([first, 64]) + addresses + rest


def owner_of(probe: Probe, links: Collection[LinkInfo], major: int) -> Handle | None:
    """The leaf class that a packet must meet; None: it is nobody's. Two links that match the same packets are an error
    of the document, and not among `links`.
    """
    mine = [one for one in links if one.remote_ip == probe.remote]
    exact = [one for one in mine if one.remote_port is not None]
    whole = next((one for one in mine if one.remote_port is None), None)
    is_beat = probe.has_ports_at_their_place and probe.is_heartbeat
    fitting = [one for one in exact if probe.has_ports_at_their_place and _fits(one, probe)]
    if fitting:
        # What says more wins: the local port before the local address.
        best = max(fitting, key=lambda one: (one.local_port is not None, one.local_ip is not None))
        return (heartbeat_class if is_beat else data_class)(major, best.interface_id)
    if exact and _may_hide_udp(probe) and not (whole is None and _is_listener_report(probe)):
        return data_class(major, _strictest(mine).interface_id)
    if whole is not None:
        return (heartbeat_class if is_beat else data_class)(major, whole.interface_id)
    return None


def is_redirected(probe: Probe, links: Collection[LinkInfo]) -> bool:
    """Whether a packet from outside passes the IFB: all of an address that a link owns, of others what may be UDP."""
    mine = [one for one in links if one.remote_ip == probe.remote]
    is_udp = probe.protocol == UDP and probe.extension is None
    return any(one.remote_port is None for one in mine) or bool(mine and (is_udp or _may_hide_udp(probe)))


def _fits(link: LinkInfo, probe: Probe) -> bool:
    return (
        link.remote_port == probe.remote_port
        and link.local_ip in (None, probe.local)
        and link.local_port in (None, probe.local_port)
    )


def _may_hide_udp(probe: Probe) -> bool:
    if probe.remote.version == 6:
        return probe.extension is not None
    return probe.protocol == UDP and (probe.offset > 0 or probe.has_options)


def _is_listener_report(probe: Probe) -> bool:
    """ICMPv6 behind a hop-by-hop header, as routers and hosts send it about multicast groups."""
    return probe.extension == HOP_BY_HOP and probe.protocol == ICMPV6


def _strictest(links: Collection[LinkInfo]) -> LinkInfo:
    open_ = [one for one in links if one.bandwidth_kbit > 0]
    return min(open_ or links, key=lambda one: (one.bandwidth_kbit, one.interface_id))
