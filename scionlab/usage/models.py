"""Traffic of each Link as counted by the agents (docs/adr/0015): 10 s, 5 minutes, days, months.

Except for a month's percentiles everything is a sum, so rows are only added to.
"""

from __future__ import annotations

from typing import Any

from django.db import models

from scionlab.enforcement.counters import KEPT
from scionlab.enforcement.directions import DIRECTIONS
from scionlab.platform.clock import database_now
from scionlab.platform.readable import readable
from scionlab.testbed.models.attachment_point import AttachmentPoint
from scionlab.testbed.models.host import Host
from scionlab.testbed.models.link import Link
from scionlab.usage.slot_field import SlotField

KEY_LENGTH = 32
SEGMENT_LENGTH = 64


class UsageSeries(models.Model):
    """One Link under one interface id of an attachment point. Never deleted: bills outlive Links and users. The text
    columns identify it when its objects are deleted; `link` keeps the key of a deleted Link."""

    link = models.ForeignKey(Link, on_delete=models.DO_NOTHING, db_constraint=False, related_name="usage_series")
    host = models.ForeignKey(Host, null=True, blank=True, on_delete=models.SET_NULL, related_name="usage_series")
    attachment_point = models.ForeignKey(
        AttachmentPoint, null=True, blank=True, on_delete=models.SET_NULL, related_name="usage_series"
    )
    interface_id = models.PositiveSmallIntegerField()
    ap_isd_as = models.CharField("attachment point", max_length=24)
    isd_as = models.CharField("user AS", max_length=24)
    owner_email = models.CharField(max_length=254)
    # H of the host's configurations in which the interface id was this Link's.
    first_config_version = models.PositiveIntegerField()
    last_config_version = models.PositiveIntegerField()
    created_at = models.DateTimeField(default=database_now, editable=False)

    class Meta:
        verbose_name_plural = "usage series"
        constraints = [
            models.UniqueConstraint(fields=["link", "host", "interface_id"], name="usage_series_once_per_link_and_end")
        ]
        indexes = [models.Index(fields=["ap_isd_as", "isd_as"], name="usage_series_names")]

    def __str__(self) -> str:
        return f"{self.isd_as} at {self.ap_isd_as}#{self.interface_id}"


class UsageBatch(models.Model):
    """One upload of an agent, kept as long as its samples to detect repeats."""

    host = models.ForeignKey(Host, null=True, on_delete=models.SET_NULL, related_name="usage_batches")
    key = models.CharField(max_length=KEY_LENGTH)
    received_at = models.DateTimeField()
    ends_at = models.DateTimeField(help_text="Time of the newest sample.")
    rolled_up = models.BooleanField(default=False)

    class Meta:
        verbose_name_plural = "usage batches"
        constraints = [
            models.UniqueConstraint(fields=["host", "key"], name="usage_batch_once"),
            *readable("usage_batch", "ends_at"),
        ]
        indexes = [
            models.Index(fields=["host", "id"], name="usage_batch_waiting", condition=models.Q(rolled_up=False)),
            models.Index(fields=["ends_at"], name="usage_batch_ends"),
        ]

    def __str__(self) -> str:
        return f"batch {self.key} of {self.host}"


class UsageSamples(models.Model):
    """All samples of a batch for one series, both directions, packed (`scionlab.usage.packing`)."""

    batch = models.ForeignKey(UsageBatch, on_delete=models.CASCADE, related_name="samples")
    series = models.ForeignKey(UsageSeries, on_delete=models.CASCADE, related_name="samples", db_index=False)
    begins_at = models.DateTimeField(help_text="Time of the first sample; the last one is at most 10 minutes later.")
    packed = models.TextField()

    class Meta:
        verbose_name_plural = "usage samples"
        constraints = readable("usage_samples", "begins_at")
        indexes = [models.Index(fields=["series", "begins_at"], name="usage_samples_of_series")]

    def __str__(self) -> str:
        return f"{self.series} from {self.begins_at:%Y-%m-%d %H:%M:%S}"


class UsageCounter(models.Model):
    """How far the kernel's counters of one class lifetime (a segment) are counted, and its newest sample."""

    class Direction(models.TextChoices):
        TO_USER = "to_user", "to the user AS"
        FROM_USER = "from_user", "from the user AS"

    series = models.ForeignKey(UsageSeries, on_delete=models.CASCADE, related_name="counters")
    direction = models.CharField(max_length=9, choices=Direction)
    segment = models.CharField(max_length=SEGMENT_LENGTH)
    at = models.DateTimeField()
    kbit = models.PositiveBigIntegerField(null=True, help_text="Rate over the newest interval; empty: none.")
    limit_kbit = models.PositiveBigIntegerField()
    backlog_bytes = models.PositiveBigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["series", "direction", "segment"], name="usage_counter_once_per_segment"),
            *readable("usage_counter", "at"),
        ]
        indexes = [models.Index(fields=["at"], name="usage_counter_at")]

    def __str__(self) -> str:
        return f"{self.series} {self.direction}, {self.segment}"


for _name in KEPT:
    UsageCounter.add_to_class(_name, models.PositiveBigIntegerField(default=0))


def has_newer(of: str = "series") -> models.Exists:
    """Whether a counter's series, or Link, and direction has a newer one: a recreated class has two for a while."""
    both = {name: models.OuterRef(name) for name in (of, "direction")}
    at, pk = models.OuterRef("at"), models.OuterRef("pk")
    return models.Exists(UsageCounter.objects.filter(models.Q(at__gt=at) | models.Q(at=at, pk__gt=pk), **both))


class UsageTotals(models.Model):
    """Sums of both directions over a period. A direction without data has no `limit_kbit`. `rated_bytes` are those of
    the `covered_ms` with a known rate; the rest was counted after a gap. The limit is the mean over the covered time,
    `backlog_bytes` the maximum."""

    id: int
    series_id: int
    series: models.ForeignKey[Any, Any]

    begins_at = models.DateTimeField()
    to_user_rated_bytes = models.PositiveBigIntegerField(default=0)
    to_user_backlog_bytes = models.PositiveBigIntegerField(default=0)
    to_user_limit_kbit = models.PositiveIntegerField(null=True)
    to_user_covered_ms = models.PositiveIntegerField(default=0)
    to_user_at_limit_ms = models.PositiveIntegerField(default=0)
    from_user_rated_bytes = models.PositiveBigIntegerField(default=0)
    from_user_backlog_bytes = models.PositiveBigIntegerField(default=0)
    from_user_limit_kbit = models.PositiveIntegerField(null=True)
    from_user_covered_ms = models.PositiveIntegerField(default=0)
    from_user_at_limit_ms = models.PositiveIntegerField(default=0)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.series} from {self.begins_at:%Y-%m-%d %H:%M}"


for _direction in DIRECTIONS:
    for _name in KEPT:
        UsageTotals.add_to_class(f"{_direction}_{_name}", models.PositiveBigIntegerField(default=0))


class UsageSlot(models.Model):
    """Five minutes of a series: both mean rates, and all sums packed (`scionlab.usage.compact`). PostgreSQL has a
    partition for each day (`scionlab.usage.partitions`); SQLite a plain table."""

    series_id: int
    pk = models.CompositePrimaryKey("series_id", "begins_at")
    series = models.ForeignKey(
        UsageSeries, on_delete=models.CASCADE, related_name="slots", db_index=False, db_constraint=False
    )
    begins_at = SlotField()
    # Empty if unknown.
    to_user_kbit = models.PositiveIntegerField(null=True)
    from_user_kbit = models.PositiveIntegerField(null=True)
    packed = models.BinaryField()

    class Meta:
        db_table = "usage_usage5min"

    def __str__(self) -> str:
        return f"{self.series} from {self.begins_at:%Y-%m-%d %H:%M}"


class UsageUplink(models.Model):
    """Five minutes of all links of an attachment point: sums of mean rates and of drops."""

    ap_isd_as = models.CharField("attachment point", max_length=24)
    begins_at = SlotField()
    # Empty if unknown.
    to_user_kbit = models.PositiveBigIntegerField(null=True)
    from_user_kbit = models.PositiveBigIntegerField(null=True)
    to_user_drops = models.PositiveBigIntegerField(default=0)
    from_user_drops = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["ap_isd_as", "begins_at"], name="usage_uplink_once")]
        indexes = [models.Index(fields=["begins_at"], name="usage_uplink_begins")]

    def __str__(self) -> str:
        return f"{self.ap_isd_as} from {self.begins_at:%Y-%m-%d %H:%M}"


class UsageLock(models.Model):
    """Held while 5-minute rows of an attachment point are added to."""

    ap_isd_as = models.CharField("attachment point", max_length=24, unique=True)

    def __str__(self) -> str:
        return self.ap_isd_as


class UsageDay(UsageTotals):
    """A day (UTC) of a series; kept permanently."""

    series = models.ForeignKey(UsageSeries, on_delete=models.CASCADE, related_name="days", db_index=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["series", "begins_at"], name="usage_day_once")]
        indexes = [models.Index(fields=["begins_at"], name="usage_day_begins")]


class UsageMonth(models.Model):
    """95th percentiles of a month (UTC), of an attachment point (`isd_as` and `owner_email` empty) or of an AS there.
    Computed from the 5-minute rows while they exist, and kept permanently."""

    begins_on = models.DateField()
    ap_isd_as = models.CharField("attachment point", max_length=24)
    isd_as = models.CharField("user AS", max_length=24, blank=True)
    owner_email = models.CharField(max_length=254, blank=True)
    to_user_p95_kbit = models.PositiveBigIntegerField(null=True)
    from_user_p95_kbit = models.PositiveBigIntegerField(null=True)
    to_user_slots = models.PositiveIntegerField(default=0, help_text="Number of five-minute values of the percentile.")
    from_user_slots = models.PositiveIntegerField(default=0)
    computed_at = models.DateTimeField()
    is_final = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["begins_on", "ap_isd_as", "isd_as", "owner_email"], name="usage_month_once")
        ]

    def __str__(self) -> str:
        return f"{self.isd_as or 'all'} at {self.ap_isd_as} in {self.begins_on:%Y-%m}"
