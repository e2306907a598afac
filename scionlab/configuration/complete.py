"""Complete configurations for hosts that have topology.json alone.

They come with a host's next change (`versions.counters.hosts_bump`). Who does not want to wait for it raises H of one
host, or of all of them, spread over weeks: SCION restarts on each host that fetches.
"""

from __future__ import annotations

import logging
import math
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from bandwidth_config import RuleError
from scion_files import COMPLETE
from scionlab.models import Host, ServiceState, User, locks, selectors
from scionlab.people import audit
from scionlab.platform.each import for_each
from scionlab.platform.retry import retried
from scionlab.versions.counters import hosts_bump

logger = logging.getLogger(__name__)

ALL_WITHIN = timedelta(weeks=4)


def hosts_to_complete() -> QuerySet[Host]:
    """Those that get topology.json alone, in the order in which they are completed."""
    return Host.objects.filter(configuration_format__lt=COMPLETE, AS__isnull=False, limits_only=False).order_by("pk")


@transaction.atomic
def host_complete(*, host_id: int, actor: User | None, reason: str = "") -> list[int]:
    """Give the host its complete configuration now: H rises on all hosts of its AS. Nothing happens where it has it.

    Returns the host, if something happened. Raises `RuleError` (`limits_only`), `Host.DoesNotExist`.
    """
    locks.lock_hosts([host_id])
    host = Host.objects.select_related("AS__isd").get(pk=host_id)
    if host.configuration_format >= COMPLETE:
        return []
    if host.limits_only:
        raise RuleError("limits_only", f"{host} has limits only. Switch it off first.")
    hosts_bump(config_ids=[host_id])
    audit.note_host(host, kind="host_complete", actor=actor, detail="Complete configuration", reason=reason)
    logger.info("host.completed host=%s actor=%s", host_id, actor and actor.pk)
    return [host_id]


@transaction.atomic
def completing_set(*, wanted: bool, actor: User | None) -> None:
    """Have all hosts completed within `ALL_WITHIN` from now, or stop that. Nothing happens where it is so already."""
    selectors.generation()  # makes the row where there is none yet
    state = ServiceState.objects.select_for_update(no_key=True).get(pk=1)
    if (state.completing_since is not None) == wanted:
        return
    state.completing_since = timezone.now() if wanted else None
    state.save(update_fields=["completing_since"])
    detail = f"All will be completed within {ALL_WITHIN.days} days" if wanted else "Automatic completion is off"
    audit.note_all_hosts(kind="host_complete", actor=actor, detail=detail)
    logger.info("hosts.completing wanted=%s actor=%s", wanted, actor and actor.pk)


def completing_since() -> datetime | None:
    """When an administrator asked for all; None where nobody did, or all are done."""
    return ServiceState.objects.filter(pk=1).values_list("completing_since", flat=True).first()


def hosts_complete_share(*, now: datetime) -> list[int]:
    """Complete as many hosts as a day's share is, if administrators asked for all; returns them.

    The share is what is left by the days that are left, so days on which nothing ran are made up for.
    """
    since = completing_since()
    if since is None:
        return []
    left = list(hosts_to_complete().values_list("pk", flat=True))
    if not left:
        completing_set(wanted=False, actor=None)
        return []
    days = max(1, (since + ALL_WITHIN - now).days)
    return for_each(left[: math.ceil(len(left) / days)], _complete_one)


@retried
def _complete_one(host_id: int) -> list[int]:
    return host_complete(host_id=host_id, actor=None)
