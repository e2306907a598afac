"""Attachment points for measurements: links by the thousand, and hosts with a network card in front of their users."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Mapping

from lab.bench.engines import Entry
from measuring.netns import Lab, Namespace

PREFIX = "slbench"
NIC = "nic0"
IFBS = ("slbw0", "slbw1")  # of today's engine, to the user and from the user
FIRST_PORT, FIRST_LOCAL_PORT = 50_000, 56_000
LOCAL = {4: "192.0.2.1", 6: "2001:db8::1"}
# Any subnet of users; the addresses of the links are spread over it at random, as those of real users are.
USERS = {4: "10.0.0.0/8", 6: "2001:db8:8000::/33"}
SEED = 20_261_121
WIDE_KBIT = 10_000_000  # far above what one processor sends: no packet waits, so a sample is the cost of the way


def user_addresses(count: int, family: int = 4) -> list[str]:
    """Different addresses, the same ones on every machine; of IPv6 one host `::1` in a /64 each."""
    network, order = ipaddress.ip_network(USERS[family]), random.Random(SEED)
    if family == 4:
        return [str(network[number]) for number in order.sample(range(1, network.num_addresses - 1), count)]
    return [str(network[(number << 64) + 1]) for number in order.sample(range(1, 1 << 31), count)]


def entry(address: str, kbit: int, number: int, family: int = 4) -> Entry:
    """One value of link_info.json with everything that the service writes."""
    return {
        "AS_ID": number & 0xFFFF,
        "IsUserAS": True,
        "Bandwidth": kbit,
        "IP-Address": address,
        "ISD-AS": f"17-ffaa:1:{number:x}",
        "Port": remote_port(number),
        "Local-IP": LOCAL[family],
        "Local-Port": local_port(number),
        "VPN": False,
    }


def remote_port(number: int) -> int:
    return FIRST_PORT + number


def local_port(number: int) -> int:
    return FIRST_LOCAL_PORT + number


def make_links(count: int, *, kbit: int = WIDE_KBIT, family: int = 4) -> dict[int, Entry]:
    """`count` links to different users, by their interface ids, which begin at 1."""
    addresses = enumerate(user_addresses(count, family), start=1)
    return {number: entry(address, kbit, number, family) for number, address in addresses}


def with_limit(links: Mapping[int, Entry], number: int, kbit: int) -> dict[int, Entry]:
    """The same links, one with another limit."""
    return {**links, number: links[number] | {"Bandwidth": kbit}}


def sink(host: Namespace, dev: str) -> None:
    """A device that runs its qdisc for every packet and then drops it (an IFB drops what was not redirected to it)."""
    host.ip_batch([f"link add {dev} numtxqueues 1 type ifb", f"link set {dev} up"])


def attachment_point(lab: Lab, short: str = "ap") -> Namespace:
    """A host with one network card, `nic0`, through which all users are reached; at its other end is the host
    `<short>-users`, whose end has the same name."""
    host, users = lab.namespace(short), lab.namespace(f"{short}-users")
    lab.veth(host.nic(NIC, f"{LOCAL[4]}/32", f"{LOCAL[6]}/128"), users.nic(NIC))
    host.ip_batch([f"route add {USERS[4]} dev {NIC}", f"route add {USERS[6]} dev {NIC}"])
    return host


def users_of(host: Namespace) -> Namespace:
    """At the other end of an attachment point's network card."""
    return host.lab.namespaces[f"{host.short}-users"]


def tear_down(host: Namespace, *devices: str) -> None:
    """Remove traffic control now: the kernel does it in the background otherwise, in the middle of what comes next."""
    for dev in devices:
        host.run("tc", "qdisc", "del", "dev", dev, "root", check=False, timeout_s=120)
        host.run("tc", "qdisc", "del", "dev", dev, "clsact", check=False, timeout_s=120)
