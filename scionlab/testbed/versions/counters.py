"""The counters H and L of a host: the only place that raises them; also delivered and deployed versions."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterable, Mapping

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest

from scionlab.platform.clock import database_now
from scionlab.platform.queue import RENDER_HOST, queue_after_commit
from scionlab.platform.wake import wake_after_commit
from scionlab.testbed import locks
from scionlab.testbed.models import AttachmentPoint, HeldLinkEnd, Host

logger = logging.getLogger(__name__)


@transaction.atomic
def hosts_bump(
    *, config_ids: Iterable[int] = (), limits_ids: Iterable[int] = (), alone_ids: Collection[int] = ()
) -> None:
    """Raise H and L of these hosts by one each, and render their configurations after the commit.

    H also rises at all hosts of the same ASes: each topology has the border routers of the whole AS. Not for
    `alone_ids`, where only files of that host changed (keys of the control service), unless changes of Links wait
    there for a restart (`testbed.versions.restarts`): these are delivered with it. For L, it also rises at the host
    whose control service publishes limits of Links that end on another host of its AS.
    """
    config_ids, limits_ids = set(config_ids), set(limits_ids)
    hosts = locks.lock_hosts({*config_ids, *limits_ids, *alone_ids})
    as_of = {host_id: host.AS_id for host_id, host in hosts.items()}
    config_ids |= {host_id for host_id in alone_ids if host_id in hosts and hosts[host_id].restart_due_at}
    ases = {as_of[host_id] for host_id in config_ids & as_of.keys()} - {None}
    config_ids |= {host_id for host_id, as_id in as_of.items() if as_id in ases} | set(alone_ids)
    limits_ids |= _publishing_hosts(limits_ids, as_of)
    all_ids = [host_id for host_id in as_of if host_id in config_ids | limits_ids]
    stamp = secrets.randbits(63)
    if config_ids:
        raised = Host.objects.filter(pk__in=config_ids)
        raised.update(config_version=F("config_version") + 1, content_stamp=stamp)
        waiting = {host_id for host_id in config_ids & hosts.keys() if hosts[host_id].restart_due_at}
        if waiting:  # this restart delivers what waited for one
            Host.objects.filter(pk__in=waiting).update(restart_due_at=None)
            HeldLinkEnd.objects.filter(host__in=waiting).delete()
    if limits_ids:
        Host.objects.filter(pk__in=limits_ids).update(limits_version=F("limits_version") + 1, content_stamp=stamp)
    for host_id in all_ids:
        queue_after_commit(RENDER_HOST, host_id)
    wake_after_commit(all_ids)
    for host_id in all_ids:
        hosts[host_id].config_version += host_id in config_ids
        hosts[host_id].limits_version += host_id in limits_ids
    traces = [hosts[host_id].trace for host_id in all_ids]
    transaction.on_commit(lambda: logger.info("host.raised traces=%s", ",".join(traces)), robust=True)


def _publishing_hosts(host_ids: Collection[int], as_of: Mapping[int, int | None]) -> set[int]:
    """Hosts of control services that publish the limits of Links on other hosts: published limits are part of their
    configuration, which is a function of its versions."""
    first_of: dict[int | None, int] = {}
    for host_id, as_id in as_of.items():
        first_of.setdefault(as_id, host_id)
    ases = {as_of[host_id] for host_id in host_ids & as_of.keys()} - {None}
    elsewhere = {as_id: first_of[as_id] for as_id in ases if first_of[as_id] not in host_ids}
    if not elsewhere:
        return set()
    publishing = AttachmentPoint.objects.filter(AS__in=elsewhere, publishes_limits=True).values_list("AS", flat=True)
    return {elsewhere[as_id] for as_id in publishing}


def host_note_delivered(*, host_id: int, config_version: int, limits_version: int) -> None:
    """Record that a configuration of these versions was delivered, to any client. Concurrent responses may overtake
    each other: the recorded versions only rise, and nothing is written if none does."""
    rises = Q(delivered_config_version__lt=config_version) | Q(delivered_limits_version__lt=limits_version)
    Host.objects.filter(rises, pk=host_id).update(
        delivered_config_version=Greatest(F("delivered_config_version"), config_version),
        delivered_limits_version=Greatest(F("delivered_limits_version"), limits_version),
        delivered_at=database_now(),
    )


def host_set_deployed_version(*, host_id: int, config_version: int) -> bool:
    """Store the H that the host reports as installed. Return False, and store nothing, for a version above the host's
    own or below the deployed one (DOMAIN section 4)."""
    allowed = Host.objects.filter(
        pk=host_id, config_version__gte=config_version, config_version_deployed__lte=config_version
    )
    return allowed.update(config_version_deployed=config_version) == 1
