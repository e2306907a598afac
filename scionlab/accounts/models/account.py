"""Requests that are confirmed by email: an account, a new email address, a new password."""

from __future__ import annotations

import secrets

from django.conf import settings
from django.db import models

from scionlab.platform.clock import database_now


def new_nonce() -> str:
    return secrets.token_hex(16)


class AccountRequest(models.Model):
    """A submitted form with the address to confirm. A worker answers by mail. The response does not depend on whether
    the address has an account. The link in the mail is signed over `nonce` with SECRET_KEY when it is sent, so no copy
    of the database contains it."""

    class Purpose(models.TextChoices):
        REGISTER = "register", "a new account"
        EMAIL = "email", "a new email address"
        PASSWORD = "password", "a new password"

    purpose = models.CharField(max_length=16, choices=Purpose)
    email = models.EmailField("email address", help_text="Address to confirm.")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        help_text="Account whose address changes.",
    )
    nonce = models.CharField(max_length=32, default=new_nonce, editable=False)
    network = models.CharField(max_length=45, blank=True, help_text="Network of the client, for rate limiting only.")
    created_at = models.DateTimeField(default=database_now)
    expires_at = models.DateTimeField("valid until")
    answered_at = models.DateTimeField(null=True, blank=True, help_text="Time of processing by a worker.")
    used_at = models.DateTimeField("used", null=True, blank=True, help_text="Time of use; a link works once.")

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["created_at"], name="account_request_created_at"),
            models.Index(fields=["id"], condition=models.Q(answered_at=None), name="account_request_unanswered"),
            models.Index(fields=["expires_at"], name="account_request_expires_at"),
        ]

    def __str__(self) -> str:
        return f"{self.get_purpose_display()} for {self.email}"
