"""Saved filters of the cockpit's lists."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class SavedFilter(models.Model):
    """A saved query of one administrator for the page `view` (its URL name)."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_filters")
    view = models.CharField(max_length=32)
    name = models.CharField(max_length=40)
    query = models.CharField(max_length=1000)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["user", "view", "name"], name="saved_filter_name_once")]

    def __str__(self) -> str:
        return self.name
