"""What of the testbed's trust ends soon and `trust_renewal` should have renewed: for notices to administrators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Count, Min

from scionlab.models import TRC, ASKeys, Certificate
from scionlab.pki.certificates import Kind
from scionlab.pki.lifetimes import RENEWED_WITH_LEFT, TRC_RENEWED_WITH_LEFT

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
    """What should have been renewed ten days ago; three statements."""
    return [*_trcs(now), *_certificates(now), *_chains(now)]


def _trcs(now: datetime) -> Iterator[Ending]:
    newest = {trc.isd: trc for trc in TRC.objects.select_related("isd").defer("content")}  # in their order
    for trc in newest.values():
        if trc.not_after < now + TRC_RENEWED_WITH_LEFT - LATE_AFTER:
            yield Ending(f"the TRC {trc}", trc.not_after)


def _certificates(now: datetime) -> Iterator[Ending]:
    for row in Certificate.objects.filter(replaced_at=None).select_related("isd").defer("content"):
        if row.not_after < now + RENEWED_WITH_LEFT[Kind(row.kind)] - LATE_AFTER:
            yield Ending(f"the certificate of the {row}", row.not_after)


def _chains(now: datetime) -> Iterator[Ending]:
    late = ASKeys.objects.filter(not_after__lt=now + RENEWED_WITH_LEFT[Kind.AS] - LATE_AFTER)
    found = late.aggregate(count=Count("pk"), first=Min("not_after"))
    if found["count"]:
        of = "1 AS" if found["count"] == 1 else f"{found['count']} ASes, the first of them,"
        yield Ending(f"the certificate of {of}", found["first"])
