"""The outbox of mails: a row is created in the transaction of the event and sent after the commit; no mail is lost or
sent twice.

Except for one unavoidable case: if a worker dies between the mail server's response and our note of it, the mail is
sent again.
"""

from __future__ import annotations

import logging
import smtplib
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from django.conf import settings
from django.core.mail import EmailMessage
from django.template.loader import render_to_string
from django.urls import reverse

from scionlab.accounts.mail_links import confirm_link, good_links, password_link, unsubscribe_link
from scionlab.accounts.models import Mail, MailKind, User
from scionlab.platform.clock import database_now
from scionlab.platform.outbox import claim, retry_later
from scionlab.platform.queue import SEND_MAIL, queue_after_commit

logger = logging.getLogger(__name__)

# Bounds the time that a request spends on queueing; the sweep sends the rest.
QUEUED_AT_ONCE = 50


def mail_of(template: str, context: dict[str, object], **fields: object) -> Mail:
    """Render a mail without storing it. The first line of the template, as "enforcement/mail/away.txt", is the subject,
    the rest the body."""
    text = render_to_string(template, {**context, "site": settings.SITE_URL})
    subject, _, body = text.replace("\N{NO-BREAK SPACE}", " ").strip().partition("\n")
    return Mail(subject=" ".join(subject.split())[:200], body=body.strip() + "\n", **fields)


def mails_create(mails: Iterable[Mail]) -> int:
    """Store each mail with a new `key`, and queue the first 50 after the commit. Return the number of new ones. Skips
    kinds that the recipient is unsubscribed from."""
    return mails_make({mail.key: partial(_made, mail) for mail in mails})


def _made(mail: Mail) -> Mail:
    return mail


def mails_make(of_keys: Mapping[str, Callable[[], Mail]]) -> int:
    """`mails_create`, making only those whose key is new: jobs that run each minute render no mail to find that it
    exists."""
    if not of_keys:
        return 0
    known = set(Mail.objects.filter(key__in=of_keys).values_list("key", flat=True))
    made = [of_keys[key]() for key in sorted(of_keys.keys() - known)]
    new = [mail for mail in made if mail.user is None or mail.user.accepts_mail(mail.kind)]
    if not new:
        return 0
    Mail.objects.bulk_create(new, ignore_conflicts=True)  # unsubscribed meanwhile
    queued = Mail.objects.filter(key__in=[mail.key for mail in new]).values_list("pk", flat=True)
    for pk in queued[:QUEUED_AT_ONCE]:
        queue_after_commit(SEND_MAIL, pk)
    return len(new)


def mail_send(mail_id: int) -> bool:
    """Send one mail. Return False if it was sent, is being sent, must wait, or the mail server refuses it."""
    if not claim(Mail, mail_id):
        return False
    mail = Mail.objects.select_related("user").get(pk=mail_id)
    why_not = _written(mail) if mail.purpose else _why_not(mail)
    if why_not:
        Mail.objects.filter(pk=mail_id).update(sent_at=database_now(), last_error=f"not sent: {why_not}")
        logger.info("mail.dropped id=%s key=%s %s", mail.pk, mail.key, why_not)
        return False
    try:
        _message(mail).send()
    except (OSError, smtplib.SMTPException) as exc:
        retry_later(mail, repr(exc))
        return False
    Mail.objects.filter(pk=mail_id).update(sent_at=database_now(), last_error="")
    logger.info("mail.sent id=%s key=%s attempts=%s", mail.pk, mail.key, mail.attempts)
    return True


def _why_not(mail: Mail) -> str:
    """Why a mail about an event that waited, perhaps long, must not be sent any more; "" to send it."""
    if mail.user is not None and not mail.user.accepts_mail(mail.kind):
        return "the user is unsubscribed from this kind"
    return ""


def _written(mail: Mail) -> str:
    """Write a mail that a form asked for; return why there is none, or "". Here and not in the request, which must not
    look at accounts."""
    if not good_links().filter(pk=mail.pk).exists():
        return "its link is no longer valid"
    known = User.objects.filter(email=mail.recipient).first()
    link = ""
    if mail.purpose == Mail.Purpose.PASSWORD:
        if known is None or not known.is_active:  # strangers cannot cause mails to arbitrary addresses
            return "the address has no account"
        template, link = "password_reset", password_link(known)
    elif known is not None:
        template = "account_exists"
    else:
        template = "register" if mail.purpose == Mail.Purpose.REGISTER else "email_confirm"
        link = confirm_link(mail)
    written = mail_of(f"accounts/mail/{template}.txt", {"link": link})
    mail.subject, mail.body = written.subject, written.body
    return ""


def _message(mail: Mail) -> EmailMessage:
    """One about an event has an unsubscribe link (RFC 8058) and goes to the current
    address."""
    body, recipient = mail.body, mail.recipient
    headers = {"Message-ID": _message_id(mail), "Auto-Submitted": "auto-generated"}  # RFC 3834: no automatic replies
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
    """The same for every attempt, so that mail programs recognise duplicates."""
    return f"<{mail.pk}.{mail.created_at:%Y%m%d%H%M%S}@scionlab>"
