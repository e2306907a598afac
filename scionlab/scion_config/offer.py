"""Certificates and TRCs that expire soon although `scion_config.renewal` should have renewed them: notices in the
cockpit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet
from django.utils.html import format_html
from django.utils.safestring import SafeString

from scionlab.scion_config.models import TRC, ASKeys, Certificate
from scionlab.scion_config.pki.certificates import Kind
from scionlab.scion_config.pki.lifetimes import RENEWED_WITH_LEFT, TRC_RENEWED_WITH_LEFT
from scionlab.testbed import selectors
from scionlab.testbed.cockpit import Offer, named
from scionlab.testbed.models import Host

LATE_AFTER: Final = timedelta(days=10)  # the task runs once an hour


class TrustOffer(Offer):
    def asked(self, now: datetime) -> Mapping[str, Any]:
        return {"may_end": may_have_endings(now)}

    def notices(self, there_is: Mapping[str, Any], now: datetime) -> Iterable[SafeString]:
        found = endings(now) if there_is["may_end"] else []
        if found:
            yield format_html(
                "SCION will stop working: {}. The worker renews certificates every hour and failed. Search its log for "
                "<code>trust.</code>.",
                named(found, str),
            )


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


def endings(now: datetime) -> list[str]:
    """What should have been renewed ten days ago, as `the TRC ISD17-B1-S2 expires on 2027-11-23`; four statements.
    Excludes what another service renews."""
    others = selectors.isds_of_others()
    return [*_trcs(now, others), *_certificates(now, others), *_chains(now)]


def _trcs(now: datetime, others: set[int]) -> Iterator[str]:
    rows = TRC.objects.exclude(isd__in=others).select_related("isd").defer("content")
    newest = {trc.isd: trc for trc in rows}  # in their order
    for trc in newest.values():
        if trc.not_after < now + TRC_RENEWED_WITH_LEFT - LATE_AFTER:
            yield f"the TRC {trc} expires on {trc.not_after:%Y-%m-%d}"


def _certificates(now: datetime, others: set[int]) -> Iterator[str]:
    for row in (
        Certificate.objects.filter(replaced_at=None).exclude(isd__in=others).select_related("isd").defer("content")
    ):
        if row.not_after < now + RENEWED_WITH_LEFT[Kind(row.kind)] - LATE_AFTER:
            yield f"the certificate of the {row} expires on {row.not_after:%Y-%m-%d}"


def _late_chains(now: datetime) -> QuerySet[ASKeys]:
    is_ours = Exists(Host.objects.filter(AS=OuterRef("AS"), limits_only=False))
    return ASKeys.objects.filter(is_ours, not_after__lt=now + RENEWED_WITH_LEFT[Kind.AS] - LATE_AFTER)


def _chains(now: datetime) -> Iterator[str]:
    found = _late_chains(now).aggregate(count=Count("pk"), first=Min("not_after"))
    if found["count"]:
        of = "1 AS" if found["count"] == 1 else f"{found['count']} ASes, the first of them,"
        yield f"the certificate of {of} expires on {found['first']:%Y-%m-%d}"
