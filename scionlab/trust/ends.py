"""What of the testbed's trust ends soon and `trust.renewal` should have renewed: for notices to administrators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Count, Exists, Min, OuterRef

from scionlab.models import TRC, ASKeys, Certificate, Host, selectors
from scionlab.trust.pki.certificates import Kind
from scionlab.trust.pki.lifetimes import RENEWED_WITH_LEFT, TRC_RENEWED_WITH_LEFT

LATE_AFTER: Final = timedelta(days=10)  # the task runs once an hour


@dataclass(frozen=True)
class Ending:
    what: str
    at: datetime

    @property
    def text(self) -> str:
        """`the TRC ISD17-B1-S2 expires on 2027-11-23`"""
        return f"{self.what} expires on {self.at:%Y-%m-%d}"


def endings(now: datetime) -> list[Ending]:
    """What should have been renewed ten days ago; four statements. What another service renews was imported, and ends
    here as it may."""
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


def _chains(now: datetime) -> Iterator[Ending]:
    is_ours = Exists(Host.objects.filter(AS=OuterRef("AS"), limits_only=False))
    late = ASKeys.objects.filter(is_ours, not_after__lt=now + RENEWED_WITH_LEFT[Kind.AS] - LATE_AFTER)
    found = late.aggregate(count=Count("pk"), first=Min("not_after"))
    if found["count"]:
        of = "1 AS" if found["count"] == 1 else f"{found['count']} ASes, the first of them,"
        yield Ending(f"the certificate of {of}", found["first"])
