"""Where each limited link is enforced: which interface its packets leave by. Pure; the shell asks the kernel.

A link that cannot be placed is a named problem of that link; the others are enforced all the same. What is already
enforced stays where it is when only the route is missing: a link whose interface went down for a moment must not come
back without its limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ap_agent.classify import match_key
from ap_agent.desired import PlacedLink, without_ambiguous
from ap_agent.model import (
    IFB_NAME,
    NIC_MAJOR,
    Device,
    EngineSettings,
    Finding,
    Problem,
    TcState,
    is_inner,
    root_is_ours,
)
from bandwidth_config import IPAddress, LinkInfo

LOOPBACK_NAME = "lo"

RouteKind = Literal["unicast", "local", "none", "blackhole", "unreachable", "prohibit", "other"]


@dataclass(frozen=True)
class Route:
    """The kernel's answer for one destination; `ifindex` is 0 where no device follows from it."""

    kind: RouteKind
    ifindex: int = 0


@dataclass(frozen=True)
class RouteQuery:
    """What decides the route of a link's packets, policy rules included."""

    destination: IPAddress
    source: IPAddress | None
    source_port: int | None
    destination_port: int | None


RouteLookup = Callable[[RouteQuery], Route]


@dataclass
class Placements:
    """`managed` are the interfaces where we redirect; `findings` name the links that could not be placed."""

    placed: list[PlacedLink] = field(default_factory=list)
    managed: list[Device] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class _NoPlaceError(Exception):
    """`is_lasting`: nothing of this link can be enforced; else what is enforced now stays where it is."""

    def __init__(self, code: str, message: str, *, is_lasting: bool) -> None:
        super().__init__(message)
        self.code, self.message, self.is_lasting = code, message, is_lasting


def limited(links: Mapping[int, LinkInfo]) -> list[LinkInfo]:
    """Only links to user ASes are limited (DOMAIN section 2)."""
    return [link for _, link in sorted(links.items()) if link.is_user_as]


def place(links: Mapping[int, LinkInfo], state: TcState, route: RouteLookup, settings: EngineSettings) -> Placements:
    result = Placements()
    present, elsewhere = _without_absent_addresses(limited(links), state)
    wanted, result.findings = without_ambiguous(present)
    result.findings += elsewhere
    enforced_at = _enforced_now(state)
    for link in wanted:
        try:
            result.placed.append(PlacedLink(link, _nic(link, state, route, settings)))
        except _NoPlaceError as exc:
            problem = Problem(exc.code, f"link {link.interface_id}", exc.message)
            result.findings.append(Finding(problem, frozenset({link.interface_id})))
            if not exc.is_lasting:
                result.placed.append(PlacedLink(link, enforced_at.get(link.interface_id)))
    result.managed, missing = _managed(result.placed, state, settings)
    result.findings += missing
    return result


def _without_absent_addresses(links: list[LinkInfo], state: TcState) -> tuple[list[LinkInfo], list[Finding]]:
    """A local address that this host does not have stands in no packet: behind a NAT packets carry another one. Such a
    link is matched by the rest, or it would count as enforced while everything passes.

    Where the rest does not tell it from another link it stays as it is, with a finding: addresses come back.
    """
    relaxed = [
        replace(link, local_ip=None) if link.local_ip is not None and link.local_ip not in state.addresses else link
        for link in links
    ]
    times = Counter(match_key(one) for one in relaxed)
    present, findings = [], []
    for link, one in zip(links, relaxed, strict=True):
        is_clear = one is link or times[match_key(one)] == 1
        present.append(one if is_clear else link)
        if not is_clear:
            message = (
                f"Link {link.interface_id} to {link.remote_ip} cannot be told from another link because its local "
                f"address {link.local_ip} is none of this host; add the address, or correct the bind IP in the service."
            )
            problem = Problem("local_address_missing", f"link {link.interface_id}", message)
            findings.append(Finding(problem, frozenset({link.interface_id})))
    return present, findings


def _enforced_now(state: TcState) -> dict[int, Device]:
    """The interface on which each link has its class at present."""
    found: dict[int, Device] = {}
    for device in state.devices:
        tree = state.trees.get(device.ifindex)
        if tree is None or tree.root is None or not root_is_ours(tree.root, NIC_MAJOR):
            continue
        found.update({one.handle.minor: device for one in tree.classes if is_inner(one.handle)})
    return found


def _managed(
    placed: Iterable[PlacedLink], state: TcState, settings: EngineSettings
) -> tuple[list[Device], list[Finding]]:
    if not settings.interfaces:
        used = {one.nic.ifindex for one in placed if one.nic is not None}
        return [device for device in state.devices if device.ifindex in used], []
    devices, findings = [], []
    for name in dict.fromkeys(settings.interfaces):
        device = state.named(name)
        if device is not None and name not in (LOOPBACK_NAME, IFB_NAME):
            devices.append(device)
            continue
        message = f'The configured interface "{name}" cannot be managed because this host has no such network interface'
        problem = Problem("interface_missing", name, f"{message}; correct `interfaces` or create it.")
        findings.append(Finding(problem))
    return devices, findings


def _nic(link: LinkInfo, state: TcState, route: RouteLookup, settings: EngineSettings) -> Device:
    remote, who = link.remote_ip, f"Link {link.interface_id} to {link.remote_ip}"
    if remote in state.addresses:
        message = f"{who} cannot be limited because that is an address of this host; correct it in the user AS."
        raise _NoPlaceError("own_address", message, is_lasting=True)
    device = _link_local_nic(link, state, settings) if remote.is_link_local else _routed_nic(link, state, route)
    if device.name in (LOOPBACK_NAME, IFB_NAME):
        message = f"{who} cannot be limited because its route leads to {device.name}; correct the routing table."
        raise _NoPlaceError("route_loopback", message, is_lasting=True)
    if settings.interfaces and device.name not in settings.interfaces:
        message = (
            f"{who} leaves by {device.name}, which is not among the configured interfaces "
            f"({', '.join(settings.interfaces)}); add it to `interfaces` or correct the route."
        )
        raise _NoPlaceError("unmanaged_interface", message, is_lasting=True)
    return device


def _link_local_nic(link: LinkInfo, state: TcState, settings: EngineSettings) -> Device:
    """A link-local address says nothing about the interface: the local address does, or a single configured one."""
    having = _devices_having(link.local_ip, state)
    if len(having) == 1:
        return having[0]
    if len(settings.interfaces) == 1 and (device := state.named(settings.interfaces[0])) is not None:
        return device
    message = (
        f"Link {link.interface_id} has the link-local address {link.remote_ip}, and nothing says on which interface; "
        f"give the link a local address of this host, or configure exactly one interface."
    )
    raise _NoPlaceError("ambiguous_interface", message, is_lasting=True)


def _devices_having(address: IPAddress | None, state: TcState) -> list[Device]:
    indexes = state.addresses.get(address, ()) if address is not None else ()
    return [device for device in state.devices if device.ifindex in indexes]


def route_queries(links: Mapping[int, LinkInfo], state: TcState) -> list[RouteQuery]:
    """All that `place` may ask, each once: the shell asks the kernel for them together."""
    asked = (one for one in limited(links) if not one.remote_ip.is_link_local)
    return list(dict.fromkeys(_query(link, state) for link in asked))


def _query(link: LinkInfo, state: TcState) -> RouteQuery:
    source = link.local_ip if link.local_ip in state.addresses else None
    return RouteQuery(link.remote_ip, source, link.local_port, link.remote_port)


def _routed_nic(link: LinkInfo, state: TcState, route: RouteLookup) -> Device:
    who = f"Link {link.interface_id} to {link.remote_ip}"
    query = _query(link, state)
    answer = route(query)
    if answer.kind == "local":
        message = f"{who} cannot be limited because that address is delivered locally on this host; correct the routes."
        raise _NoPlaceError("own_address", message, is_lasting=True)
    device = state.device(answer.ifindex) if answer.kind == "unicast" else None
    if device is not None:
        return device
    if answer.kind == "none":
        # An address on the loopback device, as routers have, says nothing about the interface.
        having = [one for one in _devices_having(query.source, state) if one.name != LOOPBACK_NAME]
        if len(having) == 1:
            return having[0]
        message = f"{who} is not enforced towards the user AS because this host has no route to it; add one."
        raise _NoPlaceError("no_route", message, is_lasting=False)
    message = f"{who} is not enforced towards the user AS because its route is of no use ({answer.kind}); correct it."
    raise _NoPlaceError("route_blackhole", message, is_lasting=False)
