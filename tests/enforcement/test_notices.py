"""Mails about what needs somebody: one for each person, attachment point and state, however often one looks."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from scionlab.accounts.mail import mail_send
from scionlab.accounts.models import Mail, User
from scionlab.enforcement import notices
from scionlab.enforcement.models import HostReceipt, LinkEnforcement, Notice, NoticeWatch
from scionlab.enforcement.notices import AWAY_AFTER, FAILED_AFTER, notices_find
from scionlab.limits.defaults import ap_default_set, fan_out
from scionlab.limits.profiles import outage
from scionlab.limits.timed_limit import timed_limit_cancel, timed_limit_create
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from tests.cases import table
from tests.factories import UserFactory, attach, spec

pytestmark = pytest.mark.django_db

T0 = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def watched() -> None:
    """Somebody has looked every minute for two hours."""
    NoticeWatch.objects.create(since=T0 - timedelta(hours=2), looked_at=T0)


@pytest.fixture
def reporting(host_a: Host, link: Link) -> HostReceipt:
    """The agent of `host_a` reported at T0, and has `link` in its kernel."""
    return heard(host_a, T0)


def heard(host: Host, at: datetime) -> HostReceipt:
    host.refresh_from_db()
    versions = {"generation": 1, "config_version": host.config_version, "limits_version": host.limits_version}
    Host.objects.filter(pk=host.pk).update(
        delivered_config_version=host.config_version, delivered_limits_version=host.limits_version
    )
    for link in Link.objects.filter(interface_a__host=host):
        kbit = link.enforced_kbit
        rates = {"kbit": kbit, "to_user_rate_kbit": kbit, "from_user_rate_kbit": kbit}
        values = {**versions, **rates, "state": "enforced", "since": at, "received_at": at}
        LinkEnforcement.objects.update_or_create(link=link, defaults=values)
    said = {**versions, "observed_at": at, "received_at": at}
    return HostReceipt.objects.update_or_create(host=host, defaults=said)[0]


def look(until: datetime, *, start: datetime | None = None) -> list[Mail]:
    """Somebody looks without a gap, from `start` or from where they looked last; the mails that are new."""
    known = set(Mail.objects.values_list("pk", flat=True))
    if start is not None:
        notices_find(now=start)
    NoticeWatch.objects.update(looked_at=until - MINUTE)
    notices_find(now=until)
    notices_find(now=until)
    return list(Mail.objects.exclude(pk__in=known).order_by("pk"))


# --- away -----------------------------------------------------------------------------------------------------


def test_silent_attachment_point_is_one_mail_after_an_hour_and_one_when_it_is_back(
    reporting: HostReceipt, host_a: Host, owner: User, ap: AttachmentPoint
) -> None:
    attach(owner, spec(ap, public_port=50_007), label="Second")
    assert look(T0 + AWAY_AFTER) == []
    (mail,) = look(T0 + timedelta(hours=30))
    assert (mail.recipient, mail.kind, mail.user) == (owner.email, "away", owner)
    assert mail.subject == "No report from 17-ffaa:0:1107 since 2026-11-21 06:00 UTC"
    assert mail.body.count("/ases/") == 2, "one mail with all links"
    heard(host_a, T0 + timedelta(hours=30))
    (mail,) = look(T0 + timedelta(hours=30, minutes=1))
    assert (mail.subject, mail.kind) == ("17-ffaa:0:1107 reports again", "away")
    assert not Notice.objects.exists()
    (mail,) = look(T0 + timedelta(hours=32))
    assert mail.subject == "No report from 17-ffaa:0:1107 since 2026-11-22 12:00 UTC", "another outage"


def test_times_in_mails_are_those_of_the_reader(reporting: HostReceipt, owner: User) -> None:
    User.objects.filter(pk=owner.pk).update(time_zone="Asia/Kolkata")
    (mail,) = look(T0 + timedelta(hours=2))
    assert "2026-11-21 11:30 IST" in mail.body


def test_a_service_that_was_away_itself_tells_nobody_that_others_were(reporting: HostReceipt, host_a: Host) -> None:
    back = T0 + timedelta(hours=5)
    assert look(back + timedelta(minutes=59), start=back) == []
    assert len(look(back + timedelta(minutes=60))) == 1
    heard(host_a, back + timedelta(minutes=75))
    assert len(look(back + timedelta(minutes=76))) == 1


def test_who_is_known_to_be_away_stays_so_while_the_service_is_away(reporting: HostReceipt) -> None:
    assert len(look(T0 + timedelta(hours=2))) == 1
    assert look(T0 + timedelta(hours=9), start=T0 + timedelta(hours=6)) == []
    assert Notice.objects.count() == 1


def test_back_is_told_to_who_was_told_that_it_was_away(reporting: HostReceipt, host_a: Host, owner: User) -> None:
    User.objects.filter(pk=owner.pk).update(mail_opt_outs=["away"])
    assert look(T0 + timedelta(hours=2)) == []
    User.objects.filter(pk=owner.pk).update(mail_opt_outs=[])
    heard(host_a, T0 + timedelta(hours=2))
    assert look(T0 + timedelta(hours=2, minutes=5)) == []


def test_nobody_is_told_who_has_nothing_there(reporting: HostReceipt, host_a: Host, stranger: User, link: Link) -> None:
    Link.objects.filter(pk=link.pk).update(active=False)
    assert look(T0 + timedelta(hours=2)) == []
    Link.objects.filter(pk=link.pk).update(active=True)
    assert len(look(T0 + timedelta(hours=3))) == 1
    User.objects.filter(pk=link.interface_b.AS.useras.owner_id).update(is_active=False)
    heard(host_a, T0 + timedelta(hours=3))
    assert look(T0 + timedelta(hours=3, minutes=5)) == []
    assert not Notice.objects.exists()


def test_large_attachment_point_is_a_mail_for_each_person_and_a_few_statements(
    reporting: HostReceipt, ap: AttachmentPoint, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(6):
        person = UserFactory()
        for port in range(2):
            attach(person, spec(ap, public_ip=f"198.51.100.{10 + number}", public_port=50_000 + port))
    look(T0 + timedelta(minutes=55))
    with django_assert_max_num_queries(20):
        notices_find(now=T0 + AWAY_AFTER + MINUTE)
    assert Mail.objects.count() == 7
    with django_assert_max_num_queries(15):
        assert notices_find(now=T0 + AWAY_AFTER + 2 * MINUTE) == 0


# --- clamped --------------------------------------------------------------------------------------------------


def set_maximum(ap: AttachmentPoint, kbit: int | None, staff: User) -> None:
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=kbit, actor=staff)
    fan_out()


def test_silence_that_was_told_judges_no_link_and_renders_no_mail_again(
    reporting: HostReceipt, ap: AttachmentPoint, teammate: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(teammate, *(spec(ap, public_ip="198.51.100.40", public_port=50_000 + one) for one in range(3)))
    done: list[str] = []
    for name in ("link_status", "mail_of"):
        real = getattr(notices, name)
        monkeypatch.setattr(notices, name, lambda *a, name=name, real=real, **k: done.append(name) or real(*a, **k))
    assert len(look(T0 + AWAY_AFTER + MINUTE)) == 2
    assert Counter(done) == {"link_status": 4, "mail_of": 2}
    assert look(T0 + AWAY_AFTER + 2 * MINUTE) == []
    assert Counter(done) == {"link_status": 4, "mail_of": 2}
    Notice.objects.all().delete()  # as if it had ended and begun with the same receipt
    assert look(T0 + AWAY_AFTER + 3 * MINUTE) == []
    assert done.count("mail_of") == 2


def test_lowered_maximum_is_told_once_and_again_when_it_changes_or_ends(
    link: Link, ap: AttachmentPoint, staff: User, owner: User
) -> None:
    assert look(T0) == []
    set_maximum(ap, 300, staff)
    (mail,) = look(T0 + timedelta(minutes=30))
    assert (mail.kind, mail.subject) == ("clamped", "Your limit at 17-ffaa:0:1107 is clamped to 300 kbit/s")
    set_maximum(ap, 200, staff)
    (mail,) = look(T0 + timedelta(minutes=40))
    assert mail.subject == "Your limit at 17-ffaa:0:1107 is clamped to 200 kbit/s"
    set_maximum(ap, None, staff)
    (mail,) = look(T0 + timedelta(minutes=60))
    assert (mail.kind, mail.subject) == ("clamped", "Your limit at 17-ffaa:0:1107 is back to 1 000 kbit/s")
    assert not Notice.objects.exists()


def test_who_asks_for_less_is_not_told_that_the_administrators_gave_more(
    link: Link, ap: AttachmentPoint, staff: User, owner: User
) -> None:
    set_maximum(ap, 300, staff)
    assert len(look(T0)) == 1
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=250, actor=owner)
    assert look(T0 + timedelta(minutes=10)) == []
    assert not Notice.objects.exists()


def test_one_direction_above_the_maximum_is_enough(link: Link, ap: AttachmentPoint, staff: User) -> None:
    Link.objects.filter(pk=link.pk).update(bandwidth_kbit=100, from_user_kbit=900)
    set_maximum(ap, 300, staff)
    (mail,) = look(T0)
    assert "and 900 kbit/s from it" in mail.body
    assert "and 300 kbit/s from it" in mail.body


@table("of", ["the link", "the attachment point"])
def test_a_link_that_is_observed_is_not_clamped_and_its_maximum_not_raised(
    of: str, link: Link, ap: AttachmentPoint, staff: User
) -> None:
    set_maximum(ap, 300, staff)
    assert len(look(T0)) == 1
    observed = Link.objects.filter(pk=link.pk) if of == "the link" else AttachmentPoint.objects.filter(pk=ap.pk)
    observed.update(observe_only=True)
    assert look(T0 + timedelta(minutes=10)) == [], "nobody raised it"
    set_maximum(ap, 200, staff)
    assert look(T0 + timedelta(minutes=20)) == [], "nothing is limited"
    observed.update(observe_only=False)
    (mail,) = look(T0 + timedelta(minutes=30))
    assert mail.subject == "Your limit at 17-ffaa:0:1107 is clamped to 200 kbit/s"


def test_links_with_different_maxima_are_told_their_own(
    link: Link, ap: AttachmentPoint, owner: User, staff: User
) -> None:
    attach(owner, spec(ap, public_port=50_010))
    Link.objects.filter(pk=link.pk).update(exception_kbit=500)
    set_maximum(ap, 300, staff)
    Link.objects.filter(pk=link.pk).update(exception_kbit=500)
    (mail,) = look(T0)
    assert mail.subject == "Your limits at 17-ffaa:0:1107 are clamped"
    before, _, links = mail.body.partition("Your links there:")
    assert "kbit/s" not in before
    assert "requested 1 000 kbit/s, clamped to 300 kbit/s" in links
    assert "requested 1 000 kbit/s, clamped to 500 kbit/s" in links


def test_the_end_of_a_clamp_names_only_what_is_as_requested(
    link: Link, ap: AttachmentPoint, owner: User, staff: User
) -> None:
    other = Link.objects.get(interface_b__AS=attach(owner, spec(ap, public_port=50_010)).pk)
    set_maximum(ap, 300, staff)
    assert len(look(T0)) == 1
    link_set_bandwidth(link_id=other.pk, bandwidth_kbit=250, actor=owner)
    set_maximum(ap, None, staff)
    (mail,) = look(T0 + timedelta(minutes=10))
    assert mail.subject == "Your limit at 17-ffaa:0:1107 is back to 1 000 kbit/s"
    assert mail.body.count("/ases/") == 1


def test_who_is_back_is_told_how_the_link_is(reporting: HostReceipt, host_a: Host, link: Link) -> None:
    assert len(look(T0 + timedelta(hours=2))) == 1
    heard(host_a, T0 + timedelta(hours=2))
    LinkEnforcement.objects.update(state="error", problem="eth0 is gone.")
    (mail,) = look(T0 + timedelta(hours=2, minutes=1))
    assert mail.subject == "17-ffaa:0:1107 reports again"
    assert "Failed: eth0 is gone." in mail.body


# --- not enforced ---------------------------------------------------------------------------------------------


def test_limit_that_is_not_enforced_is_told_after_ten_minutes_with_the_reason(
    reporting: HostReceipt, link: Link, host_a: Host
) -> None:
    def failing(at: datetime) -> None:
        heard(host_a, at)
        LinkEnforcement.objects.filter(link=link).update(state="error", problem="eth0 is gone.", since=T0)

    failing(T0)
    assert look(T0 + FAILED_AFTER - MINUTE) == []
    failing(T0 + FAILED_AFTER)
    (mail,) = look(T0 + FAILED_AFTER)
    assert (mail.kind, mail.subject) == ("failed", "Failed: your limit at 17-ffaa:0:1107 is not enforced")
    assert "Failed: eth0 is gone." in mail.body
    assert "keeps trying" not in mail.body, "perhaps there is no agent, or its operator removed the limits"
    failing(T0 + 2 * FAILED_AFTER)
    assert look(T0 + 2 * FAILED_AFTER) == []
    heard(host_a, T0 + 3 * FAILED_AFTER)
    assert look(T0 + 3 * FAILED_AFTER) == []
    assert not Notice.objects.exists()


def test_many_that_are_not_enforced_cost_no_more_statements(
    reporting: HostReceipt,
    link: Link,
    host_a: Host,
    ap: AttachmentPoint,
    owner: User,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    for port in range(3):
        attach(owner, spec(ap, public_port=50_010 + port))
    heard(host_a, T0 + FAILED_AFTER)
    LinkEnforcement.objects.update(state="error", problem="eth0 is gone.", since=T0)
    NoticeWatch.objects.update(looked_at=T0 + FAILED_AFTER)
    with django_assert_max_num_queries(18):
        notices_find(now=T0 + FAILED_AFTER)
    (mail,) = Mail.objects.all()
    assert mail.body.count("eth0 is gone.") == 4


# --- what somebody else did -----------------------------------------------------------------------------------


@table("who", ["owner", "staff"])
def test_timed_limit_that_somebody_else_cancels_is_told(who: str, link: Link, owner: User, staff: User) -> None:
    timed = timed_limit_create(link_id=link.pk, profile=outage(3600), begins_at=None, actor=owner)
    for _ in range(2):
        timed_limit_cancel(timed_limit_id=timed.pk, actor={"owner": owner, "staff": staff}[who])
    mails = [(mail.kind, mail.recipient, "an administrator cancelled" in mail.body) for mail in Mail.objects.all()]
    assert mails == ([] if who == "owner" else [("changed", owner.email, True)])


def test_label_with_anything_in_it_makes_no_header_and_no_markup(
    owner: User, ap: AttachmentPoint, host_a: Host, mailoutbox: list[Any]
) -> None:
    user_as: UserAS = attach(owner, spec(ap), label="A <b> & {{ b }} {link}")
    heard(host_a, T0)
    (mail,) = look(T0 + timedelta(hours=2))
    assert "(A <b> & {{ b }} {link})" in mail.body
    assert mail_send(mail.pk), "what looks like the place of a link is none"
    assert "{link}" in mailoutbox[0].body
    assert user_as.isd_as in mailoutbox[0].body
