"""Exceptions: a higher maximum for one user, AS, Link or group until a date."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models

from bandwidth_config import MAX_BANDWIDTH_KBIT
from scionlab.platform.clock import database_now
from scionlab.platform.readable import readable
from scionlab.testbed.models.attachment_point import AttachmentPoint
from scionlab.testbed.models.isd_as import UserAS
from scionlab.testbed.models.link import Link


class MaximumException(models.Model):
    """Requested by a user, or granted directly by an administrator. Exactly one is set of `user` (all Links of all
    their ASes), `user_as` (all its Links), `link` and `group`, whose members get it on their Links at the
    `attachment_points`. It applies while it is approved and `ends_at` has not come; `limits.exceptions` stores the
    effect at the Links (`Link.exception_kbit`)."""

    class State(models.TextChoices):
        ASKED = "asked", "requested"
        APPROVED = "approved", "approved"
        DECLINED = "declined", "declined"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="maximum_exceptions"
    )
    user_as = models.ForeignKey(
        UserAS, null=True, blank=True, on_delete=models.CASCADE, related_name="maximum_exceptions"
    )
    link = models.ForeignKey(Link, null=True, blank=True, on_delete=models.CASCADE, related_name="maximum_exceptions")
    group = models.ForeignKey(Group, null=True, blank=True, on_delete=models.CASCADE, related_name="maximum_exceptions")
    attachment_points = models.ManyToManyField(AttachmentPoint, blank=True, related_name="group_exceptions")
    maximum_kbit = models.PositiveBigIntegerField("maximum [kbit/s]")
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=200)
    state = models.CharField(max_length=8, choices=State)
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    asked_at = models.DateTimeField(default=database_now, editable=False)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    answer = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["ends_at"], name="maximum_exception_ends")]
        constraints = [
            *readable("maximum_exception", "ends_at"),
            models.CheckConstraint(
                condition=models.Q(user__isnull=False, user_as=None, link=None, group=None)
                | models.Q(user=None, user_as__isnull=False, link=None, group=None)
                | models.Q(user=None, user_as=None, link__isnull=False, group=None)
                | models.Q(user=None, user_as=None, link=None, group__isnull=False),
                name="maximum_exception_is_about_one",
            ),
            models.CheckConstraint(
                condition=models.Q(maximum_kbit__gte=1, maximum_kbit__lte=MAX_BANDWIDTH_KBIT),
                name="maximum_exception_in_bounds",
            ),
        ]

    def __str__(self) -> str:
        return f"maximum of {self.maximum_kbit} kbit/s for {self.of}"

    @property
    def of(self) -> str:
        """Its subject: an email address, an ISD-AS, a Link by its ends, or a group by name."""
        if self.group is not None:
            return f"group {self.group.name}"
        if self.user is not None:
            return self.user.email
        return str(self.link) if self.user_as is None else self.user_as.isd_as
