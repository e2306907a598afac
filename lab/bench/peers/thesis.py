"""The thesis' command sequence (its Listing 5.2), written anew from its description.

    NIC   root 1: htb default 9999                    ifb0  root 2: htb default 9999
          1:9999 the default bandwidth                      2:9999
          1:<n>  one class per link, burst 5k               2:<n>
          one u32 filter per link on the remote address     the same on the source address
          ingress: everything IPv4, everything IPv6 ── mirred redirect ──▶ ifb0

Every enforcement removes everything first and starts one process per command. Filters are added without a
preference, so that each gets one of its own, in front of all before it; the kernel refuses the 2048th.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

IFB = "ifb0"
DEFAULT_MINOR = 9999
DEFAULT_KBIT = 1000
MAX_LINKS = 2047

Command = list[str]


@dataclass(frozen=True)
class ThesisLink:
    """What the thesis knows of a link; `number` becomes the class and its priority."""

    number: int
    address: str
    kbit: int


def _class(dev: str, major: int, minor: int, kbit: int) -> Command:
    rate = f"rate {kbit}kbit ceil {kbit}kbit burst 5k prio {minor} mtu 1500"
    return f"tc class add dev {dev} parent {major}:0 classid {major}:{minor} htb {rate}".split()


def _filter(dev: str, major: int, link: ThesisLink, word: str) -> Command:
    family, bits = ("ip6", 128) if ip_address(link.address).version == 6 else ("ip", 32)
    return (
        f"tc filter add dev {dev} u32 match {family} {word} {link.address}/{bits} flowid {major}:{link.number}".split()
    )


def device_commands(
    dev: str, major: int, links: Iterable[ThesisLink], word: str, default_kbit: int = DEFAULT_KBIT
) -> list[Command]:
    """The tree of one device; `word` is `dst` on the NIC and `src` on the IFB."""
    listed = list(links)
    return [
        f"tc qdisc add dev {dev} root handle {major}: htb default {DEFAULT_MINOR}".split(),
        _class(dev, major, DEFAULT_MINOR, default_kbit),
        *(_class(dev, major, link.number, link.kbit) for link in listed),
        *(_filter(dev, major, link, word) for link in listed),
    ]


def remove_commands(nic: str, ifb: str = IFB) -> list[Command]:
    """Fails where there is nothing to remove, as the original does; nobody looks."""
    return [
        f"tc qdisc del dev {nic} root".split(),
        f"tc qdisc del dev {nic} ingress".split(),
        f"ip link del {ifb}".split(),
    ]


def enforce_commands(
    nic: str, links: Iterable[ThesisLink], *, ifb: str = IFB, default_kbit: int = DEFAULT_KBIT
) -> list[Command]:
    """Remove everything and build it again, in the listing's order."""
    listed = list(links)
    redirects = [
        f"tc filter add dev {nic} parent ffff: protocol {protocol} u32 match {match} "
        f"action mirred egress redirect dev {ifb}".split()
        for protocol, match in (("ip", "ip src 0.0.0.0/0"), ("ipv6", "ip6 src ::0/0"))
    ]
    return [
        *remove_commands(nic, ifb),
        f"ip link add {ifb} type ifb".split(),
        f"ip link set {ifb} up".split(),
        *device_commands(nic, 1, listed, "dst", default_kbit),
        f"tc qdisc add dev {nic} handle ffff: ingress".split(),
        *redirects,
        *device_commands(ifb, 2, listed, "src", default_kbit),
    ]
