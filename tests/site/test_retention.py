"""How long rows are kept that nobody needs any more, and that what follows from them is not told twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone
from pytest_django import Settings

from scionlab.accounts.models import ApiToken, Mail, User
from scionlab.delivery.models import EnrolmentToken
from scionlab.enforcement.models import ReportGap
from scionlab.enforcement.receipt_mails import deployment_note
from scionlab.limits.models import DefaultChange, MaximumException
from scionlab.linktests.models import JointTest, LinkTest
from scionlab.site import retention, tasks
from scionlab.site.retention import old_rows_forget
from scionlab.testbed.models import BandwidthChange, DeletedHost, Host, Link, TimedLimit
from scionlab.web.models import ApiRequest

pytestmark = pytest.mark.django_db

NOW = timezone.now()
CONSTANT: dict[str, Any] = {"kind": "constant", "steps": [], "step_count": 0, "highest_kbit": 1}


def old_and_young(owner: User, link: Link, at: datetime) -> dict[type[Any], tuple[Any, str, timedelta]]:
    """A row of each kind that is as old as `at` says, with its column and its age."""
    host = link.interface_a.host
    test = LinkTest.objects.create(link=link, tool="watch", begins_at=at - timedelta(days=90, seconds=1), ends_at=at)
    joint = JointTest.objects.create(user_as_id=link.interface_b.AS_id, begins_at=test.begins_at, ends_at=at)
    mail = Mail.objects.create(key=f"{at}", recipient="o@example.org", subject="s", body="b")
    enrolment = EnrolmentToken.objects.create(token_sha256=f"{at}", host=host, expires_at=at)
    token = ApiToken.objects.create(user=owner, name=f"{at}", token_sha256=f"t{at}", expires_at=at)
    request = ApiRequest.objects.create(user=owner, key=f"{at}", fingerprint="f")
    preview = DefaultChange.objects.create(what="w", chosen="c", operation={})
    deleted = DeletedHost.objects.create(uid=f"{at:%s}", secret_sha256="d", deleted_at=at)
    gap = ReportGap.objects.create(host=host, begins_at=at, ends_at=at)
    exception = MaximumException.objects.create(link=link, maximum_kbit=1, ends_at=at, reason="r", state="approved")
    timed = TimedLimit.objects.create(link=link, begins_at=test.begins_at, ends_at=at, retired_at=at, **CONSTANT)
    made = {
        Mail: (mail, "sent_at", 90),
        EnrolmentToken: (enrolment, "expires_at", 30),
        ApiToken: (token, "expires_at", 30),
        ApiRequest: (request, "created_at", 1),
        DefaultChange: (preview, "created_at", 1),
        DeletedHost: (deleted, "deleted_at", 30),
        ReportGap: (gap, "ends_at", 2),
        MaximumException: (exception, "ends_at", 365),
        LinkTest: (test, "ends_at", 90),
        JointTest: (joint, "ends_at", 90),
        TimedLimit: (timed, "ends_at", 90),
    }
    return {model: (row, column, timedelta(days=days)) for model, (row, column, days) in made.items()}


def test_each_kind_of_row_goes_when_it_has_its_age_and_not_before(owner: User, link: Link) -> None:
    for margin in (timedelta(seconds=-1), timedelta(seconds=1)):
        made = old_and_young(owner, link, NOW + margin)
        for model, (row, column, age) in made.items():
            model.objects.filter(pk=row.pk).update(**{column: NOW - age + margin})
    assert old_rows_forget(now=NOW) == {model.__name__: 1 for model in made}
    assert {kept.model.objects.count() for kept in retention.table()} == {1}
    assert sum(old_rows_forget(now=NOW).values()) == 0


def test_what_is_still_to_be_done_or_is_a_record_stays(owner: User, link: Link) -> None:
    long_ago = NOW - timedelta(days=4000)
    # Ended, and still in the configuration of the attachment point.
    TimedLimit.objects.create(link=link, begins_at=long_ago, ends_at=long_ago + timedelta(hours=1), **CONSTANT)
    Mail.objects.create(key="unsent", recipient="o@example.org", subject="s", body="b")
    DefaultChange.objects.create(what="w", chosen="c", operation={}, applied_at=long_ago)
    ApiToken.objects.create(user=owner, name="endless", token_sha256="t")
    for model, column in ((Mail, "created_at"), (DefaultChange, "created_at"), (ApiToken, "created_at")):
        model.objects.update(**{column: long_ago})
    assert sum(old_rows_forget(now=NOW).values()) == 0
    assert BandwidthChange.objects.count() == 1
    with pytest.raises(DatabaseError), transaction.atomic():
        BandwidthChange.objects.all().delete()


def test_the_ages_are_settings(settings: Settings, owner: User, link: Link) -> None:
    settings.MAIL_KEEP_DAYS, settings.USED_KEEP_DAYS = 5, 3
    old_and_young(owner, link, NOW - timedelta(days=4))
    Mail.objects.update(sent_at=NOW - timedelta(days=6))
    gone = old_rows_forget(now=NOW)
    assert (gone["Mail"], gone["EnrolmentToken"], gone["ApiToken"]) == (1, 1, 1)


def test_many_rows_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ROWS_AT_ONCE", 2)
    rows = [Mail(key=f"{n}", recipient="o@example.org", subject="s", body="b", sent_at=NOW) for n in range(5)]
    Mail.objects.bulk_create(rows)
    Mail.objects.update(sent_at=NOW - timedelta(days=91))
    assert old_rows_forget(now=NOW)["Mail"] == 5


def test_who_was_told_of_a_limit_is_not_told_again_when_the_mail_has_its_age(link: Link, host_a: Host) -> None:
    """A stock client confirms what it has with each fetch; the row of the mail says that its owner knows."""
    Host.objects.filter(pk=host_a.pk).update(
        config_version_deployed=9, delivered_config_version=9, delivered_limits_version=9
    )
    assert deployment_note(host_id=host_a.pk) == 1
    Mail.objects.update(sent_at=NOW - timedelta(days=4000))
    tasks.forget_old_rows()
    assert deployment_note(host_id=host_a.pk) == 0
    Link.objects.update(wanted_limits_version=2)  # another change since: the row is of no use any more
    tasks.forget_old_rows()
    assert not Mail.objects.exists()
