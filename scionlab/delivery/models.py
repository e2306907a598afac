"""Signing keys of configurations, and enrolment tokens of hosts."""

from __future__ import annotations

from typing import Literal

from django.conf import settings
from django.db import models

from scionlab.platform.clock import database_now
from scionlab.testbed.models.host import Host


class SigningKey(models.Model):
    """An Ed25519 key of this service. Never deleted: revoked keys are announced to agents. The private part is
    encrypted with SIGNING_SECRET, so that a backup of the database does not reveal it."""

    key_id = models.CharField("key id", max_length=32, unique=True, editable=False)
    public_key = models.CharField(max_length=44, editable=False, help_text="The 32 raw bytes in base64.")
    private_encrypted = models.TextField(editable=False)
    created_at = models.DateTimeField("made", default=database_now, editable=False)
    not_after = models.DateTimeField("valid until", editable=False)
    revoked_at = models.DateTimeField("revoked", null=True, blank=True, editable=False)

    class Meta:
        ordering = ["created_at", "pk"]

    def __str__(self) -> str:
        return self.key_id

    @property
    def state(self) -> Literal["revoked", "signs", "expired"]:
        if self.revoked_at is not None:
            return "revoked"
        return "signs" if database_now() < self.not_after else "expired"

    def is_valid(self) -> bool:
        return self.state == "signs"


class EnrolmentToken(models.Model):
    """One-time token for a host's credentials and this service's keys. Only its hash is stored."""

    token_sha256 = models.CharField(max_length=64, unique=True, editable=False)
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="enrolment_tokens")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField("made", default=database_now, editable=False)
    expires_at = models.DateTimeField("valid until", editable=False)
    voided_at = models.DateTimeField(
        "revoked at", null=True, blank=True, help_text="By a newer token, a revoked signing key or a raised generation."
    )
    used_at = models.DateTimeField("used", null=True, blank=True)
    used_from = models.GenericIPAddressField("used from", null=True, blank=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"enrolment token of {self.host}, made {self.created_at:%Y-%m-%d %H:%M}"


class IssuedLimits(models.Model):
    """A link_info.json that this service rendered for a host: evidence that a receipt is about our content. One version
    may have several digests: an upgrade may write the same limits as different bytes."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="issued_limits")
    generation = models.PositiveIntegerField()
    config_version = models.PositiveIntegerField()
    limits_version = models.PositiveIntegerField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the bytes, in hexadecimal.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["host", "generation", "config_version", "limits_version", "digest"], name="issued_limits_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.host} {self.generation}.{self.config_version} with limits {self.limits_version}"
