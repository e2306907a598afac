"""The webhook for administrators' notices, and its pending deliveries."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class Webhook(models.Model):
    """URL and secret of the webhook. At most one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    url = models.CharField("URL", max_length=500)
    secret_encrypted = models.TextField(editable=False)  # signs what is sent (`trust.secrets_box`)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="webhook_is_one_row")]

    def __str__(self) -> str:
        return "webhook"


class WebhookDelivery(models.Model):
    """A notice for the webhook: created in the transaction of its event, kept until delivered or for 30 days."""

    key = models.CharField(max_length=200, unique=True, help_text="Identifies the event, so that it is sent once.")
    event = models.CharField(max_length=32)
    body = models.TextField(help_text="JSON as it is sent.")
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    not_before = models.DateTimeField(null=True, blank=True, default=timezone.now, help_text="Empty: given up.")
    last_error = models.CharField(max_length=200, blank=True)

    class Meta:
        verbose_name_plural = "webhook deliveries"
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["not_before", "id"], condition=models.Q(sent_at=None), name="webhook_delivery_unsent"),
            models.Index(fields=["created_at"], name="webhook_delivery_created"),
        ]

    def __str__(self) -> str:
        return f"{self.event} of {self.created_at:%Y-%m-%d %H:%M}"
