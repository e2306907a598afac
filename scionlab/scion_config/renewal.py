"""Renews the testbed's keys before they expire, and creates missing ones: `keys_renew`, run hourly by beat.

In pieces: a testbed of thousands of ASes without keys, or with a replaced CA, is done within hours. AS certificates are
due on different days (`scion_config.pki.lifetimes.as_renewed_from`), so hosts do not restart SCION all at once.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from bandwidth_config import RuleError
from scionlab.platform.clock import database_now
from scionlab.platform.retry import retried
from scionlab.scion_config.chain import own_keys_make, usable_ca
from scionlab.scion_config.isd import isd_ensure
from scionlab.scion_config.models import Certificate
from scionlab.testbed import locks
from scionlab.testbed.models import AS, ISD, Host
from scionlab.testbed.versions.counters import hosts_bump

logger = logging.getLogger(__name__)

ASES_PER_RUN: Final = 500
ASES_AT_ONCE: Final = 50  # locked at a time


def keys_renew(*, now: datetime | None = None) -> int:
    """Return the number of ASes with new keys or certificates. Idempotent and safe to run concurrently. Failures are
    logged and do not affect other ASes."""
    now = now or database_now()
    for isd_id in ISD.objects.filter(ases__is_core=True).distinct().values_list("pk", flat=True):
        try:
            retried(isd_ensure)(isd_id=isd_id, actor=None, now=now)
        except RuleError as exc:
            logger.error("trust.isd_not_settled isd=%s code=%s %s", isd_id, exc.code, exc.message)
    due = ases_due(now).order_by(F("keys__not_after").asc(nulls_last=True), "pk").values_list("pk", flat=True)
    ids = list(due[:ASES_PER_RUN])
    pieces = [ids[start : start + ASES_AT_ONCE] for start in range(0, len(ids), ASES_AT_ONCE)]
    return sum(_renew_some(piece, now) for piece in pieces)


def ases_due(now: datetime) -> QuerySet[AS]:
    """ASes without keys; without a certificate although there is a CA; with one that is due, or not issued below a root
    in use. Excludes those with limits only: another service manages their keys."""
    has_ca = Exists(Certificate.objects.filter(usable_ca(now), isd=OuterRef("isd")))
    outdated = Q(keys__renew_at__lte=now) | Q(keys__ca__issuer__replaced_at__isnull=False)
    is_ours = Exists(Host.objects.filter(AS=OuterRef("pk"), limits_only=False))
    return AS.objects.filter(is_ours, Q(keys=None) | (Q(has_ca) & (Q(keys__ca=None) | outdated)))


def _renew_some(as_ids: list[int], now: datetime) -> int:
    try:
        return _renew_locked(as_ids, now)
    except RuleError as exc:
        logger.error("trust.keys_not_renewed ases=%s code=%s %s", len(as_ids), exc.code, exc.message)
        return 0


@retried
@transaction.atomic
def _renew_locked(as_ids: list[int], now: datetime) -> int:
    """Those still due under the lock. H rises once on hosts whose configuration has replaced keys."""
    locks.lock_keys_of_ases(as_ids)
    ases = list(ases_due(now).filter(pk__in=as_ids).select_related("isd").order_by("pk"))
    stale = own_keys_make(ases, actor=None, now=now)
    if stale:
        hosts_bump(alone_ids=stale)
    logger.info("trust.keys_renewed ases=%s hosts=%s", len(ases), len(stale))
    return len(ases)
