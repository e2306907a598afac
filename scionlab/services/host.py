"""What happens to hosts: their two counters, credentials, addresses, and what they tell when they pull."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest
from django.utils import timezone

from bandwidth_config import RuleError, check_bind_address, check_underlay_address
from scionlab.models import Host, Interface, Link, User
from scionlab.models.host import new_secret
from scionlab.services import allocation
from scionlab.services.errors import FieldRuleError
from scionlab.services.queue import RENDER_HOST, queue_after_commit

logger = logging.getLogger(__name__)

SEEN_INTERVAL = timedelta(minutes=1)


@transaction.atomic
def host_bump(*, host_ids: Iterable[int], config: bool = False, limits: bool = False) -> None:
    """Raise H (`config`) and/or L (`limits`) of each host by one, and render its configuration after the commit."""
    ids = set(host_ids)
    hosts_bump(config_ids=ids if config else set(), limits_ids=ids if limits else set())


@transaction.atomic
def hosts_bump(*, config_ids: set[int], limits_ids: set[int]) -> None:
    """Raise H of the ones and L of the others by one each, all rows locked together in key order."""
    all_ids = allocation.lock_hosts(config_ids | limits_ids)
    if config_ids:
        Host.objects.filter(pk__in=config_ids).update(config_version=F("config_version") + 1)
    if limits_ids:
        Host.objects.filter(pk__in=limits_ids).update(limits_version=F("limits_version") + 1)
    for host_id in all_ids:
        queue_after_commit(RENDER_HOST, host_id)


@transaction.atomic
def host_rotate_secret(*, host_id: int, actor: User) -> None:
    """Give the host a new secret; the old one is refused from the commit on.

    L rises: the tarball carries the secret, so a cached one must not be served again; H does not, because no SCION
    configuration changed and stock clients would restart SCION for it.
    """
    allocation.lock_hosts([host_id])
    Host.objects.filter(pk=host_id).update(secret=new_secret())
    host_bump(host_ids=[host_id], limits=True)
    logger.info("host.secret_rotated host=%s actor=%s", host_id, actor.pk)


def host_note_seen(*, host_id: int) -> None:
    """Note that the host polled; at most one write a minute, and none that could undo somebody else's."""
    now = timezone.now()
    stale = Q(last_seen_at__isnull=True) | Q(last_seen_at__lt=now - SEEN_INTERVAL)
    Host.objects.filter(stale, pk=host_id).update(last_seen_at=now)


def host_note_delivered(*, host_id: int, config_version: int, limits_version: int) -> None:
    """Note that a configuration of these versions was handed to the host, by whichever client it asked.

    Two answers may overtake each other: the noted versions only ever rise, and nothing is written when none does.
    """
    rises = Q(delivered_config_version__lt=config_version) | Q(delivered_limits_version__lt=limits_version)
    Host.objects.filter(rises, pk=host_id).update(
        delivered_config_version=Greatest(F("delivered_config_version"), config_version),
        delivered_limits_version=Greatest(F("delivered_limits_version"), limits_version),
        delivered_at=timezone.now(),
    )


def host_set_deployed_version(*, host_id: int, config_version: int) -> bool:
    """Store which H the host says it has installed.

    False, and nothing stored, for a version above the host's own or below the one already deployed (DOMAIN section 4).
    """
    allowed = Host.objects.filter(
        pk=host_id, config_version__gte=config_version, config_version_deployed__lte=config_version
    )
    return allowed.update(config_version_deployed=config_version) == 1


@transaction.atomic
def host_set_addresses(
    *, host_id: int, actor: User, public_ipv4: str | None, public_ipv6: str | None, bind_ip: str | None
) -> None:
    """Move a host of an infrastructure AS to other addresses, and the interfaces on it along.

    H rises once for the host, and for every host at the other end of an active Link whose remote address changed; for
    nobody when the values are those stored. Raises `FieldRuleError` (the rules of addresses, `address_in_use`).
    """
    old, remote_hosts = _lock_with_peers(host_id)
    new = _checked_addresses(public_ipv4, public_ipv6, bind_ip)
    _check_no_customer_is_there(old, new)
    if new == {name: getattr(old, name) for name in new}:
        return
    moved = {}
    for name in ("public_ipv4", "public_ipv6"):
        was, becomes = getattr(old, name), new[name]
        if was is not None and was != becomes:
            moved[was] = (name, becomes)
    config_ids = _move_interfaces(old, moved, new["bind_ip"], remote_hosts)
    for name, value in new.items():
        setattr(old, name, value)
    old.save(update_fields=list(new))
    hosts_bump(config_ids=config_ids, limits_ids=set())
    logger.info("host.addresses host=%s actor=%s", host_id, actor.pk)


def _lock_with_peers(host_id: int) -> tuple[Host, dict[int, tuple[int, bool]]]:
    """The host locked, and per interface on it the host at the other end and whether the Link is active."""
    allocation.lock_attachment_points_of_hosts([host_id])
    peers: dict[int, tuple[int, bool]] = {}
    for near, far in (("interface_a", "interface_b"), ("interface_b", "interface_a")):
        rows = Link.objects.filter(**{f"{near}__host_id": host_id})
        for interface_id, peer, active in rows.values_list(f"{near}_id", f"{far}__host_id", "active"):
            peers[interface_id] = (peer, active)
    allocation.lock_hosts({host_id} | {peer for peer, _ in peers.values()})
    return Host.objects.get(pk=host_id), peers


def _checked_addresses(public_ipv4: str | None, public_ipv6: str | None, bind_ip: str | None) -> dict[str, str | None]:
    checked: dict[str, str | None] = {}
    only = settings.UNDERLAY_GLOBAL_ONLY
    for name, value, family in (("public_ipv4", public_ipv4, 4), ("public_ipv6", public_ipv6, 6)):
        try:
            checked[name] = str(check_underlay_address(value, global_only=only, family=family)) if value else None
        except RuleError as exc:
            raise FieldRuleError.of(exc, name) from exc
    try:
        checked["bind_ip"] = str(check_bind_address(bind_ip)) if bind_ip else None
    except RuleError as exc:
        raise FieldRuleError.of(exc, "bind_ip") from exc
    return checked


def _check_no_customer_is_there(host: Host, new: Mapping[str, str | None]) -> None:
    """The reverse of the rule that a user AS is not at its attachment point's own address."""
    for name, address in new.items():
        if address is None:
            continue
        there = Link.objects.filter(interface_a__host=host, interface_b__public_ip=address)
        found = there.select_related("interface_b__AS__isd").first()
        if found is not None:
            who = found.interface_b.AS.isd_as
            text = f"{address} is the address of {who}, which is linked to this host. Choose another address."
            raise FieldRuleError("address_own", text, name)


def _move_interfaces(
    host: Host, moved: dict[str, tuple[str, str | None]], bind_ip: str | None, peers: dict[int, tuple[int, bool]]
) -> set[int]:
    """Carry new addresses over to the interfaces; returns the hosts whose SCION configuration changes by that."""
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
    """An interface follows the host's bind address, unless it was given one of its own."""
    follows = interface.bind_ip is None or interface.bind_ip == host.bind_ip
    is_public = interface.public_ip in host.public_ips
    return allocation.bind_ip_for(address, bind_ip) if follows and is_public else interface.bind_ip
