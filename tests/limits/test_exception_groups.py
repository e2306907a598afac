"""A group with a higher maximum: its members, its attachment points, its maximum and its end."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from bandwidth_config import Limits, RuleError
from scionlab.accounts.models import User
from scionlab.limits.defaults import fan_out
from scionlab.limits.exceptions import exception_change, exceptions_notify, group_members_change
from scionlab.limits.models import MaximumException
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Link
from tests.factories import UserFactory, attach, spec
from tests.limits.test_exceptions import grant, later, mails, over, refused, versions
from tests.limits.test_exceptions_pages import as_, typed
from tests.support.html import Element, Page

pytestmark = pytest.mark.django_db
NEW, GROUPS = "/cockpit/groups/", "/admin/auth/group/"


def link_at(person: User, ap: AttachmentPoint, **values: Any) -> Link:
    made = attach(person, spec(ap, **values))
    return Link.objects.get(interface_b__AS=made.pk)


def group(*members: User) -> Group:
    made = Group.objects.create(name=f"Course {Group.objects.count()}")
    made.user_set.set(members)
    return made


def change(made: MaximumException, staff: User, places: list[AttachmentPoint], **values: Any) -> None:
    values = {"maximum_kbit": 5000, "ends_at": made.ends_at, "reason": "A lecture.", **values}
    exception_change(exception_id=made.pk, attachment_points=places, actor=staff, **values)
    fan_out()


def put(made: MaximumException, staff: User, *members: User) -> None:
    assert made.group is not None
    group_members_change(group=made.group, members=members, actor=staff)
    fan_out()


def test_members_may_have_more_at_the_places_of_the_group_until_it_ends(
    owner: User, teammate: User, staff: User, ap: AttachmentPoint, ap_b: AttachmentPoint, link: Link
) -> None:
    elsewhere = link_at(owner, ap_b, public_ip="198.51.100.40")
    stranger = link_at(teammate, ap, public_port=50_030)
    grant(owner, staff, 3000)  # the highest of them holds
    made = grant(group(owner), staff, attachment_points=[ap])
    assert [refused(one, 5000) for one in (elsewhere, stranger)] == ["bandwidth_too_high"] * 2
    before = versions(ap.host), versions(ap_b.host)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=5000, actor=owner)
    assert refused(link, 5001) == "bandwidth_too_high"
    over(made)
    found = Link.objects.get(pk=link.pk)
    assert (found.enforced, found.requested) == (Limits.both(3000), Limits.both(5000))
    (config, limits), unchanged = before
    assert (versions(ap.host), versions(ap_b.host)) == ((config, limits + 2), unchanged)


@pytest.mark.parametrize("gone", ["member", "place", "account"])
def test_who_or_what_leaves_the_group_is_clamped_again_and_the_others_stay(
    gone: str, owner: User, teammate: User, staff: User, ap: AttachmentPoint, ap_b: AttachmentPoint, link: Link
) -> None:
    stays = link_at(teammate, ap_b, public_port=50_030)
    made = grant(group(owner, teammate), staff, attachment_points=[ap, ap_b])
    for one in (link, stays):
        link_set_bandwidth(link_id=one.pk, bandwidth_kbit=5000, actor=None)
    before = versions(ap.host), versions(ap_b.host)
    if gone == "account":
        User.groups.through._default_manager.filter(user_id=owner.pk).delete()  # as its deletion does
        fan_out()
    elif gone == "member":
        put(made, staff, teammate)
    else:
        change(made, staff, [ap_b])
    found = {one.pk: one for one in Link.objects.all()}
    assert (found[link.pk].enforced, found[link.pk].requested) == (Limits.both(1000), Limits.both(5000))
    assert found[stays.pk].enforced == Limits.both(5000)
    assert (versions(ap.host), versions(ap_b.host)) == ((before[0][0], before[0][1] + 1), before[1])


def test_members_are_mailed_what_concerns_them_and_the_history_names_them(
    owner: User, teammate: User, staff: User, ap: AttachmentPoint, link: Link
) -> None:
    made = grant(group(owner), staff, ends_at=later(3), attachment_points=[ap])
    put(made, staff, teammate)
    put(made, staff, teammate, owner)  # a second time in the same group
    put(made, staff, teammate, owner)
    change(made, staff, [ap], maximum_kbit=6000)
    told = [mail for mail in mails() if mail[0] == "exception_approved"]
    assert sorted(told) == [("exception_approved", f"{one}@example.org") for one in 3 * ["owner"] + 2 * ["teammate"]]
    assert [mail for mail in mails() if mail[0] == "exception_ended"] == [("exception_ended", owner.email)]
    now = timezone.now()
    assert [exceptions_notify(now=now + timedelta(days=days)) for days in (2.5, 2.5, 3.5, 3.5)] == [2, 0, 2, 0]
    details = list(BandwidthChange.objects.filter(kind="exception").order_by("pk").values_list("detail", flat=True))
    assert details[0].endswith(f"1 members at {ap.AS.isd_as}")
    assert details[1:3] == [f"added {teammate.email}", f"removed {owner.email}"]


def test_a_group_is_not_saved_after_its_end(owner: User, staff: User, ap: AttachmentPoint) -> None:
    made = grant(group(owner), staff, attachment_points=[ap])
    over(made)
    with pytest.raises(RuleError) as error:
        change(made, staff, [ap])
    assert error.value.code == "exception_over"


# --- the pages ------------------------------------------------------------------------------------------------------


def test_an_administrator_makes_a_group_grants_changes_and_ends_its_exception(
    door: Client, owner: User, teammate: User, ap: AttachmentPoint, link: Link
) -> None:
    sent = {"name": "Course 2026", "members": f"{owner.email.upper()}, {teammate.email}\n{owner.email}"}
    assert door.post(f"{GROUPS}add/", sent).status_code == 302
    of = Group.objects.get()
    assert set(of.user_set.all()) == {owner, teammate}
    granted = {**typed(), "group": of.pk, "attachment_points": [ap.pk]}
    assert door.post(NEW, granted).status_code == 302
    made = MaximumException.objects.get()
    assert (made.group, list(made.attachment_points.all())) == (of, [ap])
    row = Page(door.get("/cockpit/exceptions/")).root.all("tbody")[1].one("tr")
    assert "group Course 2026" in row.text
    assert door.post(f"{NEW}{made.pk}/", opened(door, f"{NEW}{made.pk}/", maximum_kbit="7000")).status_code == 302
    assert MaximumException.objects.get().maximum_kbit == 7000
    door.post(f"/cockpit/exceptions/{made.pk}/end/")
    assert door.get(f"{NEW}{made.pk}/").status_code == 404


def fields(response: Any) -> dict[str, Any]:
    """What the browser sends of the page as it stands."""
    page = Page(response)
    return page.post_data(next(one for one in page.root.all("form") if one.attrs.get("id") in {"group", "group_form"}))


def opened(window: Client, url: str, **typed: Any) -> dict[str, Any]:
    return {**fields(window.get(url)), **typed}


def conflict(answer: Any) -> list[list[str]]:
    """Its table: what, as it was, as it is now, as typed."""
    table = Page(answer).root.one(
        "table", class_="stack conflict" if "/cockpit/" in answer.request["PATH_INFO"] else "slb-links"
    )
    return [[cell.text for cell in line.children if isinstance(cell, Element)] for line in table.one("tbody").all("tr")]


def test_who_saved_the_exception_of_a_group_meanwhile_is_told_with_the_values_and_one_click_decides(
    door: Client, owner: User, teammate: User, staff: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    boss = UserFactory(email="boss@example.org", is_staff=True)
    made = grant(group(owner), staff, attachment_points=[ap], ends_at=later().replace(microsecond=0))
    page = f"{NEW}{made.pk}/"
    mine = opened(door, page, maximum_kbit="7000")
    change(made, boss, [ap, ap_b], maximum_kbit=6000, reason=made.reason)
    an_hour_ago = timezone.now() - timedelta(hours=1)
    MaximumException.objects.update(decided_at=an_hour_ago)
    put(made, staff, owner, teammate)  # later, but what is on the page was saved by the other one
    told = door.post(page, mine)
    assert told.status_code == 409
    assert "While this page was open, boss@example.org saved other values on" in Page(told).text
    assert f"{an_hour_ago.astimezone(UTC):%H:%M:%S} UTC" in Page(told).text
    both = f"{ap.AS.isd_as}, {ap_b.AS.isd_as}"
    assert conflict(told) == [
        ["Attachment points", ap.AS.isd_as, both, "\N{EN DASH}"],
        ["Maximum [kbit/s]", "5 000 kbit/s", "6 000 kbit/s", "7 000 kbit/s"],
    ]
    assert MaximumException.objects.get().maximum_kbit == 6000
    assert door.post(page, fields(told)).status_code == 302
    found = MaximumException.objects.get()
    assert (found.maximum_kbit, list(found.attachment_points.all())) == (7000, [ap])


def test_an_old_page_of_a_group_without_changes_saves_nothing(
    door: Client, owner: User, staff: User, ap: AttachmentPoint
) -> None:
    made = grant(group(owner), staff, attachment_points=[ap])
    page = f"{NEW}{made.pk}/"
    mine = opened(door, page)
    change(made, staff, [ap], maximum_kbit=6000)
    answer = Page(door.post(page, mine, follow=True))
    assert "You made no changes, so nothing was saved. In the meantime" in answer.text
    assert MaximumException.objects.get().maximum_kbit == 6000


def test_who_saved_a_group_meanwhile_is_told_with_its_members_and_one_click_decides(
    door: Client, owner: User, teammate: User
) -> None:
    of, boss = group(owner), UserFactory(email="boss@example.org", is_staff=True)
    page = f"{GROUPS}{of.pk}/change/"
    mine = opened(door, page, members="")
    assert as_(boss).post(page, opened(as_(boss), page, name="Lecture", members=teammate.email)).status_code == 302
    told = door.post(page, mine)
    assert "While this page was open, boss@example.org saved other values on" in Page(told).text
    assert sorted(conflict(told)) == [
        ["Name", "Course 0", "Lecture", "\N{EN DASH}"],
        [owner.email, "yes", "no", "\N{EN DASH}"],
        [teammate.email, "no", "yes", "\N{EN DASH}"],
    ]
    assert (Group.objects.get().name, list(of.user_set.all())) == ("Lecture", [teammate])
    assert door.post(page, fields(told)).status_code == 302
    assert (Group.objects.get().name, list(of.user_set.all())) == ("Course 0", [])


def test_an_account_that_went_meanwhile_is_nobodys_change_of_the_group(
    door: Client, owner: User, teammate: User, staff: User
) -> None:
    """Who edited the group last did not remove it."""
    of = group(owner, UserFactory(email="gone@example.org"))
    page = f"{GROUPS}{of.pk}/change/"
    mine = opened(door, page, members=f"{owner.email} {teammate.email}")
    User.objects.get(email="gone@example.org").delete()
    assert door.post(page, mine).status_code == 302
    assert set(of.user_set.all()) == {owner, teammate}


def test_members_of_a_group_that_is_deleted_are_told(
    door: Client, owner: User, staff: User, ap: AttachmentPoint, link: Link
) -> None:
    made = grant(group(owner), staff, attachment_points=[ap])
    assert made.group is not None
    assert door.post(f"{GROUPS}{made.group.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not MaximumException.objects.exists()
    assert ("exception_ended", owner.email) in mails()
    fan_out()
    assert Link.objects.get(pk=link.pk).exception_kbit is None


def test_what_is_wrong_stands_at_its_field(door: Client, owner: User, ap: AttachmentPoint) -> None:
    right: dict[str, Any] = {**typed(), "group": group(owner).pk, "attachment_points": [ap.pk]}
    for field, value in (("group", ""), ("maximum_kbit", "0"), ("attachment_points", [])):
        assert field in door.post(NEW, {**right, field: value}).context["form"].errors, field
    assert not MaximumException.objects.exists()
    many = " ".join(f"{number}@example.org" for number in range(501))
    for members, words in ((many, "there are 501"), ("nobody@example.org", "email address nobody@example.org.")):
        assert words in door.post(f"{GROUPS}add/", {"name": "x", "members": members}).content.decode(), words
