"""Tokens for the REST API."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scionlab.platform.clock import database_now


class ApiToken(models.Model):
    """A user's token, named after the program that uses it. Only its hash is stored. Revoking deletes its row and those
    of the tokens that it created; a new password deletes all (`models.User.save`)."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    token_sha256 = models.CharField(max_length=64, unique=True, editable=False)
    may_write = models.BooleanField("write access", default=True, help_text="Off: read-only.")
    created_at = models.DateTimeField("made", default=database_now, editable=False)
    expires_at = models.DateTimeField("valid until", null=True, blank=True, help_text="Empty: until it is revoked.")
    made_by = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        editable=False,
        on_delete=models.CASCADE,  # a token never outlives its creator
        related_name="made",
        help_text="The token that created this one; empty if it was created on a page or with a password.",
    )
    # Updated through the cache, up to a minute late (platform.last_contact): no request writes a row.
    last_used_at = models.DateTimeField("last used", null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-pk"]
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="api_token_name_once_per_user")]

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= database_now()
