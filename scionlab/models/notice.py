"""States that people are told of by mail: which began and have not ended. Found by `enforcement.notices`."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from scionlab.models.host import Host
from scionlab.models.user import MailKind


class Notice(models.Model):
    """Somebody was told that something is wrong at an attachment point, and will be told, or not, that it is over.
    Without `user` it was the webhook of the site.

    While a row is there nobody is told again; it goes when the state has ended. `links` are what it is about: a list of
    `[link, requested to the user AS, from it]` in kbit/s, to tell an administrator's doing from the owner's.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="notices"
    )
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
    """Since when somebody looks without a gap: while the service itself was away, no agent could be heard.

    There is exactly one row, whose lock lets one worker at a time look.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    since = models.DateTimeField()
    looked_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="notice_watch_is_one_row")]

    def __str__(self) -> str:
        return f"watching since {self.since:%Y-%m-%d %H:%M}"
