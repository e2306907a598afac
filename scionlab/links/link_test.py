"""Tests of Links: reserve a time for one, cancel it, and take it out of the configuration once it is over.

A row is in the configuration of the attachment point's host from `link_test_create` until it is cancelled or retired,
each of which raises L, as with timed limits. What is measured comes back by itself (`links.test_results`); nothing here
has to happen on time.

Rows are changed under the lock of their attachment point. That two tests of a Link do not overlap holds the database
too (`platform.reservations`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from bandwidth_config import RuleError, time_text
from link_tests import MAX_TESTS_PER_LINK, MAX_WATCHES_AT_ONCE, check_watch
from scionlab.links.locked import locked_link
from scionlab.links.retirement import retire, retire_at
from scionlab.links.test_policy import Allowance, allowance_of
from scionlab.models import AttachmentPoint, Link, LinkTest, User, locks
from scionlab.notation.local_time import say_time
from scionlab.platform.field_errors import FieldRuleError
from scionlab.versions.changes import Changes

logger = logging.getLogger(__name__)

LEAD_S = 3  # from now until the attachment point has it, in most cases
PAST_GRACE = timedelta(seconds=60)  # who writes "18:30" at 18:30:20 means now
RETIRED_AFTER = timedelta(minutes=2)  # an attachment point whose clock is behind has not ended it before
MAX_TESTS_PER_HOST = 1000  # that have not ended

_SECOND = timedelta(seconds=1)


class SlotTakenError(FieldRuleError):
    """Another test has that time; `next_free_at` is the first beginning that is free."""

    def __init__(self, message: str, next_free_at: datetime) -> None:
        super().__init__("test_slot_taken", message, "begins_at")
        self.next_free_at = next_free_at
        self.more = {"next_free_at": time_text(next_free_at)}


@transaction.atomic
def link_test_create(
    *, link_id: int, duration_s: int, begins_at: datetime | None, actor: User, kind: str = LinkTest.Kind.WATCH
) -> LinkTest:
    """Reserve `duration_s` from `begins_at` (aware; None: as soon as the attachment point can have it) on.

    L of the attachment point's host rises once. Raises `FieldRuleError` (`test_not_limited`, `test_inactive`,
    `test_past`, `test_far`, `test_short`, `test_long`, `test_runs`, `test_pending`, `test_many`, `test_host_full`),
    `SlotTakenError`, `Link.DoesNotExist`.
    """
    locks.lock_user(actor.pk)  # whose tests are counted
    changes = Changes()
    link = locked_link(link_id, changes)
    ap = _attachment_point(link)
    now = timezone.now()
    allowance = allowance_of(actor, kind)
    begins_at = _beginning(begins_at, now, allowance)
    try:
        check_watch(duration_s, allowance.max_seconds)
    except RuleError as exc:
        raise FieldRuleError.of(exc, "duration_s") from exc
    _check_allowance(actor, kind, allowance, now)
    retire_at(ap, LinkTest, until=now - RETIRED_AFTER, now=now, changes=changes)
    _check_slot(link, ap, begins_at, duration_s, now)
    try:
        with transaction.atomic():
            made = LinkTest.objects.create(
                link=link, kind=kind, begins_at=begins_at, ends_at=begins_at + duration_s * _SECOND, created_by=actor
            )
    except IntegrityError as exc:  # whoever writes past this service
        raise _taken(link, ap, begins_at, duration_s) from exc
    changes.note_documents([ap.host_id])
    changes.carry_out()
    logger.info("link_test.created id=%s %s actor=%s", made.pk, made, actor.pk)
    return made


@transaction.atomic
def link_test_cancel(*, link_test_id: int, actor: User | None) -> LinkTest:
    """The attachment point stops it as soon as it has that. One that has ended, or was cancelled before, stays as it
    is. Raises `LinkTest.DoesNotExist`."""
    link_id = LinkTest.objects.values_list("link_id", flat=True).get(pk=link_test_id)
    changes = Changes()
    try:
        link = locked_link(link_id, changes)
    except Link.DoesNotExist as exc:
        raise LinkTest.DoesNotExist(f"Test {link_test_id} was removed with its link.") from exc
    rows = LinkTest.objects.filter(pk=link_test_id, cancelled_at=None, ends_at__gt=timezone.now())
    if rows.update(cancelled_at=timezone.now()):
        changes.note_documents([link.interface_a.host_id])
        logger.info("link_test.cancelled id=%s link=%s actor=%s", link_test_id, link.pk, actor and actor.pk)
    changes.carry_out()
    return LinkTest.objects.select_related("link").get(pk=link_test_id)


def link_tests_end(links: Iterable[Link]) -> None:
    """Cancel all that have not ended; a step of services that hold the Links' locks and raise the counters."""
    now = timezone.now()
    LinkTest.objects.filter(link__in=[one.pk for one in links], cancelled_at=None, ends_at__gt=now).update(
        cancelled_at=now
    )


def link_tests_retire(*, now: datetime | None = None) -> list[int]:
    """As `retire`, of tests."""
    now = now or timezone.now()
    return retire(LinkTest, until=now - RETIRED_AFTER, now=now)


# --- rules ---------------------------------------------------------------------------------------------------------


def _attachment_point(link: Link) -> AttachmentPoint:
    ap = link.attachment_point
    if ap is None:
        text = "This link is not limited, so it is not tested. Choose the link of a user AS to its attachment point."
        raise FieldRuleError("test_not_limited", text, "link_id")
    if not link.active:
        raise FieldRuleError("test_inactive", "The link is inactive. Activate it first.", "link_id")
    return ap


def _beginning(begins_at: datetime | None, now: datetime, allowance: Allowance) -> datetime:
    """In whole seconds, not before the attachment point can have it."""
    earliest = (now + LEAD_S * _SECOND).replace(microsecond=0)
    if begins_at is None:
        return earliest
    if begins_at < now - PAST_GRACE:
        text = f"{say_time(begins_at)} is in the past; it is {say_time(now)}. Choose a later start, or none."
        raise FieldRuleError("test_past", text, "begins_at")
    if begins_at > now + timedelta(hours=allowance.horizon_hours):
        text = (
            f"{say_time(begins_at)} is more than {allowance.horizon_hours} h ahead, which is as far as you may "
            "schedule a test. Choose an earlier start."
        )
        raise FieldRuleError("test_far", text, "begins_at")
    return max(begins_at.replace(microsecond=0), earliest)


def _check_allowance(actor: User, kind: str, allowance: Allowance, now: datetime) -> None:
    mine = LinkTest.objects.filter(created_by=actor, kind=kind)
    runs = mine.filter(created_at__gt=now - timedelta(days=1)).count()
    if runs >= allowance.runs_per_day:
        text = (
            f"You started or scheduled {runs} tests within the last 24 hours; you may {allowance.runs_per_day}. "
            "Try again later, or ask the administrators for more."
        )
        raise FieldRuleError("test_runs", text, "link_id")
    pending = mine.filter(cancelled_at=None, ends_at__gt=now).count()
    if pending >= allowance.max_pending:
        text = (
            f"You have {pending} scheduled or running tests; you may have {allowance.max_pending}. Cancel one, or wait "
            "until one has ended."
        )
        raise FieldRuleError("test_pending", text, "link_id")


def _check_slot(link: Link, ap: AttachmentPoint, begins_at: datetime, duration_s: int, now: datetime) -> None:
    open_here = _reserved(ap).filter(ends_at__gt=now)
    of_link = _reserved(ap).filter(link=link).count()  # all that its document has
    if _next_free(link, ap, begins_at, duration_s) != begins_at:
        raise _taken(link, ap, begins_at, duration_s)
    if of_link >= MAX_TESTS_PER_LINK:
        text = f"This link has {of_link} tests that are scheduled, running or just over; no more fit. Cancel one."
        raise FieldRuleError("test_many", text, "link_id")
    if open_here.count() >= MAX_TESTS_PER_HOST:
        text = f"{ap.AS.isd_as} has {MAX_TESTS_PER_HOST} scheduled tests, which is the maximum. Try again later."
        raise FieldRuleError("test_host_full", text, "link_id")


def _taken(link: Link, ap: AttachmentPoint, begins_at: datetime, duration_s: int) -> SlotTakenError:
    free_at = _next_free(link, ap, begins_at, duration_s)
    return SlotTakenError(
        f"Another test has that time. The next {duration_s} s that are free begin at {say_time(free_at)}.", free_at
    )


def _reserved(ap: AttachmentPoint) -> Any:
    return LinkTest.objects.filter(link__interface_a__host=ap.host_id, cancelled_at=None, retired_at=None)


def _next_free(link: Link, ap: AttachmentPoint, begins_at: datetime, duration_s: int) -> datetime:
    """The first beginning, not before `begins_at`, at which the Link has no other test and its attachment point has
    room for one more."""
    rows = list(_reserved(ap).filter(ends_at__gt=begins_at).values_list("link_id", "begins_at", "ends_at"))
    while True:
        ends_at = begins_at + duration_s * _SECOND
        beside = [(link_id, end) for link_id, begin, end in rows if begin < ends_at and end > begins_at]
        own = [end for link_id, end in beside if link_id == link.pk]
        if own:
            begins_at = max(own)
        elif len(beside) >= MAX_WATCHES_AT_ONCE:
            begins_at = min(end for _, end in beside)
        else:
            return begins_at
