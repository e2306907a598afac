"""Requests with an Idempotency-Key."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scionlab.platform.clock import database_now

MAX_KEY_CHARS = 200


class ApiRequest(models.Model):
    """A POST with an Idempotency-Key, and its response; written in the transaction of its effects. Kept for a day
    (`web.rest.idempotency`)."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=MAX_KEY_CHARS)
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of method, path and body.")
    status = models.PositiveSmallIntegerField(default=0)
    headers = models.JSONField(default=dict)
    body = models.TextField(blank=True, help_text="Empty if the response contained a secret, which is shown only once.")
    created_at = models.DateTimeField(default=database_now, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="idempotency_key_once_per_person")]

    def __str__(self) -> str:
        return f"{self.key} of {self.user}"
