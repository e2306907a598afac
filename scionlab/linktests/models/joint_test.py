"""Joint tests of several Links of a user AS. Their parts are rows of `LinkTest`."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scionlab.platform.clock import database_now
from scionlab.platform.readable import readable


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
