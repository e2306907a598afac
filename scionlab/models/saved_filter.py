"""Filters of the cockpit's lists that administrators keep."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class SavedFilter(models.Model):
    """What one administrator looks for again and again: the query of the page `view` (the name of its address)."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_filters")
    view = models.CharField(max_length=32)
    name = models.CharField(max_length=40)
    query = models.CharField(max_length=1000)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["user", "view", "name"], name="saved_filter_name_once")]

    def __str__(self) -> str:
        return self.name
