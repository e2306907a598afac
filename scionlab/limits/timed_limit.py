"""Timed limits: create, cancel, and remove from the configuration after the end.

A row is in the configuration of the attachment point's host from `timed_limit_create` until `timed_limit_cancel` or
`timed_limits_retire`, each of which raises L: a configuration is a function of its versions, not of the clock. The host
also has the return to the Link's own limits (DOMAIN section 2): nothing here depends on timing.

Rows are changed under the lock of their attachment point, which also protects the checks of overlaps and of the host's
steps.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet, Sum

from bandwidth_config import check_change, format_number
from contract.link_rules import MAX_STEPS_PER_HOST, MAX_TIMED_AHEAD_S, MAX_TIMED_PER_LINK, check_steps
from scionlab.accounts.models import User
from scionlab.enforcement.notices import timed_limit_cancelled_notify
from scionlab.limits.locked import locked_link
from scionlab.limits.profiles import Profile
from scionlab.limits.retirement import retire, retire_at
from scionlab.platform.clock import database_now
from scionlab.platform.field_errors import FieldRuleError, at_field
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed import audit, selectors
from scionlab.testbed.last_changes import note_change
from scionlab.testbed.life import Life
from scionlab.testbed.models import AttachmentPoint, Link, TimedLimit
from scionlab.testbed.versions.changes import Changes

logger = logging.getLogger(__name__)

# "18:30" entered at 18:30:20 means now.
PAST_GRACE = timedelta(seconds=60)


@transaction.atomic
def timed_limit_create(
    *,
    link_id: int,
    profile: Profile,
    begins_at: datetime | None,
    actor: User | None,
    ends_at: datetime | None = None,
    reason: str = "",
) -> TimedLimit:
    """Apply `profile` to the Link from `begins_at` (aware; None: now) on; fractions of a second are cut off.

    `ends_at`: the chosen end, None if a duration was chosen. It is kept even if the form was open for a while: the last
    step is shortened. L of the attachment point's host rises once. Raises `FieldRuleError` (`timed_not_limited`,
    `timed_inactive`, `timed_past`, `timed_far`, `timed_long`, `timed_step_short`, `timed_many`, `timed_host_full`,
    `timed_overlap`, `bandwidth_too_high`, `bandwidth_negative`), `Link.DoesNotExist`.
    """
    changes = Changes()
    link = locked_link(link_id, changes)
    begins_at = checked_beginning(begins_at, database_now())
    profile = profile if ends_at is None else _until(profile, begins_at, ends_at)
    ap = _attachment_point(link)
    _check_limits(profile, selectors.maximum_in_force(link))
    now = database_now()
    retire_at(ap, TimedLimit, until=now, now=now, changes=changes)
    _check_room(link, ap, profile, begins_at)
    made = TimedLimit.objects.create(
        link=link,
        kind=profile.kind,
        begins_at=begins_at,
        ends_at=begins_at + timedelta(seconds=profile.duration_s),
        steps=[[step.offset_s, *step.limits] for step in profile.steps],
        step_count=len(profile.steps),
        highest_kbit=max(max(step.limits) for step in profile.steps),
        created_by=actor,
    )
    audit.note(link, kind=audit.Kind.TIMED_LIMIT, actor=actor, detail=f"created: {made}", reason=reason)
    note_change(link.interface_b.AS_id, actor=actor)
    changes.note_limits({link.pk: link.interface_a.host_id})
    logger.info("timed_limit.created id=%s link=%s %s actor=%s", made.pk, link.pk, made, actor and actor.pk)
    changes.carry_out()
    return made


@transaction.atomic
def timed_limit_cancel(*, timed_limit_id: int, actor: User | None) -> TimedLimit:
    """Cancel it; the Link's own limits apply as soon as the attachment point knows. Does nothing if it ended or was
    cancelled. Raises `TimedLimit.DoesNotExist`."""
    link_id = TimedLimit.objects.values_list("link_id", flat=True).get(pk=timed_limit_id)
    changes = Changes()
    try:
        link = locked_link(link_id, changes)
    except Link.DoesNotExist as exc:
        raise TimedLimit.DoesNotExist(f"Temporary limit {timed_limit_id} was removed with its link.") from exc
    if _cancel([link], TimedLimit.objects.filter(pk=timed_limit_id), actor=actor, why=""):
        note_change(link.interface_b.AS_id, actor=actor)
        changes.note_limits({link.pk: link.interface_a.host_id})
        timed_limit_cancelled_notify(link=link, timed=TimedLimit.objects.get(pk=timed_limit_id), actor=actor)
    changes.carry_out()
    return TimedLimit.objects.select_related("link").get(pk=timed_limit_id)


class TimedLimitsLife(Life):
    """Temporary limits end with their Link."""

    def links_end(self, links: Sequence[Link], *, actor: User | None, why: str) -> None:
        _cancel(links, TimedLimit.objects.filter(link__in=[link.pk for link in links]), actor=actor, why=why)


def timed_limits_retire(*, now: datetime | None = None) -> list[int]:
    """`retire` timed limits."""
    now = now or database_now()
    return retire(TimedLimit, until=now, now=now)


def _cancel(links: Sequence[Link], which: QuerySet[TimedLimit], *, actor: User | None, why: str) -> int:
    """Cancel those of `which` at these Links that have not ended; the caller holds the Links' locks and raises the
    counters. Return their number."""
    now = database_now()
    by_id = {link.pk: link for link in links}
    running = which.filter(cancelled_at=None, retired_at=None, ends_at__gt=now).order_by("pk")
    found = list(running)
    running.filter(pk__in=[one.pk for one in found]).update(cancelled_at=now)
    for one in found:
        because = f" ({why})" if why else ""
        audit.note(by_id[one.link_id], kind=audit.Kind.TIMED_LIMIT, actor=actor, detail=f"cancelled{because}: {one}")
        logger.info("timed_limit.cancelled id=%s link=%s actor=%s", one.pk, one.link_id, actor and actor.pk)
    return len(found)


# --- rules ---------------------------------------------------------------------------------------------------------


def _attachment_point(link: Link) -> AttachmentPoint:
    ap = link.attachment_point
    if ap is None:
        text = "This link is not limited. Choose the link of a user AS to its attachment point."
        raise FieldRuleError("timed_not_limited", text, "link_id")
    if not link.active:
        text = "The link is inactive. Activate it first."
        raise FieldRuleError("timed_inactive", text, "link_id")
    return ap


def checked_beginning(begins_at: datetime | None, now: datetime) -> datetime:
    """The start to store; None: now. Raises `FieldRuleError` (`timed_past`, `timed_far`)."""
    chosen = now if begins_at is None else begins_at
    if chosen < now - PAST_GRACE:
        text = f"{say_time(chosen)} is in the past; it is {say_time(now)}. Choose a later start, or none to start now."
        raise FieldRuleError("timed_past", text, "begins_at")
    if chosen > now + timedelta(seconds=MAX_TIMED_AHEAD_S):
        text = f"{say_time(chosen)} is more than {MAX_TIMED_AHEAD_S // 86400} days ahead. Choose an earlier start."
        raise FieldRuleError("timed_far", text, "begins_at")
    return max(chosen, now).replace(microsecond=0)


def _until(profile: Profile, begins_at: datetime, ends_at: datetime) -> Profile:
    duration_s = (ends_at - begins_at) // timedelta(seconds=1)
    if duration_s < 1:
        text = f"{say_time(ends_at)} is not after the start, {say_time(begins_at)}. Choose a later end."
        raise FieldRuleError("timed_past", text, "ends_at")
    with at_field("ends_at"):
        check_steps(profile.steps, duration_s)
    return replace(profile, duration_s=duration_s)


def _check_limits(profile: Profile, maximum_kbit: int) -> None:
    for step in profile.steps:
        for error in check_change(None, step.limits, maximum_kbit).values():
            raise FieldRuleError.of(error, "steps")


def _check_room(link: Link, ap: AttachmentPoint, profile: Profile, begins_at: datetime) -> None:
    """Call after ended ones are retired."""
    ends_at = begins_at + timedelta(seconds=profile.duration_s)
    present = TimedLimit.objects.filter(link=link, cancelled_at=None, retired_at=None)
    other = present.filter(begins_at__lt=ends_at, ends_at__gt=begins_at).order_by("begins_at").first()
    if other is not None:
        text = (
            f"From {say_time(begins_at)} until {say_time(ends_at)} overlaps with another temporary limit of this "
            f"link: {other.describe()}. Cancel that one, or choose another time."
        )
        raise FieldRuleError("timed_overlap", text, "begins_at")
    if present.count() >= MAX_TIMED_PER_LINK:
        text = (
            f"This link has {MAX_TIMED_PER_LINK} running or scheduled temporary limits, which is the maximum. "
            "Cancel one, or wait until one has ended."
        )
        raise FieldRuleError("timed_many", text, "link_id")
    here = TimedLimit.objects.filter(link__interface_a__host=ap.host_id, cancelled_at=None, retired_at=None)
    used = here.aggregate(total=Sum("step_count"))["total"] or 0
    if used + len(profile.steps) > MAX_STEPS_PER_HOST:
        text = (
            f"The temporary limits at {ap.AS.isd_as} have {format_number(used)} steps of at most "
            f"{format_number(MAX_STEPS_PER_HOST)}; {len(profile.steps)} more do not fit. Choose fewer steps, or "
            "try again later."
        )
        raise FieldRuleError("timed_host_full", text, "steps")
