"""Celery tasks of accounts and mails."""

from __future__ import annotations

from celery import shared_task

from scionlab.accounts.last_use import TOKENS
from scionlab.accounts.mail import mail_send
from scionlab.platform.last_contact import flush_or_log


@shared_task(name="scionlab.tasks.send_mail")
def send_mail(mail_id: int) -> None:
    """Send one mail of the outbox; does nothing if it was sent, or another worker is sending it."""
    mail_send(mail_id)


@shared_task(name="scionlab.tasks.flush_tokens_used")
def flush_tokens_used() -> None:
    """Write the last use of API tokens to the database."""
    flush_or_log(TOKENS)
