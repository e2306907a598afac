"""Sets of links that are hard for hash tables, as an attachment point could have them: up to 4094 of one kind."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from ap_agent.desired import without_ambiguous
from bandwidth_config import MAX_INTERFACE_ID, IPAddress, LinkInfo

T = TypeVar("T")

ONE_REMOTE, ONE_LOCAL = ipaddress.ip_address("192.0.2.11"), ipaddress.ip_address("203.0.113.1")
MANY = MAX_INTERFACE_ID


def link(number: int, remote: IPAddress, port: int | None = 50000, **more: object) -> LinkInfo:
    """Of 1000 kbit/s and a little more for each, so that no two are equally strict."""
    return LinkInfo(number, 0xB6, True, 1000 + number, remote, remote_port=port, **more)  # type: ignore[arg-type]


def sample(population: Sequence[T], count: int) -> list[T]:
    """The same ones every time."""
    return Random(1).sample(population, count)  # noqa: S311 - nothing is kept secret by it


def _links(remotes: Iterable[IPAddress]) -> list[LinkInfo]:
    return [link(number, remote) for number, remote in enumerate(remotes, start=1)]


def random_addresses(count: int) -> list[LinkInfo]:
    return _links(ipaddress.IPv4Address(number) for number in sample(range(0x80000000, 0xC0000000), count))


def one_subnet(count: int) -> list[LinkInfo]:
    """One after the other, of a /20, like the clients of a VPN."""
    first = int(ipaddress.IPv4Address("10.10.0.0")) + 1
    return _links(ipaddress.IPv4Address(first + number) for number in range(count))


def ipv6_subnets(count: int) -> list[LinkInfo]:
    """Every one ends in ::1; they differ in the last two bytes of their /56."""
    first = int(ipaddress.IPv6Address("2001:db8:100::1"))
    return _links(ipaddress.IPv6Address(first + (number << 72)) for number in range(count))


def ipv6_interface_ids(count: int) -> list[LinkInfo]:
    """One /64 with random interface ids."""
    net = int(ipaddress.IPv6Address("2001:db8:1:2::"))
    return _links(ipaddress.IPv6Address(net | number) for number in sample(range(1, 1 << 62), count))


def remote_ports(count: int) -> list[LinkInfo]:
    """Behind one address."""
    return [link(number, ONE_REMOTE, 50000 + number) for number in range(1, count + 1)]


def local_ports(count: int) -> list[LinkInfo]:
    """Behind one remote address and port."""
    return [link(number, ONE_REMOTE, local_ip=ONE_LOCAL, local_port=50000 + number) for number in range(1, count + 1)]


def local_addresses(count: int) -> list[LinkInfo]:
    """Behind one remote address and port, at one local port of many addresses."""
    first = int(ipaddress.IPv4Address("203.0.112.0"))
    return [
        link(number, ONE_REMOTE, local_ip=ipaddress.IPv4Address(first + number), local_port=50100)
        for number in range(1, count + 1)
    ]


def a_little_of_everything(count: int) -> list[LinkInfo]:
    """Behind one address, and no byte has more than 16 values."""
    return [
        link(
            number,
            ONE_REMOTE,
            50000 + number % 16,
            local_ip=ipaddress.IPv4Address(int(ONE_LOCAL) + number // 256),
            local_port=50100 + number // 16 % 16,
        )
        for number in range(1, count + 1)
    ]


def mixed_exactness(count: int) -> list[LinkInfo]:
    """Behind one address: rules of every order, many of which match the same packets; one link owns the rest."""
    found = [link(1, ONE_REMOTE, None)]
    for number in range(2, count + 1):
        kind, port = number % 4, 50000 + number // 4
        local_ip = ONE_LOCAL if kind in (0, 2) else None
        local_port = 50100 if kind in (0, 1) else None
        found.append(link(number, ONE_REMOTE, port, local_ip=local_ip, local_port=local_port))
    return found


def two_families(count: int) -> list[LinkInfo]:
    """Half and half, several ports behind each address."""
    found = []
    for number in range(1, count + 1):
        address = number // 40
        four, six = ipaddress.ip_address("198.18.0.0"), ipaddress.ip_address("2001:db8:3::")
        found.append(link(number, (four if number % 2 else six) + address, 50000 + number % 40))
    return found


CROWDS: dict[str, Callable[[int], list[LinkInfo]]] = {
    one.__name__: one
    for one in (
        random_addresses,
        one_subnet,
        ipv6_subnets,
        ipv6_interface_ids,
        remote_ports,
        local_ports,
        local_addresses,
        a_little_of_everything,
        mixed_exactness,
        two_families,
    )
}


# --- sets that nobody thought of ---------------------------------------------------------------------------------

# Few values for each byte that is looked at: links share addresses, bytes of addresses, ports and bytes of ports.
REMOTES = [ipaddress.IPv4Address(f"192.0.{a}.{b}") for a in (2, 3) for b in (11, 12, 13)]
REMOTES6 = [ipaddress.IPv6Address(f"2001:db8:{a:x}::{b:x}") for a in (1, 0x100) for b in (1, 0x101)]
LOCALS = [ipaddress.IPv4Address(int(ONE_LOCAL) + number) for number in range(30)]
LOCALS6 = [ipaddress.IPv6Address(f"2001:db8:ffff::{number:x}") for number in range(1, 31)]
PORTS = [50000 + step for step in (0, 1, 2, 3, 256, 257, 512, *range(512, 520))]


@st.composite
def crowded(draw: st.DrawFn, most: int = 90) -> list[LinkInfo]:
    """Links that are easily confused, none of them twice."""
    sets: list[tuple[list[IPAddress], list[IPAddress]]] = [([*REMOTES], [*LOCALS]), ([*REMOTES6], [*LOCALS6])]
    remotes, locals_ = draw(st.sampled_from(sets))
    # How many of each there are decides what they crowd by.
    remote = st.sampled_from(remotes[: draw(st.sampled_from([1, 6]))])
    port = st.one_of(st.none(), st.sampled_from(PORTS[: draw(st.sampled_from([1, 15]))]))
    local = st.one_of(st.none(), st.sampled_from(locals_[: draw(st.sampled_from([1, 30]))]))
    local_port = st.one_of(st.none(), st.sampled_from(PORTS[: draw(st.sampled_from([1, 15]))]))
    count = draw(st.integers(1, most))  # a list of its own choice is seldom longer than ten
    wanted = draw(st.lists(st.tuples(remote, port, local, local_port), min_size=count, max_size=count))
    found = [
        link(number, remote, port, local_ip=local, local_port=local_port if port is not None else None)
        for number, (remote, port, local, local_port) in enumerate(wanted, start=1)
    ]
    winners, _ = without_ambiguous(found)
    return winners
