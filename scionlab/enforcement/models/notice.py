"""Current states that people were notified of. `enforcement.notices` finds them."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scionlab.accounts.models.user import MailKind
from scionlab.testbed.models.host import Host


class Notice(models.Model):
    """A user was notified of a problem at an attachment point and may be notified of its end. No repeated notification
    while the row exists; it is deleted when the state has ended. `links` are `[link, requested to the user AS, from
    it]` in kbit/s, to distinguish changes by administrators from the owner's."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notices")
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="notices")
    kind = models.CharField(max_length=16, choices=MailKind)
    began_at = models.DateTimeField()
    value = models.PositiveBigIntegerField(null=True, blank=True, help_text="The notified maximum [kbit/s].")
    links = models.JSONField(default=list)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["user", "host", "kind"], name="notice_once_while_it_lasts")]

    def __str__(self) -> str:
        return f"{self.kind} at {self.host} since {self.began_at:%Y-%m-%d %H:%M}"


class NoticeWatch(models.Model):
    """Since when states are checked without a pause: during a pause no agent could report. A single row, whose lock
    serializes workers."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    since = models.DateTimeField()
    looked_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="notice_watch_is_one_row")]

    def __str__(self) -> str:
        return f"watching since {self.since:%Y-%m-%d %H:%M}"
