"""The audit log, the outbox of mails, and the state of the service."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models

from bandwidth_config import Limits
from scionlab.platform.clock import database_now
from scionlab.testbed.models.attachment_point import AttachmentPoint
from scionlab.testbed.models.link import Link
from scionlab.testbed.models.link_settings import LINK_SETTINGS


class BandwidthChange(models.Model):
    """A change of a bandwidth. Append-only, which the database enforces (`scionlab.testbed.append_only`); `subject`
    and `actor_email` remain when their objects are deleted."""

    class Kind(models.TextChoices):
        LINK = "link", "Link"
        TIMED_LIMIT = "timed_limit", "temporary limit of a Link"
        AP_DEFAULT = "ap_default", "default of an attachment point"
        SITE_DEFAULT = "site_default", "site default"
        AP_TOTAL = "ap_total", "total of an attachment point"
        AP_OBSERVE = "ap_observe", "observe only, of an attachment point"
        AP_METADATA = "ap_metadata", "path metadata of an attachment point"
        EXCEPTION = "exception", "exception from the maximum"
        AS = "as", "infrastructure AS"
        HOST_SETTINGS = "host_settings", "addresses and settings of a host"
        HOST_LIMITS_ONLY = "host_limits_only", "limits only, of a host"
        HOST_TAKE_OVER = "host_take_over", "takeover of a host"
        CERTIFICATE = "certificate", "certificate or keys of an AS"
        TRC = "trc", "TRC of an ISD"

    at = models.DateTimeField(default=database_now, editable=False)
    kind = models.CharField(max_length=16, choices=[*Kind.choices, *(one.kind for one in LINK_SETTINGS.values())])
    subject = models.CharField(max_length=200)
    link = models.ForeignKey(Link, null=True, blank=True, on_delete=models.SET_NULL, related_name="changes")
    attachment_point = models.ForeignKey(
        AttachmentPoint, null=True, blank=True, on_delete=models.SET_NULL, related_name="changes"
    )
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)
    actor_email = models.CharField(max_length=254, blank=True, help_text="Empty: the service itself.")
    address = models.GenericIPAddressField(null=True, blank=True, help_text="Address of the client.")
    old_kbit = models.PositiveBigIntegerField(null=True, blank=True, help_text="Empty: none.")
    new_kbit = models.PositiveBigIntegerField(null=True, blank=True, help_text="Empty: none.")
    # For a Link the numbers above are those to the user AS.
    old_from_user_kbit = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Empty: the same as to the user AS."
    )
    new_from_user_kbit = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Empty: the same as to the user AS."
    )
    detail = models.CharField(max_length=200, blank=True, help_text="Description of a change without numbers.")
    reason = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [
            # Rows are never deleted, so pages must not depend on the size of the table.
            models.Index(fields=["-at", "-id"], name="change_newest"),
            models.Index(
                fields=["link", "-at", "-id"], condition=models.Q(link__isnull=False), name="change_newest_of_link"
            ),
            models.Index(
                fields=["kind", "attachment_point", "-at"],
                condition=models.Q(kind__in=["ap_default", "site_default"]),
                name="change_newest_of_default",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert only. Raises `ValueError` for a stored row."""
        if not self._state.adding:
            raise ValueError("A BandwidthChange cannot be changed; add another one.")
        super().save(*args, **kwargs)

    @property
    def by(self) -> str:
        """Who changed it; for a deleted account, the stored email address."""
        if self.actor is not None:
            return str(self.actor)
        return f"{self.actor_email} (deleted)" if self.actor_email else "the service"

    @property
    def text(self) -> str:
        """The change in words, with both directions if they differ."""
        if self.detail:
            return self.detail
        return f"{_written(self.old)} \N{RIGHTWARDS ARROW} {_written(self.new)}"

    @property
    def old(self) -> Limits | None:
        """None: there was no limit."""
        return None if self.old_kbit is None else Limits.of_columns(self.old_kbit, self.old_from_user_kbit)

    @property
    def new(self) -> Limits | None:
        """None: removed."""
        return None if self.new_kbit is None else Limits.of_columns(self.new_kbit, self.new_from_user_kbit)


def _written(limits: Limits | None) -> str:
    return "none" if limits is None else str(limits)


_KIND = BandwidthChange.Kind
# In the history of a Link.
KINDS_OF_A_LINK = (
    *(one.value for one in (_KIND.LINK, _KIND.TIMED_LIMIT, _KIND.EXCEPTION)),
    *(one.kind[0] for one in LINK_SETTINGS.values()),
)
