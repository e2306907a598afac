"""Tests of Links: reserve a time for one, cancel it, and take it out of the configuration once it is over.

A row is in the configuration of the attachment point's host from `link_test_create` until it is cancelled or retired,
each of which raises L, as with timed limits. What is measured comes back by itself (`links.test_results`); nothing here
has to happen on time.

Rows are changed under the lock of their attachment point. That two tests of a Link do not overlap holds the database
too (`platform.reservations`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Sum
from django.utils import timezone

from bandwidth_config import RuleError
from link_tests import MAX_TESTS_PER_LINK, WATCH, check_watch
from scionlab.links.locked import locked_link
from scionlab.links.retirement import retire, retire_at
from scionlab.links.sending import Plan, check_plan, check_ready, plan_of
from scionlab.links.test_policy import Allowance, allowance_of
from scionlab.links.test_slots import Slot, SlotTakenError, next_free, reserved
from scionlab.models import AttachmentPoint, Link, LinkTest, User, locks
from scionlab.notation.local_time import say_time
from scionlab.platform.field_errors import FieldRuleError
from scionlab.versions.changes import Changes

logger = logging.getLogger(__name__)

WATCH_LEAD_S = 3  # from now until the attachment point has it, in most cases
SENDING_LEAD_S = 1  # the same: both ends wait for each other, so it may have it late
PAST_GRACE = timedelta(seconds=60)  # who writes "18:30" at 18:30:20 means now
RETIRED_AFTER = timedelta(minutes=2)  # an attachment point whose clock is behind has not ended it before
MAX_TESTS_PER_HOST = 1000  # that have not ended

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


@transaction.atomic
def link_test_create(
    *,
    link_id: int,
    begins_at: datetime | None,
    actor: User,
    tool: str = WATCH,
    duration_s: int | None = None,
    parameters: Mapping[str, object] | None = None,
) -> LinkTest:
    """Reserve a time from `begins_at` (aware; None: as soon as the attachment point can have it) on.

    A watch has `duration_s`; of the other tools (`station.tools`) the `parameters` decide, which have defaults. L of
    the attachment point's host rises once. Raises `FieldRuleError` (`test_not_limited`, `test_inactive`, `test_past`,
    `test_far`, `test_short`, `test_long`, `test_runs`, `test_pending`, `test_many`, `test_host_full`,
    `test_for_watch`, and those of `links.sending`), `SlotTakenError`, `Link.DoesNotExist`.
    """
    locks.lock_user(actor.pk)  # whose tests are counted
    changes = Changes()
    link = locked_link(link_id, changes)
    ap = _attachment_point(link)
    now = timezone.now()
    allowance = allowance_of(actor, tool)
    mine = LinkTest.objects.filter(created_by=actor, tool=tool)
    begins_at = _beginning(begins_at, now, allowance, tool)
    plan = None
    if tool == WATCH:
        length = _watch_length(duration_s, parameters, allowance)
    else:
        plan = _plan(tool, duration_s, parameters, link, begins_at)
        check_ready(link, tool, actor, now)
        check_plan(plan, allowance, _sent_bytes(mine, now))
        length = plan.duration_s * _SECOND
    _check_allowance(mine, allowance, now)
    retire_at(ap, LinkTest, until=now - RETIRED_AFTER, now=now, changes=changes)
    slot = _slot(link, ap, begins_at, length, now, sends=plan is not None)
    try:
        with transaction.atomic():
            made = LinkTest.objects.create(
                link=link,
                tool=tool,
                begins_at=slot.begins_at,
                ends_at=slot.begins_at + length,
                created_by=actor,
                **({} if plan is None else _columns(plan, ap, slot)),
            )
    except IntegrityError as exc:  # whoever writes past this service
        free = next_free(link.pk, ap, begins_at, length, now=now, sends=plan is not None)
        raise SlotTakenError(length // _SECOND, free.begins_at) from exc
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


def _watch_length(duration_s: int | None, parameters: Mapping[str, object] | None, allowance: Allowance) -> timedelta:
    if duration_s is None:
        raise FieldRuleError("required", "A watch needs its length in seconds.", "duration_s")
    if parameters:
        raise FieldRuleError("test_for_watch", "A watch has no parameters. Leave them out.", "parameters")
    try:
        check_watch(duration_s, allowance.max_seconds)
    except RuleError as exc:
        raise FieldRuleError.of(exc, "duration_s") from exc
    return duration_s * _SECOND


def _plan(
    tool: str, duration_s: int | None, parameters: Mapping[str, object] | None, link: Link, begins_at: datetime
) -> Plan:
    if duration_s is not None:
        text = f"Only a watch is given its length; that of {tool} follows from its parameters. Leave it out."
        raise FieldRuleError("test_for_watch", text, "duration_s")
    return plan_of(tool, parameters or {}, link.limits_at(begins_at))


def _columns(plan: Plan, ap: AttachmentPoint, slot: Slot) -> dict[str, Any]:
    return {
        "ap": ap,
        "lane": slot.lane,
        "parameters": dict(plan.parameters),
        "phases": [one.to_json() for one in plan.phases],
        "kbit": plan.kbit,
        "max_bytes": plan.max_bytes,
        "offered_bytes": plan.offered_bytes,
    }


def _beginning(begins_at: datetime | None, now: datetime, allowance: Allowance, tool: str) -> datetime:
    """In whole seconds, not before the attachment point can have it."""
    earliest = (now + WATCH_LEAD_S * _SECOND).replace(microsecond=0)
    if tool != WATCH:  # upwards: it is to have that time
        earliest = now.replace(microsecond=0) + (SENDING_LEAD_S + bool(now.microsecond)) * _SECOND
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


def _sent_bytes(mine: Any, now: datetime) -> int:
    found = mine.filter(created_at__gt=now - _DAY).aggregate(found=Sum("offered_bytes"))["found"]
    return int(found or 0)


def _check_allowance(mine: Any, allowance: Allowance, now: datetime) -> None:
    runs = mine.filter(created_at__gt=now - _DAY).count()
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


def _slot(
    link: Link, ap: AttachmentPoint, begins_at: datetime, length: timedelta, now: datetime, *, sends: bool
) -> Slot:
    found = next_free(link.pk, ap, begins_at, length, now=now, sends=sends)
    if found.begins_at != begins_at:
        raise SlotTakenError(length // _SECOND, found.begins_at)
    of_link = reserved(ap).filter(link=link).count()  # all that its document has
    if of_link >= MAX_TESTS_PER_LINK:
        text = f"This link has {of_link} tests that are scheduled, running or just over; no more fit. Cancel one."
        raise FieldRuleError("test_many", text, "link_id")
    if reserved(ap).filter(ends_at__gt=now).count() >= MAX_TESTS_PER_HOST:
        text = f"{ap.AS.isd_as} has {MAX_TESTS_PER_HOST} scheduled tests, which is the maximum. Try again later."
        raise FieldRuleError("test_host_full", text, "link_id")
    return found
