"""Mails as an outbox: a row is made in the transaction of the event, and sent after it; no mail is lost or sent twice.

The one gap that no protocol closes: a worker that dies between the mail server's answer and our note of it leaves a
mail that is sent once more.
"""

from __future__ import annotations

import logging
import smtplib
from collections.abc import Iterable

from django.conf import settings
from django.core.mail import EmailMessage
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from scionlab.models import AccountRequest, Mail, MailKind
from scionlab.people.mail_links import link_of, unsubscribe_link
from scionlab.people.outbox import claim, retry_later
from scionlab.platform.queue import SEND_MAIL, queue_after_commit

logger = logging.getLogger(__name__)

# Who waits for our answer is not kept waiting for thousands of queue entries; the sweep has the rest.
QUEUED_AT_ONCE = 50
# A line of its own: "{link}@example.org" is an address, and mails that warn of a new address have it in their text.
_PLACE = "\n{link}\n"


def mail_of(template: str, context: dict[str, object], **fields: object) -> Mail:
    """A mail, not kept yet. The first line of `templates/mail/<template>.txt` is the subject, the rest the body.

    A link that proves something stands there as a line {link}, and is made when the mail is sent.
    """
    text = render_to_string(f"mail/{template}.txt", {**context, "site": settings.SITE_URL})
    subject, _, body = text.replace("\N{NO-BREAK SPACE}", " ").strip().partition("\n")
    return Mail(subject=" ".join(subject.split())[:200], body=body.strip() + "\n", **fields)


def mails_create(mails: Iterable[Mail]) -> int:
    """Keep each mail whose `key` is new, and queue the first 50 for after the commit. Returns how many were new.

    Not those of a kind that its person does without.
    """
    wanted = {mail.key: mail for mail in mails if mail.user is None or mail.user.wants_mail(mail.kind)}
    if not wanted:
        return 0
    known = set(Mail.objects.filter(key__in=wanted).values_list("key", flat=True))
    new = [mail for key, mail in sorted(wanted.items()) if key not in known]
    Mail.objects.bulk_create(new, ignore_conflicts=True)  # somebody may have been quicker since
    queued = Mail.objects.filter(key__in=[mail.key for mail in new]).values_list("pk", flat=True)
    for pk in queued[:QUEUED_AT_ONCE]:
        queue_after_commit(SEND_MAIL, pk)
    return len(new)


def mail_send(mail_id: int) -> bool:
    """Send one mail, unless it was sent, is being sent, or must wait. False then, and when the mail server refused."""
    if not claim(Mail, mail_id):
        return False
    mail = Mail.objects.select_related("user", "request__user").get(pk=mail_id)
    why_not = _why_not(mail)
    if why_not:
        Mail.objects.filter(pk=mail_id).update(sent_at=timezone.now(), last_error=f"not sent: {why_not}")
        logger.info("mail.dropped id=%s key=%s %s", mail.pk, mail.key, why_not)
        return False
    try:
        _message(mail).send()
    except (OSError, smtplib.SMTPException) as exc:
        retry_later(mail, repr(exc))
        return False
    Mail.objects.filter(pk=mail_id).update(sent_at=timezone.now(), last_error="")
    logger.info("mail.sent id=%s key=%s attempts=%s", mail.pk, mail.key, mail.attempts)
    return True


def _why_not(mail: Mail) -> str:
    """Why a mail that waited, perhaps long, is better not sent any more; "" where nothing speaks against it."""
    has_link = mail.kind == "" and _PLACE in mail.body  # in one of an event it is a label that looks so
    if has_link and (mail.request is None or mail.request.expires_at <= timezone.now()):
        return "its link is no longer valid"
    if mail.request is not None and mail.request.purpose == AccountRequest.Purpose.PASSWORD:
        user = mail.request.user
        if user is None or user.email != mail.recipient:
            return "the account has another address now"
    if mail.user is not None and not mail.user.wants_mail(mail.kind):
        return "the user is unsubscribed from this kind"
    return ""


def _message(mail: Mail) -> EmailMessage:
    """The mail with its links, which exist from here on; one of an event has a way to get no more of its kind
    (RFC 8058) and goes to where its person reads mail by now."""
    body, recipient = mail.body, mail.recipient
    headers = {"Message-ID": _message_id(mail), "Auto-Submitted": "auto-generated"}  # RFC 3834: no automatic answers
    if mail.request is not None:
        body = body.replace(_PLACE, f"\n{link_of(mail.request)}\n")
    if mail.kind and mail.user is not None:
        recipient = mail.user.email
        link = unsubscribe_link(mail.user.pk, mail.kind)
        headers |= {"List-Unsubscribe": f"<{link}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
        choices = settings.SITE_URL + reverse("profile")
        body += (
            f"\n-- \nYou are subscribed to emails about: {MailKind(mail.kind).label}.\nUnsubscribe: {link}\n"
            f"Email settings: {choices}\n"
        )
    return EmailMessage(mail.subject, body, to=[recipient], headers=headers)


def _message_id(mail: Mail) -> str:
    """The same at every attempt: a reader's program shows a mail once that reached it twice."""
    return f"<{mail.pk}.{mail.created_at:%Y%m%d%H%M%S}@scionlab>"
