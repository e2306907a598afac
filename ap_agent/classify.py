"""Which packets belong to which class: filters as values. Pure.

The rules are DOMAIN section 2: only UDP can be link traffic, and a limit never touches other ports or protocols of the
same address. For one remote address they are, the first that matches counts:

    heartbeat      as below, and the payload says that it is one            -> the link's heartbeat leaf
    exact          UDP, port (and local port, local address) of the link    -> the link's data leaf
    plain UDP      other whole UDP packets of a limited address             -> unmatched (not limited by us)
    odd UDP        what has no ports where we look: later fragments, IP
                   options, IPv6 extension headers                          -> the strictest link of that address
    everything     an entry without a port owns its address                 -> the link's data leaf

Rules are kept in three indexes per family, each with a preference of its own: heartbeats, exact to odd, everything.
They cannot be one, because u32 gives up a *whole preference* when a packet is too short for one key (`goto out` in
u32_classify): a datagram of under 8 payload bytes ends the search for heartbeats, at byte 32, and must still meet the
exact rules behind it, or short packets would escape the limit (a kernel test pins this). How an index is spread over
hash tables is the business of `hashing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    Index,
    Key,
    Rule,
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


def limit_on(major: int, link: LinkInfo) -> int:
    """On the tree of that major: an interface's limits what goes to the user AS, the IFB's what comes from it."""
    return link.limits.to_user_kbit if major == NIC_MAJOR else link.limits.from_user_kbit


class Order(IntEnum):
    """Of the rules of an address in one index, the lower is asked first."""

    EXACT = 0  # to 3: with local port and address, with the port, with the address, with neither
    OWNER = 4  # the heartbeats of an entry without a port
    PLAIN_UDP = 4
    PLAIN_ICMPV6 = 5
    ODD_UDP = 6


class Kind(IntEnum):
    """The indexes of a family in the order of their preferences: the distance from the first."""

    HEARTBEATS = 0
    EXACT = 2
    EVERYTHING = 4


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
    """One key per word, in the order of first mention, what may lie beyond the end of a short packet last."""
    words: dict[int, Key] = {}
    for key in keys:
        old = words.get(key.offset)
        words[key.offset] = key if old is None else Key(key.offset, old.value | key.value, old.mask | key.mask)
    return tuple(words.values())


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

    @property
    def address_bytes(self) -> int:
        return self.destination - self.source

    def splits(self, side: Side) -> dict[int, int]:
        """Bytes that tell the links of one remote address apart, with the last order that has them all: the remote
        port's, the local port's, the local address'.
        """
        remote, local = self.ports, self.ports + 2
        if side.remote_is_destination:
            remote, local = local, remote
        here = self.side_offset(destination=not side.remote_is_destination)
        return (
            dict.fromkeys((remote, remote + 1), Order.EXACT + 3)
            | dict.fromkeys((local, local + 1), Order.EXACT + 1)
            | dict.fromkeys(range(here, here + self.address_bytes), Order.EXACT + 0)
        )


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


# --- the rules of links --------------------------------------------------------------------------------------


def match_key(link: LinkInfo) -> tuple[object, ...]:
    """Two links with the same key match exactly the same packets. Without a port only the address counts."""
    if link.remote_port is None:
        return (link.remote_ip,)
    return link.remote_ip, link.remote_port, link.local_ip, link.local_port


def strictest(links: Iterable[LinkInfo], major: int) -> LinkInfo:
    """The link that takes what cannot be told apart: the lowest limit there; blocked ones only if all are blocked."""
    ranked = sorted(links, key=lambda link: (limit_on(major, link), link.interface_id))
    return next((link for link in ranked if limit_on(major, link) > 0), ranked[0])


def link_indexes(links: Sequence[LinkInfo], side: Side) -> tuple[Index, ...]:
    """All rules for these links on one side. Links that match exactly the same packets must be sorted out before."""
    by_address: dict[IPAddress, list[LinkInfo]] = {}
    for link in links:
        by_address.setdefault(link.remote_ip, []).append(link)
    kinds: dict[tuple[int, Kind], list[Rule]] = {}
    for address in sorted(by_address, key=lambda one: (one.version, int(one))):
        rules = _AddressRules(address, by_address[address], side)
        for kind, found in rules.by_kind().items():
            if found:
                kinds.setdefault((address.version, kind), []).extend(found)
    return tuple(_index(side, version, kind, rules) for (version, kind), rules in sorted(kinds.items()))


def _index(side: Side, version: int, kind: Kind, rules: list[Rule]) -> Index:
    family = V4 if version == 4 else V6
    remote = family.side_offset(destination=side.remote_is_destination)
    return Index(
        hook=side.hook,
        protocol=family.protocol,
        pref=family.first_pref + kind,
        head=(byte(family.heartbeat, BFD),) if kind is Kind.HEARTBEATS else (),
        address=tuple(range(remote, remote + family.address_bytes)),
        splits={} if kind is Kind.EVERYTHING else family.splits(side),
        guard=merged((byte(family.next_header, UDP), *family.plain)),
        rules=tuple(rules),
    )


@dataclass(frozen=True)
class _AddressRules:
    """The rules of one remote address."""

    address: IPAddress
    links: list[LinkInfo]
    side: Side

    def by_kind(self) -> dict[Kind, list[Rule]]:
        owner = next((link for link in self.links if link.remote_port is None), None)
        exact = [link for link in self.links if link is not owner]
        beats: list[Rule] = []
        rules: list[Rule] = []
        everything: list[Rule] = []
        for link in exact:
            keys, order, served = self._exact_keys(link), _exactness(link), frozenset({link.interface_id})
            beat = merged((*keys, byte(self.family.heartbeat, BFD)))
            beats.append(Rule(order, beat, heartbeat_class(self.side.major, link.interface_id), served))
            rules.append(Rule(order, keys, data_class(self.side.major, link.interface_id), served))
        rest = self.side.unmatched
        if owner is not None:
            served, rest = frozenset({owner.interface_id}), data_class(self.side.major, owner.interface_id)
            beat = merged((*self._plain_udp(), byte(self.family.heartbeat, BFD)))
            beats.append(Rule(Order.OWNER, beat, heartbeat_class(self.side.major, owner.interface_id), served))
            everything.append(Rule(Order.EXACT, self._remote, rest, served))
        if exact:
            rules.extend(self._rest_rules(rest, is_owned=owner is not None))
        return {Kind.HEARTBEATS: beats, Kind.EXACT: rules, Kind.EVERYTHING: everything}

    def _rest_rules(self, rest: Handle, *, is_owned: bool) -> Iterator[Rule]:
        """What is no link's: plain datagrams to other ports, and what cannot be told apart."""
        family, everybody = self.family, frozenset(link.interface_id for link in self.links)
        odd = data_class(self.side.major, strictest(self.links, self.side.major).interface_id)
        yield Rule(Order.PLAIN_UDP, self._plain_udp(), rest, everybody)
        for header in family.odd_headers:
            keys = merged((*self._remote, byte(family.next_header, header)))
            yield Rule(Order.ODD_UDP, keys, odd, everybody)
        if family is V6 and not is_owned:
            # Multicast listener reports and the like carry a hop-by-hop header in front of ICMPv6: nobody's data.
            keys = merged((*self._remote, byte(6, V6_HOP_BY_HOP), byte(40, ICMPV6)))
            yield Rule(Order.PLAIN_ICMPV6, keys, rest, everybody)

    @property
    def family(self) -> _Family:
        return family_of(self.address)

    @property
    def _remote(self) -> tuple[Key, ...]:
        return tuple(_remote_keys(self.address, self.side))

    def _plain_udp(self) -> tuple[Key, ...]:
        return merged((*self._remote, byte(self.family.next_header, UDP), *self.family.plain))

    def _exact_keys(self, link: LinkInfo) -> tuple[Key, ...]:
        keys = list(self._plain_udp())
        if link.local_ip is not None:
            local = self.family.side_offset(destination=not self.side.remote_is_destination)
            keys += _address_keys(local, link.local_ip)
        return merged((*keys, *_port_keys(self.family, link, self.side)))


def _exactness(link: LinkInfo) -> int:
    return Order.EXACT + (0 if link.local_port is not None else 2) + (0 if link.local_ip is not None else 1)


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


def redirect_everything(links: Iterable[LinkInfo]) -> FilterLinks:
    """The ingress filter of a managed interface where also unmatched traffic has a class."""
    served = frozenset(link.interface_id for link in links)
    return {Filter(INGRESS_HOOK, REDIRECT_ALL_PREF, ETH_P_ALL, (Key(0, 0, 0),), redirect_to=IFB_NAME): served}


def redirect_indexes(links: Iterable[LinkInfo]) -> tuple[Index, ...]:
    """The ingress filters of a managed interface: only sources that have a limited link.

    An entry without a port takes the whole address, the others UDP and what may hide it. The redirects themselves are
    few, behind the last table: a source only says which of them.
    """
    by_address: dict[IPAddress, list[LinkInfo]] = {}
    for link in links:
        by_address.setdefault(link.remote_ip, []).append(link)
    families: dict[int, list[Rule]] = {}
    for address in sorted(by_address, key=lambda one: (one.version, int(one))):
        is_owned = any(link.remote_port is None for link in by_address[address])
        keys = tuple(_address_keys(family_of(address).source, address))
        served = frozenset(link.interface_id for link in by_address[address])
        rule = Rule(Redirects.EVERYTHING if is_owned else Redirects.UDP, keys, links=served)
        families.setdefault(address.version, []).append(rule)
    return tuple(_redirect_index(V4 if version == 4 else V6, rules) for version, rules in sorted(families.items()))


class Redirects(IntEnum):
    """Which packets of a source go through the IFB; the order of its rule."""

    UDP = 0
    EVERYTHING = 1


def _redirect_index(family: _Family, rules: list[Rule]) -> Index:
    udp = tuple((byte(family.next_header, header),) for header in dict.fromkeys((UDP, *family.odd_headers)))
    return Index(
        hook=INGRESS_HOOK,
        protocol=family.protocol,
        pref=family.first_pref,
        head=(),
        address=tuple(range(family.source, family.source + family.address_bytes)),
        splits={},
        guard=(),
        rules=tuple(rules),
        redirects={Redirects.UDP: udp, Redirects.EVERYTHING: ((),)},
    )
