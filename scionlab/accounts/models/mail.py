"""The outbox of mails."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scionlab.accounts.models.user import MailKind
from scionlab.platform.clock import database_now


class Mail(models.Model):
    """A mail in the outbox: kept until sent. One per `key`.

    One with a `purpose` was asked for by a form and has a link. It is written when it is sent, so that the form's
    response does not depend on whether the address has an account, and no copy of the database contains the link.
    """

    class Purpose(models.TextChoices):
        REGISTER = "register", "a new account"
        EMAIL = "email", "a new email address"
        PASSWORD = "password", "a new password"

    key = models.CharField(max_length=200, unique=True, help_text="Identifies the event, so that it is sent once.")
    recipient = models.EmailField()
    subject = models.CharField(max_length=200)
    body = models.TextField(blank=True)
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
    purpose = models.CharField(max_length=16, choices=Purpose, blank=True)  # of an EMAIL, `user` changes the address
    network = models.CharField(max_length=45, blank=True, help_text="Of the client that asked, for rate limiting only.")
    used_at = models.DateTimeField(null=True, blank=True, help_text="Time of use of the link, which works once.")

    class Meta:
        ordering = ["pk"]
        indexes = [
            models.Index(fields=["not_before", "id"], condition=models.Q(sent_at=None), name="mail_unsent"),
            models.Index(fields=["sent_at"], condition=models.Q(sent_at__isnull=False), name="mail_sent"),
            models.Index(fields=["created_at"], condition=~models.Q(purpose=""), name="mail_asked"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} to {self.recipient}"
