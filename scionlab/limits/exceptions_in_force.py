"""Which Links have another exception in force than the stored one."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, F, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from scionlab.accounts.models import User
from scionlab.limits.models import MaximumException
from scionlab.testbed.models import Link
from scionlab.testbed.selectors import USER_LINKS


def links_with_other_exception(now: datetime) -> QuerySet[Link]:
    """Links whose stored exception is not the highest in force, which is `held_kbit` (None: none)."""
    of = Q(link=OuterRef("pk")) | Q(user_as=OuterRef("interface_b__AS"))
    owner, ap = "interface_b__AS__useras__owner", "interface_a__AS__attachment_point"
    members = User.groups.through._default_manager.filter(group=OuterRef("group"))
    places = MaximumException.attachment_points.through._default_manager.filter(maximumexception=OuterRef("pk"))
    of_group = Q(group__isnull=False)  # first, so that other exceptions are not looked up
    of_group &= Q(Exists(members.filter(user=OuterRef(OuterRef(owner)))))
    of_group &= Q(Exists(places.filter(attachmentpoint=OuterRef(OuterRef(ap)))))
    held = MaximumException.objects.filter(
        of | Q(user=OuterRef(owner)) | of_group,
        state=MaximumException.State.APPROVED,
        ends_at__gt=now,
    )
    highest = held.order_by().values("state").annotate(highest=Max("maximum_kbit")).values("highest")
    links = Link.objects.filter(USER_LINKS).annotate(held_kbit=Subquery(highest))
    return links.annotate(stored_or_0=Coalesce("exception_kbit", 0), held_or_0=Coalesce(F("held_kbit"), 0)).exclude(
        stored_or_0=F("held_or_0")
    )
