"""Receipts: what attachment points report that they enforce (docs/api.md)."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Length, Now
from django.db.models.lookups import LessThanOrEqual

from bandwidth_config import Limits
from scionlab.enforcement.counters import COUNTERS
from scionlab.enforcement.directions import DIRECTIONS
from scionlab.platform.readable import readable
from scionlab.testbed.models.host import Host
from scionlab.testbed.models.link import Link


class HostReceipt(models.Model):
    """The newest receipt of a host's agent."""

    class Content(models.TextChoices):
        """The document of the receipt, compared with those issued by this service (`IssuedLimits`)."""

        PROVEN = "proven", "a document of this service, by its digest"
        COUNTED = "counted", "identified by its versions: the agent reports no digest"
        FOREIGN = "foreign", "a document that this service did not issue"

    class SendingTests(models.TextChoices):
        ON = "on", "on"
        OFF = "off", "off"
        STOPPED = "stopped", "stopped"

    host = models.OneToOneField(Host, on_delete=models.CASCADE, related_name="receipt")
    agent_version = models.CharField(max_length=32, blank=True)
    generation = models.PositiveIntegerField(null=True, blank=True)
    config_version = models.PositiveIntegerField(null=True, blank=True)
    limits_version = models.PositiveIntegerField(null=True, blank=True)
    limits_digest = models.CharField(
        max_length=64,
        blank=True,
        db_default="",
        help_text="SHA-256 of the link_info.json in force; empty if not reported.",
    )
    links_digest = models.CharField(
        max_length=64,
        blank=True,
        db_default="",
        editable=False,
        help_text="Digest of the Links in this receipt (enforcement.receipt_changes). Empty: to be read again.",
    )
    content = models.CharField(max_length=16, choices=Content, default=Content.COUNTED, db_default=Content.COUNTED)
    run = models.CharField(max_length=32, blank=True, db_default="", help_text="Identifies one run of the agent.")
    number = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Sequence number of this receipt within the run."
    )
    clock_skew_ms = models.IntegerField(
        null=True, blank=True, help_text="Clock of the agent minus clock of this service, as measured by the agent."
    )
    observed_at = models.DateTimeField(help_text="By the clock of the agent.")
    received_at = models.DateTimeField(help_text="By the clock of this service.")
    problems = models.JSONField(default=list, blank=True)
    devices = models.JSONField(
        null=True, blank=True, help_text="Names of the devices on which packets are classified. Empty: not known."
    )
    # The total of all Links [kbit/s], as in force in each direction.
    says_total = models.BooleanField(
        default=False, db_default=False, help_text="Not set: the agent does not support a total."
    )
    total_to_user_kbit = models.PositiveBigIntegerField(null=True, blank=True)
    total_from_user_kbit = models.PositiveBigIntegerField(null=True, blank=True)
    says_tests = models.BooleanField(
        default=False, db_default=False, help_text="Not set: the agent does not support tests of Links."
    )
    sending_tests = models.CharField(
        max_length=8,
        choices=SendingTests,
        blank=True,
        db_default="",
        help_text="Whether the operator lets tests send. Empty: the agent does not support tests that send.",
    )
    says_tcp_tests = models.BooleanField(
        default=False, db_default=False, help_text="Not set: the agent does not support tests over TCP."
    )
    observe_only = models.BooleanField(
        null=True, blank=True, help_text="Nothing is limited. Empty: the agent does not support observing only."
    )
    gaps_since = models.DateTimeField(
        db_default=Now(), editable=False, help_text="From here on every gap between receipts is recorded."
    )
    refusal = models.CharField(
        max_length=300, blank=True, db_default="", help_text="Why the newest one was refused. Empty: it was stored."
    )
    contradiction = models.CharField(
        max_length=200, blank=True, db_default="", help_text="Why it cannot be true. Empty: it can."
    )
    address = models.GenericIPAddressField(null=True, blank=True, help_text="From which the agent sent it.")
    former_runs = models.JSONField(
        default=list, editable=False, help_text="Newest last: run, its address, and when another began."
    )
    # A superseded run that still reports (`enforcement.two_agents`): another machine with the same credentials.
    rival_address = models.GenericIPAddressField(null=True, blank=True)
    rival_at = models.DateTimeField(null=True, blank=True, help_text="Its newest receipt, which was not stored.")

    class Meta:
        constraints = readable("host_receipt", "observed_at", "received_at")

    def __str__(self) -> str:
        return f"receipt of {self.host} at {self.received_at:%Y-%m-%d %H:%M:%S}"


class ReportGap(models.Model):
    """A past period without receipts from a host's agent."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="report_gaps")
    begins_at = models.DateTimeField(help_text="The receipt before, by the clock of this service.")
    ends_at = models.DateTimeField(db_index=True, help_text="The receipt after, by the clock of this service.")

    def __str__(self) -> str:
        return f"{self.host}: no report from {self.begins_at:%Y-%m-%d %H:%M:%S} to {self.ends_at:%Y-%m-%d %H:%M:%S}"


class _Counted(models.Model):
    """Columns of the counters of both directions."""

    class Meta:
        abstract = True


for _direction in DIRECTIONS:
    for _name in COUNTERS:
        _Counted.add_to_class(f"{_direction}_{_name}", models.PositiveBigIntegerField(null=True, blank=True))


class LinkEnforcement(_Counted):
    """What the newest receipt says about one Link: the limit in the AP's kernel. A Link that is not in the receipt has
    no row. A repeated receipt writes nothing here: `received_at` and the versions are those of the last receipt that
    changed the row. Counters restart with the AP's host."""

    class State(models.TextChoices):
        ENFORCED = "enforced", "enforced"
        OBSERVED = "observed", "observed: nothing is limited"
        ERROR = "error", "error"

    link = models.OneToOneField(Link, on_delete=models.CASCADE, related_name="enforcement")
    # As configured when the kernel was read.
    kbit = models.PositiveBigIntegerField("wanted, the lower of both directions [kbit/s]")
    to_user_kbit = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Empty: the same in both directions."
    )
    from_user_kbit = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Empty: the same in both directions."
    )
    state = models.CharField(max_length=16, choices=State)
    problem = models.TextField(blank=True)
    since = models.DateTimeField(help_text="Start of the current state: every receipt since reported the same.")
    received_at = models.DateTimeField()
    generation = models.PositiveIntegerField(null=True, blank=True)
    config_version = models.PositiveIntegerField(null=True, blank=True)
    limits_version = models.PositiveIntegerField(null=True, blank=True)
    to_user_dev = models.CharField(
        max_length=32, blank=True, db_default="", help_text="Device of the queue, as the agent names it."
    )
    to_user_rate_kbit = models.PositiveBigIntegerField(null=True, blank=True)
    from_user_dev = models.CharField(
        max_length=32, blank=True, db_default="", help_text="Device of the queue, as the agent names it."
    )
    from_user_rate_kbit = models.PositiveBigIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            *readable("link_enforcement", "received_at", "since"),
            models.CheckConstraint(
                condition=LessThanOrEqual(Length("problem"), 2000), name="link_enforcement_problem_short"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.link}: {self.state} {self.wanted}"

    @property
    def wanted(self) -> Limits:
        """As configured when the kernel was read."""
        kbit = self.kbit
        return Limits(*(kbit if one is None else one for one in (self.to_user_kbit, self.from_user_kbit)))

    @property
    def in_kernel(self) -> Limits | None:
        """In the kernel, in both directions; None if one is missing."""
        if self.to_user_rate_kbit is None or self.from_user_rate_kbit is None:
            return None
        return Limits(self.to_user_rate_kbit, self.from_user_rate_kbit)

    @property
    def limited_to(self) -> Limits | None:
        """As `in_kernel`; None if the Link is only observed."""
        return None if self.state == LinkEnforcement.State.OBSERVED else self.in_kernel
