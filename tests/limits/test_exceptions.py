"""Exceptions from the maximum: who may have more, until when, and what a configuration says of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from bandwidth_config import Limits, RuleError, generate_link_info
from scionlab.accounts.models import Mail, User
from scionlab.enforcement.census import take_census
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.status import link_status
from scionlab.limits.default_effects import affected_by
from scionlab.limits.default_plan import Line
from scionlab.limits.defaults import ap_default_set, fan_out, pending_attachment_points
from scionlab.limits.exceptions import (
    exception_decide,
    exception_end,
    exception_grant,
    exception_request,
    exceptions_notify,
)
from scionlab.limits.models import MaximumException
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link, UserAS
from scionlab.testbed.selectors import with_relations
from scionlab.user_ases.user_as import user_as_change
from tests.factories import attach, spec, stored
from tests.factories import save as save_as

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def later(days: int = 7) -> datetime:
    return timezone.now() + days * DAY


def grant(of: User | UserAS | Link | Group, staff: User, kbit: int = 5000, **values: Any) -> MaximumException:
    values = {"ends_at": later(), "reason": "A lecture.", "actor": staff, **values}
    made = exception_grant(of=of, maximum_kbit=kbit, **values)
    fan_out()
    return made


def over(exception: MaximumException) -> None:
    """Its end has come."""
    MaximumException.objects.filter(pk=exception.pk).update(ends_at=timezone.now() - timedelta(seconds=1))
    fan_out()


def refused(link: Link, kbit: int) -> str:
    with pytest.raises(RuleError) as error:
        link_set_bandwidth(link_id=link.pk, bandwidth_kbit=kbit, actor=None)
    return error.value.code


def versions(host: Host) -> tuple[int, int]:
    host.refresh_from_db()
    return host.config_version, host.limits_version


def mails(*templates: str) -> list[tuple[str, str]]:
    keys = [one.partition(":")[0] for one in Mail.objects.order_by("pk").values_list("key", flat=True)]
    found = zip(keys, Mail.objects.order_by("pk").values_list("recipient", flat=True), strict=True)
    return [(key, to) for key, to in found if key.startswith("exception")]


# --- what it allows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["user", "user_as", "link"])
def test_an_exception_raises_the_maximum_of_its_links_and_of_no_others(
    kind: str, owner: User, teammate: User, staff: User, ap: AttachmentPoint, user_as: UserAS, link: Link
) -> None:
    second = Link.objects.get(interface_b__AS=attach(owner, spec(ap, public_port=50_010)).pk)
    others = Link.objects.get(interface_b__AS=attach(teammate, spec(ap, public_port=50_011)).pk)
    grant({"user": owner, "user_as": user_as, "link": link}[kind], staff)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=5000, actor=owner)
    assert refused(link, 5001) == "bandwidth_too_high"
    assert refused(others, 1001) == "bandwidth_too_high"
    if kind == "user":
        link_set_bandwidth(link_id=second.pk, bandwidth_kbit=5000, actor=owner)
    else:
        assert refused(second, 1001) == "bandwidth_too_high"
    assert Link.objects.get(pk=link.pk).enforced == Limits.both(5000)


def test_when_it_ends_the_limit_falls_back_and_the_choice_is_kept(
    owner: User, staff: User, ap: AttachmentPoint, link: Link
) -> None:
    before = versions(ap.host)
    made = grant(link, staff)
    assert versions(ap.host) == before, "nothing that is enforced changed"
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=3000, actor=owner)
    assert versions(ap.host) == (before[0], before[1] + 1)
    over(made)
    found = Link.objects.get(pk=link.pk)
    assert (found.enforced, found.requested) == (Limits.both(1000), Limits.both(3000))
    assert versions(ap.host) == (before[0], before[1] + 2)
    assert (fan_out(), pending_attachment_points()) == ([], [])
    assert found.wanted_limits_version == before[1] + 2


def test_the_configuration_has_it_and_pages_and_cockpit_judge_the_same(
    owner: User, staff: User, ap: AttachmentPoint, link: Link, receipt: HostReceipt
) -> None:
    grant(link, staff, 700)
    assert take_census(now=timezone.now()).groups[0].clamped == 0, "below the default an exception changes nothing"
    grant(link, staff, 5000)
    for kbit, maximum in ((3000, 1000), (3000, 0), (6000, 1000)):
        AttachmentPoint.objects.update(maximum_kbit=maximum)
        Link.objects.update(bandwidth_kbit=kbit)
        wanted = min(kbit, 5000)
        LinkEnforcement.objects.update(kbit=wanted, to_user_rate_kbit=wanted, from_user_rate_kbit=wanted)
        now = timezone.now()
        (judged,) = [link_status(one, now=now) for one in with_relations(Link.objects.all())]
        (group,) = take_census(now=now).groups
        assert group.verdict == judged.verdict
        assert judged.state == ("clamped" if kbit > 5000 else "enforced")
        assert group.standing == judged.wanted == Limits.both(wanted)
        (entry,) = generate_link_info(ap.host).values()
        assert entry["Bandwidth"] == wanted


def test_a_default_raises_l_only_where_no_exception_lets_the_limit_stay(
    owner: User, staff: User, ap: AttachmentPoint, link: Link
) -> None:
    grant(link, staff)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=3000, actor=owner)
    before = versions(ap.host)
    assert affected_by([Line(ap.pk, None, 500, 1000, 500)]) == {}
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=500, actor=staff)
    fan_out()
    assert versions(ap.host) == before
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=10_000, actor=staff)
    fan_out()
    assert versions(ap.host) == before
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=8000, actor=owner)
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=500, actor=staff)
    fan_out()
    assert Link.objects.get().enforced == Limits.both(5000), "it falls to the exception, not below"
    assert versions(ap.host) == (before[0], before[1] + 2)
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=400, actor=staff)
    fan_out()
    assert versions(ap.host) == (before[0], before[1] + 2), "the exception clamps it before and after"


def test_the_highest_of_several_holds_and_a_link_that_is_new_gets_that_of_its_owner(
    owner: User, staff: User, ap: AttachmentPoint, user_as: UserAS, link: Link
) -> None:
    grant(owner, staff, 3000)
    highest = grant(link, staff, 8000)
    attach(owner, spec(ap, public_port=50_010))
    assert pending_attachment_points() == [ap.pk]
    fan_out()
    assert list(Link.objects.order_by("pk").values_list("exception_kbit", flat=True)) == [8000, 3000]
    exception_end(exception_id=highest.pk, actor=staff)
    fan_out()
    assert list(Link.objects.order_by("pk").values_list("exception_kbit", flat=True)) == [3000, 3000]


# --- asked for, and decided ---------------------------------------------------------------------------------------


def ask(link: Link, owner: User, kbit: int = 5000, **values: Any) -> MaximumException:
    values = {"ends_at": later(), "reason": "A measurement.", **values}
    return exception_request(link_id=link.pk, maximum_kbit=kbit, actor=owner, **values)


def test_a_request_changes_nothing_until_an_administrator_approves_it(
    owner: User, staff: User, ap: AttachmentPoint, link: Link
) -> None:
    made = ask(link, owner)
    fan_out()
    assert refused(link, 5000) == "bandwidth_too_high"
    exception_decide(exception_id=made.pk, approve=True, answer="", actor=staff)
    fan_out()
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=5000, actor=owner)
    assert mails() == [("exception_asked", "staff@example.org"), ("exception_approved", "owner@example.org")]
    details = list(BandwidthChange.objects.filter(kind="exception").order_by("pk").values_list("detail", flat=True))
    assert [one.partition(":")[0] for one in details] == ["requested", "approved"]


def test_a_declined_request_is_answered_with_a_reason(owner: User, staff: User, link: Link) -> None:
    made = ask(link, owner)
    with pytest.raises(RuleError) as error:
        exception_decide(exception_id=made.pk, approve=False, answer=" ", actor=staff)
    assert error.value.code == "exception_answer"
    exception_decide(exception_id=made.pk, approve=False, answer="The line is full.", actor=staff)
    assert "The line is full." in Mail.objects.get(key__startswith="exception_declined").body
    with pytest.raises(RuleError) as error:
        exception_decide(exception_id=made.pk, approve=True, answer="", actor=staff)
    assert error.value.code == "exception_decided"
    at = MaximumException.objects.get().decided_at
    assert error.value.message == f"{staff.email} declined this request at {at:%Y-%m-%d %H:%M:%S} UTC. Nothing changed."
    fan_out()
    assert Link.objects.get().exception_kbit is None


def test_what_cannot_be_asked_for_is_refused_with_its_remedy(owner: User, link: Link) -> None:
    for values, code in (
        ({"kbit": 1000}, "exception_not_higher"),
        ({"kbit": 100_000_001}, "bandwidth_too_high"),
        ({"ends_at": timezone.now()}, "exception_ends"),
        ({"ends_at": later(367)}, "exception_ends"),
        ({"reason": " "}, "exception_reason"),
        ({"reason": "x" * 201}, "exception_reason"),
    ):
        with pytest.raises(RuleError) as error:
            ask(link, owner, **values)  # type: ignore[arg-type]  # a table
        assert error.value.code == code, values
    assert not MaximumException.objects.exists()
    ask(link, owner)
    with pytest.raises(RuleError) as error:
        ask(link, owner)
    assert error.value.code == "exception_asked"


def test_mails_that_were_sent_are_not_rendered_again(
    owner: User, staff: User, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant(link, staff, ends_at=later(3))
    soon = timezone.now() + timedelta(days=2.5)
    assert exceptions_notify(now=soon) == 1
    monkeypatch.setattr("scionlab.limits.exceptions.mail_of", lambda *_, **__: pytest.fail("rendered"))
    assert exceptions_notify(now=soon) == 0


@pytest.mark.parametrize("save", ["limit", "create", "update", "change"])
def test_a_save_judges_the_exceptions_of_its_links_alone(
    owner: User, staff: User, user_as: UserAS, link: Link, ap: AttachmentPoint, save: str
) -> None:
    other = Link.objects.get(interface_b__AS=attach(owner, spec(ap, public_port=50_020)).pk)
    for one in (link, other):
        exception_grant(of=one, maximum_kbit=5000, ends_at=later(), reason="A lecture.", actor=staff)
    if save == "limit":
        link_set_bandwidth(link_id=link.pk, bandwidth_kbit=300, actor=owner)
    elif save == "create":
        attach(owner, spec(ap, public_port=50_030))
    elif save == "update":
        save_as(user_as, replace(stored(user_as)[0], bandwidth_kbit=300), actor=owner)
    else:
        user_as_change(user_as_id=user_as.pk, actor=owner, bandwidth_kbit=300)
    held = dict(Link.objects.values_list("pk", "exception_kbit"))
    assert (held[link.pk], held[other.pk]) == (None if save == "create" else 5000, None)
    fan_out()
    assert set(Link.objects.filter(pk__in=[link.pk, other.pk]).values_list("exception_kbit", flat=True)) == {5000}


def test_owners_are_told_a_day_before_the_end_and_at_the_end_once(owner: User, staff: User, link: Link) -> None:
    made = grant(link, staff, ends_at=later(3))
    grant(link, staff, ends_at=timezone.now() + timedelta(hours=5))  # its end is no news
    now = timezone.now()
    told = [exceptions_notify(now=now + timedelta(days=days)) for days in (0, 1, 2.5, 2.5, 3.5, 3.5)]
    assert told == [0, 1, 1, 0, 1, 0]
    kinds = [key for key, to in mails() if to == "owner@example.org"]
    assert kinds == ["exception_approved", "exception_approved", "exception_ended", "exception_ends", "exception_ended"]
    assert made.maximum_kbit == 5000


def test_no_mail_of_an_exception_calls_it_the_maximum_which_may_be_higher(
    owner: User, staff: User, ap: AttachmentPoint, link: Link
) -> None:
    grant(owner, staff, 8000)
    made = grant(link, staff, 5000, ends_at=later(3))
    exceptions_notify(now=timezone.now() + 2.5 * DAY)
    over(made)
    exceptions_notify()
    assert Link.objects.get().maximum_kbit == 8000
    for key in ("exception_approved", "exception_ends", "exception_ended"):
        mail = Mail.objects.get(key__startswith=f"{key}:{made.pk}:")
        assert "xception for up to 5 000 kbit/s" in mail.subject
        assert "another exception" in mail.body
        assert "raised the maximum" not in mail.body
