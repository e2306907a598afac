"""Exceptions from the maximum: requested, approved or declined, granted directly, ended.

A row is the administrators' decision. `defaults.apply_default` applies it to the Links, like a changed default: a task
does so immediately, and again when the exception has ended (`tasks.sweep` finds that). L of a host rises only if a
limit changes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import F, prefetch_related_objects
from django.urls import reverse

from bandwidth_config import RuleError, check_bandwidth, format_kbit
from scionlab.accounts.mail import mail_of, mails_create, mails_make
from scionlab.accounts.models import Mail, User
from scionlab.accounts.models.user import MailKind
from scionlab.limits.models import MaximumException
from scionlab.platform.clock import database_now
from scionlab.platform.field_errors import FieldRuleError, at_field
from scionlab.platform.notation.local_time import say_time
from scionlab.platform.queue import FAN_OUT_DEFAULTS, queue_after_commit
from scionlab.testbed import locks, selectors
from scionlab.testbed.audit import Kind, change_of
from scionlab.testbed.models import AttachmentPoint, Link, UserAS
from scionlab.web.pages.stale_pages import LastChange, Values, refuse_stale

logger = logging.getLogger(__name__)

LONGEST: Final = timedelta(days=366)
TOLD_BEFORE: Final = timedelta(days=1)  # reminder before the end, for exceptions that last longer
_TOLD_LATE: Final = timedelta(days=1)  # after a longer outage of mail server or worker, no mail is sent

MOST_MEMBERS: Final = 500
_NAMED: Final = 5  # attachment points named in a sentence
_OF_GROUP: Final = ("group__user_set", "attachment_points__AS__isd")

State = MaximumException.State


@transaction.atomic
def exception_request(
    *, link_id: int, maximum_kbit: int, ends_at: datetime, reason: str, actor: User
) -> MaximumException:
    """Request a higher maximum for one Link; each administrator gets a mail. Raises `RuleError`
    (`exception_not_limited`, `exception_asked`), `FieldRuleError` (`exception_not_higher`, those of `_check`),
    `Link.DoesNotExist`."""
    locks.lock_link(link_id)  # one of two concurrent requests sees the other
    link = selectors.with_relations(Link.objects.filter(pk=link_id)).get()
    ap = link.attachment_point
    if ap is None:
        text = "This link is not limited, so it has no maximum. Nothing was requested."
        raise RuleError("exception_not_limited", text)
    _check(maximum_kbit, ends_at, reason)
    now_kbit = selectors.maximum_in_force(link)
    if maximum_kbit <= now_kbit:
        text = (
            f"{format_kbit(maximum_kbit)} is not above the maximum of {format_kbit(now_kbit)} that this link has now. "
            "Enter more, or set the limit without a request."
        )
        raise FieldRuleError("exception_not_higher", text, "maximum_kbit")
    if MaximumException.objects.filter(link=link, state=State.ASKED, ends_at__gt=database_now()).exists():
        text = "A request for this link is waiting for an answer. Wait for the answer before you send another one."
        raise RuleError("exception_asked", text)
    made = MaximumException.objects.create(
        link=link, maximum_kbit=maximum_kbit, ends_at=ends_at, reason=reason, state=State.ASKED, asked_by=actor
    )
    _note(made, actor=actor, detail=f"requested: {_words(made)}", reason=reason)
    administrators = User.objects.filter(is_staff=True, is_active=True)
    page = settings.SITE_URL + reverse("cockpit_exceptions")
    mails_create(_mail(made, "exception_asked", one, page=page) for one in administrators)
    return made


@transaction.atomic
def exception_grant(
    *,
    of: User | UserAS | Link | Group,
    maximum_kbit: int,
    ends_at: datetime,
    reason: str,
    actor: User,
    attachment_points: Collection[AttachmentPoint] = (),
) -> MaximumException:
    """Grant a higher maximum to a user, an AS, one Link, or a group at these attachment points until `ends_at`; the
    owner, or every member of the group, gets a mail. Raises `FieldRuleError` (`_check`, `_check_places`)."""
    _check(maximum_kbit, ends_at, reason)
    made = MaximumException(
        maximum_kbit=maximum_kbit,
        ends_at=ends_at,
        reason=reason,
        state=State.APPROVED,
        decided_by=actor,
        decided_at=database_now(),
    )
    if isinstance(of, Group):
        _check_places(attachment_points)
        made.group = of
    else:
        setattr(made, "user" if isinstance(of, User) else "user_as" if isinstance(of, UserAS) else "link", of)
    made.save()
    made.attachment_points.set(attachment_points)
    _say_approved(made, actor=actor, reason=reason)
    return made


@transaction.atomic
def exception_change(
    *,
    exception_id: int,
    attachment_points: Collection[AttachmentPoint],
    maximum_kbit: int,
    ends_at: datetime,
    reason: str,
    actor: User,
    shown: Values | None = None,
) -> MaximumException:
    """Change the exception of a group; its members get a mail with what applies. `shown`: `values_shown` of the page.
    Raises `RuleError` (`exception_over`), `StalePageError`, `FieldRuleError` (`_check`, `_check_places`),
    `MaximumException.DoesNotExist`."""
    found, now = _locked(exception_id), database_now()
    if found.group is None or found.ends_at <= now:
        raise RuleError("exception_over", "This exception has ended, or is not that of a group. Grant a new one.")
    stored = values_shown(found, found.attachment_points.select_related("AS__isd"))
    found.maximum_kbit, found.ends_at, found.reason = maximum_kbit, ends_at, reason
    wanted = values_shown(found, attachment_points)
    refuse_stale(shown=shown, stored=stored, wanted=wanted, last=lambda: LastChange(found.decided_by, found.decided_at))
    _check(maximum_kbit, ends_at, reason)
    _check_places(attachment_points)
    found.decided_by, found.decided_at = actor, now
    found.save(update_fields=["maximum_kbit", "ends_at", "reason", "decided_by", "decided_at"])
    found.attachment_points.set(attachment_points)
    _say_approved(found, actor=actor, reason=reason)
    return found


def values_shown(exception: MaximumException, attachment_points: Iterable[AttachmentPoint]) -> Values:
    """What the page of a group's exception shows, for `web.pages.stale_pages`."""
    return {
        "attachment_points": ", ".join(sorted(ap.AS.isd_as for ap in attachment_points)),
        "maximum_kbit": exception.maximum_kbit,
        "ends_at": say_time(exception.ends_at, UTC),
        "reason": exception.reason,
    }


@transaction.atomic
def group_members_change(*, group: Group, members: Collection[User], actor: User) -> None:
    """Set the members of a group. Who joins gets a mail of each of its exceptions in force, and who leaves one that it
    ended."""
    approved = MaximumException.objects.filter(group=group, state=State.APPROVED, ends_at__gt=database_now())
    exceptions = list(approved.select_for_update(no_key=True).order_by("pk").prefetch_related(_OF_GROUP[1]))
    were, now = set(group.user_set.all()), database_now()
    group.user_set.set(members)
    joined = sorted(set(members) - were, key=lambda one: one.pk)
    left = sorted(were - set(members), key=lambda one: one.pk)
    if not joined and not left:
        return
    for one in exceptions:
        mails_create([_mail(one, "exception_ended", person, until=now) for person in left])
        mails_create([_mail(one, "exception_approved", person, at=now) for person in joined])
        for verb, people in (("added", joined), ("removed", left)):
            for person in people:
                _note(one, actor=actor, detail=f"{verb} {person.email}")
    queue_after_commit(FAN_OUT_DEFAULTS)


@transaction.atomic
def exception_decide(*, exception_id: int, approve: bool, answer: str, actor: User) -> MaximumException:
    """Approve or decline a request; the user gets a mail. Raises `RuleError` (`exception_decided`, `exception_over`),
    `FieldRuleError` (`exception_answer`), `MaximumException.DoesNotExist`."""
    found = _locked(exception_id)
    if found.state != State.ASKED:
        when = "" if found.decided_at is None else f" at {say_time(found.decided_at)}"
        text = f"{found.decided_by or 'Someone'} {found.get_state_display()} this request{when}. Nothing changed."
        raise RuleError("exception_decided", text)
    if approve and found.ends_at <= database_now():
        text = f"The request was for the time until {say_time(found.ends_at)}, which is over. Decline it."
        raise RuleError("exception_over", text)
    if not approve and not answer.strip():
        text = "An answer is missing. Tell the user why the request is declined."
        raise FieldRuleError("exception_answer", text, "answer")
    found.state = State.APPROVED if approve else State.DECLINED
    found.decided_by, found.decided_at, found.answer = actor, database_now(), answer.strip()[:200]
    found.save(update_fields=["state", "decided_by", "decided_at", "answer"])
    if approve:
        _say_approved(found, actor=actor, reason=found.answer)
    else:
        _note(found, actor=actor, detail=f"declined: {_words(found)}", reason=found.answer)
        mails_create([_mail(found, "exception_declined", found.asked_by or people_of(found)[0])])
    return found


@transaction.atomic
def exception_end(*, exception_id: int, actor: User) -> MaximumException:
    """End it now. Does nothing if it has ended or was not approved. Raises `MaximumException.DoesNotExist`."""
    found = _locked(exception_id)
    now = database_now()
    if found.state == State.APPROVED and found.ends_at > now:
        found.ends_at = now
        found.save(update_fields=["ends_at"])
        _note(found, actor=actor, detail=f"ended: {_words(found)}")
        queue_after_commit(FAN_OUT_DEFAULTS)
    return found


@transaction.atomic
def exceptions_notify(*, now: datetime | None = None) -> int:
    """Notify owners of exceptions that end within a day, or have ended; return the number of new mails. Idempotent."""
    now = now or database_now()
    approved = MaximumException.objects.filter(state=State.APPROVED)
    approved = approved.select_related("user", "user_as__owner", "user_as__isd", "link__interface_b__AS__useras__owner")
    approved = approved.prefetch_related(*_OF_GROUP)
    soon = approved.filter(ends_at__gt=now, ends_at__lte=now + TOLD_BEFORE, decided_at__lt=F("ends_at") - TOLD_BEFORE)
    over = approved.filter(ends_at__gt=now - _TOLD_LATE, ends_at__lte=now)
    due = [("exception_ends", one, person) for one in soon for person in people_of(one)]
    due += [("exception_ended", one, person) for one in over for person in people_of(one)]
    makers = {
        _key(one, template, person, one.ends_at, None): partial(_mail, one, template, person)
        for template, one, person in due
        if person.accepts_mail(MailKind.CHANGED)
    }
    return mails_make(makers)


def _locked(exception_id: int) -> MaximumException:
    """Raises `MaximumException.DoesNotExist`."""
    return MaximumException.objects.select_for_update(no_key=True).get(pk=exception_id)


def people_of(exception: MaximumException) -> list[User]:
    """Users whose Links it concerns."""
    if exception.group is not None:
        return sorted(exception.group.user_set.all(), key=lambda one: one.pk)
    if exception.user is not None:
        return [exception.user]
    user_as: Any = exception.user_as or (exception.link and exception.link.interface_b.AS.useras)
    return [user_as.owner]


def _check(maximum_kbit: int, ends_at: datetime, reason: str) -> None:
    """Raises `FieldRuleError` (`bandwidth_too_high`, `bandwidth_negative`, `exception_ends`, `exception_reason`)."""
    with at_field("maximum_kbit"):
        check_bandwidth(maximum_kbit)
    if maximum_kbit == 0:
        text = "An exception of 0 kbit/s does not raise a maximum. Enter at least 1."
        raise FieldRuleError("exception_not_higher", text, "maximum_kbit")
    now = database_now()
    if not now < ends_at <= now + LONGEST:
        text = f"{say_time(ends_at)} is not within the next {LONGEST.days} days. Choose another end."
        raise FieldRuleError("exception_ends", text, "ends_at")
    if not 0 < len(reason.strip()) <= 200:
        text = f"A reason has 1 to 200 characters; this one has {len(reason.strip())}. Say what the bandwidth is for."
        raise FieldRuleError("exception_reason", text, "reason")


def _check_places(attachment_points: Collection[AttachmentPoint]) -> None:
    """Raises `FieldRuleError` (`group_places`)."""
    if not attachment_points:
        raise FieldRuleError("group_places", "Choose at least one attachment point.", "attachment_points")


def _say_approved(exception: MaximumException, *, actor: User, reason: str) -> None:
    prefetch_related_objects([exception], *_OF_GROUP)
    _note(exception, actor=actor, detail=f"approved: {_words(exception)}", reason=reason)
    mails_create([_mail(exception, "exception_approved", one) for one in people_of(exception)])
    queue_after_commit(FAN_OUT_DEFAULTS)
    logger.info("exception.approved id=%s kbit=%s actor=%s", exception.pk, exception.maximum_kbit, actor.pk)


def _note(exception: MaximumException, *, actor: User | None, detail: str, reason: str = "") -> None:
    """A row of the audit log; `detail`: what happened to the exception, in words."""
    row = change_of(exception.link or "", kind=Kind.EXCEPTION, actor=actor, detail=detail, reason=reason)
    row.subject = f"maximum for {exception.of}"[:200]
    row.save()


def _words(exception: MaximumException) -> str:
    words = f"at most {format_kbit(exception.maximum_kbit)} until {say_time(exception.ends_at, UTC)}"
    if exception.group is None:
        return words
    return f"{words}, {len(exception.group.user_set.all())} members{_places(exception)}"


def _places(exception: MaximumException) -> str:
    """For a group: " at 17-ffaa:0:1107, ..."; otherwise empty."""
    if exception.group is None:
        return ""
    names = [ap.AS.isd_as for ap in exception.attachment_points.all()]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f" at {', '.join(names[:_NAMED])}{more}"


def _mail(
    exception: MaximumException,
    template: str,
    to: User,
    *,
    page: str = "",
    until: datetime | None = None,
    at: datetime | None = None,
) -> Mail:
    """Create one mail per event and person. `until`: another end for this person; `at`: when they joined the group."""
    until = until or exception.ends_at
    context: dict[str, object] = {
        "exception": exception,
        "of": f"{exception.of}{_places(exception)}",
        "asked_by": exception.asked_by,
        "maximum": format_kbit(exception.maximum_kbit),
        "until": say_time(until, to.tz),
        "page": page or settings.SITE_URL + _page_of(exception),
    }
    key = _key(exception, template, to, until, at or exception.decided_at)
    return mail_of(f"limits/mail/{template}.txt", context, key=key, recipient=to.email, kind=MailKind.CHANGED, user=to)


def _key(exception: MaximumException, template: str, to: User, until: datetime, at: datetime | None) -> str:
    """Of the event, which includes the end, which an administrator may change, and when it was decided, or the person
    joined, who may do so twice."""
    event = f"{until:%Y%m%d%H%M%S}"
    if template == "exception_approved":
        event += f".{at:%Y%m%d%H%M%S%f}"
    return f"{template}:{exception.pk}:{event}:{to.pk}"


def _page_of(exception: MaximumException) -> str:
    if exception.link is not None:
        return reverse("link_detail", args=[exception.link.interface_b.AS_id, exception.link.pk])
    if exception.user_as is not None:
        return reverse("user_as_detail", args=[exception.user_as.pk])
    return reverse("user_as_list")  # for a user or a group
