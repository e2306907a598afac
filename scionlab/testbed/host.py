"""Changes of hosts: creation, credentials, addresses, and reports."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from contract.link_rules import bind_ip_for
from contract.scion_files import PACKAGES
from scionlab.accounts.models import User
from scionlab.platform.clock import database_now
from scionlab.platform.field_errors import FieldRuleError, at_field
from scionlab.testbed import audit, locks, selectors
from scionlab.testbed.host_addresses import (
    check_others_are_reached,
    checked_addresses,
    checked_internal_ip,
    needs_public_address,
)
from scionlab.testbed.life import LIVES
from scionlab.testbed.models import AS, BandwidthChange, BorderRouter, Host, Interface, Link, numbers
from scionlab.testbed.models.host import new_secret
from scionlab.testbed.models.link import is_user_as
from scionlab.testbed.versions.counters import hosts_bump
from scionlab.web.pages.stale_pages import Value, Values, last_admin_change, refuse_stale, values_of

logger = logging.getLogger(__name__)


@transaction.atomic
def host_create(
    *,
    as_: AS,
    actor: User,
    label: str,
    public_ipv4: str | None,
    public_ipv6: str | None,
    bind_ip: str | None,
    internal_ip: str,
    reason: str = "",
) -> Host:
    """Add a host with a border router to an infrastructure AS. No counter rises: a router without Links is in no
    configuration, and the control service stays on the first host. Raises `FieldRuleError` (`host_of_user_as`,
    `internal_ip_of_other`, `border_routers_exhausted`, the rules of addresses)."""
    locks.lock_ases([as_.pk])
    _refuse_user_as(as_, "AS")
    addresses = checked_addresses(public_ipv4, public_ipv6, bind_ip, is_public=True)
    check_others_are_reached(as_)
    internal_ip = checked_internal_ip(internal_ip, as_, host_id=None)
    host = Host.objects.create(AS=as_, label=label, internal_ip=internal_ip, **addresses)
    with at_field("host"):
        BorderRouter.objects.create(host=host, number=numbers.free_border_router_number(as_.pk))
    audit.note(host, kind=BandwidthChange.Kind.HOST_SETTINGS, actor=actor, detail="Created", reason=reason)
    logger.info("host.created host=%s as=%s actor=%s", host.pk, as_.isd_as, actor.pk)
    return host


@transaction.atomic
def border_router_create(*, host: Host, actor: User, reason: str = "") -> BorderRouter:
    """Add a border router to a host of an infrastructure AS; it is in no configuration until a Link ends on it. Raises
    `FieldRuleError` (`host_without_as`, `host_of_user_as`, `border_routers_exhausted`)."""
    if host.AS is None:
        raise FieldRuleError("host_without_as", f"{host} belongs to no AS. Choose a host of an AS.", "host")
    locks.lock_ases([host.AS.pk])
    _refuse_user_as(host.AS, "host")
    with at_field("host"):
        router = BorderRouter.objects.create(host=host, number=numbers.free_border_router_number(host.AS.pk))
    detail = f"Border router {router.name} added"
    audit.note(host, kind=BandwidthChange.Kind.HOST_SETTINGS, actor=actor, detail=detail, reason=reason)
    logger.info("border_router.created router=%s host=%s actor=%s", router.pk, host.pk, actor.pk)
    return router


def _refuse_user_as(as_: AS, field: str) -> None:
    if is_user_as(as_):
        text = f"{as_} is a user AS, which has exactly one host and one border router. Choose an infrastructure AS."
        raise FieldRuleError("host_of_user_as", text, field)


@transaction.atomic
def host_rotate_secret(
    *, host_id: int, actor: User, keep_previous: bool = True, for_stock_client: bool = False, reason: str = ""
) -> None:
    """Rotate the secret; the next configuration carries the new one. The previous one is accepted for
    SECRET_GRACE_HOURS, so that the host can fetch with it; the one before is rejected immediately. Without
    `keep_previous` (it was stolen) both are rejected, and the host must be enrolled again. L rises: our agent fetches.
    H rises only `for_stock_client`, which ignores L and restarts SCION."""
    locks.lock_hosts([host_id])
    former = Host.objects.values_list("secret", flat=True).get(pk=host_id) if keep_previous else ""
    until = database_now() + timedelta(hours=settings.SECRET_GRACE_HOURS) if keep_previous else None
    Host.objects.filter(pk=host_id).update(secret=new_secret(), previous_secret=former, previous_secret_until=until)
    hosts_bump(config_ids=[host_id] if for_stock_client else (), limits_ids=[host_id])
    Host.objects.filter(pk=host_id).update(secret_limits_version=F("limits_version"))
    for life in LIVES:
        life.secret_rotated(host_id)
    detail = "Secret rotated" + ("" if keep_previous else ", the previous one revoked")
    host = Host.objects.select_related("AS__isd").get(pk=host_id)
    audit.note(host, kind=BandwidthChange.Kind.HOST_SETTINGS, actor=actor, detail=detail, reason=reason)
    logger.info("host.secret_rotated host=%s former_until=%s actor=%s", host_id, until, actor.pk)


@transaction.atomic
def host_set_addresses(
    *,
    host_id: int,
    actor: User,
    public_ipv4: str | None,
    public_ipv6: str | None,
    bind_ip: str | None,
    internal_ip: str | None = None,
    label: str | None = None,
    scion_packages: str | None = None,
    reports_from_elsewhere: bool | None = None,
    shown: Values | None = None,
    reason: str = "",
) -> None:
    """Change the addresses of a host and of its interfaces; None keeps one of the last four.

    H rises once for the hosts of its AS, and for those of every AS at the other end of an active Link whose remote
    address changes, or over this host's VPN; not if nothing changes that is in a configuration. `shown`: values that
    the page showed, see `web.pages.stale_pages`. Raises `FieldRuleError` (the rules of addresses, `address_required`,
    `address_in_use`, `scion_packages_unknown`), `StalePageError`, `Host.DoesNotExist`.
    """
    old, remote_hosts = _lock_with_peers(host_id)
    addresses = checked_addresses(public_ipv4, public_ipv6, bind_ip, is_public=needs_public_address(old))
    new: dict[str, Value] = {**addresses}
    if internal_ip is not None:
        new["internal_ip"] = checked_internal_ip(internal_ip, old.AS, host_id=host_id)
    if label is not None:
        new["label"] = label
    if scion_packages is not None:
        new["scion_packages"] = checked_packages(scion_packages)
    if reports_from_elsewhere is not None:
        new["reports_from_elsewhere"] = reports_from_elsewhere
    stored = values_of(old, tuple(new))
    refuse_stale(shown=shown, stored=stored, wanted=new, last=lambda: last_admin_change(old))
    _check_no_customer_is_there(old, addresses)
    if new == stored:
        return
    moved = {}
    for name in ("public_ipv4", "public_ipv6"):
        was, becomes = getattr(old, name), addresses[name]
        if was is not None and was != becomes:
            moved[was] = (name, becomes)
    config_ids = _move_interfaces(old, moved, addresses["bind_ip"], remote_hosts)
    if (addresses["public_ipv4"] or addresses["public_ipv6"]) != (old.public_ipv4 or old.public_ipv6):
        clients = selectors.hosts_of_vpn_clients(host_id)  # each among the locked hosts, by its Link
        config_ids |= clients | ({host_id} if clients else set())
    if new.get("internal_ip", old.internal_ip) != old.internal_ip and _is_reached_inside(old, remote_hosts):
        config_ids.add(host_id)
    if new.get("scion_packages", old.scion_packages) != old.scion_packages and old.AS_id is not None:
        config_ids.add(host_id)
    for name, value in new.items():
        setattr(old, name, value)
    old.save(update_fields=list(new))
    hosts_bump(config_ids=config_ids)
    changed = ", ".join(
        f"{name}: {stored[name] or 'none'} \N{RIGHTWARDS ARROW} {new[name] or 'none'}"
        for name in new
        if new[name] != stored[name]
    )
    audit.note(old, kind=BandwidthChange.Kind.HOST_SETTINGS, actor=actor, detail=changed, reason=reason)
    logger.info("host.addresses host=%s actor=%s", host_id, actor.pk)


def checked_packages(name: str) -> str:
    """Raises `FieldRuleError` (`scion_packages_unknown`)."""
    if name not in PACKAGES:
        text = f'"{name[:40]}" is not a set of SCION packages. Choose one of: {", ".join(PACKAGES)}.'
        raise FieldRuleError("scion_packages_unknown", text, "scion_packages")
    return name


def _lock_with_peers(host_id: int) -> tuple[Host, dict[int, tuple[int, bool]]]:
    """Lock the host; also return, per interface, the host at the other end and whether the Link is active."""
    as_ids = Host.objects.filter(pk=host_id, AS__isnull=False).values_list("AS", flat=True)
    locks.lock_ases(as_ids)
    links = Link.objects.filter(Q(interface_a__host=host_id) | Q(interface_b__host=host_id))
    locks.lock_links(links.values_list("pk", flat=True))
    peers: dict[int, tuple[int, bool]] = {}
    for near, far in (("interface_a", "interface_b"), ("interface_b", "interface_a")):
        rows = Link.objects.filter(**{f"{near}__host_id": host_id})
        for interface_id, peer, active in rows.values_list(f"{near}_id", f"{far}__host_id", "active"):
            peers[interface_id] = (peer, active)
    locks.lock_hosts({host_id} | {peer for peer, _ in peers.values()})
    return Host.objects.select_related("AS__isd", "AS__useras", "attachment_point").get(pk=host_id), peers


def _is_reached_inside(host: Host, peers: Mapping[int, tuple[int, bool]]) -> bool:
    """Whether the AS's topology contains the host's internal address: of its routers, or of the control service."""
    first = Host.objects.filter(AS=host.AS_id).order_by("pk").values_list("pk", flat=True).first()
    return host.AS_id is not None and (host.pk == first or any(active for _, active in peers.values()))


def _check_no_customer_is_there(host: Host, new: Mapping[str, str | None]) -> None:
    """The reverse of the rule that a user AS cannot have its attachment point's address."""
    for name, address in new.items():
        if address is None:
            continue
        there = Link.objects.filter(interface_a__host=host, interface_b__public_ip=address)
        found = there.select_related("interface_b__AS__isd").first()
        if found is not None:
            who = found.interface_b.AS.isd_as
            text = f"{address} is the address of {who}, which has a Link to this host. Choose another address."
            raise FieldRuleError("address_own", text, name)


def _move_interfaces(
    host: Host, moved: dict[str, tuple[str, str | None]], bind_ip: str | None, peers: dict[int, tuple[int, bool]]
) -> set[int]:
    """Apply new addresses to the interfaces; return the hosts whose SCION configuration changes."""
    changed: set[int] = set()
    for interface in Interface.objects.filter(host=host, vpn_client=None).order_by("pk"):
        name, address = moved.get(interface.public_ip, ("", interface.public_ip))
        if address is None:
            raise FieldRuleError(
                "address_in_use",
                f"{interface.public_ip} is the address of interface {interface.interface_id} on this host. Give the "
                "host another address of that family, or remove the link first.",
                name,
            )
        bind = _bind_for(host, interface, address, bind_ip)
        peer, active = peers.get(interface.pk, (0, False))
        if active and (address, bind) != (interface.public_ip, interface.bind_ip):
            changed.add(host.pk)
        if active and address != interface.public_ip:
            changed.add(peer)
        interface.public_ip, interface.bind_ip = address, bind
        interface.save(update_fields=["public_ip", "bind_ip"])
    return changed


def _bind_for(host: Host, interface: Interface, address: str, bind_ip: str | None) -> str | None:
    """An interface follows the host's bind address unless it has its own."""
    follows = interface.bind_ip is None or interface.bind_ip == host.bind_ip
    is_public = interface.public_ip in host.public_ips
    return bind_ip_for(address, bind_ip) if follows and is_public else interface.bind_ip
