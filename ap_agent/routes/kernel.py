"""Rules and routes through pyroute2, in the thread's network namespace. No decisions."""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import Any, Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from ap_agent.common.errors import AgentError, NotPermittedError
from ap_agent.routes.plan import EVERYWHERE, MAIN, PRIORITIES, PROTOCOL, TABLES, Device, Operation, Present, Route, Rule
from contract.link_rules import IPAddress

_FAMILIES: Final = {4: AF_INET, 6: AF_INET6}
_IFF_UP = 0x1
_UNICAST, _TO_TABLE = 1, 1  # RTN_UNICAST, FR_ACT_TO_TBL
_SCOPE_UNIVERSE, _SCOPE_LINK = 0, 253
_NO_SUPPRESSION = 0xFFFF_FFFF
_GONE: Final = {errno.ENOENT, errno.ESRCH, errno.ENODEV}  # form for a removal
_SYSCTLS: Final = ("rp_filter", "arp_ignore")


class RefusedError(AgentError):
    """The kernel rejected an operation."""


def read() -> Present:
    """Raises `AgentError`."""
    with _kernel() as kernel:
        names = {one["index"]: (one.get_attr("IFLA_IFNAME") or "", one) for one in kernel.get_links()}
        addresses = defaultdict(list)
        for one in kernel.get_addr():
            address = one.get_attr("IFA_LOCAL") or one.get_attr("IFA_ADDRESS")
            if address is not None and one["index"] in names:
                addresses[names[one["index"]][0]].append(ip_interface(f"{address}/{one['prefixlen']}"))
        rules, foreign_rules, routes, foreign_routes = set(), [], set(), []
        for version, family in _FAMILIES.items():
            for one in kernel.get_rules(family=family):
                rule = _rule(one, version)
                if one.get_attr("FRA_PROTOCOL") == PROTOCOL and rule.priority in PRIORITIES:
                    rules.add(rule)
                else:
                    foreign_rules.append((rule.priority, str(rule)))
            for one in kernel.get_routes(family=family):
                route = _route(one, version, {index: name for index, (name, _) in names.items()})
                if route.table not in TABLES:
                    continue
                if one["proto"] == PROTOCOL:
                    routes.add(route)
                else:
                    foreign_routes.append((route.table, str(route)))
    return Present(
        {name: _device(link) for name, link in names.values()},
        {name: tuple(found) for name, found in addresses.items()},
        frozenset(rules),
        frozenset(routes),
        tuple(sorted(set(foreign_rules))),
        tuple(sorted(set(foreign_routes))),
    )


def carry_out(operations: Iterable[Operation], present: Present, *, until_refused: bool = True) -> list[str]:
    """Execute in order; return rejected ones with the reason. With `until_refused` raise `RefusedError` instead."""
    refused = []
    with _kernel() as kernel:
        for one in operations:
            try:
                if isinstance(one.what, Rule):
                    _do_rule(kernel, one.verb, one.what)
                else:
                    _do_route(kernel, one.verb, one.what, present)
            except (NetlinkError, KeyError) as exc:
                number = exc.code if isinstance(exc, NetlinkError) else errno.ENODEV
                if one.verb == "remove" and number in _GONE:
                    continue
                if number == errno.EPERM:
                    raise NotPermittedError("Changing routes needs root (CAP_NET_ADMIN); use sudo.") from exc
                said = f"{one}: {os.strerror(number)} ({errno.errorcode.get(number, number)})"
                if until_refused:
                    raise RefusedError(f"The kernel refused to {said}.") from exc
                refused.append(said)
    return refused


def device_towards(destination: IPAddress, source: IPAddress) -> str | None:
    """The device for packets of this host to an address; None without a route. Raises `AgentError`."""
    with _kernel() as kernel:
        family = _FAMILIES[destination.version]
        try:
            found = next(iter(kernel.route("get", family=family, dst=str(destination), src=str(source))))
        except NetlinkError:
            return None
        return str(kernel.get_links(found.get_attr("RTA_OIF"))[0].get_attr("IFLA_IFNAME"))


def sysctls(dev: str) -> dict[str, int]:
    """IPv4 parameters in force on a device: the maximum of its own and that of all (ip-sysctl)."""
    found = {}
    for name in _SYSCTLS:
        values = [Path("/proc/sys/net/ipv4/conf", of, name) for of in ("all", dev)]
        try:
            found[name] = max(int(one.read_text(encoding="ascii")) for one in values)
        except (OSError, ValueError):  # a device without IPv4
            continue
    return found


@contextmanager
def _kernel() -> Iterator[Any]:
    try:
        with IPRoute() as kernel:
            yield kernel
    except (NetlinkError, OSError) as exc:
        raise AgentError(f"Rules and routes cannot be read ({exc}); try again.", retryable=True) from exc


# --- what the kernel says ---------------------------------------------------------------------------------------------


def _device(link: Any) -> Device:
    counters = link.get_attr("IFLA_STATS64") or {}
    names = ("rx_bytes", "rx_packets", "tx_bytes", "tx_packets")
    return Device(link["index"], bool(link["flags"] & _IFF_UP), *(counters.get(name, 0) for name in names))


def _rule(one: Any, version: int) -> Rule:
    source = one.get_attr("FRA_SRC")
    network = ip_network(f"{source}/{one['src_len']}") if source is not None else EVERYWHERE[version]
    suppressed = one.get_attr("FRA_SUPPRESS_PREFIXLEN")
    table = one.get_attr("FRA_TABLE") or one["table"]
    return Rule(one.get_attr("FRA_PRIORITY") or 0, network, table, suppressed not in (None, _NO_SUPPRESSION))


def _route(one: Any, version: int, names: dict[int, str]) -> Route:
    destination, gateway = one.get_attr("RTA_DST"), one.get_attr("RTA_GATEWAY")
    network = ip_network(f"{destination}/{one['dst_len']}") if destination is not None else EVERYWHERE[version]
    dev = names.get(one.get_attr("RTA_OIF"), "")
    return Route(one.get_attr("RTA_TABLE") or MAIN, network, dev, ip_address(gateway) if gateway is not None else None)


# --- messages ---------------------------------------------------------------------------------------------------------


def _do_rule(kernel: Any, verb: str, rule: Rule) -> None:
    only = {"suppress_prefixlen": 0} if rule.is_specific else {}
    kernel.rule(
        "del" if verb == "remove" else "add",
        family=_FAMILIES[rule.source.version],
        priority=rule.priority,
        src=str(rule.source.network_address),
        src_len=rule.source.prefixlen,
        table=rule.table,
        protocol=PROTOCOL,
        action=_TO_TABLE,
        **only,
    )


def _do_route(kernel: Any, verb: str, route: Route, present: Present) -> None:
    version = route.destination.version
    gateway = {"gateway": str(route.gateway)} if route.gateway is not None else {}
    is_direct = version == 4 and route.gateway is None
    kernel.route(
        "del" if verb == "remove" else verb,
        family=_FAMILIES[version],
        table=route.table,
        dst=str(route.destination),
        oif=present.devices[route.dev].ifindex,
        proto=PROTOCOL,
        type=_UNICAST,
        scope=_SCOPE_LINK if is_direct else _SCOPE_UNIVERSE,
        **gateway,
    )
