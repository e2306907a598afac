"""Which packets belong to which class: filters as values. Pure.

The rules are DOMAIN section 2: only UDP can be link traffic, and a limit never touches other ports or protocols of the
same address. One rank per kind of rule, each rank in a filter preference of its own:

    exact          UDP, port (and local address, local port) of the link        -> the link's leaf
    plain UDP      other whole UDP packets of a limited address                 -> unmatched (not limited by us)
    odd UDP        what has no ports where we look: later fragments, IP options,
                   IPv6 extension headers                                       -> the strictest link of that address
    everything     an entry without a port owns its address                     -> the link's leaf

Ranks are preferences, not just an order in one list, because u32 gives up a *whole list* when a packet is too short for
one key (`goto out` in u32_classify): a datagram of under 8 payload bytes ends the heartbeat list, at byte 32, and must
still meet the data list behind it, or short packets would escape the limit (a kernel test pins this). And a list holds
no more than 4095 filters, beyond which u32 mixes them up without a word: so no list has two filters for one link.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ap_agent.model import (
    ETH_P_ALL,
    ETH_P_ARP,
    ETH_P_IP,
    ETH_P_IPV6,
    EXEMPT_ARP_PREF,
    EXEMPT_MINOR,
    EXEMPT_V4_PREF,
    EXEMPT_V6_PREF,
    IFB_NAME,
    INGRESS_HOOK,
    NIC_MAJOR,
    REDIRECT_ALL_PREF,
    V4_PREF,
    V6_PREF,
    Filter,
    Handle,
    Key,
    data_class,
    heartbeat_class,
)
from bandwidth_config import IPAddress, LinkInfo

UDP = 17
ICMPV6 = 58
V6_HOP_BY_HOP, V6_ROUTING, V6_FRAGMENT, V6_DESTINATION = 0, 43, 44, 60
BFD = 203  # SCION next header of heartbeats, byte 4 of the UDP payload (DOMAIN section 7)
NEIGHBOUR_DISCOVERY = range(133, 138)  # RFC 4861: router and neighbour solicitation, advertisement, redirect
DHCP_PORTS = ((68, 67), (67, 68), (67, 67))  # client to server, server to client, relay to server
DHCPV6_PORTS = ((546, 547), (547, 546), (547, 547))


class Rank(IntEnum):
    """Order of the rules within one family; the number is the distance from the family's first preference."""

    EXACT = 0  # to 7: two per degree of exactness, the heartbeats before the data
    ADDRESS_HEARTBEAT = 8
    PLAIN_UDP = 9
    PLAIN_ICMPV6 = 10
    ODD_UDP = 11  # to 14: one per kind of header
    EVERYTHING = 15


FilterLinks = dict[Filter, frozenset[int]]


@dataclass(frozen=True)
class Side:
    """A tree seen from its filters: where they hang, and whether the remote address is source or destination."""

    major: int
    unmatched: Handle  # where packets go that no link may claim: `x:` passes directly

    @property
    def hook(self) -> Handle:
        return Handle(self.major)

    @property
    def remote_is_destination(self) -> bool:
        return self.major == NIC_MAJOR


# --- keys ------------------------------------------------------------------------------------------------------


def _at(offset: int, value: int, mask: int, width: int) -> Key:
    shift = 8 * (4 - width - offset % 4)
    return Key(offset & ~3, value << shift, mask << shift)


def byte(offset: int, value: int, mask: int = 0xFF) -> Key:
    return _at(offset, value, mask, 1)


def half(offset: int, value: int, mask: int = 0xFFFF) -> Key:
    return _at(offset, value, mask, 2)


def _address_keys(offset: int, address: IPAddress) -> Iterator[Key]:
    packed = address.packed
    for position in range(0, len(packed), 4):
        yield Key(offset + position, int.from_bytes(packed[position : position + 4]), 0xFFFFFFFF)


def merged(keys: Iterable[Key]) -> tuple[Key, ...]:
    """One key per word, in the order of the packet: cheap tests of the fixed header come before its payload."""
    words: dict[int, Key] = {}
    for key in keys:
        old = words.get(key.offset, Key(key.offset, 0, 0))
        words[key.offset] = Key(key.offset, old.value | key.value, old.mask | key.mask)
    return tuple(words[offset] for offset in sorted(words))


@dataclass(frozen=True)
class _Family:
    """Where things are in an IP header, and what a whole UDP packet without surprises looks like."""

    protocol: int
    first_pref: int
    next_header: int  # offset
    source: int
    destination: int
    ports: int
    heartbeat: int
    plain: tuple[Key, ...]
    odd_headers: tuple[int, ...]  # of UDP, or what may turn out to be UDP, whose ports are not where we look

    def side_offset(self, *, destination: bool) -> int:
        return self.destination if destination else self.source


V4 = _Family(
    protocol=ETH_P_IP,
    first_pref=V4_PREF,
    next_header=9,
    source=12,
    destination=16,
    ports=20,
    heartbeat=32,
    # No IP options, so that ports are at 20; fragment offset 0, so that there are ports at all.
    plain=(byte(0, 0x45), half(6, 0, 0x1FFF)),
    odd_headers=(UDP,),
)
V6 = _Family(
    protocol=ETH_P_IPV6,
    first_pref=V6_PREF,
    next_header=6,
    source=8,
    destination=24,
    ports=40,
    heartbeat=52,
    plain=(),
    odd_headers=(V6_FRAGMENT, V6_HOP_BY_HOP, V6_ROUTING, V6_DESTINATION),
)


def family_of(address: IPAddress) -> _Family:
    return V4 if address.version == 4 else V6


# --- the filters of links --------------------------------------------------------------------------------------


def match_key(link: LinkInfo) -> tuple[object, ...]:
    """Two links with the same key match exactly the same packets. Without a port only the address counts."""
    if link.remote_port is None:
        return (link.remote_ip,)
    return link.remote_ip, link.remote_port, link.local_ip, link.local_port


def strictest(links: Iterable[LinkInfo]) -> LinkInfo:
    """The link that takes what cannot be told apart: the lowest limit; blocked ones only if all are blocked."""
    ranked = sorted(links, key=lambda link: (link.bandwidth_kbit, link.interface_id))
    return next((link for link in ranked if link.bandwidth_kbit > 0), ranked[0])


def link_filters(links: Sequence[LinkInfo], side: Side) -> FilterLinks:
    """All filters for these links on one side. Links that match exactly the same packets must be sorted out before."""
    by_address: dict[IPAddress, list[LinkInfo]] = {}
    for link in links:
        by_address.setdefault(link.remote_ip, []).append(link)
    filters: FilterLinks = {}
    for address in sorted(by_address, key=lambda one: (one.version, int(one))):
        filters.update(_address_filters(address, by_address[address], side))
    return filters


def _address_filters(address: IPAddress, links: list[LinkInfo], side: Side) -> FilterLinks:
    filters: FilterLinks = {}
    for link in links:
        if link.remote_port is not None:
            filters.update(_exact_filters(link, side))
    owner = next((link for link in links if link.remote_port is None), None)
    everybody = frozenset(link.interface_id for link in links)
    remote = tuple(_remote_keys(address, side))
    family = family_of(address)

    def add(rank: int, flowid: Handle, served: frozenset[int], *keys: Key) -> None:
        one = Filter(side.hook, family.first_pref + rank, family.protocol, merged((*remote, *keys)), flowid)
        filters[one] = served

    is_udp = byte(family.next_header, UDP)
    rest = side.unmatched
    if owner is not None:
        rest, served = data_class(side.major, owner.interface_id), frozenset({owner.interface_id})
        beats = heartbeat_class(side.major, owner.interface_id)
        add(Rank.ADDRESS_HEARTBEAT, beats, served, is_udp, *family.plain, byte(family.heartbeat, BFD))
        add(Rank.EVERYTHING, rest, served)
    if owner is None or len(links) > 1:
        odd = strictest(links)
        odd_leaf = data_class(side.major, odd.interface_id)
        add(Rank.PLAIN_UDP, rest, everybody, is_udp, *family.plain)
        for index, header in enumerate(family.odd_headers):
            add(Rank.ODD_UDP + index, odd_leaf, everybody, byte(family.next_header, header))
    if owner is None and family is V6:
        # Multicast listener reports and the like carry a hop-by-hop header in front of ICMPv6 and are nobody's data.
        add(Rank.PLAIN_ICMPV6, rest, everybody, byte(6, V6_HOP_BY_HOP), byte(40, ICMPV6))
    return filters


def _exact_filters(link: LinkInfo, side: Side) -> FilterLinks:
    family = family_of(link.remote_ip)
    exactness = (0 if link.local_ip is not None else 2) + (0 if link.local_port is not None else 1)
    keys = [
        *_remote_keys(link.remote_ip, side),
        byte(family.next_header, UDP),
        *family.plain,
        *_port_keys(family, link, side),
    ]
    if link.local_ip is not None:
        keys += _address_keys(family.side_offset(destination=not side.remote_is_destination), link.local_ip)
    pref = family.first_pref + Rank.EXACT + 2 * exactness
    beats = merged((*keys, byte(family.heartbeat, BFD)))
    served = frozenset({link.interface_id})
    return {
        Filter(side.hook, pref, family.protocol, beats, heartbeat_class(side.major, link.interface_id)): served,
        Filter(side.hook, pref + 1, family.protocol, merged(keys), data_class(side.major, link.interface_id)): served,
    }


def _remote_keys(address: IPAddress, side: Side) -> Iterator[Key]:
    return _address_keys(family_of(address).side_offset(destination=side.remote_is_destination), address)


def _port_keys(family: _Family, link: LinkInfo, side: Side) -> Iterator[Key]:
    """The UDP header begins with the source port, the destination port is two bytes further."""
    remote_offset = family.ports + (2 if side.remote_is_destination else 0)
    local_offset = family.ports + (0 if side.remote_is_destination else 2)
    if link.remote_port is not None:
        yield half(remote_offset, link.remote_port)
    if link.local_port is not None:
        yield half(local_offset, link.local_port)


# --- what must never be caught by a shared class ---------------------------------------------------------------


def exempt_filters(major: int) -> FilterLinks:
    """ARP, neighbour discovery and DHCP: with them in the shared class a flood would cost the AP its neighbours."""
    hook, exempt, nobody = Handle(major), Handle(major, EXEMPT_MINOR), frozenset[int]()

    def one(pref: int, protocol: int, *keys: Key) -> Filter:
        return Filter(hook, pref, protocol, merged(keys), exempt)

    filters = [one(EXEMPT_ARP_PREF, ETH_P_ARP, Key(0, 0, 0))]
    for source, destination in DHCP_PORTS:
        ports = (half(V4.ports, source), half(V4.ports + 2, destination))
        filters.append(one(EXEMPT_V4_PREF, ETH_P_IP, byte(V4.next_header, UDP), *V4.plain, *ports))
    for source, destination in DHCPV6_PORTS:
        ports = (half(V6.ports, source), half(V6.ports + 2, destination))
        filters.append(one(EXEMPT_V6_PREF, ETH_P_IPV6, byte(V6.next_header, UDP), *ports))
    for message in NEIGHBOUR_DISCOVERY:
        filters.append(one(EXEMPT_V6_PREF, ETH_P_IPV6, byte(V6.next_header, ICMPV6), byte(40, message)))
    return dict.fromkeys(filters, nobody)


# --- what goes through the IFB ---------------------------------------------------------------------------------


def redirect_filters(links: Iterable[LinkInfo], *, everything: bool) -> Mapping[Filter, frozenset[int]]:
    """The ingress filters of a managed interface: only sources that have a limited link, or everything."""
    if everything:
        served = frozenset(link.interface_id for link in links)
        one = Filter(INGRESS_HOOK, REDIRECT_ALL_PREF, ETH_P_ALL, (Key(0, 0, 0),), redirect_to=IFB_NAME)
        return {one: served}
    filters: FilterLinks = {}
    for link in links:
        protocol = family_of(link.remote_ip).protocol
        for pref, keys in _redirect_keys(link):
            one = Filter(INGRESS_HOOK, pref, protocol, keys, redirect_to=IFB_NAME)
            filters[one] = filters.get(one, frozenset()) | {link.interface_id}
    return filters


def _redirect_keys(link: LinkInfo) -> Iterator[tuple[int, tuple[Key, ...]]]:
    """(preference, keys): an entry without a port takes the whole address, the others UDP and what may hide it."""
    family = family_of(link.remote_ip)
    source = tuple(_address_keys(family.source, link.remote_ip))
    if link.remote_port is None:
        yield family.first_pref + Rank.EVERYTHING, source
        return
    for index, header in enumerate(dict.fromkeys((UDP, *family.odd_headers))):
        yield family.first_pref + index, merged((*source, byte(family.next_header, header)))
