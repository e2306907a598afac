"""Timed limits of Links."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, tzinfo

from django.conf import settings
from django.db import models

from bandwidth_config import Limits, LinkStep, TimedLimits
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import say_time
from scionlab.platform.readable import readable


class TimedLimit(models.Model):
    """Limits of a Link from `begins_at` until `ends_at` (whole seconds), in steps; then its own limits apply again. A
    row is in the configuration of the attachment point's host until it is cancelled, or retired after its end
    (`limits.timed_limit`), so that a configuration depends on rows and not on the clock. `steps` are the user's choice,
    `[[offset_s, to_user_kbit, from_user_kbit], ...]`; it is clamped when rendered."""

    class Kind(models.TextChoices):
        CONSTANT = "constant", "constant"
        STAIR = "stair", "stair"
        SQUARE = "square", "square wave"
        OUTAGE = "outage", "outage"

    link = models.ForeignKey("testbed.Link", on_delete=models.CASCADE, related_name="timed_limits")
    kind = models.CharField(max_length=16, choices=Kind)
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    steps = models.JSONField()
    # Number of `steps`, for sums and comparisons in SQL.
    step_count = models.PositiveSmallIntegerField()
    highest_kbit = models.PositiveBigIntegerField()
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=database_now, editable=False)
    cancelled_at = models.DateTimeField(null=True, blank=True)
    retired_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of removal from the configuration after the end."
    )

    class Meta:
        ordering = ["begins_at", "pk"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(ends_at__gt=models.F("begins_at")), name="timed_limit_has_length"
            ),
            *readable("timed_limit", "begins_at", "ends_at"),
        ]
        indexes = [
            models.Index(
                fields=["link", "begins_at"],
                condition=models.Q(cancelled_at=None, retired_at=None),
                name="timed_limit_in_force",
            )
        ]

    def __str__(self) -> str:
        return self.describe(UTC)

    def describe(self, zone: tzinfo | None = None) -> str:
        """Return `square wave from … until …`, in `zone` or the reader's; for logs and the audit in UTC."""
        return f"{self.get_kind_display()} from {say_time(self.begins_at, zone)} until {say_time(self.ends_at, zone)}"

    @property
    def is_in_configuration(self) -> bool:
        """Neither cancelled nor retired; it may have ended."""
        return self.cancelled_at is None and self.retired_at is None

    @property
    def is_cancelled_before(self) -> bool:
        """Whether it was cancelled before it began."""
        return self.cancelled_at is not None and self.cancelled_at < self.begins_at

    @property
    def limits(self) -> TimedLimits:
        """As chosen by the user."""
        steps = tuple(LinkStep(offset_s, Limits(to_user, from_user)) for offset_s, to_user, from_user in self.steps)
        return TimedLimits(self.begins_at, self.ends_at, steps)


def timed_of(host_id: int) -> dict[int, tuple[TimedLimits, ...]]:
    """By Link, timed limits of the active Links that the host provides, for its configuration."""
    rows = TimedLimit.objects.filter(cancelled_at=None, retired_at=None)
    found: dict[int, list[TimedLimits]] = defaultdict(list)
    for one in rows.filter(link__interface_a__host=host_id, link__active=True):
        found[one.link_id].append(one.limits)
    return {link_id: tuple(timed) for link_id, timed in found.items()}
