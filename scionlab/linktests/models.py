"""Tests of Links, joint tests of several, their results, and the policies that allow them."""

from __future__ import annotations

import secrets
from collections import defaultdict
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from contract import link_tests
from scionlab.accounts.models.user import validate_time_zone
from scionlab.platform.clock import database_now
from scionlab.platform.readable import readable
from station.tools import TOOLS


def new_test_id() -> str:
    return secrets.token_hex(16)


def tool_choices() -> list[tuple[str, str]]:
    """`watch`, and the tools that send."""
    return [(name, name) for name in (link_tests.WATCH, *TOOLS)]


class JointTest(models.Model):
    """Tests of all active Links of a user AS, each alone and then together, that are reserved and cancelled together.
    `begins_at` is that of the first part, `ends_at` that of the last one."""

    user_as = models.ForeignKey("testbed.UserAS", on_delete=models.CASCADE, related_name="joint_tests")
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=database_now, editable=False)
    cancelled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-begins_at", "-pk"]
        constraints = [
            models.CheckConstraint(condition=models.Q(ends_at__gt=models.F("begins_at")), name="joint_test_has_length"),
            *readable("joint_test", "begins_at", "ends_at"),
        ]

    def __str__(self) -> str:
        return f"joint test of {self.user_as} from {self.begins_at:%Y-%m-%d %H:%M:%S} until {self.ends_at:%H:%M:%S}"

    @property
    def duration_s(self) -> int:
        return round((self.ends_at - self.begins_at).total_seconds())


class LinkTest(models.Model):
    """A test of a Link from `begins_at` until `ends_at` (whole seconds).

    Like a timed limit, a row is in the configuration of the attachment point's host until it is cancelled, or retired
    after its end (`linktests.link_test`). In PostgreSQL constraints prevent overlaps on one Link and on one lane of an
    attachment point (`linktests.reservations`).

    `phases` are what both ends do (`station.plan`), derived from the tool, its parameters and the limits at
    `begins_at`; `kbit` and `max_bytes` are the maximum that the attachment point's end sends, `offered_bytes` what both
    send. A watch has none of these.
    """

    link = models.ForeignKey("testbed.Link", on_delete=models.CASCADE, related_name="tests")
    joint = models.ForeignKey(
        "linktests.JointTest", null=True, blank=True, on_delete=models.CASCADE, related_name="parts"
    )
    tool = models.CharField(max_length=16, choices=tool_choices, db_column="kind")
    ap = models.ForeignKey("testbed.AttachmentPoint", null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    lane = models.PositiveSmallIntegerField(null=True, blank=True, help_text="Which of its test ports it uses.")
    parameters = models.JSONField(null=True, blank=True)
    phases = models.JSONField(null=True, blank=True)
    kbit = models.PositiveBigIntegerField(null=True, blank=True)
    max_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    offered_bytes = models.PositiveBigIntegerField(null=True, blank=True)
    test_id = models.CharField(max_length=32, unique=True, default=new_test_id, editable=False)
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=database_now, editable=False)
    cancelled_at = models.DateTimeField(null=True, blank=True)
    retired_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of removal from the configuration after the end."
    )
    armed_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of the first receipt that confirms it: the attachment point has it."
    )
    # From `linktests.test_mails`, after the end; pages judge again.
    judged_at = models.DateTimeField(null=True, blank=True)
    is_over_limit = models.BooleanField(default=False, db_default=False)

    class Meta:
        ordering = ["begins_at", "pk"]
        constraints = [
            models.CheckConstraint(condition=models.Q(ends_at__gt=models.F("begins_at")), name="link_test_has_length"),
            models.CheckConstraint(
                condition=models.Q(tool=link_tests.WATCH, lane=None)
                | (
                    ~models.Q(tool=link_tests.WATCH)
                    & models.Q(lane__isnull=False, lane__lt=link_tests.TEST_LANES, ap__isnull=False)
                ),
                name="link_test_that_sends_has_a_lane",
            ),
            *readable("link_test", "begins_at", "ends_at"),
        ]

    def __str__(self) -> str:
        return f"{self.tool} of {self.link} from {self.begins_at:%Y-%m-%d %H:%M:%S} until {self.ends_at:%H:%M:%S}"

    @property
    def duration_s(self) -> int:
        return round((self.ends_at - self.begins_at).total_seconds())

    @property
    def as_rule_value(self) -> link_tests.LinkTest:
        """As named in the rules."""
        times = (self.begins_at, self.ends_at, self.test_id, self.kind)
        return link_tests.LinkTest(*times, self.port, self.kbit, self.max_bytes)

    @property
    def sends(self) -> bool:
        return self.tool != link_tests.WATCH

    @property
    def kind(self) -> str:
        """As named in the signed document."""
        return TOOLS[self.tool].kind if self.sends else link_tests.WATCH

    @property
    def port(self) -> int | None:
        """UDP port of the attachment point's end."""
        return None if self.lane is None else link_tests.FIRST_TEST_PORT + self.lane

    def result_of(self, side: str) -> TestResult | None:
        """No SQL statement if the results were prefetched."""
        return next((one for one in self.results.all() if one.side == side), None)


class TestResult(models.Model):
    """Result of one end; immutable once final.

    Of the attachment point, `samples` are rows in order of time, one per moment: `[at_ms, clock_ms, in_force, [segment,
    rate_kbit, passed_bytes, passed_packets, dropped_bytes, dropped_packets, lost_packets], the same from the user]`.
    `report` is the report of an end that sends (`station.report`), None before it arrives; the user's end has only
    that. docs/api.md describes both.
    """

    __test__ = False  # not a test class of pytest

    class Side(models.TextChoices):
        AP = "ap", "attachment point"
        USER = "user", "user"

    test = models.ForeignKey(LinkTest, on_delete=models.CASCADE, related_name="results")
    side = models.CharField(max_length=8, choices=Side, default=Side.AP, db_default=Side.AP.value)
    samples = models.JSONField(default=list)
    report = models.JSONField(null=True, blank=True)
    received_at = models.DateTimeField(help_text="Time of the newest upload.")
    is_final = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["test", "side"], name="test_result_once_per_side")]

    def __str__(self) -> str:
        return f"result of {self.test_id} by {self.get_side_display()}"


class TestPolicy(models.Model):
    """How much people may test, and when. Of several rows that cover a person, the highest value of each column and the
    hours of all apply; without a row for everyone, the built-in values apply (`linktests.test_policy`). The rules cap
    them."""

    __test__ = False

    class AppliesTo(models.TextChoices):
        EVERYBODY = "everybody", "everybody"
        GROUP = "group", "a group"
        STAFF = "staff", "administrators"

    applies_to = models.CharField(max_length=16, choices=AppliesTo)
    group = models.ForeignKey(Group, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    tool = models.CharField(max_length=16, choices=tool_choices, default=link_tests.WATCH, db_column="kind")
    max_seconds = models.PositiveIntegerField(
        "longest test [s]",
        validators=[MinValueValidator(link_tests.MIN_WATCH_S), MaxValueValidator(link_tests.MAX_WATCH_S)],
    )
    runs_per_day = models.PositiveIntegerField(
        "tests per day", help_text="Started or scheduled within 24 hours. 0: none at all."
    )
    max_pending = models.PositiveIntegerField("pending tests", help_text="Scheduled or running at the same time.")
    horizon_hours = models.PositiveIntegerField(
        "horizon [h]",
        validators=[MaxValueValidator(link_tests.MAX_AHEAD_S // 3600)],
        help_text="How far ahead a test may be scheduled.",
    )
    limit_percent = models.PositiveSmallIntegerField(
        "share of the limit [%]",
        default=400,
        db_default=400,
        validators=[MinValueValidator(100), MaxValueValidator(400)],
        help_text="The highest rate that a test offers. A watch sends nothing.",
    )
    megabytes_per_day = models.PositiveIntegerField(
        "data per day [MB]",
        default=5000,
        db_default=5000,
        help_text="Sent by both ends, of tests started or scheduled within 24 hours. A watch sends nothing.",
    )
    max_load_percent = models.PositiveSmallIntegerField(
        "load of the attachment point [%]",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="A test that sends begins only while the links there carry at most this share of the uplink, or of "
        "the total of all links where that is lower. Where neither is set, or the load is unknown, the rule does not "
        "apply. Empty: any load.",
    )
    hours_begin = models.PositiveSmallIntegerField(
        "hours from",
        null=True,
        blank=True,
        validators=[MaxValueValidator(23)],
        help_text="0 to 23. Tests run from this hour on. Empty: at any time.",
    )
    hours_end = models.PositiveSmallIntegerField(
        "hours until",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(24)],
        help_text="1 to 24. Tests end by this hour; of the next day where it is not later than the first.",
    )
    hours_zone = models.CharField(
        "time zone of the hours", max_length=64, default="UTC", db_default="UTC", validators=[validate_time_zone]
    )

    class Meta:
        ordering = ["applies_to", "group__name", "tool"]
        verbose_name = "policy of tests"
        verbose_name_plural = "policies of tests"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(applies_to="group", group__isnull=False)
                | (~models.Q(applies_to="group") & models.Q(group__isnull=True)),
                name="test_policy_names_its_group",
            ),
            models.CheckConstraint(
                condition=models.Q(hours_begin=None, hours_end=None)
                | models.Q(hours_begin__isnull=False, hours_end__isnull=False, hours_begin__lt=24, hours_end__lte=24),
                name="test_policy_has_both_hours",
            ),
            models.UniqueConstraint(
                fields=["applies_to", "tool"], condition=models.Q(group=None), name="test_policy_once"
            ),
            models.UniqueConstraint(fields=["group", "tool"], name="test_policy_once_per_group"),
        ]

    def __str__(self) -> str:
        return f"{self.group}" if self.group is not None else self.get_applies_to_display()

    def clean(self) -> None:
        if self.tool != link_tests.WATCH and (self.max_seconds or 0) > link_tests.MAX_TEST_S:
            text = f"{self.max_seconds} s exceed the {link_tests.MAX_TEST_S} s that a test that sends may last."
            raise ValidationError({"max_seconds": ValidationError(text, code="test_long")})
        if (self.hours_begin is None) != (self.hours_end is None):
            empty = "hours_begin" if self.hours_begin is None else "hours_end"
            text = "Enter both hours, or none for any time."
            raise ValidationError({empty: ValidationError(text, code="hours_incomplete")})
        if self.hours_begin is not None and self.hours_begin == self.hours_end:
            text = f"From {self.hours_begin} to {self.hours_end} is empty. Enter two hours, or none for any time."
            raise ValidationError({"hours_end": ValidationError(text, code="hours_empty")})


def tests_of(host_id: int) -> dict[int, tuple[dict[str, str | int], ...]]:
    """By Link, tests of the active Links that the host provides, for its configuration."""
    rows: Any = LinkTest.objects.filter(cancelled_at=None, retired_at=None)
    found: dict[int, list[link_tests.LinkTest]] = defaultdict(list)
    for one in rows.filter(link__interface_a__host=host_id, link__active=True):
        found[one.link_id].append(one.as_rule_value)
    return {link_id: tuple(one.statement() for one in sorted(several)) for link_id, several in found.items()}
