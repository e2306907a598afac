"""Which remote addresses have their datagrams admitted whole, and on whose behalf. Pure.

All fragments of an address end in the class of its strictest link (`classify`), so there is one virtual queue for each
address: that link's. Its own packets, which share the class, are described by its ports; see docs/adr/0020.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ap_agent.classify import limit_on, strictest
from ap_agent.model import Device
from ap_agent.whole.entry import Entry
from bandwidth_config import IPAddress, LinkInfo

LARGEST_DATAGRAM_BYTES = 65_535  # with its IP header: total length is a field of 16 bits (RFC 791)
FRAGMENT_HEADER_BYTES = 48  # in front of an IPv6 fragment's data (RFC 8200, 40 + 8); IPv4 has 20
FRAGMENT_UNIT_BYTES = 8  # offsets count these


@dataclass(frozen=True)
class Admitted:
    """What is admitted of one remote address; `link` is the interface id of the link whose class it ends in."""

    entry: Entry
    link: int


def datagram_bytes(device: Device) -> int:
    """What the largest datagram of all is on this device, in fragments, as HTB charges it: 46 frames of 1514 B with an
    MTU of 1500. By IPv6, whose fragments carry less than those of IPv4 (45 frames)."""
    per_fragment = (device.mtu_bytes - FRAGMENT_HEADER_BYTES) // FRAGMENT_UNIT_BYTES * FRAGMENT_UNIT_BYTES
    return -(-LARGEST_DATAGRAM_BYTES // max(per_fragment, FRAGMENT_UNIT_BYTES)) * device.frame_bytes


def fragment_links(links: Iterable[LinkInfo], major: int) -> dict[IPAddress, LinkInfo]:
    """Of each remote address the link whose class takes its fragments on the tree of that major.

    Left out is an address that is blocked (the closed leaf drops and counts everything), and one where the description
    of that link would catch packets of another one too: those would be refused for a limit that is not theirs.
    """
    by_address: dict[IPAddress, list[LinkInfo]] = {}
    for link in links:
        by_address.setdefault(link.remote_ip, []).append(link)
    found = {}
    for address, several in by_address.items():
        link = several[0] if len(several) == 1 else strictest(several, major)
        if limit_on(major, link) > 0 and not any(_may_be_taken_for(one, link) for one in several if one is not link):
            found[address] = link
    return found


def _may_be_taken_for(other: LinkInfo, link: LinkInfo) -> bool:
    """Whether a packet may be the other link's and look like this one's."""
    if link.remote_port is None:
        return True
    if other.remote_port is None:  # what has this link's ports is this link's
        return False
    pairs = ((other.remote_port, link.remote_port), (other.local_port, link.local_port))
    addresses = (other.local_ip, link.local_ip)
    return all(None in pair or pair[0] == pair[1] for pair in (*pairs, addresses))


Wanted = Mapping[IPAddress, Admitted]
