"""The generation G, first half of every version `G.H`, and the way out after a backup was restored (DOMAIN section 4).

A restored database knows older versions than the hosts have installed. Agents refuse what is older; raised, G makes
everything that we have newer than all of it. So a host that tells of versions from the future is noted here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from bandwidth_config import RuleError
from scionlab import selectors
from scionlab.models import EnrolmentToken, Host, HostReceipt, LinkEnforcement, ServiceState
from scionlab.services import allocation
from scionlab.services.wake import wake_everybody_after_commit

logger = logging.getLogger(__name__)

MAX_GENERATION = 2**31 - 1  # of the column
# How far above ours a host's word is believed. One that lies could else use up all generations there are.
MAX_STEP = 1000
_NOTED_AT_MOST_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class Raised:
    """What a raise did, or would do: from `old` to `new`; `hosts` have an AS, and will fetch.

    `ahead` had newer versions than the database; `ignored` are claims above what is believed, by host id.
    """

    old: int
    new: int
    hosts: int
    ahead: int
    ignored: dict[str, int]


@transaction.atomic
def generation_raise(*, to: int | None = None, dry_run: bool = False) -> Raised:
    """Raise G above ours and above what any host has reported: no host's version is the newest, everybody fetches anew.

    What was delivered, deployed and enforced was of older generations, whose versions may name other configurations:
    nothing of it is known any more until the hosts have fetched and reported. Enrolment tokens that were not used are
    void: the database may have forgotten their use. Raises `RuleError` (`generation_invalid`).
    """
    ServiceState.objects.get_or_create(pk=1)
    old = ServiceState.objects.select_for_update(no_key=True).get(pk=1).generation
    claims = _claims(old)
    believed = [claim for claim in claims.values() if claim <= old + MAX_STEP]
    new = max([old, *believed]) + 1 if to is None else to
    if not old < new <= MAX_GENERATION:
        raise RuleError(
            "generation_invalid", f"Generation {new} is not above {old} and at most {MAX_GENERATION}. Choose another."
        )
    raised = Raised(
        old=old,
        new=new,
        hosts=Host.objects.filter(AS__isnull=False).count(),
        ahead=selectors.hosts_ahead(now=timezone.now()).count(),
        ignored={uid: claim for uid, claim in claims.items() if claim >= new},
    )
    if not dry_run:
        _raise_to(new)
        logger.warning("generation.raised old=%s new=%s hosts=%s ahead=%s", old, new, raised.hosts, raised.ahead)
    return raised


def _raise_to(generation: int) -> None:
    allocation.lock_hosts(Host.objects.values_list("pk", flat=True))
    allocation.lock_receipts()  # whoever stores one writes the rows that are deleted here
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
    EnrolmentToken.objects.filter(used_at=None, voided_at=None).update(voided_at=timezone.now())
    wake_everybody_after_commit()


def _claims(generation: int) -> dict[str, int]:
    """Host id -> the highest generation above ours that it has told of, in receipts and polls."""
    told: dict[str, int] = {}
    receipts = HostReceipt.objects.filter(generation__gt=generation).values_list("host__uid", "generation")
    polls = Host.objects.filter(ahead_generation__gt=generation).values_list("uid", "ahead_generation")
    for uid, claim in [*receipts, *polls]:
        told[uid] = max(told.get(uid, 0), claim or 0)
    return dict(sorted(told.items()))


def host_note_ahead(*, host_id: int, generation: int, config_version: int, limits_version: int | None) -> None:
    """Note that the host says that it has this version, newer than ours. At most one write a minute and host.

    Numbers that no column holds are nobody's version, and not noted.
    """
    if max(generation, config_version, limits_version or 0) > MAX_GENERATION:
        return
    now = timezone.now()
    stale = Q(ahead_at=None) | Q(ahead_at__lt=now - _NOTED_AT_MOST_EVERY)
    Host.objects.filter(stale, pk=host_id).update(
        ahead_generation=generation,
        ahead_config_version=config_version,
        ahead_limits_version=limits_version,
        ahead_at=now,
    )
