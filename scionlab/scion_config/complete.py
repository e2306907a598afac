"""Complete configurations for hosts that only have topology.json.

A host gets one with its next change (`versions.counters.hosts_bump`). This module raises H of one host immediately, or
of all of them over weeks: SCION restarts on each host that fetches.
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
from scionlab.accounts.models import User
from scionlab.platform.each import for_each
from scionlab.platform.retry import retried
from scionlab.testbed import audit, locks, selectors
from scionlab.testbed.models import Host, ServiceState
from scionlab.testbed.versions.counters import hosts_bump

logger = logging.getLogger(__name__)

ALL_WITHIN = timedelta(weeks=4)


def hosts_to_complete() -> QuerySet[Host]:
    """Hosts with only topology.json, in the order in which they are completed."""
    return Host.objects.filter(configuration_format__lt=COMPLETE, AS__isnull=False, limits_only=False).order_by("pk")


@transaction.atomic
def host_complete(*, host_id: int, actor: User | None, reason: str = "") -> list[int]:
    """Complete the configuration of a host now: H rises on all hosts of its AS. Does nothing if it is complete. Returns
    the host, or None. Raises `RuleError` (`limits_only`), `Host.DoesNotExist`."""
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
    """Start completing all hosts within `ALL_WITHIN`, or stop it. Idempotent."""
    selectors.generation()  # creates a missing row
    state = ServiceState.objects.select_for_update(no_key=True).get(pk=1)
    if (state.completing_since is not None) == wanted:
        return
    state.completing_since = timezone.now() if wanted else None
    state.save(update_fields=["completing_since"])
    detail = f"All will be completed within {ALL_WITHIN.days} days" if wanted else "Automatic completion is off"
    audit.note_all_hosts(kind="host_complete", actor=actor, detail=detail)
    logger.info("hosts.completing wanted=%s actor=%s", wanted, actor and actor.pk)


def completing_since() -> datetime | None:
    """When an administrator started it; None if not started, or finished."""
    return ServiceState.objects.filter(pk=1).values_list("completing_since", flat=True).first()


def hosts_complete_share(*, now: datetime) -> list[int]:
    """Complete today's share of hosts, if an administrator started it; return them. The share is the number left by the
    days left, which makes up for missed days."""
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
