"""Changes of defaults: previews and records."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scionlab.platform.clock import database_now


class DefaultChange(models.Model):
    """New defaults for attachment points or the site: a preview and, once applied, the record. `lines` has a list for
    each, ordered by key (`limits.default_plan.Line`), so that it is applied exactly as shown and can be undone."""

    created_at = models.DateTimeField(default=database_now, editable=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="default_changes"
    )
    created_by_email = models.CharField(max_length=254, blank=True)
    what = models.CharField(max_length=200, help_text="Description of the change.")
    chosen = models.CharField(max_length=200, help_text="Description of the selection.")
    operation = models.JSONField(help_text="How the new numbers are derived from the old ones.")
    lines = models.JSONField(default=list)
    puts_back = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="put_back_by")
    applied_at = models.DateTimeField(null=True, blank=True, help_text="Empty: a preview that was not applied.")
    reason = models.CharField(max_length=200, blank=True)
    result = models.JSONField(default=dict, blank=True, help_text="Counts of what changed.")

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.what} ({self.chosen})"
