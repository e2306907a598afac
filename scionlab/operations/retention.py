"""How long rows are kept that nobody needs any more. Samples of traffic have ages of their own (`usage.rollup`).

What is not in this list is kept: ASes and Links while they exist; `Notice`, which goes when its state has ended; bulk
changes that were carried out, which can be put back; and for ever `BandwidthChange`, the record of who set which limit,
which the database itself refuses to shorten (`scionlab.platform.append_only`). What reads that record finds its rows by
index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import CharField, Exists, F, Model, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Cast, Concat

from scionlab.links.bulk import PREVIEW_KEPT
from scionlab.models import (
    AccountRequest,
    ApiRequest,
    ApiToken,
    BulkChange,
    DeletedHost,
    EnrolmentToken,
    JointTest,
    Link,
    LinkTest,
    Mail,
    MaximumException,
    ReportGap,
    WebhookDelivery,
)
from scionlab.network.deleted_host import KEPT_FOR as DELETED_HOST_KEPT
from scionlab.rest.idempotency import KEPT_FOR

REQUESTS_KEPT: Final = timedelta(days=7)  # they have addresses of people who never became users
DELIVERIES_KEPT: Final = timedelta(days=30)  # whether they arrived or not
GAPS_KEPT: Final = timedelta(days=2)  # the cockpit shows 24 hours
EXCEPTIONS_KEPT: Final = timedelta(days=365)  # the history says for ever what was decided
TESTS_KEPT: Final = timedelta(days=90)  # with their results
ROWS_AT_ONCE: Final = 5000  # deleted in one transaction


@dataclass(frozen=True)
class Kept:
    """Rows of `model` are deleted whose column `since` is older than `age`, and which meet the condition `which`."""

    model: type[Model]
    since: str
    age: timedelta
    which: Any = None


def table() -> list[Kept]:
    """What is kept for how long."""
    used = timedelta(days=settings.USED_KEEP_DAYS)
    return [
        Kept(Mail, "sent_at", timedelta(days=settings.MAIL_KEEP_DAYS), ~Exists(_in_force())),
        Kept(AccountRequest, "expires_at", REQUESTS_KEPT),
        Kept(EnrolmentToken, "expires_at", used),
        Kept(ApiToken, "expires_at", used),
        Kept(ApiRequest, "created_at", KEPT_FOR),
        Kept(DeletedHost, "deleted_at", DELETED_HOST_KEPT),
        Kept(ReportGap, "ends_at", GAPS_KEPT),
        Kept(WebhookDelivery, "created_at", DELIVERIES_KEPT),
        Kept(MaximumException, "ends_at", EXCEPTIONS_KEPT),
        Kept(LinkTest, "ends_at", TESTS_KEPT),
        Kept(JointTest, "ends_at", TESTS_KEPT),
        Kept(BulkChange, "created_at", PREVIEW_KEPT, Q(applied_at=None)),
    ]


def old_rows_forget(*, now: datetime) -> dict[str, int]:
    """Delete what has its age, in transactions of 5000 rows; by name of the model how many. May run at any time."""
    return {kept.model.__name__: sum(_forget(kept, now)) for kept in table()}


def _forget(kept: Kept, now: datetime) -> Iterator[int]:
    rows = kept.model._default_manager.filter(**{f"{kept.since}__lt": now - kept.age})
    rows = rows if kept.which is None else rows.filter(kept.which)
    while ids := list(rows.order_by(kept.since).values_list("pk", flat=True)[:ROWS_AT_ONCE]):
        kept.model._default_manager.filter(pk__in=ids).delete()
        yield len(ids)


def _in_force() -> QuerySet[Link]:
    """The Link whose newest change a mail told of: while that row is there, the same is not told again."""
    key = Concat(
        Value("link:"),
        Cast("pk", CharField()),
        Value(":"),
        Cast(F("wanted_config_version"), CharField()),
        Value("."),
        Cast(F("wanted_limits_version"), CharField()),
    )
    return Link.objects.annotate(key=key).filter(key=OuterRef("key"))
