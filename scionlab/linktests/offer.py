"""What other apps show and do of tests: in the cockpit, beside a Link, at a receipt, and when a Link ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models import Max, OuterRef, QuerySet, Subquery

from scionlab.accounts.models import User
from scionlab.enforcement.receipt_format import Receipt
from scionlab.linktests.joint_test import joint_tests_end
from scionlab.linktests.link_test import link_tests_end
from scionlab.linktests.models import LinkTest
from scionlab.linktests.rest.test_documents import LinkTestDocument
from scionlab.linktests.test_status import TestStatus, status_of_test, with_results
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed.cockpit import Offer, Trouble
from scionlab.testbed.life import Life
from scionlab.testbed.models import AttachmentPoint, Link

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


class NewestTests:
    document = LinkTestDocument

    def last_tests(self, link_ids: Collection[int], *, now: datetime) -> dict[int, TestStatus]:
        """By Link; two statements."""
        begun = LinkTest.objects.filter(cancelled_at=None, begins_at__lte=now)
        newest = begun.filter(link=OuterRef("link")).order_by("-begins_at", "-pk").values("pk")[:1]
        rows = with_results(begun.filter(link__in=link_ids, pk=Subquery(newest)))
        return {one.link_id: status_of_test(one, now=now) for one in rows}


def note_armed(host_id: int, receipt: Receipt, received_at: datetime) -> None:
    """Only tests of Links of this host, and not while its limiter is silent."""
    if receipt.tests and not receipt.is_limiter_silent:
        armed = LinkTest.objects.filter(test_id__in=set(receipt.tests), link__interface_a__host=host_id, armed_at=None)
        armed.update(armed_at=received_at)


class TestsLife(Life):
    def links_end(self, links: Sequence[Link], *, actor: User | None, why: str) -> None:  # noqa: ARG002  as of `Life`
        joint_tests_end(links)
        link_tests_end(links)
