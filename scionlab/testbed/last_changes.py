"""Who changed a row last, for a page that is outdated (`web.pages.stale_pages`)."""

from __future__ import annotations

from scionlab.accounts.models import User
from scionlab.platform.clock import database_now
from scionlab.testbed.models import BandwidthChange, UserAS
from scionlab.web.pages.stale_pages import LastChange


def note_change(user_as_id: int, *, actor: User | None) -> None:
    """Record who changed the AS or one of its Links, in the transaction of the change."""
    UserAS.objects.filter(pk=user_as_id).update(changed_at=database_now(), changed_by=actor)


def last_change_of_user_as(user_as_id: int) -> LastChange:
    found = UserAS.objects.select_related("changed_by").filter(pk=user_as_id).first()
    return LastChange() if found is None else LastChange(found.changed_by, found.changed_at)


def last_bandwidth_change(**filters: object) -> LastChange:
    """The newest row of the audit log that matches `BandwidthChange.objects.filter`."""
    found = BandwidthChange.objects.select_related("actor").filter(**filters).first()
    return LastChange() if found is None else LastChange(found.actor, found.at, found.actor_email)
