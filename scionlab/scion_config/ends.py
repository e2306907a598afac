"""Certificates and TRCs that expire soon although `scion_config.renewal` should have renewed them: for notices to
administrators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet

from scionlab.scion_config.models import TRC, ASKeys, Certificate
from scionlab.scion_config.pki.certificates import Kind
from scionlab.scion_config.pki.lifetimes import RENEWED_WITH_LEFT, TRC_RENEWED_WITH_LEFT
from scionlab.testbed import selectors
from scionlab.testbed.models import Host

LATE_AFTER: Final = timedelta(days=10)  # the task runs once an hour


@dataclass(frozen=True)
class Ending:
    what: str
    at: datetime

    @property
    def text(self) -> str:
        """`the TRC ISD17-B1-S2 expires on 2027-11-23`"""
        return f"{self.what} expires on {self.at:%Y-%m-%d}"


def may_have_endings(now: datetime) -> Q:
    """Condition that `endings` finds something, for a larger statement; may include what another service renews."""
    newer = TRC.objects.filter(isd=OuterRef("isd"))
    newer = newer.filter(Q(base__gt=OuterRef("base")) | Q(base=OuterRef("base"), serial__gt=OuterRef("serial")))
    trcs = TRC.objects.filter(~Exists(newer), not_after__lt=now + TRC_RENEWED_WITH_LEFT - LATE_AFTER)
    certificates = Q()
    for kind, left in RENEWED_WITH_LEFT.items():
        certificates |= Q(kind=kind.value, not_after__lt=now + left - LATE_AFTER)
    in_use = Certificate.objects.filter(certificates, replaced_at=None)
    return Q(Exists(trcs)) | Q(Exists(in_use)) | Q(Exists(_late_chains(now)))


def endings(now: datetime) -> list[Ending]:
    """What should have been renewed ten days ago; four statements. Excludes what another service renews."""
    others = selectors.isds_of_others()
    return [*_trcs(now, others), *_certificates(now, others), *_chains(now)]


def _trcs(now: datetime, others: set[int]) -> Iterator[Ending]:
    rows = TRC.objects.exclude(isd__in=others).select_related("isd").defer("content")
    newest = {trc.isd: trc for trc in rows}  # in their order
    for trc in newest.values():
        if trc.not_after < now + TRC_RENEWED_WITH_LEFT - LATE_AFTER:
            yield Ending(f"the TRC {trc}", trc.not_after)


def _certificates(now: datetime, others: set[int]) -> Iterator[Ending]:
    for row in (
        Certificate.objects.filter(replaced_at=None).exclude(isd__in=others).select_related("isd").defer("content")
    ):
        if row.not_after < now + RENEWED_WITH_LEFT[Kind(row.kind)] - LATE_AFTER:
            yield Ending(f"the certificate of the {row}", row.not_after)


def _late_chains(now: datetime) -> QuerySet[ASKeys]:
    is_ours = Exists(Host.objects.filter(AS=OuterRef("AS"), limits_only=False))
    return ASKeys.objects.filter(is_ours, not_after__lt=now + RENEWED_WITH_LEFT[Kind.AS] - LATE_AFTER)


def _chains(now: datetime) -> Iterator[Ending]:
    found = _late_chains(now).aggregate(count=Count("pk"), first=Min("not_after"))
    if found["count"]:
        of = "1 AS" if found["count"] == 1 else f"{found['count']} ASes, the first of them,"
        yield Ending(f"the certificate of {of}", found["first"])
