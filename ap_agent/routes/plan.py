"""Rules and routes by which packets leave by their source's uplink, and their difference to the kernel's. Pure.

For each source S of an uplink with table T, in this order (the numbers are those of table 1000):

    10000  from S lookup T suppress_prefixlength 0     networks at uplinks: its own directly, others by the gateway
    10001  from S lookup main suppress_prefixlength 0  other networks of this host: internal ones, VPNs, static routes
    10002  from S lookup T                             everything else: the default route of the uplink

Rules and routes with protocol number 201, at these priorities and in these tables, are ours; no other is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv6Interface, ip_network
from typing import Final, Literal, NamedTuple

from ap_agent.common.problem import Problem
from ap_agent.routes.uplinks import FIRST_TABLE, LAST_TABLE, MAX_UPLINKS, Network, Uplink
from contract.link_rules import IPAddress

PROTOCOL: Final = 201  # RTPROT of ours; unassigned in <linux/rtnetlink.h>
MAIN: Final = 254
_RULES_PER_SOURCE = 3
FIRST_PRIORITY: Final = 10_000
LAST_PRIORITY: Final = FIRST_PRIORITY + _RULES_PER_SOURCE * MAX_UPLINKS - 1
TABLES: Final = range(FIRST_TABLE, LAST_TABLE + 1)
PRIORITIES: Final = range(FIRST_PRIORITY, LAST_PRIORITY + 1)
EVERYWHERE: Final[Mapping[int, Network]] = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}
_LINK_LOCAL = ip_network("fe80::/10")
_ON_EACH_LINK = ip_network("fe80::/64")


class Rule(NamedTuple):
    """`is_specific`: only routes more specific than the default route match (suppress_prefixlength 0)."""

    priority: int
    source: Network
    table: int
    is_specific: bool

    def __str__(self) -> str:
        table = "main" if self.table == MAIN else self.table
        end = " suppress_prefixlength 0" if self.is_specific else ""
        source = self.source.network_address if self.source.prefixlen == self.source.max_prefixlen else self.source
        return f"rule {self.priority}: from {source} lookup {table}{end}"


class Route(NamedTuple):
    """Without a gateway: directly on the link of `dev`."""

    table: int
    destination: Network
    dev: str
    gateway: IPAddress | None = None

    @property
    def key(self) -> tuple[int, Network]:
        return self.table, self.destination

    def __str__(self) -> str:
        where = "default" if self.destination.prefixlen == 0 else str(self.destination)
        via = f" via {self.gateway}" if self.gateway is not None else ""
        return f"route {where}{via} dev {self.dev} table {self.table}"


class Device(NamedTuple):
    ifindex: int
    is_up: bool
    received_bytes: int = 0
    received_packets: int = 0
    sent_bytes: int = 0
    sent_packets: int = 0


@dataclass(frozen=True)
class Present:
    """The kernel's devices by name, their addresses, our rules and routes, and foreign ones in our place.
    `foreign_rules` are (priority, words) of all other rules."""

    devices: Mapping[str, Device] = field(default_factory=dict)
    addresses: Mapping[str, tuple[IPv4Interface | IPv6Interface, ...]] = field(default_factory=dict)
    rules: frozenset[Rule] = frozenset()
    routes: frozenset[Route] = frozenset()
    foreign_rules: tuple[tuple[int, str], ...] = ()
    foreign_routes: tuple[tuple[int, str], ...] = ()


class Goal(NamedTuple):
    rules: frozenset[Rule] = frozenset()
    routes: frozenset[Route] = frozenset()


class Operation(NamedTuple):
    verb: Literal["add", "replace", "remove"]
    what: Rule | Route

    def __str__(self) -> str:
        return f"{self.verb} {self.what}"


# --- from uplinks to rules and routes ---------------------------------------------------------------------------------


def goal_of(uplinks: Collection[Uplink], present: Present) -> Goal:
    """For uplinks without a problem."""
    rules, routes = set(), set()
    for one in uplinks:
        first = FIRST_PRIORITY + _RULES_PER_SOURCE * (one.table - FIRST_TABLE)
        for source in one.sources:
            rules |= {
                Rule(first, source, one.table, True),
                Rule(first + 1, source, MAIN, True),
                Rule(first + 2, source, one.table, False),
            }
        own = networks_of(one, present)
        if one.gateway6 is not None:
            own |= {_ON_EACH_LINK}
        elsewhere = {network for other in uplinks if other is not one for network in networks_of(other, present)} - own
        routes |= {Route(one.table, network, one.dev) for network in own}
        for gateway in one.gateways:
            behind = {network for network in elsewhere if network.version == gateway.version}
            routes |= {
                Route(one.table, network, one.dev, gateway) for network in behind | {EVERYWHERE[gateway.version]}
            }
    return Goal(frozenset(rules), frozenset(routes))


def networks_of(uplink: Uplink, present: Present) -> set[Network]:
    """Networks of the uplink's addresses, as in the kernel."""
    return {one.network for one in present.addresses.get(uplink.dev, ()) if one.ip in uplink.addresses}


def problems_of(uplinks: Iterable[Uplink], present: Present) -> dict[str, Problem]:
    """Uplink -> why it cannot be set on this host now."""
    found = ((one.name, _problem_of(one, present)) for one in uplinks)
    return {name: problem for name, problem in found if problem is not None}


def _problem_of(uplink: Uplink, present: Present) -> Problem | None:
    subject = f"uplink {uplink.name}"
    device = present.devices.get(uplink.dev)
    if device is None:
        names = ", ".join(sorted(present.devices))
        message = f"There is no device {uplink.dev}. This host has {names}; create it, or correct dev."
        return Problem("unknown_device", subject, message)
    if not device.is_up:
        message = f"{uplink.dev} is down; `ip link set {uplink.dev} up`, or have netplan do it."
        return Problem("device_down", subject, message)
    here = {one.ip for one in present.addresses.get(uplink.dev, ())}
    for address in uplink.addresses:
        if address not in here:
            others = [name for name, found in present.addresses.items() if address in {one.ip for one in found}]
            where = f"it is on {others[0]}" if others else "no device has it"
            message = f"{uplink.dev} does not have the address {address} ({where}); add it, or correct addresses."
            return Problem("address_missing", subject, message)
    networks = networks_of(uplink, present)
    everywhere = {one.ip for found in present.addresses.values() for one in found}
    for gateway in uplink.gateways:
        if gateway in everywhere:
            message = f"Gateway {gateway} is an address of this host; write that of the router."
            return Problem("gateway_off_link", subject, message)
        if gateway not in _LINK_LOCAL and not any(_has_host(one, gateway) for one in networks):
            shown = ", ".join(sorted(str(one) for one in networks if one.version == gateway.version))
            message = (
                f"Gateway {gateway} is not a host on the link of {uplink.dev} ({shown}); correct it or the prefix."
            )
            return Problem("gateway_off_link", subject, message)
    return None


def _has_host(network: Network, address: IPAddress) -> bool:
    """Excludes the network and broadcast address of an IPv4 network, except in a /31 (RFC 3021)."""
    if address not in network:
        return False
    is_edge = address in (network.network_address, network.broadcast_address)
    return network.version == 6 or network.prefixlen > 30 or not is_edge


def conflicts_of(uplinks: Iterable[Uplink], present: Present) -> tuple[Problem, ...]:
    """Foreign objects in our place: they prevent any change."""
    found = []
    for priority, words in present.foreign_rules:
        if priority in PRIORITIES:
            message = (
                f'A foreign rule has a priority of ours ({FIRST_PRIORITY} to {LAST_PRIORITY}): "{words}". Move it to '
                "another priority, or remove it."
            )
            found.append(Problem("priority_taken", f"rule {priority}", message))
    wanted = {one.table: one.name for one in uplinks}
    for table, words in present.foreign_routes:
        if table in wanted:
            message = f'Table {table} of uplink {wanted[table]} has a foreign route: "{words}". Choose another table.'
            found.append(Problem("table_taken", f"table {table}", message))
    return tuple(found)


# --- what differs -----------------------------------------------------------------------------------------------------


def plan(present: Present, goal: Goal) -> tuple[Operation, ...]:
    """Routes before the rules that refer to them, direct ones before those by a gateway; removals in reverse, so that
    no packet uses a half-filled table. Empty if nothing differs."""
    have, wanted = {one.key for one in present.routes}, {one.key: one for one in goal.routes}
    new = sorted(goal.routes - present.routes, key=lambda one: (one.gateway is not None, _sorted(one)))
    operations = [Operation("replace" if one.key in have else "add", one) for one in new]
    operations += [Operation("add", one) for one in sorted(goal.rules - present.rules, key=_sorted)]
    operations += [Operation("remove", one) for one in sorted(present.rules - goal.rules, key=_sorted)]
    stale = present.routes - goal.routes
    gone = [one for one in stale if one.key not in wanted or wanted[one.key] in present.routes]
    gone.sort(key=lambda one: (one.gateway is None, _sorted(one)))
    return (*operations, *(Operation("remove", one) for one in gone))


def _sorted(one: Rule | Route) -> tuple[object, ...]:
    network = one.source if isinstance(one, Rule) else one.destination
    first = one.priority if isinstance(one, Rule) else one.table
    return first, network.version, network.network_address.packed, network.prefixlen, str(one)
