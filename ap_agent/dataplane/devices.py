"""Network devices and addresses in the kernel, the devices on which packets are classified, and our two IFBs."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Literal, NamedTuple

from ap_agent.common.errors import AgentError
from ap_agent.dataplane.attributes import ADD, CHANGE, Message, attribute, attributes, number_of, text, text_of, u32
from ap_agent.dataplane.program import Address
from ap_agent.dataplane.rtsocket import RefusedError, RtSocket, messages_of

RTM_NEWLINK, RTM_DELLINK, RTM_SETLINK = 16, 17, 19
RTM_NEWADDR, RTM_DELADDR = 20, 21
_RTM_GETLINK, _RTM_GETADDR = 18, 22
_IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER = 3, 4, 5, 10
_IFLA_LINKINFO, _IFLA_IFALIAS, _IFLA_EXT_MASK, _IFLA_NUM_TX_QUEUES, _IFLA_XDP, _IFLA_INFO_KIND = 18, 20, 29, 31, 43, 1
_SKIP_STATS = 8  # RTEXT_FILTER_SKIP_STATS: they would differ each time
_XDP_IDS: Final = {5: "native", 6: "generic", 7: "offloaded"}  # IFLA_XDP_DRV_PROG_ID, ..._SKB_..., ..._HW_...
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTM_NEWROUTE, _RTM_GETROUTE, _RTA_GATEWAY, _RTA_MULTIPATH, _NEXT_HOP_BYTES = 24, 26, 5, 9, 8
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8
_IFINFO = struct.Struct("=BxHiII")  # family, type, index, flags, which flags
_RTMSG = struct.Struct("=BB10x")  # family, length of the destination
_IFADDR = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index

IFB_NAMES: Final = ("slbw0", "slbw1")  # to the user, from the user
IFB_ALIAS: Final = "scionlab-bw"  # marks a device as ours
# Their packets pass through the devices below them: hooks on both would count each packet twice.
STACKED: Final = frozenset(
    {"bridge", "bond", "team", "macvlan", "macvtap", "ipvlan", "ipvtap", "vrf", "hsr", "openvswitch", "batadv"}
)
_WITHOUT_PACKETS: Final = frozenset({"ifb", "dummy", "nlmon", "vcan"})

Direction = Literal[0, 1]  # to the user, from the user: the order of IFBs and lanes
TO_USER: Final[Direction] = 0
FROM_USER: Final[Direction] = 1
DIRECTIONS: Final[tuple[Direction, Direction]] = (TO_USER, FROM_USER)


class Device(NamedTuple):
    """`kind` as in `ip -d link`, empty for a card. `master` is the interface number of its bridge, bond or VRF, `lower`
    that of the device below it; 0: none. `xdp`: XDP programs, in words."""

    ifindex: int
    name: str
    kind: str = ""
    mtu: int = 1500
    master: int = 0
    lower: int = 0
    is_up: bool = True
    alias: str = ""
    is_loopback: bool = False
    xdp: tuple[str, ...] = ()

    @property
    def is_our_ifb(self) -> bool:
        return self.kind == "ifb" and self.alias == IFB_ALIAS


@dataclass(frozen=True)
class Host:
    """`addresses`: of this host, with the numbers of the interfaces that have them. `gateways`: of default routes."""

    devices: tuple[Device, ...]
    addresses: Mapping[Address, frozenset[int]]
    gateways: frozenset[Address] = frozenset()


def read_devices(asker: RtSocket) -> tuple[Device, ...]:
    """In the network namespace of the socket. Raises `AgentError`."""
    question = _IFINFO.pack(0, 0, 0, 0, 0) + u32(_IFLA_EXT_MASK, _SKIP_STATS)
    return tuple(one for piece in _dump(asker, _RTM_GETLINK, question) for one in _devices(piece))


def read_host(asker: RtSocket) -> Host:
    """In the network namespace of the socket. Raises `AgentError`."""
    found: dict[Address, set[int]] = defaultdict(set)
    for piece in _dump(asker, _RTM_GETADDR, _IFADDR.pack(0, 0, 0, 0, 0)):
        for address, ifindex in _addresses(piece):
            found[address].add(ifindex)
    routes = _dump(asker, _RTM_GETROUTE, _RTMSG.pack(0, 0))
    gateways = frozenset(one for piece in routes for one in _gateways(piece))
    return Host(read_devices(asker), {address: frozenset(indexes) for address, indexes in found.items()}, gateways)


def _dump(asker: RtSocket, kind: int, question: bytes) -> list[bytes]:
    try:
        return asker.dump(kind, question)
    except RefusedError as exc:
        raise AgentError(f"Devices and addresses cannot be read ({exc}); try again.", retryable=True) from exc


# Pieces of a dump are mostly those of the last one: hundreds of devices are parsed once.
@lru_cache(maxsize=128)
def _devices(piece: bytes) -> tuple[Device, ...]:
    return tuple(device_of(piece[start:end]) for kind, _, start, end in messages_of(piece) if kind == RTM_NEWLINK)


@lru_cache(maxsize=128)
def _addresses(piece: bytes) -> tuple[tuple[Address, int], ...]:
    found = [address_of(piece[start:end]) for kind, _, start, end in messages_of(piece) if kind == RTM_NEWADDR]
    return tuple((ip_address(own), ifindex) for own, ifindex in found if len(own) in (4, 16))


@lru_cache(maxsize=128)
def _gateways(piece: bytes) -> tuple[Address, ...]:
    """Of default routes, in any table. Of a route with several next hops all."""
    found = []
    for kind, _, start, end in messages_of(piece):
        if kind != _RTM_NEWROUTE or _RTMSG.unpack_from(piece, start)[1] != 0:  # the length of the destination
            continue
        said = dict(attributes(piece[start + _RTMSG.size : end]))
        hops, several = [said.get(_RTA_GATEWAY)], said.get(_RTA_MULTIPATH, b"")
        while len(several) >= _NEXT_HOP_BYTES:
            length = max(struct.unpack_from("=H", several)[0], _NEXT_HOP_BYTES)
            hops.append(dict(attributes(several[_NEXT_HOP_BYTES:length])).get(_RTA_GATEWAY))
            several = several[length + 3 & ~3 :]
        found += [ip_address(one) for one in hops if one is not None and len(one) in (4, 16)]
    return tuple(found)


def address_of(body: bytes) -> tuple[bytes, int]:
    """(This host's address, empty if it is missing; interface number) of a message about an address."""
    said = dict(attributes(body[_IFADDR.size :]))
    own = said.get(_IFA_LOCAL) or said.get(_IFA_ADDRESS)  # on a tunnel IFA_ADDRESS is the other end
    return own or b"", _IFADDR.unpack_from(body)[4]


def device_of(body: bytes) -> Device:
    """Of a message about a device."""
    _, _, ifindex, flags, _ = _IFINFO.unpack_from(body)
    said = dict(attributes(body[_IFINFO.size :]))
    info = dict(attributes(said.get(_IFLA_LINKINFO, b"")))
    xdp = dict(attributes(said.get(_IFLA_XDP, b"")))
    return Device(
        ifindex,
        text_of(said.get(_IFLA_IFNAME, b"")),
        text_of(info.get(_IFLA_INFO_KIND, b"")),
        number_of(said.get(_IFLA_MTU)),
        number_of(said.get(_IFLA_MASTER)),
        number_of(said.get(_IFLA_LINK)),
        bool(flags & _IFF_UP),
        text_of(said.get(_IFLA_IFALIAS, b"")),
        bool(flags & _IFF_LOOPBACK),
        tuple(f"{how} XDP program {number_of(xdp[number])}" for number, how in _XDP_IDS.items() if number in xdp),
    )


def lowest_devices(
    devices: Sequence[Device], interfaces: Collection[str], hooked: Collection[int] = ()
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """(The lowest devices, on which packets are classified; names among `interfaces` that no device has). With
    `interfaces` only these: a bridge, bond or VRF means its ports, a MACVLAN the device below it. While one of the
    names is missing, devices in `hooked` (interface numbers) are kept: a renamed card keeps its limits."""
    lowest = {
        one.ifindex: one
        for one in devices
        if not one.is_loopback and one.kind not in STACKED and one.kind not in _WITHOUT_PACKETS
    }
    if not interfaces:
        return tuple(lowest.values()), ()
    by_name = {one.name: one for one in devices}
    chosen: set[int] = set()
    waiting = [by_name[name] for name in interfaces if name in by_name]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one.ifindex in seen:
            continue
        seen.add(one.ifindex)
        if one.ifindex in lowest:
            chosen.add(one.ifindex)
        elif one.kind in STACKED:
            waiting += [port for port in devices if port.master == one.ifindex or port.ifindex == one.lower]
    missing = tuple(name for name in interfaces if name not in by_name)
    if missing:
        chosen |= lowest.keys() & set(hooked)
    return tuple(one for one in lowest.values() if one.ifindex in chosen), missing


# --- the IFBs --------------------------------------------------------------------------------------------------


def pack_ifb(ifb: str) -> list[Message]:
    """Created, marked and set up at once: without the mark it would look foreign."""
    name = text(_IFLA_IFNAME, ifb)
    info = attribute(_IFLA_LINKINFO, text(_IFLA_INFO_KIND, "ifb"))
    # One transmit queue: more only cost, as HTB has one lock anyway (measured +180 ns per packet).
    create = _IFINFO.pack(0, 0, 0, 0, 0) + name + u32(_IFLA_NUM_TX_QUEUES, 1) + info
    mark = _IFINFO.pack(0, 0, 0, _IFF_UP, _IFF_UP) + name + attribute(_IFLA_IFALIAS, IFB_ALIAS.encode())
    return [(RTM_NEWLINK, ADD, create), (RTM_SETLINK, CHANGE, mark)]


def pack_up(ifindex: int) -> Message:
    return RTM_SETLINK, CHANGE, _IFINFO.pack(0, 0, ifindex, _IFF_UP, _IFF_UP)


def pack_removal(ifindex: int) -> Message:
    return RTM_DELLINK, CHANGE, _IFINFO.pack(0, 0, ifindex, 0, 0)
