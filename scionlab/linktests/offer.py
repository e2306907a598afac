"""Results of tests in the cockpit."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Max, OuterRef, QuerySet, Subquery

from scionlab.linktests.models import LinkTest
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed.cockpit import Offer, Trouble
from scionlab.testbed.models import AttachmentPoint

TESTED_OVER = timedelta(days=7)  # how long such a test result is shown


class TestsOffer(Offer):
    def with_columns(self, points: QuerySet[AttachmentPoint], now: datetime) -> QuerySet[AttachmentPoint]:
        over = LinkTest.objects.filter(ap=OuterRef("pk"), is_over_limit=True, ends_at__gt=now - TESTED_OVER).order_by()
        newest = over.values("ap").annotate(newest=Max("ends_at")).values("newest")
        return points.annotate(tested_over_at=Subquery(newest))

    def troubles(self, ap: AttachmentPoint) -> Iterable[Trouble]:
        over_at: datetime | None = getattr(ap, "tested_over_at", None)
        if over_at is not None:
            yield Trouble(95, "bad", f"a test found more than the limit at {say_time(over_at)}")
