"""Isolation domains and autonomous systems."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scionlab.platform.clock import database_now
from scionlab.platform.notation.isd_as import MAX_AS_ID, MAX_ISD, format_isd_as


class ISD(models.Model):
    """An isolation domain: ASes that share a trust root."""

    isd_id = models.PositiveIntegerField("ISD", unique=True)
    label = models.CharField(max_length=100, blank=True)

    class Meta:
        ordering = ["isd_id"]
        verbose_name = "ISD"
        constraints = [
            models.CheckConstraint(condition=models.Q(isd_id__gte=1, isd_id__lte=MAX_ISD), name="isd_id_in_bounds")
        ]

    def __str__(self) -> str:
        return f"ISD {self.isd_id}" + (f" ({self.label})" if self.label else "")


class AS(models.Model):
    """An autonomous system: infrastructure, or (as a `UserAS`) created by a user."""

    isd = models.ForeignKey(ISD, on_delete=models.PROTECT, related_name="ases", verbose_name="ISD")
    as_id = models.BigIntegerField("AS number", unique=True, help_text="48-bit number, shown as ffaa:1:b6.")
    label = models.CharField(max_length=100, blank=True)
    is_core = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=database_now, editable=False)

    class Meta:
        ordering = ["isd__isd_id", "as_id"]
        verbose_name = "AS"
        verbose_name_plural = "ASes"
        constraints = [
            models.CheckConstraint(condition=models.Q(as_id__gte=1, as_id__lte=MAX_AS_ID), name="as_id_in_bounds")
        ]

    def __str__(self) -> str:
        return self.isd_as + (f" ({self.label})" if self.label else "")

    @property
    def isd_as(self) -> str:
        return format_isd_as(self.isd.isd_id, self.as_id)


class UserAS(AS):
    """An AS created by a user; attached to 1 to 5 attachment points by one provider Link each."""

    class Installation(models.TextChoices):
        VM = "vm", "Install inside a virtual machine"
        DEDICATED = "dedicated", "Install on a dedicated system (for experts)"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="user_ases")
    installation_type = models.CharField(max_length=16, choices=Installation, default=Installation.VM)
    # Last change of the AS or one of its Links, shown when an outdated page is saved (web.pages.stale_pages).
    changed_at = models.DateTimeField(null=True, blank=True, editable=False)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        verbose_name = "user AS"
        verbose_name_plural = "user ASes"
