"""The two counters of a host: H and L are raised here and nowhere else, and what hosts say that they have."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Greatest, Random
from django.utils import timezone

from scion_files import COMPLETE
from scionlab.models import AttachmentPoint, Host, IssuedLimits, locks, selectors
from scionlab.platform.queue import RENDER_HOST, queue_after_commit
from scionlab.platform.wake import wake_after_commit

logger = logging.getLogger(__name__)

POLLING_WITHIN = timedelta(minutes=10)  # nobody waits for the configuration of a host that was away longer


@transaction.atomic
def hosts_bump(
    *, config_ids: Iterable[int] = (), limits_ids: Iterable[int] = (), alone_ids: Collection[int] = ()
) -> None:
    """Raise H of the ones and L of the others by one each, and render their configurations after the commit.

    H rises with it at all hosts of the ASes concerned: each one's topology has the border routers of its whole AS. Not
    so for `alone_ids`: files changed there that no other host has (keys of the control service). With H comes the
    complete configuration, where a host had topology.json alone: SCION restarts there anyway. With L it rises at the
    host whose control service publishes the limits of Links that end on another one of its AS.
    """
    config_ids, limits_ids = set(config_ids), set(limits_ids)
    hosts = locks.lock_hosts({*config_ids, *limits_ids, *alone_ids})
    as_of = {host_id: host.AS_id for host_id, host in hosts.items()}
    ases = {as_of[host_id] for host_id in config_ids & as_of.keys()} - {None}
    config_ids |= {host_id for host_id, as_id in as_of.items() if as_id in ases} | set(alone_ids)
    limits_ids |= _publishing_hosts(limits_ids, as_of)
    all_ids = [host_id for host_id in as_of if host_id in config_ids | limits_ids]
    if config_ids:
        raised = Host.objects.filter(pk__in=config_ids)
        raised.update(config_version=F("config_version") + 1, configuration_format=COMPLETE)
    if limits_ids:
        Host.objects.filter(pk__in=limits_ids).update(limits_version=F("limits_version") + 1)
    for host_id in all_ids:
        queue_after_commit(RENDER_HOST, host_id)
    wake_after_commit(all_ids)
    for host_id in all_ids:
        hosts[host_id].config_version += host_id in config_ids
        hosts[host_id].limits_version += host_id in limits_ids
    traces = [hosts[host_id].trace for host_id in all_ids]
    transaction.on_commit(lambda: logger.info("host.raised traces=%s", ",".join(traces)), robust=True)


def _publishing_hosts(host_ids: Collection[int], as_of: Mapping[int, int | None]) -> set[int]:
    """Those with the control services that publish the limits of Links on these hosts, where it runs on another host:
    what it publishes is part of its configuration, which is a function of the versions."""
    first_of: dict[int | None, int] = {}
    for host_id, as_id in as_of.items():
        first_of.setdefault(as_id, host_id)
    ases = {as_of[host_id] for host_id in host_ids & as_of.keys()} - {None}
    elsewhere = {as_id: first_of[as_id] for as_id in ases if first_of[as_id] not in host_ids}
    if not elsewhere:
        return set()
    publishing = AttachmentPoint.objects.filter(AS__in=elsewhere, publishes_limits=True).values_list("AS", flat=True)
    return {elsewhere[as_id] for as_id in publishing}


def hosts_to_render(*, now: datetime, limit: int) -> list[int]:
    """Hosts that polled lately, lack their newest configuration, and for which nobody has rendered it yet; at most
    `limit`, those of attachment points first. Of the others any: one that cannot be rendered keeps no other waiting.

    Two statements, however many hosts there are. What was rendered once and has fallen out of the cache since is
    rendered by the poll that wants it, and so is what is beyond the limit.
    """
    lacks = Q(delivered_config_version__lt=F("config_version")) | Q(delivered_limits_version__lt=F("limits_version"))
    rendered = IssuedLimits.objects.filter(
        host=OuterRef("pk"),
        generation=selectors.generation(),
        config_version=OuterRef("config_version"),
        limits_version=OuterRef("limits_version"),
    )
    waiting = Host.objects.filter(lacks, ~Exists(rendered), AS__isnull=False, last_seen_at__gte=now - POLLING_WITHIN)
    first = F("attachment_point").asc(nulls_last=True)
    return list(waiting.order_by(first, Random()).values_list("pk", flat=True)[:limit])


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
