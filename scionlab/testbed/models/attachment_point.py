"""Attachment points, their defaults, and the site's policy."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models

from bandwidth_config import (
    INITIAL_DEFAULT_BANDWIDTH_KBIT,
    MAX_BANDWIDTH_KBIT,
    MAX_TOTAL_KBIT,
    MIN_TOTAL_KBIT,
    default_in_force,
)
from scionlab.testbed.models.host import Host

MAX_UPLINK_KBIT = 1_000_000_000  # 1 Tbit/s


def cost_field(help_text: str) -> models.DecimalField[Decimal | None, Decimal | None]:
    """Cost of 10^9 bytes towards user ASes; a decimal, as it is multiplied."""
    return models.DecimalField(
        "cost per GB",
        max_digits=10,
        decimal_places=4,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal(0))],
        help_text=help_text,
    )


class BandwidthPolicy(models.Model):
    """The site default: used by every attachment point without its own. A single row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    default_bandwidth_kbit = models.PositiveBigIntegerField(
        "site default [kbit/s]",
        default=INITIAL_DEFAULT_BANDWIDTH_KBIT,
        help_text="Initial value and maximum of every Link, unless its attachment point has a default of its own. "
        "0 blocks them all.",
    )
    cost_per_gb = cost_field("Cost of 1 GB (10^9 bytes) of egress. Empty: not set.")
    currency = models.CharField(
        max_length=3,
        default="CHF",
        validators=[RegexValidator(r"^[A-Z]{3}\Z", "Three letters of ISO 4217, such as EUR.")],
    )

    class Meta:
        verbose_name = "bandwidth policy"
        verbose_name_plural = "bandwidth policy"
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="bandwidth_policy_is_one_row"),
            models.CheckConstraint(
                condition=models.Q(default_bandwidth_kbit__gte=0, default_bandwidth_kbit__lte=MAX_BANDWIDTH_KBIT),
                name="bandwidth_policy_default_in_bounds",
            ),
        ]

    def __str__(self) -> str:
        return f"site default {self.default_bandwidth_kbit} kbit/s"


class AttachmentPoint(models.Model):
    """An AS that user ASes can attach to, and its host on which their Links end."""

    AS = models.OneToOneField(
        "testbed.AS", on_delete=models.CASCADE, related_name="attachment_point", verbose_name="AS"
    )
    host = models.OneToOneField(Host, on_delete=models.CASCADE, related_name="attachment_point")
    default_bandwidth_kbit = models.PositiveBigIntegerField(
        "default here [kbit/s]",
        null=True,
        blank=True,
        help_text="Initial value and maximum of the Links here. Empty: the site default. 0 blocks all of them.",
    )
    # The default as last applied (`limits.defaults.fan_out`), which follows the default in force within moments.
    # Configurations clamp to this one, so they are a function of their versions.
    maximum_kbit = models.PositiveBigIntegerField("applied maximum [kbit/s]", default=0, editable=False)
    total_kbit = models.PositiveBigIntegerField(
        "total of all links [kbit/s]",
        null=True,
        blank=True,
        help_text="Maximum for all Links here together, in each direction. They share it in proportion to their "
        "limits; no Link gets more than its own limit. Empty: no total.",
    )
    observe_only = models.BooleanField(
        "observe only",
        default=False,
        db_default=False,
        help_text="All Links here are measured but not limited.",
    )
    # Both are SCION path metadata: staticInfoConfig.json of the control service of this AS.
    publishes_limits = models.BooleanField(
        "publish limits",
        default=False,
        db_default=False,
        help_text="The limits of the Links here are public, in SCION's path metadata.",
    )
    path_metadata = models.TextField(
        "path metadata of the operator",
        blank=True,
        default="",
        db_default="",
        help_text="JSON in the form of SCION's staticInfoConfig.json. Empty: none.",
    )
    # Capacity and cost, for the cockpit and policies of tests; they limit no link.
    uplink_kbit = models.PositiveBigIntegerField(
        "uplink [kbit/s]",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_UPLINK_KBIT)],
        help_text="Capacity of the uplink in each direction. Empty: not set.",
    )
    cost_per_gb = cost_field("Cost of 1 GB (10^9 bytes) of egress at this attachment point. Empty: the default cost.")

    class Meta:
        ordering = ["AS"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(default_bandwidth_kbit__isnull=True)
                | models.Q(default_bandwidth_kbit__gte=0, default_bandwidth_kbit__lte=MAX_BANDWIDTH_KBIT),
                name="attachment_point_default_in_bounds",
            ),
            models.CheckConstraint(
                condition=models.Q(total_kbit__isnull=True)
                | models.Q(total_kbit__gte=MIN_TOTAL_KBIT, total_kbit__lte=MAX_TOTAL_KBIT),
                name="attachment_point_total_in_bounds",
            ),
        ]

    def __str__(self) -> str:
        return str(self.AS)

    @property
    def metadata_entries(self) -> dict[str, Any]:
        """The operator's own path metadata; validated when stored (`paths.path_metadata`)."""
        found: dict[str, Any] = json.loads(self.path_metadata or "{}")
        return found

    @property
    def has_path_metadata(self) -> bool:
        """Whether the control service of this AS gets a staticInfoConfig.json."""
        return self.publishes_limits or bool(self.path_metadata)

    def default_in_force(self, policy: BandwidthPolicy) -> int:
        """Default of this attachment point or the site [kbit/s]."""
        return default_in_force(policy.default_bandwidth_kbit, self.default_bandwidth_kbit)
