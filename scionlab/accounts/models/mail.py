"""The outbox of mails."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scionlab.accounts.models.account import AccountRequest
from scionlab.accounts.models.user import MailKind
from scionlab.platform.clock import database_now


class Mail(models.Model):
    """A mail in the outbox: kept until sent. One per `key`."""

    key = models.CharField(max_length=200, unique=True, help_text="Identifies the event, so that it is sent once.")
    recipient = models.EmailField()
    subject = models.CharField(max_length=200)
    body = models.TextField()
    created_at = models.DateTimeField(default=database_now, editable=False)
    sent_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    # A sender first moves this into the future in one statement: two workers never send the same mail, no transaction
    # stays open during SMTP, and mails of a killed worker are retried.
    not_before = models.DateTimeField("not tried before", default=database_now)
    last_error = models.CharField(max_length=200, blank=True)
    # For mails about events: the kind that `user` can unsubscribe from. The link is created when the mail is sent.
    kind = models.CharField(max_length=16, choices=MailKind, blank=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)
    # Replaces {link} in the body when the mail is sent, so the link is not stored.
    request = models.ForeignKey(AccountRequest, null=True, blank=True, on_delete=models.SET_NULL)

    class Meta:
        ordering = ["pk"]
        indexes = [
            models.Index(fields=["not_before", "id"], condition=models.Q(sent_at=None), name="mail_unsent"),
            models.Index(fields=["sent_at"], condition=models.Q(sent_at__isnull=False), name="mail_sent"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} to {self.recipient}"
