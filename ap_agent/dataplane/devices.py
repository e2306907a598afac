"""Network devices and addresses as the kernel has them, on which of them packets are looked at, and our two IFBs."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, Literal, NamedTuple

from ap_agent.dataplane.attributes import ADD, CHANGE, Message, attribute, attributes, number_of, text, text_of, u32
from ap_agent.dataplane.program import Address
from ap_agent.dataplane.rtsocket import RtSocket, messages_of

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK, RTM_NEWADDR, RTM_GETADDR = 16, 17, 18, 19, 20, 22
_IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_IFALIAS = 3, 4, 5, 10, 18, 20
_IFLA_EXT_MASK, _IFLA_NUM_TX_QUEUES, _IFLA_INFO_KIND = 29, 31, 1
_RTEXT_FILTER_SKIP_STATS = 1 << 3
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8
_IFINFO = struct.Struct("=BxHiII")  # family, type, index, flags, which flags
_IFADDR = struct.Struct("=BBBBI")

IFB_NAMES: Final = ("slbw0", "slbw1")  # to the user, from the user
IFB_ALIAS: Final = "scionlab-bw"  # says that a device is ours
# What they send and receive is met at the devices below them: hooks on both would take each packet twice.
STACKED: Final = frozenset(
    {"bridge", "bond", "team", "macvlan", "macvtap", "ipvlan", "ipvtap", "vrf", "hsr", "openvswitch", "batadv"}
)
_WITHOUT_PACKETS: Final = frozenset({"ifb", "dummy", "nlmon", "vcan"})

Direction = Literal[0, 1]  # to the user, from the user: the order of IFBs and lanes
TO_USER: Final[Direction] = 0
FROM_USER: Final[Direction] = 1
DIRECTIONS: Final[tuple[Direction, Direction]] = (TO_USER, FROM_USER)


class Device(NamedTuple):
    """`kind` is that of `ip -d link`, empty for a card. `master` is the interface number of the bridge, bond or VRF
    that it is a port of, `lower` that of the device below it; 0: none."""

    ifindex: int
    name: str
    kind: str = ""
    mtu: int = 1500
    master: int = 0
    lower: int = 0
    is_up: bool = True
    alias: str = ""
    is_loopback: bool = False

    @property
    def is_our_ifb(self) -> bool:
        return self.kind == "ifb" and self.alias == IFB_ALIAS


@dataclass(frozen=True)
class Host:
    """`addresses`: of this host, with the numbers of the interfaces that have them."""

    devices: tuple[Device, ...]
    addresses: Mapping[Address, frozenset[int]]


def read_devices(asker: RtSocket) -> tuple[Device, ...]:
    """Raises `RefusedError`."""
    body = _IFINFO.pack(0, 0, 0, 0, 0) + u32(_IFLA_EXT_MASK, _RTEXT_FILTER_SKIP_STATS)
    return tuple(_device(one) for one in _bodies(asker.dump(RTM_GETLINK, body), RTM_NEWLINK))


def read_host(asker: RtSocket) -> Host:
    """Raises `RefusedError`."""
    found: dict[Address, set[int]] = defaultdict(set)
    for body in _bodies(asker.dump(RTM_GETADDR, _IFADDR.pack(0, 0, 0, 0, 0)), RTM_NEWADDR):
        said = dict(attributes(body[_IFADDR.size :]))
        packed = said.get(_IFA_LOCAL) or said.get(_IFA_ADDRESS)  # on a tunnel IFA_ADDRESS is the other end
        if packed:
            found[ip_address(packed)].add(_IFADDR.unpack_from(body)[4])
    return Host(read_devices(asker), {address: frozenset(indexes) for address, indexes in found.items()})


def _bodies(pieces: Iterable[bytes], kind: int) -> Iterable[bytes]:
    for piece in pieces:
        for found, _, start, end in messages_of(piece):
            if found == kind:
                yield piece[start:end]


def _device(body: bytes) -> Device:
    _, _, ifindex, flags, _ = _IFINFO.unpack_from(body)
    said = dict(attributes(body[_IFINFO.size :]))
    kind = dict(attributes(said.get(_IFLA_LINKINFO, b""))).get(_IFLA_INFO_KIND, b"")
    return Device(
        ifindex,
        text_of(said.get(_IFLA_IFNAME, b"")),
        text_of(kind),
        number_of(said.get(_IFLA_MTU)),
        number_of(said.get(_IFLA_MASTER)),
        number_of(said.get(_IFLA_LINK)),
        bool(flags & _IFF_UP),
        text_of(said.get(_IFLA_IFALIAS, b"")),
        bool(flags & _IFF_LOOPBACK),
    )


def looked_at(
    devices: Sequence[Device], interfaces: Collection[str], hooked: Collection[int] = ()
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """(The lowest devices, on which packets are looked at; names among `interfaces` that no device has).

    Where `interfaces` are given only these: a bridge, bond or VRF means its ports, a MACVLAN the device below it. As
    long as one of the names is missing, those in `hooked` (interface numbers) are looked at as before: a card that was
    renamed keeps its limits.
    """
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
    """Created, marked and set up in one piece: without the mark it would be somebody else's."""
    name = text(_IFLA_IFNAME, ifb)
    info = attribute(_IFLA_LINKINFO, text(_IFLA_INFO_KIND, "ifb"))
    # One transmit queue: more only cost, HTB has one lock anyway (measured +180 ns per packet).
    create = _IFINFO.pack(0, 0, 0, 0, 0) + name + u32(_IFLA_NUM_TX_QUEUES, 1) + info
    mark = _IFINFO.pack(0, 0, 0, _IFF_UP, _IFF_UP) + name + attribute(_IFLA_IFALIAS, IFB_ALIAS.encode())
    return [(RTM_NEWLINK, ADD, create), (RTM_SETLINK, CHANGE, mark)]


def pack_up(ifindex: int) -> Message:
    return RTM_SETLINK, CHANGE, _IFINFO.pack(0, 0, ifindex, _IFF_UP, _IFF_UP)


def pack_removal(ifindex: int) -> Message:
    return RTM_DELLINK, CHANGE, _IFINFO.pack(0, 0, ifindex, 0, 0)
