"""Mails about ended tests, checked once a minute: to the creator of a scheduled test, and to administrators if more
passed than the limit (`LinkTest.is_over_limit`, shown in the cockpit).

A joint test has one mail to its creator. The key of a mail contains the test, so nothing is sent twice. A late result
is judged again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.urls import reverse
from django.utils import timezone

from contract.link_tests import WATCH
from scionlab.accounts.mail import mail_of, mails_create
from scionlab.accounts.models import Mail, MailKind, User
from scionlab.enforcement.notices import local_time
from scionlab.linktests.joint_report import status_of_joint, with_parts
from scionlab.linktests.models import JointTest, LinkTest
from scionlab.linktests.sending_verdict import SendingVerdict
from scionlab.linktests.test_status import LATE_AFTER, TestStatus, status_of_test, with_results
from scionlab.platform.clock import database_now
from scionlab.platform.each import for_each
from scionlab.platform.retry import retried

logger = logging.getLogger(__name__)

SCHEDULED_AHEAD: Final = timedelta(minutes=15)  # a test started now is watched on its page and needs no mail
LOOKED_AT_FOR: Final = timedelta(days=1)  # since the end, or the arrival of the result
AT_ONCE: Final = 200


def link_tests_notify(*, now: datetime | None = None) -> list[int]:
    """Judge ended tests and create the mails; return the judged tests. Idempotent and safe to run concurrently."""
    now = now or database_now()
    is_recent = Q(ends_at__gt=now - LOOKED_AT_FOR) | Q(results__received_at__gt=now - LOOKED_AT_FOR)
    is_new = Q(judged_at=None) | Q(results__received_at__gt=F("judged_at"))
    matters = ~Q(tool=WATCH) | Q(begins_at__gt=F("created_at") + SCHEDULED_AHEAD)
    over = LinkTest.objects.filter(is_recent, is_new, matters, cancelled_at=None, ends_at__lte=now - LATE_AFTER)
    ids = over.order_by("ends_at", "pk").values_list("pk", flat=True)[:AT_ONCE]
    return for_each(list(dict.fromkeys(ids)), lambda test_id: [test_id] if _notify(test_id, now) else [])


@retried
@transaction.atomic
def _notify(test_id: int, now: datetime) -> bool:
    rows = with_results(LinkTest.objects.filter(pk=test_id))
    test = rows.select_related("link__interface_b__AS__isd", "link__interface_b__AS__useras").first()
    if test is None:
        return False
    status = status_of_test(test, now=now)
    is_over_limit = isinstance(status.verdict, SendingVerdict) and status.verdict.code == "over_the_limit"
    LinkTest.objects.filter(pk=test_id).update(judged_at=now, is_over_limit=is_over_limit)
    mails_create([*_to_creator(status), *(_alarms(status) if is_over_limit else ())])
    if is_over_limit:
        logger.error("link_test.over_the_limit id=%s %s", test.pk, test)
    return True


def _to_creator(status: TestStatus) -> Iterator[Mail]:
    test, user = status.test, status.test.created_by
    if user is None or test.begins_at - test.created_at <= SCHEDULED_AHEAD:
        return
    with timezone.override(user.tz):  # for its sentences
        if test.joint_id is None:
            context = {**_context(status, user), "text": status.text}
        else:
            context = _joint_context(test, test.joint_id, user)
    if not context:
        return
    fields = {"key": f"test:{test.pk}", "recipient": user.email, "kind": MailKind.TESTED, "user": user}
    yield mail_of("linktests/mail/test_ended.txt", context, **fields)


def _joint_context(test: LinkTest, joint_id: int, user: User) -> dict[str, object]:
    """For a joint test, when its last part is judged; otherwise empty."""
    status = status_of_joint(with_parts(JointTest.objects.filter(pk=joint_id)).get(), now=database_now())
    joint, last = status.joint, max(status.parts, key=lambda one: (one.test.ends_at, one.test.pk))
    if test.pk != last.test.pk:
        return {}
    aps = {one.test.link.interface_a.AS.isd_as: None for one in status.parts}
    return {
        "links": len({one.test.link_id for one in status.parts}),
        "isd_as": joint.user_as.isd_as,
        "ap": ", ".join(aps),
        "begins_at": local_time(joint.begins_at, user.tz),
        "state": status.state,
        "text": status.text,
        "page": settings.SITE_URL + reverse("joint_test", args=[joint.user_as_id, joint.pk]),
    }


def _alarms(status: TestStatus) -> Iterator[Mail]:
    for user in User.objects.filter(is_staff=True, is_active=True).order_by("pk"):
        context = {**_context(status, user), "text": status.verdict.text if status.verdict is not None else ""}
        key = f"over_the_limit:{status.test.pk}:{user.pk}"
        yield mail_of("linktests/mail/over_the_limit.txt", context, key=key, recipient=user.email, user=user)


def _context(status: TestStatus, user: User) -> dict[str, object]:
    test, link = status.test, status.test.link
    page = reverse("link_test", args=[link.interface_b.AS_id, link.pk, test.pk])
    return {
        "tool": test.tool,
        "isd_as": link.interface_b.AS.isd_as,
        "ap": link.interface_a.AS.isd_as,
        "begins_at": local_time(test.begins_at, user.tz),
        "state": status.state,
        "page": settings.SITE_URL + page,
    }
