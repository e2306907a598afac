"""Retention of rows. Traffic samples have their own (`usage.rollup`).

Not in this list: ASes and Links while they exist; `Notice`, deleted when its state has ended; applied changes of
defaults, which can be undone; and `BandwidthChange`, the permanent audit log, which the database protects
(`scionlab.testbed.append_only`). Queries on that log use indexes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db.models import CharField, Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Cast, Concat

from scionlab.accounts.models import ApiToken, Mail
from scionlab.delivery.models import EnrolmentToken
from scionlab.enforcement.models import ReportGap
from scionlab.limits.default_changes import PREVIEW_KEPT
from scionlab.limits.models import DefaultChange, MaximumException
from scionlab.platform.retention import KEPT, Kept
from scionlab.testbed.deleted_host import KEPT_FOR as DELETED_HOST_KEPT
from scionlab.testbed.models import DeletedHost, Link, TimedLimit
from scionlab.web.models import ApiRequest
from scionlab.web.rest.idempotency import KEPT_FOR

REQUESTS_KEPT: Final = timedelta(days=7)  # contain addresses of people who never became users
GAPS_KEPT: Final = timedelta(days=2)  # the cockpit shows 24 hours
EXCEPTIONS_KEPT: Final = timedelta(days=365)  # the history keeps the decision
TIMED_KEPT: Final = timedelta(days=90)  # the history keeps the change
ROWS_AT_ONCE: Final = 5000  # deleted per transaction


def table() -> list[Kept]:
    """The retention of each model."""
    used = timedelta(days=settings.USED_KEEP_DAYS)
    return [
        Kept(Mail, "sent_at", timedelta(days=settings.MAIL_KEEP_DAYS), ~Exists(_in_force())),
        Kept(Mail, "created_at", REQUESTS_KEPT, ~Q(purpose="")),
        Kept(EnrolmentToken, "expires_at", used),
        Kept(ApiToken, "expires_at", used),
        Kept(ApiRequest, "created_at", KEPT_FOR),
        Kept(DeletedHost, "deleted_at", DELETED_HOST_KEPT),
        Kept(ReportGap, "ends_at", GAPS_KEPT),
        Kept(MaximumException, "ends_at", EXCEPTIONS_KEPT),
        Kept(TimedLimit, "ends_at", TIMED_KEPT, ~Q(cancelled_at=None, retired_at=None)),
        Kept(DefaultChange, "created_at", PREVIEW_KEPT, Q(applied_at=None)),
        *KEPT,
    ]


def old_rows_forget(*, now: datetime) -> dict[str, int]:
    """Delete expired rows in transactions of 5000; return the number per model. Idempotent."""
    gone: Counter[str] = Counter()
    for kept in table():
        gone[kept.model.__name__] += sum(_forget(kept, now))
    return gone


def _forget(kept: Kept, now: datetime) -> Iterator[int]:
    rows = kept.model._default_manager.filter(**{f"{kept.since}__lt": now - kept.age})
    rows = rows if kept.which is None else rows.filter(kept.which)
    while ids := list(rows.order_by(kept.since).values_list("pk", flat=True)[:ROWS_AT_ONCE]):
        kept.model._default_manager.filter(pk__in=ids).delete()
        yield len(ids)


def _in_force() -> QuerySet[Link]:
    """The Link's newest change that was mailed: the row prevents a repeated mail."""
    key = Concat(
        Value("link:"),
        Cast("pk", CharField()),
        Value(":"),
        Cast(F("wanted_config_version"), CharField()),
        Value("."),
        Cast(F("wanted_limits_version"), CharField()),
    )
    return Link.objects.annotate(key=key).filter(key=OuterRef("key"))
