"""Tests of Links: reserve a time, cancel, and remove from the configuration after the end.

A row is in the configuration of the attachment point's host from `link_test_create` until it is cancelled or retired,
each of which raises L, as with timed limits. Results are uploaded by the agent (`linktests.test_results`); nothing here
depends on timing.

Rows are changed under the lock of their attachment point. In PostgreSQL a constraint also prevents overlapping tests
of a Link (`linktests.reservations`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from django.db import transaction
from django.db.models import QuerySet, Sum

from contract.link_tests import ARMED_AHEAD_S, MAX_TESTS_PER_LINK, WATCH, check_watch
from scionlab.accounts.locks import lock_user
from scionlab.accounts.models import User
from scionlab.limits.locked import locked_link, locked_links
from scionlab.limits.retirement import retire, retire_at
from scionlab.linktests.joint_plan import Part, Stage, free_slots
from scionlab.linktests.models import JointTest, LinkTest
from scionlab.linktests.sending import Plan, check_load, check_plan, check_ready, plan_of
from scionlab.linktests.test_hours import Hours, next_begin
from scionlab.linktests.test_policy import Allowance, allowance_of
from scionlab.linktests.test_slots import Slot, SlotTakenError, check_hours, reserved, taken_at
from scionlab.platform.clock import database_now
from scionlab.platform.field_errors import FieldRuleError, at_field
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed.models import AttachmentPoint, Link
from scionlab.testbed.versions.changes import Changes

logger = logging.getLogger(__name__)

WATCH_LEAD_S = 3  # until the attachment point has it, in most cases
SENDING_LEAD_S = 1  # the same; more, because both ends wait for each other
PAST_GRACE = timedelta(seconds=60)  # "18:30" entered at 18:30:20 means now
# Retired with the next test of the attachment point, which saves a document; long enough for a clock that is behind.
RETIRED_AFTER = timedelta(minutes=2)
SWEPT_AFTER = timedelta(days=1)  # if no other test followed
MAX_TESTS_PER_HOST = 1000  # that have not ended

ARMED_AHEAD = timedelta(seconds=ARMED_AHEAD_S)  # for later tests the load is checked when they start
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
    """Reserve a time from `begins_at` (aware; None: as soon as the attachment point can have it).

    A watch has `duration_s`; other tools (`station.tools`) have `parameters` with defaults. L of the attachment point's
    host rises once. Raises `FieldRuleError` (`test_not_limited`, `test_inactive`, `test_past`, `test_far`,
    `test_short`, `test_long`, `test_runs`, `test_pending`, `test_many`, `test_host_full`, `test_hours`,
    `test_for_watch`, and those of `linktests.sending`), `SlotTakenError`, `Link.DoesNotExist`.
    """
    lock_user(actor.pk)  # the person whose tests are counted
    changes = Changes()
    link = locked_link(link_id, changes)
    ap = attachment_point_of(link)
    now = database_now()
    allowance = allowance_of(actor, tool)
    mine = LinkTest.objects.filter(created_by=actor, tool=tool)
    begins_at = beginning_of(begins_at, now, allowance, tool)
    plan = None
    if tool == WATCH:
        length = _watch_length(duration_s, parameters, allowance)
    else:
        plan = _plan(tool, duration_s, parameters, link, begins_at)
        check_ready(link, tool, actor, now)
        check_plan(plan, allowance, sent_bytes(mine, now))
        if begins_at <= now + ARMED_AHEAD:
            check_load(ap, allowance, now)
        length = plan.duration_s * _SECOND
    check_allowance(mine, allowance, now)
    retire_at(ap, LinkTest, until=now - RETIRED_AFTER, now=now, changes=changes)
    stages = [[Part(link.pk, ap.pk, length, sends=plan is not None)]]
    times = free_times(stages, [ap], begins_at, now=now, hours=allowance.hours)
    check_room(link, ap, now)
    (made,) = reserve(times, {link.pk: plan}, tool=tool, actor=actor)
    made.link = link
    changes.note_documents([ap.host_id])
    changes.carry_out()
    logger.info("link_test.created id=%s %s actor=%s", made.pk, made, actor.pk)
    return made


@transaction.atomic
def link_test_cancel(*, link_test_id: int, actor: User | None) -> LinkTest:
    """Cancel a test; the attachment point stops it as soon as it knows. Does nothing if it ended or was cancelled. All
    parts of a joint test are cancelled. Raises `LinkTest.DoesNotExist`."""
    joint_id = LinkTest.objects.values_list("joint", flat=True).get(pk=link_test_id)
    which = {"pk": link_test_id} if joint_id is None else {"joint": joint_id}
    link_tests_cancel(LinkTest.objects.filter(**which), joint_id, actor=actor)
    return LinkTest.objects.select_related("link").get(pk=link_test_id)


def link_tests_cancel(rows: QuerySet[LinkTest], joint_id: int | None, *, actor: User | None) -> None:
    """Cancel those of `rows` that have not ended, and their joint test; for services that hold no lock yet."""
    changes = Changes()
    links = locked_links(set(rows.values_list("link", flat=True)), changes)
    hosts = {link.pk: link.interface_a.host_id for link in links}
    now = database_now()
    running = rows.filter(link__in=hosts, cancelled_at=None, ends_at__gt=now)
    found = list(running)
    LinkTest.objects.filter(pk__in=[one.pk for one in found]).update(cancelled_at=now)
    changes.note_documents({hosts[one.link_id] for one in found})
    for one in found:
        logger.info("link_test.cancelled id=%s link=%s actor=%s", one.pk, one.link_id, actor and actor.pk)
    if joint_id is not None:
        JointTest.objects.filter(pk=joint_id, cancelled_at=None, ends_at__gt=now).update(cancelled_at=now)
    changes.carry_out()


def link_tests_end(links: Iterable[Link]) -> None:
    """Cancel all that have not ended; for services that hold the Links' locks and raise the counters."""
    now = database_now()
    LinkTest.objects.filter(link__in=[one.pk for one in links], cancelled_at=None, ends_at__gt=now).update(
        cancelled_at=now
    )


def link_tests_retire(*, now: datetime | None = None) -> list[int]:
    """`retire` tests that ended a day ago."""
    now = now or database_now()
    return retire(LinkTest, until=now - SWEPT_AFTER, now=now)


# --- reserving ------------------------------------------------------------------------------------------------------


def free_times(
    stages: Sequence[Stage],
    aps: Iterable[AttachmentPoint],
    begins_at: datetime,
    *,
    now: datetime,
    hours: Sequence[Hours],
) -> list[tuple[Part, Slot]]:
    """Of each part. Raises `HoursError`, or `SlotTakenError` with the next free time within `hours`."""
    taken = {ap.pk: taken_at(ap, now) for ap in aps}
    earliest = begins_at
    while True:
        slots = free_slots(stages, taken, earliest, now=now)
        times = list(zip(chain.from_iterable(stages), chain.from_iterable(slots), strict=True))
        first_at, length = times[0][1].begins_at, end_of(times) - times[0][1].begins_at
        if earliest == begins_at:
            check_hours(hours, begins_at, length)
        earliest = next_begin(hours, first_at, length) or first_at
        if earliest == first_at:
            break
    if first_at != begins_at:
        raise SlotTakenError(length // _SECOND, first_at)
    return times


def end_of(times: Iterable[tuple[Part, Slot]]) -> datetime:
    return max(slot.begins_at + part.length for part, slot in times)


def reserve(
    times: Iterable[tuple[Part, Slot]],
    plans: Mapping[int, Plan | None],
    *,
    tool: str,
    actor: User,
    joint: JointTest | None = None,
) -> list[LinkTest]:
    """`plans` by Link; None for a watch."""
    made = []
    for part, slot in times:
        row = LinkTest(link_id=part.link_id, tool=tool, joint=joint, created_by=actor)
        row.begins_at, row.ends_at = slot.begins_at, slot.begins_at + part.length
        plan = plans[part.link_id]
        if plan is not None:
            row.ap_id, row.lane = part.ap_id, slot.lane
            row.parameters, row.phases = dict(plan.parameters), [one.to_json() for one in plan.phases]
            row.kbit, row.max_bytes, row.offered_bytes = plan.kbit, plan.max_bytes, plan.offered_bytes
        row.save()
        made.append(row)
    return made


# --- rules ---------------------------------------------------------------------------------------------------------


def attachment_point_of(link: Link) -> AttachmentPoint:
    ap = link.attachment_point
    if ap is None:
        text = "This link is not limited, so it is not tested. Choose the link of a user AS to its attachment point."
        raise FieldRuleError("test_not_limited", text, "link_id")
    if not link.active:
        raise FieldRuleError("test_inactive", "The link is inactive. Activate it first.", "link_id")
    return ap


def _watch_length(duration_s: int | None, parameters: Mapping[str, object] | None, allowance: Allowance) -> timedelta:
    if duration_s is None:
        raise FieldRuleError("required", "A watch needs a duration in seconds.", "duration_s")
    if parameters:
        raise FieldRuleError("test_for_watch", "A watch has no parameters. Leave them out.", "parameters")
    with at_field("duration_s"):
        check_watch(duration_s, allowance.max_seconds)
    return duration_s * _SECOND


def _plan(
    tool: str, duration_s: int | None, parameters: Mapping[str, object] | None, link: Link, begins_at: datetime
) -> Plan:
    if duration_s is not None:
        text = f"Only a watch takes a duration; that of {tool} follows from its parameters. Leave it out."
        raise FieldRuleError("test_for_watch", text, "duration_s")
    return plan_of(tool, parameters or {}, link.limits_at(begins_at))


def beginning_of(begins_at: datetime | None, now: datetime, allowance: Allowance, tool: str) -> datetime:
    """Whole seconds, and late enough for the attachment point."""
    earliest = (now + WATCH_LEAD_S * _SECOND).replace(microsecond=0)
    if tool != WATCH:  # rounded up: it must have the full time
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


def sent_bytes(mine: Any, now: datetime) -> int:
    found = mine.filter(created_at__gt=now - _DAY).aggregate(found=Sum("offered_bytes"))["found"]
    return int(found or 0)


def check_allowance(mine: Any, allowance: Allowance, now: datetime, *, more: int = 1) -> None:
    """Check that `more` runs, reserved together, fit a person's allowance. A joint test counts as one pending test.
    Raises `FieldRuleError` (`test_runs`, `test_pending`)."""
    runs = mine.filter(created_at__gt=now - _DAY).count()
    if runs + more > allowance.runs_per_day:
        added = f", and this is {more} more" if more > 1 else ""
        text = (
            f"You started or scheduled {runs} tests within the last 24 hours{added}; you may {allowance.runs_per_day}. "
            "Try again later, or ask the administrators for more."
        )
        raise FieldRuleError("test_runs", text, "link_id")
    of_joint = mine.filter(cancelled_at=None, ends_at__gt=now).values_list("joint", flat=True)
    pending = of_joint.filter(joint=None).count() + of_joint.exclude(joint=None).distinct().order_by().count()
    if pending >= allowance.max_pending:
        text = (
            f"You have {pending} scheduled or running tests; you may have {allowance.max_pending}. Cancel one, or wait "
            "until one has ended."
        )
        raise FieldRuleError("test_pending", text, "link_id")


def check_room(link: Link, ap: AttachmentPoint, now: datetime, *, more: int = 1) -> None:
    """Check that the attachment point's document has room for `more` tests of the Link. Raises `FieldRuleError`
    (`test_many`, `test_host_full`)."""
    of_link = reserved(ap).filter(link=link).count()  # all in its document
    if of_link + more > MAX_TESTS_PER_LINK:
        text = (
            f"This link has {of_link} tests that are scheduled, running or just over, of at most {MAX_TESTS_PER_LINK}. "
            "Cancel one, or try again later."
        )
        raise FieldRuleError("test_many", text, "link_id")
    of_host = reserved(ap).filter(ends_at__gt=now).count()
    if of_host + more > MAX_TESTS_PER_HOST:
        text = f"{ap.AS.isd_as} has {of_host} scheduled tests, of at most {MAX_TESTS_PER_HOST}. Try again later."
        raise FieldRuleError("test_host_full", text, "link_id")
