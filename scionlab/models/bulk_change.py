"""Changes of many limits, or of many defaults, at once: what was previewed, and what was then done."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class BulkChange(models.Model):
    """New limits for many Links, or new defaults for attachment points or the site: first a preview and, once
    confirmed, the record of what was done.

    `lines` has a list for each of them, in the order of their keys (`links.bulk_plan.Line`): so a preview is carried
    out exactly as it was shown or not at all, and what was done can be put back.
    """

    class About(models.TextChoices):
        LINKS = "links", "limits of Links"
        DEFAULTS = "defaults", "defaults of attachment points"

    about = models.CharField(max_length=16, choices=About, default=About.LINKS, db_default=About.LINKS)

    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="bulk_changes"
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
