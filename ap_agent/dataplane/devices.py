"""Network devices and addresses in the kernel, the devices on which packets are classified, and our two IFBs."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from socket import AF_INET, AF_INET6
from typing import Any, Final, Literal, NamedTuple

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from ap_agent.common.errors import AgentError
from ap_agent.dataplane.attributes import ADD, CHANGE, Message, attribute, text, u32
from ap_agent.dataplane.program import Address

RTM_NEWLINK, RTM_DELLINK, RTM_SETLINK = 16, 17, 19
_IFLA_IFNAME, _IFLA_LINKINFO, _IFLA_IFALIAS, _IFLA_NUM_TX_QUEUES, _IFLA_INFO_KIND = 3, 18, 20, 31, 1
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8
_IFINFO = struct.Struct("=BxHiII")  # family, type, index, flags, which flags

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
    that of the device below it; 0: none."""

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


def read_devices() -> tuple[Device, ...]:
    """In the network namespace of the thread. Raises `AgentError`."""
    return tuple(_device(one) for one in _dumped(lambda kernel: kernel.get_links()))


def read_host() -> Host:
    """In the network namespace of the thread. Raises `AgentError`."""
    found: dict[Address, set[int]] = defaultdict(set)
    for one in _dumped(lambda kernel: kernel.get_addr()):
        own = one.get_attr("IFA_LOCAL") or one.get_attr("IFA_ADDRESS")  # on a tunnel IFA_ADDRESS is the other end
        if own is not None and one["family"] in (AF_INET, AF_INET6):
            found[ip_address(own)].add(one["index"])
    return Host(read_devices(), {address: frozenset(indexes) for address, indexes in found.items()})


def _dumped(question: Callable[[Any], Iterable[Any]]) -> list[Any]:
    try:
        with IPRoute() as iproute:  # opened each time: a socket is bound to the namespace of its thread
            return list(question(iproute))
    except (NetlinkError, OSError) as exc:
        raise AgentError(f"Devices and addresses cannot be read ({exc}); try again.", retryable=True) from exc


def _device(said: Any) -> Device:
    info = said.get_attr("IFLA_LINKINFO")
    return Device(
        said["index"],
        said.get_attr("IFLA_IFNAME") or "",
        (info.get_attr("IFLA_INFO_KIND") or "") if info is not None else "",
        said.get_attr("IFLA_MTU") or 0,
        said.get_attr("IFLA_MASTER") or 0,
        said.get_attr("IFLA_LINK") or 0,
        bool(said["flags"] & _IFF_UP),
        said.get_attr("IFLA_IFALIAS") or "",
        bool(said["flags"] & _IFF_LOOPBACK),
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
