"""The newest started, not cancelled test of each Link."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db.models import OuterRef, Subquery

from scionlab.linktests.models import LinkTest
from scionlab.linktests.rest.test_documents import LinkTestDocument
from scionlab.linktests.test_status import TestStatus, status_of_test, with_results


class NewestTests:
    document = LinkTestDocument

    def last_tests(self, link_ids: Collection[int], *, now: datetime) -> dict[int, TestStatus]:
        """By Link; two statements."""
        begun = LinkTest.objects.filter(cancelled_at=None, begins_at__lte=now)
        newest = begun.filter(link=OuterRef("link")).order_by("-begins_at", "-pk").values("pk")[:1]
        rows = with_results(begun.filter(link__in=link_ids, pk=Subquery(newest)))
        return {one.link_id: status_of_test(one, now=now) for one in rows}
