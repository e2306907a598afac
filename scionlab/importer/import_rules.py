"""Our rules on the content of a dump, before anything is written: all entries that break one.

Of two conflicting entries (one socket, one interface id), the one with the lower key stays. Entries that depend on
skipped ones, or conflict with existing rows, are found while writing (`importer.import_ases`, `importer.import_links`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import models

from bandwidth_config import RuleError
from contract.link_rules import (
    MAX_INTERFACE_ID,
    MIN_INTERFACE_ID,
    check_bind_address,
    check_internal_address,
    check_port,
    check_underlay_address,
    parse_ip,
)
from scionlab.accounts.models import User
from scionlab.importer import rows
from scionlab.importer.report import Problem, Row
from scionlab.testbed.address_owners import TestbedAddresses, testbed_addresses
from scionlab.testbed.host_addresses import checked_addresses
from scionlab.testbed.infrastructure import check_infrastructure_as_id, check_isd_id, check_subnet, check_vpn_port
from scionlab.testbed.models import AS, ISD, Host
from scionlab.testbed.models.numbers import LAST_BORDER_ROUTER, check_user_as_id

# Agents log in with them (HTTP Basic), and a host id is part of URLs.
_UID: Final = re.compile(r"[0-9A-Za-z_-]{1,32}", flags=re.ASCII)
_SECRET: Final = re.compile(r"[!-~]{1,64}", flags=re.ASCII)


def problems_of(network: rows.Network) -> list[Problem]:
    """Ordered by kind and key. Two SQL statements, for existing addresses."""
    return _Rules(network).problems()


def public_addresses(public_ip: str | None) -> dict[str, str | None]:
    """By our columns; the other one is None."""
    is_ipv6 = public_ip is not None and ":" in public_ip
    return {"public_ipv4": None if is_ipv6 else public_ip, "public_ipv6": public_ip if is_ipv6 else None}


def vpns_in_use(network: rows.Network) -> dict[int, rows.Vpn]:
    """Those of attachment points; others are not imported."""
    used = {ap.vpn for ap in network.attachment_points.values()}
    return {pk: vpn for pk, vpn in network.vpns.items() if pk in used}


def clients_in_use(network: rows.Network) -> dict[int, rows.VpnClient]:
    """Those with a Link: clients exist only for their Links."""
    used = {link.b.vpn_client for link in network.links.values()}
    return {pk: client for pk, client in network.clients.items() if pk in used}


class _Rules:
    def __init__(self, network: rows.Network) -> None:
        self._net = network
        self._ap_of = {ap.as_pk: ap for ap in network.attachment_points.values()}
        self._ap_hosts = {ap.host for ap in network.attachment_points.values()}
        self._hosts_of: dict[int, list[rows.Host]] = {}
        for host in network.hosts.values():
            if host.as_pk is not None:
                self._hosts_of.setdefault(host.as_pk, []).append(host)
        self._vpns, self._clients = vpns_in_use(network), clients_in_use(network)
        self._vpn_on = {vpn.host: vpn for vpn in self._vpns.values()}
        self._testbed = self._testbed_addresses()

    def problems(self) -> list[Problem]:
        net = self._net
        found = [
            *_problems("user", net.users.values(), self._user),
            *_problems("isd", net.isds.values(), self._isd),
            *_problems("as", net.ases.values(), self._as),
            *_problems("host", net.hosts.values(), self._host),
            *_problems("borderrouter", net.routers.values(), self._router),
            *_problems("vpn", self._vpns.values(), self._vpn),
            *_problems("attachmentpoint", net.attachment_points.values(), self._attachment_point),
            *_problems("vpnclient", self._clients.values(), self._client),
            *_problems("link", net.links.values(), self._link),
        ]
        return found + self._repeated({(one.kind, one.pk) for one in found})

    def _repeated(self, bad: Collection[tuple[str, int]]) -> list[Problem]:
        """Among valid entries, those that claim something of an entry with a lower key."""
        net = self._net
        found: list[Problem] = []
        tables: tuple[tuple[str, Mapping[int, Row], Callable[..., Iterable[tuple[Hashable, str]]]], ...] = (
            ("user", net.users, lambda one: [(one.email.lower(), "Its email address")]),
            ("as", net.ases, lambda one: [(one.as_id, "Its AS number")]),
            ("host", net.hosts, self._claims_of_host),
            ("attachmentpoint", net.attachment_points, lambda one: [(one.as_pk, "Its AS")]),
            ("vpnclient", self._clients, _claims_of_client),
            ("link", net.links, self._claims_of_link),
        )
        for kind, table, claims in tables:
            good = (row for row in table.values() if (kind, row.pk) not in bad)
            found += _twice(kind, good, claims)
        return found

    def _claims_of_host(self, host: rows.Host) -> Iterator[tuple[Hashable, str]]:
        yield ("uid", host.uid), "Its host id"
        if host.as_pk is not None:
            yield ("internal", host.as_pk, host.internal_ip), f"The internal address {host.internal_ip} of its AS"
            if self._net.ases[host.as_pk].is_user_as:
                yield ("user AS", host.as_pk), "A user AS has one host here, and its place"

    def _claims_of_link(self, link: rows.Link) -> Iterator[tuple[Hashable, str]]:
        for end in link.ends:
            yield ("interface", end.pk), f"Interface {end.pk}"
            yield ("id", end.as_pk, end.interface_id), f"The interface id {end.name}"
        yield from sockets(
            [(end.host, end.public_ip or "", end.public_port, *end.local) for end in link.ends],
            ap_hosts=self._ap_hosts,
            is_public=link.is_limited and link.b.vpn_client is None,
        )

    # --- one entry --------------------------------------------------------------------------------------------

    def _user(self, row: rows.User) -> None:
        _check_length(User, "email", row.email)
        _check_length(User, "full_name", row.full_name)
        try:
            validate_email(row.email)
        except ValidationError:
            raise RuleError("email_invalid", "This is not an email address. Correct it there.") from None

    def _isd(self, row: rows.Isd) -> None:
        check_isd_id(row.number)
        _check_length(ISD, "label", row.label)

    def _as(self, row: rows.As) -> None:
        _check_length(AS, "label", row.label)
        if row.is_user_as != (row.owner is not None):
            has = "a user AS without an owner" if row.is_user_as else "owned by a person and no user AS"
            raise RuleError("as_owner", f"It is {has}. Give it both there, or neither.")
        if row.is_user_as:
            check_user_as_id(row.as_id)
        else:
            check_infrastructure_as_id(row.as_id)

    def _host(self, row: rows.Host) -> None:
        if row.as_pk is None:
            return
        if not _UID.fullmatch(row.uid):
            text = "Its id is not 1 to 32 letters, digits, - and _. Give it another one there."
            raise RuleError("host_id", text)
        if not _SECRET.fullmatch(row.secret):
            text = "Its secret is not 1 to 64 printable characters without spaces. Give it another one there."
            raise RuleError("host_secret", text)
        _check_length(Host, "label", row.label)
        is_public = not self._net.ases[row.as_pk].is_user_as or row.pk in self._ap_hosts
        checked_addresses(**public_addresses(row.public_ip), bind_ip=row.bind_ip, is_public=is_public)
        check_internal_address(row.internal_ip, alone=len(self._hosts_of[row.as_pk]) == 1)

    def _router(self, row: rows.BorderRouter) -> None:
        if self._net.hosts[row.host].as_pk != row.as_pk:
            raise RuleError("router_elsewhere", "Its host is of another AS. Correct it there.")
        if row.number > LAST_BORDER_ROUTER:
            text = f"It is router {row.number} of its AS, of at most {LAST_BORDER_ROUTER}. Remove some there."
            raise RuleError("border_routers_exhausted", text)

    def _vpn(self, row: rows.Vpn) -> None:
        check_vpn_port(row.server_port)
        if parse_ip(row.server_ip) not in check_subnet(row.subnet):
            text = f"The server's address {row.server_ip} is not in {row.subnet}. Correct it there."
            raise RuleError("vpn_server_outside", text)

    def _attachment_point(self, row: rows.AttachmentPoint) -> None:
        if row.host is None:
            raise RuleError("host_missing", "Its AS has no host with a public address. Add one there.")
        if self._net.hosts[row.host].as_pk != row.as_pk:
            raise RuleError("vpn_elsewhere", "Its VPN's server is a host of another AS. Correct it there.")

    def _client(self, row: rows.VpnClient) -> None:
        vpn = self._net.vpns[row.vpn]
        subnet = _network(vpn.subnet)
        if subnet is not None and (parse_ip(row.ip) not in subnet or row.ip == vpn.server_ip):
            text = f"It is not a client's address in {vpn.subnet}, whose server has {vpn.server_ip}. Correct it there."
            raise RuleError("vpn_client_outside", text)

    # --- Links ------------------------------------------------------------------------------------------------

    def _link(self, row: rows.Link) -> None:
        for end in row.ends:
            self._end(end)
        if row.a.as_pk == row.b.as_pk:
            raise RuleError("link_to_itself", "Both of its ends are in one AS. Choose another one there.")
        families = {parse_ip(end.public_ip).version for end in row.ends}
        if len(families) > 1:
            text = f"{row.a.public_ip} and {row.b.public_ip} are of different families. Give it two of one there."
            raise RuleError("address_family", text)
        a, b = (self._net.ases[end.as_pk] for end in row.ends)
        if a.is_user_as or b.is_user_as:
            self._attachment(row, a, b)
        elif row.type == "CORE" and not (a.is_core and b.is_core):
            text = "It is a core Link, and not both ASes are core ASes. Make it a provider Link there."
            raise RuleError("core_link_needs_core_ases", text)

    def _end(self, end: rows.End) -> None:
        if not MIN_INTERFACE_ID <= end.interface_id <= MAX_INTERFACE_ID:
            text = (
                f"Interface {end.pk} has the id {end.interface_id}, outside {MIN_INTERFACE_ID} to {MAX_INTERFACE_ID}. "
                "Make the Link anew there."
            )
            raise RuleError("interface_id_range", text)
        host, router = self._net.hosts[end.host], self._net.routers[end.router]
        if host.as_pk != end.as_pk or router.host != end.host:
            text = f"The AS, the host and the border router of interface {end.pk} are not one's. Correct it there."
            raise RuleError("router_elsewhere", text)
        if end.public_ip is None:
            text = f"Neither interface {end.pk} nor its host has a public address. Give it one there."
            raise RuleError("address_required", text)
        check_port(end.public_port)
        check_underlay_address(end.public_ip)
        if end.bind_ip is not None:
            check_bind_address(end.bind_ip, family=parse_ip(end.public_ip).version)
        if end.bind_port is not None:
            check_port(end.bind_port)

    def _attachment(self, row: rows.Link, a: rows.As, b: rows.As) -> None:
        """A Link of a user AS must be an attachment, or it would not be limited."""
        if row.type != "PROVIDER" or not b.is_user_as:
            text = "It is a Link of a user AS and does not attach it to an attachment point. Remove it there."
            raise RuleError("link_of_user_as", text)
        ap = self._ap_of.get(a.pk)
        if ap is None:
            text = f"{a.name} is not an attachment point, so its limit would not be enforced. Make it one there."
            raise RuleError("attachment_point_unknown", text)
        if row.a.host != ap.host:
            text = (
                f"It ends at {a.name} on another host than the attachment point has for user ASes, so its limit would "
                "not be enforced. Move the interface there."
            )
            raise RuleError("host_elsewhere", text)
        if a.isd != b.isd:
            text = f"{b.name} is in another isolation domain than {a.name}. Attach it within its own there."
            raise RuleError("attachment_point_isd", text)
        if row.b.vpn_client is None:
            self._address(row.b, row.a.host, b.name)

    def _address(self, end: rows.End, ap_host: int, owner: str) -> None:
        """The address of a user AS outside the VPN must not be the testbed's."""
        host, vpn = self._net.hosts[ap_host], self._vpn_on.get(ap_host)
        own = [ip for ip in (host.public_ip, host.bind_ip, vpn and vpn.server_ip) if ip]
        address = check_underlay_address(end.public_ip, global_only=settings.UNDERLAY_GLOBAL_ONLY, own=own)
        is_own = self._testbed.hosts.get(str(address)) == owner
        (TestbedAddresses({}, self._testbed.vpns) if is_own else self._testbed).check(address)

    def _testbed_addresses(self) -> TestbedAddresses:
        """Those in the file, and of existing ASes that are not in it."""
        net = self._net
        among = {end.public_ip for link in net.links.values() for end in link.ends if end.public_ip}
        here = testbed_addresses(among, user_as=None)
        names = {one.name for one in net.ases.values()}
        hosts = {ip: name for ip, name in here.hosts.items() if name not in names}
        vpns = {network: name for network, name in here.vpns.items() if name not in names}
        for host in net.hosts.values():
            as_ = net.ases.get(host.as_pk or 0)
            if as_ is not None and host.public_ip and (not as_.is_user_as or host.pk in self._ap_hosts):
                hosts[host.public_ip] = as_.name
        for vpn in self._vpns.values():
            as_ = net.ases.get(net.hosts[vpn.host].as_pk or 0)
            if as_ is not None and (subnet := _network(vpn.subnet)) is not None:
                vpns[subnet] = as_.name
        return TestbedAddresses(hosts, vpns)


def sockets(
    ends: Iterable[tuple[int, str, int, str | None, int]], *, ap_hosts: Collection[int | None], is_public: bool
) -> Iterator[tuple[Hashable, str]]:
    """Sockets that a Link uses, in words: its ends are (host, public IP, port, local IP, port), that of a user AS last.
    `is_public`: that end is reachable from the internet, where a port leads to one machine."""
    near, far = ends
    for host, ip, port, local_ip, local_port in (near, far):
        yield ("underlay", host, ip, port), f"{ip} port {port} of this host"
        yield ("local", host, local_ip, local_port), f"Where it binds, {local_ip} port {local_port} of this host,"
    for (host, *_), (_, ip, port, *_) in ((near, far), (far, near)):
        if host in ap_hosts:
            yield ("remote", host, ip, port), f"{ip} port {port}, as the attachment point sees it,"
    if is_public:
        yield ("public", *far[1:3]), f"{far[1]} port {far[2]}"


# --- helpers --------------------------------------------------------------------------------------------------


def _problems(kind: str, found: Iterable[Row], check: Callable[..., None]) -> Iterator[Problem]:
    for row in found:
        try:
            check(row)
        except RuleError as exc:
            yield Problem(kind, row.pk, row.name, exc.message)


def _claims_of_client(client: rows.VpnClient) -> Iterator[tuple[Hashable, str]]:
    yield ("ip", client.vpn, client.ip), f"The address {client.ip} of its VPN"
    yield ("host", client.vpn, client.host), "Its host's place in the VPN"


def _twice(kind: str, found: Iterable[Row], claims: Callable[..., Iterable[tuple[Hashable, str]]]) -> Iterator[Problem]:
    owners: dict[Hashable, Row] = {}
    for row in sorted(found, key=lambda one: one.pk):
        mine = dict(claims(row))
        taken = next((claim for claim in mine if claim in owners), None)
        if taken is None:
            owners |= dict.fromkeys(mine, row)
        else:
            owner = owners[taken]
            text = f"{mine[taken]} is taken by {kind} {owner.pk} ({owner.name}). Change one of them there."
            yield Problem(kind, row.pk, row.name, text)


def _check_length(model: type[models.Model], field: str, text: str) -> None:
    maximum = next(one.max_length or 0 for one in model._meta.fields if one.name == field)
    if len(text) > maximum:
        what = field.replace("_", " ")
        raise RuleError(
            f"{field}_too_long", f"Its {what} has {len(text)} characters, of {maximum} allowed. Shorten it there."
        )


def _network(subnet: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return check_subnet(subnet)
    except RuleError:
        return None
