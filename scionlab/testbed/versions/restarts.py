"""How often one person may restart the SCION services of an attachment point: H rises there, and stock clients restart
SCION at every rise (docs/adr/0041).

Each person has `AT_ONCE` restarts per host, and gets one back every `EVERY`. Beyond that, a change is stored but waits:
until it is due, or until H of the host rises for another reason, the host's configuration keeps the former ends of the
Links concerned (`HeldLinkEnd`), so that its content does not change under an H that was delivered, and a Link that was
moved or removed stays limited for as long as the border router has it. All that waits is delivered with one rise.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models.functions import Now

from scionlab.accounts.models import User
from scionlab.platform.each import for_each
from scionlab.platform.retry import retried
from scionlab.testbed import locks
from scionlab.testbed.models import Host, RestartBudget
from scionlab.testbed.models.link_ends import STANDING, Geometry, HeldLinkEnd
from scionlab.testbed.versions.counters import hosts_bump

logger = logging.getLogger(__name__)

AT_ONCE: Final = 5
EVERY: Final = timedelta(minutes=10)

Ends = Mapping[int, Geometry | None]  # by Link, as the host has it; None: not at all


def spend_or_hold(restarts: Mapping[int, Ends], actor: User | None) -> set[int]:
    """Charge `actor` one restart of each locked host, by what changes there. Returns the hosts whose restart waits.
    Administrators, the service itself (None), and the owner of a host's AS are not charged."""
    if actor is None or actor.is_staff:
        return set()
    rows = Host.objects.filter(pk__in=restarts).exclude(AS__useras__owner=actor).values_list("pk", Now())
    return {host_id for host_id, now in rows.order_by("pk") if not _spend_or_hold(host_id, restarts, actor, now)}


def _spend_or_hold(host_id: int, restarts: Mapping[int, Ends], actor: User, now: datetime) -> bool:
    budget, _ = RestartBudget.objects.get_or_create(user=actor, host_id=host_id, defaults={"full_at": now})
    allowed_at = budget.full_at - (AT_ONCE - 1) * EVERY
    if allowed_at <= now:
        _spend(budget, now)
        return True
    rows = [
        HeldLinkEnd(host_id=host_id, link_id=link_id, actor=actor, end=end)
        for link_id, end in restarts[host_id].items()
    ]
    HeldLinkEnd.objects.bulk_create(rows, ignore_conflicts=True)  # the first one is what the host has
    for held in HeldLinkEnd.objects.filter(host=host_id, link_id__in=restarts[host_id]):
        end = restarts[host_id][held.link_id]
        if held.end is not None and end is not None:  # except for its limits, which were followed until now
            held.end |= {name: end[name] for name in STANDING}
            held.save(update_fields=["end"])
    due_at = Host.objects.values_list("restart_due_at", flat=True).get(pk=host_id)
    Host.objects.filter(pk=host_id).update(restart_due_at=min(due_at or allowed_at, allowed_at))
    logger.info("restart.waits host=%s actor=%s links=%s until=%s", host_id, actor.pk, len(rows), allowed_at)
    return False


def _spend(budget: RestartBudget, now: datetime) -> None:
    budget.full_at = max(budget.full_at, now) + EVERY
    budget.save(update_fields=["full_at"])


def restarts_deliver() -> list[int]:
    """Raise H of the hosts whose waiting changes are due; return them. One host per transaction."""
    due = Host.objects.filter(restart_due_at__lte=Now()).order_by("pk").values_list("pk", flat=True)
    return for_each(due, _deliver)


@retried
@transaction.atomic
def _deliver(host_id: int) -> list[int]:
    locks.lock_attachment_points_of_hosts([host_id])
    locks.lock_hosts([host_id])
    now = Host.objects.filter(pk=host_id, restart_due_at__lte=Now()).values_list(Now(), flat=True).first()
    if now is None:  # delivered meanwhile
        return []
    actors = HeldLinkEnd.objects.filter(host=host_id).values("actor")
    for budget in RestartBudget.objects.filter(host=host_id, user__in=actors):
        _spend(budget, now)
    hosts_bump(config_ids=[host_id])
    return [host_id]
