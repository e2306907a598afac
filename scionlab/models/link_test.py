"""Tests of Links: who reserved which time for one, what was measured then, and who may reserve how much."""

from __future__ import annotations

import secrets
from collections import defaultdict
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

import link_tests


def new_test_id() -> str:
    return secrets.token_hex(16)


class LinkTest(models.Model):
    """A test of a Link from `begins_at` until `ends_at` (whole seconds).

    A row is in the configuration of the attachment point's host from its creation until it is cancelled, or retired
    after its end (`links.link_test`), like a timed limit. The database keeps the times of one Link apart
    (`platform.reservations`).
    """

    class Kind(models.TextChoices):
        WATCH = link_tests.WATCH, "watch"

    link = models.ForeignKey("scionlab.Link", on_delete=models.CASCADE, related_name="tests")
    kind = models.CharField(max_length=16, choices=Kind)
    test_id = models.CharField(max_length=32, unique=True, default=new_test_id, editable=False)
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    cancelled_at = models.DateTimeField(null=True, blank=True)
    retired_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of removal from the configuration after the end."
    )
    armed_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of the first receipt that confirms it: the attachment point has it."
    )

    class Meta:
        ordering = ["begins_at", "pk"]
        constraints = [
            models.CheckConstraint(condition=models.Q(ends_at__gt=models.F("begins_at")), name="link_test_has_length")
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.link} from {self.begins_at:%Y-%m-%d %H:%M:%S} until {self.ends_at:%H:%M:%S}"

    @property
    def duration_s(self) -> int:
        return round((self.ends_at - self.begins_at).total_seconds())

    @property
    def said_by(self) -> link_tests.LinkTest:
        """As the rules know it."""
        return link_tests.LinkTest(self.begins_at, self.ends_at, self.test_id, self.kind)


class TestResult(models.Model):
    """What the attachment point measured. `samples` are rows as they came, in the order of their time, each of one
    moment: `[at_ms, clock_ms, in_force, [segment, rate_kbit, passed_bytes, passed_packets, dropped_bytes,
    dropped_packets], the same from the user]` (docs/api.md). Once it is final nothing is added."""

    __test__ = False  # pytest takes it for one of its own

    test = models.OneToOneField(LinkTest, on_delete=models.CASCADE, related_name="result")
    agent_version = models.CharField(max_length=32)
    samples = models.JSONField(default=list)
    received_at = models.DateTimeField(help_text="Time of the newest upload.")
    is_final = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"result of {self.test_id}"


class TestPolicy(models.Model):
    """How much people may test. Of several rows that a person is covered by, the highest number of each column counts;
    where none covers everybody, the built-in numbers do (`links.test_policy`). The caps in the rules stand above."""

    __test__ = False

    class AppliesTo(models.TextChoices):
        EVERYBODY = "everybody", "everybody"
        GROUP = "group", "a group"
        STAFF = "staff", "administrators"

    applies_to = models.CharField(max_length=16, choices=AppliesTo)
    group = models.ForeignKey(Group, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16, choices=LinkTest.Kind, default=LinkTest.Kind.WATCH)
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

    class Meta:
        ordering = ["applies_to", "group__name", "kind"]
        verbose_name = "policy of tests"
        verbose_name_plural = "policies of tests"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(applies_to="group", group__isnull=False)
                | (~models.Q(applies_to="group") & models.Q(group__isnull=True)),
                name="test_policy_names_its_group",
            ),
            models.UniqueConstraint(
                fields=["applies_to", "kind"], condition=models.Q(group=None), name="test_policy_once"
            ),
            models.UniqueConstraint(fields=["group", "kind"], name="test_policy_once_per_group"),
        ]

    def __str__(self) -> str:
        return f"{self.group}" if self.group is not None else self.get_applies_to_display()


def tests_of(host_id: int) -> dict[int, tuple[dict[str, str], ...]]:
    """By Link, of the active Links that the host provides: what its configuration says of their tests."""
    rows: Any = LinkTest.objects.filter(cancelled_at=None, retired_at=None)
    found: dict[int, list[link_tests.LinkTest]] = defaultdict(list)
    for one in rows.filter(link__interface_a__host=host_id, link__active=True):
        found[one.link_id].append(one.said_by)
    return {link_id: tuple(one.statement() for one in sorted(several)) for link_id, several in found.items()}
