"""The generation G, first half of every version `G.H`, and recovery after restoring a backup (DOMAIN section 4).

A restored database has older versions than the hosts. Agents reject older ones; raising G makes all of ours newer.
`delivery.evidence` detects that this is needed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Max

from bandwidth_config import RuleError
from scionlab.delivery.models import EnrolmentToken
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.platform.clock import database_now
from scionlab.platform.locks import lock_rows
from scionlab.platform.wake import wake_everybody_after_commit
from scionlab.testbed import locks, selectors
from scionlab.testbed.models import Host, ServiceState

logger = logging.getLogger(__name__)

MAX_GENERATION = 2**31 - 1  # of the column


@dataclass(frozen=True)
class Raised:
    """Result of raising, or of a dry run: from `old` to `new`; `hosts` have an AS, and will fetch. `ahead`: hosts that
    proved something that the database does not know. `unproven`: generations of at least `new` that attachment points
    report without proof, by host id."""

    old: int
    new: int
    hosts: int
    ahead: int
    unproven: dict[str, int]


@transaction.atomic
def generation_raise(*, to: int | None = None, force: bool = False, dry_run: bool = False) -> Raised:
    """Raise G by one, or above what hosts proved: every host fetches again. Recorded deliveries, deployments and
    receipts are of older generations, whose versions may name other configurations: they are discarded until the hosts
    have fetched and reported. Unused enrolment tokens are revoked: the database may have lost their use. Raises
    `RuleError` (`generation_invalid`; `generation_unproven`: `to` skips generations without `force`)."""
    ServiceState.objects.get_or_create(pk=1)
    old = ServiceState.objects.select_for_update(no_key=True).get(pk=1).generation
    ahead = selectors.hosts_ahead()
    following = (ahead.aggregate(newest=Max("ahead_generation"))["newest"] or old) + 1
    new = following if to is None else to
    if not old < new <= MAX_GENERATION:
        raise RuleError(
            "generation_invalid", f"Generation {new} is not between {old + 1} and {MAX_GENERATION}. Choose another."
        )
    if new > following and not force:
        text = f"No host proved that it has generation {new - 1}. Raise to {following}, or add --force."
        raise RuleError("generation_unproven", text)
    raised = Raised(
        old=old,
        new=new,
        hosts=Host.objects.filter(AS__isnull=False).count(),
        ahead=ahead.count(),
        unproven=_unproven(new),
    )
    if not dry_run:
        _raise_to(new)
        logger.warning("generation.raised old=%s new=%s hosts=%s ahead=%s", old, new, raised.hosts, raised.ahead)
    return raised


def _raise_to(generation: int) -> None:
    locks.lock_hosts(Host.objects.values_list("pk", flat=True))
    lock_rows(HostReceipt.objects.all())  # none can be stored: that writes the rows that are deleted here
    ServiceState.objects.filter(pk=1).update(generation=generation)
    Host.objects.update(
        delivered_config_version=0,
        delivered_limits_version=0,
        config_version_deployed=0,
        ahead_generation=None,
        ahead_config_version=None,
        ahead_limits_version=None,
        ahead_at=None,
    )
    LinkEnforcement.objects.all().delete()
    EnrolmentToken.objects.filter(used_at=None, voided_at=None).update(voided_at=database_now())
    wake_everybody_after_commit()


def _unproven(generation: int) -> dict[str, int]:
    """Host id -> generation, of attachment points that report this one or a higher one."""
    reported = HostReceipt.objects.filter(generation__gte=generation, host__attachment_point__isnull=False)
    return {uid: claim or 0 for uid, claim in reported.order_by("host__uid").values_list("host__uid", "generation")}
