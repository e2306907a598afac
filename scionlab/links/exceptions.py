"""Exceptions from the maximum: asked for, approved or declined, granted at once, ended.

A row says what administrators decided. What follows from it is stored at the Links by `defaults.settle_default`, like a
changed default: a task carries it out right after, and again when the exception has ended (`tasks.sweep` finds that
within moments). L of an attachment point's host rises only where a limit changes.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.urls import reverse
from django.utils import timezone

from bandwidth_config import RuleError, check_bandwidth, format_kbit
from scionlab.models import Link, Mail, MaximumException, User, UserAS, locks, selectors
from scionlab.models.user import MailKind
from scionlab.notation.local_time import say_time
from scionlab.people import audit
from scionlab.people.mail import mail_of, mails_create
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.queue import FAN_OUT_DEFAULTS, queue_after_commit

logger = logging.getLogger(__name__)

LONGEST: Final = timedelta(days=366)
TOLD_BEFORE: Final = timedelta(days=1)  # its end, of one that lasts longer
_TOLD_LATE: Final = timedelta(days=1)  # after a mail server or worker was away for longer, nobody is told any more

State = MaximumException.State


@transaction.atomic
def exception_ask(*, link_id: int, maximum_kbit: int, ends_at: datetime, reason: str, actor: User) -> MaximumException:
    """Ask the administrators for a higher maximum of one Link; each gets a mail.

    Raises `RuleError` (`exception_not_limited`, `exception_asked`), `FieldRuleError` (`exception_not_higher`, those of
    `_check`), `Link.DoesNotExist`.
    """
    locks.lock_link(link_id)  # of two requests at once, one finds the other
    link = selectors.with_relations(Link.objects.filter(pk=link_id)).get()
    ap = link.attachment_point
    if ap is None:
        text = "This link is not limited, so it has no maximum. Nothing was asked for."
        raise RuleError("exception_not_limited", text)
    _check(maximum_kbit, ends_at, reason)
    now_kbit = selectors.maximum_in_force(link, ap)
    if maximum_kbit <= now_kbit:
        text = (
            f"{format_kbit(maximum_kbit)} is not above the maximum of {format_kbit(now_kbit)} that this link has now. "
            "Enter more, or set the limit without asking."
        )
        raise FieldRuleError("exception_not_higher", text, "maximum_kbit")
    if MaximumException.objects.filter(link=link, state=State.ASKED, ends_at__gt=timezone.now()).exists():
        text = "A request for this link is waiting for an answer. Wait for the answer before you ask again."
        raise RuleError("exception_asked", text)
    made = MaximumException.objects.create(
        link=link, maximum_kbit=maximum_kbit, ends_at=ends_at, reason=reason, state=State.ASKED, asked_by=actor
    )
    audit.note_exception(made, actor=actor, detail=f"asked for: {_words(made)}", reason=reason)
    administrators = User.objects.filter(is_staff=True, is_active=True)
    page = settings.SITE_URL + reverse("cockpit_exceptions")
    mails_create(_mail(made, "exception_asked", one, page=page) for one in administrators)
    return made


@transaction.atomic
def exception_grant(
    *, of: User | UserAS | Link, maximum_kbit: int, ends_at: datetime, reason: str, actor: User
) -> MaximumException:
    """Let all Links of a person, all of an AS, or one Link have a higher maximum until then; the owner gets a mail.

    Raises `FieldRuleError` (`_check`).
    """
    _check(maximum_kbit, ends_at, reason)
    about = {"user" if isinstance(of, User) else "user_as" if isinstance(of, UserAS) else "link": of}
    made = MaximumException.objects.create(
        **about,
        maximum_kbit=maximum_kbit,
        ends_at=ends_at,
        reason=reason,
        state=State.APPROVED,
        decided_by=actor,
        decided_at=timezone.now(),
    )
    _say_approved(made, actor=actor, reason=reason)
    return made


@transaction.atomic
def exception_decide(*, exception_id: int, approve: bool, answer: str, actor: User) -> MaximumException:
    """Approve or decline what was asked for; who asked gets a mail.

    Raises `RuleError` (`exception_decided`, `exception_over`), `FieldRuleError` (`exception_answer`),
    `MaximumException.DoesNotExist`.
    """
    found = locks.lock_exception(exception_id)
    if found.state != State.ASKED:
        text = f"This request was {found.get_state_display()} already. Reload the page."
        raise RuleError("exception_decided", text)
    if approve and found.ends_at <= timezone.now():
        text = f"The request was for the time until {say_time(found.ends_at)}, which is over. Decline it."
        raise RuleError("exception_over", text)
    if not approve and not answer.strip():
        text = "An answer is missing. Tell the user why the request is declined."
        raise FieldRuleError("exception_answer", text, "answer")
    found.state = State.APPROVED if approve else State.DECLINED
    found.decided_by, found.decided_at, found.answer = actor, timezone.now(), answer.strip()[:200]
    found.save(update_fields=["state", "decided_by", "decided_at", "answer"])
    if approve:
        _say_approved(found, actor=actor, reason=found.answer)
    else:
        audit.note_exception(found, actor=actor, detail=f"declined: {_words(found)}", reason=found.answer)
        mails_create([_mail(found, "exception_declined", found.asked_by or owner_of(found))])
    return found


@transaction.atomic
def exception_end(*, exception_id: int, actor: User) -> MaximumException:
    """End it now. One that is over, or was not approved, stays as it is. Raises `MaximumException.DoesNotExist`."""
    found = locks.lock_exception(exception_id)
    now = timezone.now()
    if found.state == State.APPROVED and found.ends_at > now:
        found.ends_at = now
        found.save(update_fields=["ends_at"])
        audit.note_exception(found, actor=actor, detail=f"ended: {_words(found)}")
        queue_after_commit(FAN_OUT_DEFAULTS)
    return found


@transaction.atomic
def exceptions_tell(*, now: datetime | None = None) -> int:
    """Tell owners which exceptions end within a day, and which have ended; returns the number of new mails. May run at
    any time and any number of times."""
    now = now or timezone.now()
    approved = MaximumException.objects.filter(state=State.APPROVED)
    approved = approved.select_related("user", "user_as__owner", "user_as__isd", "link__interface_b__AS__useras__owner")
    soon = approved.filter(ends_at__gt=now, ends_at__lte=now + TOLD_BEFORE, decided_at__lt=F("ends_at") - TOLD_BEFORE)
    over = approved.filter(ends_at__gt=now - _TOLD_LATE, ends_at__lte=now)
    mails = [_mail(one, "exception_ends", owner_of(one)) for one in soon]
    return mails_create(mails + [_mail(one, "exception_ended", owner_of(one)) for one in over])


def owner_of(exception: MaximumException) -> User:
    """The person whose Links it is about."""
    if exception.user is not None:
        return exception.user
    user_as: Any = exception.user_as or (exception.link and exception.link.interface_b.AS.useras)
    owner: User = user_as.owner
    return owner


def _check(maximum_kbit: int, ends_at: datetime, reason: str) -> None:
    """Raises `FieldRuleError` (`bandwidth_too_high`, `bandwidth_negative`, `exception_ends`, `exception_reason`)."""
    try:
        check_bandwidth(maximum_kbit)
    except RuleError as exc:
        raise FieldRuleError.of(exc, "maximum_kbit") from exc
    if maximum_kbit == 0:
        text = "An exception of 0 kbit/s raises nothing. Enter at least 1."
        raise FieldRuleError("exception_not_higher", text, "maximum_kbit")
    now = timezone.now()
    if not now < ends_at <= now + LONGEST:
        text = f"{say_time(ends_at)} is not within the next {LONGEST.days} days. Choose another end."
        raise FieldRuleError("exception_ends", text, "ends_at")
    if not 0 < len(reason.strip()) <= 200:
        text = f"A reason has 1 to 200 characters; this one has {len(reason.strip())}. Say what the bandwidth is for."
        raise FieldRuleError("exception_reason", text, "reason")


def _say_approved(exception: MaximumException, *, actor: User, reason: str) -> None:
    audit.note_exception(exception, actor=actor, detail=f"approved: {_words(exception)}", reason=reason)
    mails_create([_mail(exception, "exception_approved", owner_of(exception))])
    queue_after_commit(FAN_OUT_DEFAULTS)
    logger.info("exception.approved id=%s kbit=%s actor=%s", exception.pk, exception.maximum_kbit, actor.pk)


def _words(exception: MaximumException) -> str:
    return f"at most {format_kbit(exception.maximum_kbit)} until {say_time(exception.ends_at, UTC)}"


def _mail(exception: MaximumException, template: str, to: User, *, page: str = "") -> Mail:
    """One per event and person; the end is part of the event, because an administrator may bring it forward."""
    context: dict[str, object] = {
        "exception": exception,
        "of": exception.of,
        "asked_by": exception.asked_by,
        "maximum": format_kbit(exception.maximum_kbit),
        "until": say_time(exception.ends_at, to.tz),
        "page": page or settings.SITE_URL + _page_of(exception),
    }
    key = f"{template}:{exception.pk}:{exception.ends_at:%Y%m%d%H%M%S}:{to.pk}"
    return mail_of(template, context, key=key, recipient=to.email, kind=MailKind.CHANGED, user=to)


def _page_of(exception: MaximumException) -> str:
    if exception.link is not None:
        return reverse("link_detail", args=[exception.link.interface_b.AS_id, exception.link.pk])
    if exception.user_as is not None:
        return reverse("user_as_detail", args=[exception.user_as.pk])
    return reverse("user_as_list")
