"""Many limits changed at once: what the preview says is what is done, all of it or nothing, and can be put back."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from bandwidth_config import Limits, RuleError
from scionlab.enforcement.receipt import receipt_store
from scionlab.enforcement.receipt_mails import deployment_note
from scionlab.enforcement.receipt_values import Direction, LinkReceipt, Receipt
from scionlab.links.bulk import BulkChangedError, bulk_apply, bulk_preview, bulk_put_back, bulk_refresh, lines_of
from scionlab.links.bulk_plan import CHANGED_SINCE, SAME, TOO_HIGH, Operation
from scionlab.links.defaults import ap_default_set, fan_out, site_default_set
from scionlab.links.update import link_update
from scionlab.models import (
    AttachmentPoint,
    BandwidthChange,
    BulkChange,
    Host,
    Link,
    LinkEnforcement,
    Mail,
    User,
    UserAS,
)
from scionlab.models.selectors import generation
from tests.cases import table
from tests.factories import UserFactory, attach, spec
from tests.web.counters import Counters
from tests.web.html import Page

pytestmark = pytest.mark.django_db


@pytest.fixture
def links(owner: User, teammate: User, ap: AttachmentPoint, ap_b: AttachmentPoint) -> list[Link]:
    """Of the owner at `ap`: 1000 and 600 to the AS with 64 from it; of a teammate at `ap_b`: 300, and 800 inactive."""
    attach(owner, spec(ap, public_port=50_001, bandwidth_kbit=1000), spec(ap, public_port=50_002, bandwidth_kbit=600))
    attach(teammate, spec(ap_b, public_port=50_003, bandwidth_kbit=300))
    attach(teammate, spec(ap_b, public_port=50_004, bandwidth_kbit=800))
    found = list(Link.objects.order_by("pk"))
    link_update(link_id=found[1].pk, limits=Limits(600, 64), actor=owner)
    link_update(link_id=found[3].pk, active=False, actor=teammate)
    return found


def preview(links: list[Link], staff: User, kind: str, value: int = 0, **more: Any) -> BulkChange:
    operation = Operation(kind, value, **more)  # type: ignore[arg-type]  # one of the kinds
    return bulk_preview(
        about="links", keys=[link.pk for link in links], operation=operation, chosen="some", actor=staff
    )


def requested() -> list[Limits]:
    return [link.requested for link in Link.objects.order_by("pk")]


# --- what is done ---------------------------------------------------------------------------------------------


def test_what_was_previewed_is_done_with_one_l_for_each_attachment_point(
    links: list[Link], staff: User, owner: User, teammate: User, host_a: Host, host_b: Host
) -> None:
    change = preview(links, staff, "cap", 500)
    before, audit = Counters(), BandwidthChange.objects.count()
    assert requested() == [Limits(1000, 1000), Limits(600, 64), Limits(300, 300), Limits(800, 800)]
    bulk_apply(bulk_id=change.pk, actor=staff, reason="The line is full.")
    assert requested() == [Limits(500, 500), Limits(500, 64), Limits(300, 300), Limits(500, 500)]
    assert before.risen() == {host_a: (0, 1)}  # at the other one the link that changed is inactive
    assert [link.from_user_kbit for link in Link.objects.order_by("pk")] == [None, 64, None, None]
    rows = list(BandwidthChange.objects.order_by("pk"))[audit:]
    assert [(row.link, row.old, row.new, row.actor, row.reason) for row in rows] == [
        (links[0], Limits(1000, 1000), Limits(500, 500), staff, "The line is full."),
        (links[1], Limits(600, 64), Limits(500, 64), staff, "The line is full."),
        (links[3], Limits(800, 800), Limits(500, 500), staff, "The line is full."),
    ]
    change.refresh_from_db()
    assert change.result == {"links": 3, "hosts": 1, "mails": 2}
    assert UserAS.objects.get(interfaces=links[0].interface_b_id).changed_by == staff


def test_links_wait_until_the_attachment_point_has_the_new_version(
    links: list[Link], staff: User, host_a: Host
) -> None:
    bulk_apply(bulk_id=preview(links, staff, "cap", 500).pk, actor=staff, reason="x")
    host_a.refresh_from_db()
    touched = Link.objects.filter(pk__in=[links[0].pk, links[1].pk])
    assert {link.wanted_limits_version for link in touched} == {host_a.limits_version}


def test_each_owner_gets_one_mail_with_all_that_changed(
    links: list[Link], staff: User, owner: User, teammate: User
) -> None:
    Mail.objects.all().delete()
    change = preview(links, staff, "cap", 500)
    for _ in range(2):  # a second click does nothing
        bulk_apply(bulk_id=change.pk, actor=staff, reason="The line is full.")
    mails = {mail.recipient: mail for mail in Mail.objects.all()}
    assert mails.keys() == {owner.email, teammate.email}
    assert mails[owner.email].subject == "The administrators changed 2 of your limits"
    body = mails[owner.email].body
    assert "  The line is full." in body
    assert "17-ffaa:1:1 at 17-ffaa:0:1107: was 1 000 kbit/s, is now 500 kbit/s" in body
    assert "was 600 kbit/s to the user AS and 64 kbit/s from it, is now 500 kbit/s to the user AS and 64" in body
    assert "(the link is inactive)" in mails[teammate.email].body


def confirm_all(host: Host) -> None:
    """The agent of `host` says that its kernel has what each link wants."""
    host.refresh_from_db()
    seen = {
        link.interface_a.interface_id: LinkReceipt(
            link.enforced,
            LinkEnforcement.State.ENFORCED,
            "",
            Direction("eth0", link.enforced.to_user_kbit, 0, 0, 0),
            Direction("eth0", link.enforced.from_user_kbit, 0, 0, 0),
        )
        for link in Link.objects.filter(interface_a__host=host)
    }
    version = (generation(), host.config_version)
    receipt_store(host_id=host.pk, receipt=Receipt("1", version, host.limits_version, timezone.now(), seen))


def test_no_mail_follows_for_each_link_when_it_is_enforced_until_its_owner_changes_it(
    links: list[Link], staff: User, owner: User, host_a: Host
) -> None:
    confirm_all(host_a)
    Mail.objects.all().delete()
    bulk_apply(bulk_id=preview(links, staff, "cap", 500).pk, actor=staff, reason="Full.")
    confirm_all(host_a)
    assert list(Mail.objects.filter(recipient=owner.email).values_list("kind", flat=True)) == ["changed"]
    text = Mail.objects.get(recipient=owner.email).body
    assert "your page shows the state of each" in text
    assert "We will email you" in text
    link_update(link_id=links[0].pk, bandwidth_kbit=400, actor=owner)
    confirm_all(host_a)
    assert Mail.objects.filter(recipient=owner.email, kind="enforced").count() == 1


def test_who_was_not_told_of_the_change_is_told_when_it_is_enforced(
    links: list[Link], staff: User, owner: User, host_a: Host
) -> None:
    User.objects.filter(pk=owner.pk).update(mail_opt_outs=["changed"])
    confirm_all(host_a)
    Mail.objects.all().delete()
    bulk_apply(bulk_id=preview(links, staff, "cap", 500).pk, actor=staff, reason="Full.")
    confirm_all(host_a)
    assert set(Mail.objects.filter(recipient=owner.email).values_list("kind", flat=True)) == {"enforced"}


def test_a_change_of_the_owners_own_keeps_its_mail_where_the_same_is_enforced(
    links: list[Link], staff: User, owner: User, ap: AttachmentPoint, host_a: Host
) -> None:
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=500, actor=staff)
    fan_out()  # 1000 is held at 500: the owner has not heard yet that the kernel has it
    Mail.objects.all().delete()
    bulk_apply(bulk_id=preview(links[:1], staff, "cap", 500).pk, actor=staff, reason="Full.")
    confirm_all(host_a)
    assert Mail.objects.filter(recipient=owner.email, key__startswith=f"link:{links[0].pk}:").count() == 1


def test_an_attachment_point_without_an_agent_sends_no_mail_for_each_link_either(
    links: list[Link], staff: User, owner: User, host_a: Host
) -> None:
    def install() -> int:
        host_a.refresh_from_db()
        host_a.config_version_deployed = host_a.delivered_config_version = host_a.config_version
        host_a.delivered_limits_version = host_a.limits_version
        host_a.save()
        return deployment_note(host_id=host_a.pk)

    bulk_apply(bulk_id=preview(links, staff, "cap", 500).pk, actor=staff, reason="Full.")
    assert install() == 0
    link_update(link_id=links[0].pk, bandwidth_kbit=400, actor=owner)
    assert install() == 1


def test_who_does_without_such_mails_gets_none(links: list[Link], staff: User, owner: User, teammate: User) -> None:
    User.objects.filter(pk=owner.pk).update(mail_opt_outs=["changed"])
    Mail.objects.all().delete()
    bulk_apply(bulk_id=preview(links, staff, "cap", 500).pk, actor=staff, reason="x")
    assert [mail.recipient for mail in Mail.objects.all()] == [teammate.email]


def test_nothing_is_told_to_an_attachment_point_where_the_same_is_enforced(
    links: list[Link], staff: User, ap: AttachmentPoint
) -> None:
    """The default was lowered to 500 before: capping at it changes what owners asked for and nothing in the kernel."""
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=500, actor=staff)
    ap.refresh_from_db()
    first = preview(links[:1], staff, "scale", 90)  # carries the default out, and nothing else: 900 stays above 500
    assert [line.skipped for line in lines_of(first)] == [TOO_HIGH]
    change = preview(links[:1], staff, "cap", 500)
    bulk_apply(bulk_id=first.pk, actor=staff, reason="x")
    before = Counters()
    bulk_apply(bulk_id=change.pk, actor=staff, reason="x")
    assert requested()[0] == Limits(500, 500)
    assert before.risen() == {}


def test_what_is_left_out_is_counted_with_its_reason(
    door: Client, links: list[Link], staff: User, ap_b: AttachmentPoint
) -> None:
    ap_default_set(attachment_point_id=ap_b.pk, default_bandwidth_kbit=400, actor=staff)
    change = preview(links, staff, "set", 600)
    assert {line.key: line.skipped for line in lines_of(change)} == {
        links[0].pk: "",
        links[1].pk: "",
        links[2].pk: TOO_HIGH,
        links[3].pk: TOO_HIGH,
    }
    assert "2: would exceed the maximum" in page_of(door, change).text
    same = preview(links[2:3], staff, "set", 300)
    assert [line.skipped for line in lines_of(same)] == [SAME]
    assert "Nothing to change." in page_of(door, same).text


# --- somebody was quicker -------------------------------------------------------------------------------------


def test_a_limit_that_changed_since_the_preview_refuses_all_of_it(links: list[Link], staff: User, owner: User) -> None:
    change = preview(links, staff, "cap", 500)
    link_update(link_id=links[0].pk, bandwidth_kbit=700, actor=owner)
    before, counters, audit = requested(), Counters(), BandwidthChange.objects.count()
    with pytest.raises(BulkChangedError) as refused:
        bulk_apply(bulk_id=change.pk, actor=staff, reason="x")
    assert (refused.value.code, refused.value.count) == ("changed_meanwhile", 1)
    assert (requested(), counters.risen(), BandwidthChange.objects.count()) == (before, {}, audit)
    assert bulk_refresh(bulk_id=change.pk) == [links[0].pk]
    bulk_apply(bulk_id=change.pk, actor=staff, reason="x")
    assert requested()[0] == Limits(500, 500)


def test_a_lowered_maximum_or_a_deleted_link_refuses_too(links: list[Link], staff: User) -> None:
    change = preview(links, staff, "set", 900)
    site_default_set(default_bandwidth_kbit=850, actor=staff)
    with pytest.raises(BulkChangedError):
        bulk_apply(bulk_id=change.pk, actor=staff, reason="x")
    bulk_refresh(bulk_id=change.pk)
    links[2].delete()
    with pytest.raises(BulkChangedError):
        bulk_apply(bulk_id=change.pk, actor=staff, reason="x")
    assert requested()[0] == Limits(1000, 1000)


def test_the_page_shows_again_what_changed_meanwhile(door: Client, links: list[Link], staff: User, owner: User) -> None:
    change = preview(links, staff, "cap", 500)
    link_update(link_id=links[0].pk, bandwidth_kbit=700, actor=owner)
    answer = Page(door.post(reverse("cockpit_limits_apply", args=[change.pk]), {"reason": "Full."}))
    assert "Changed since the preview" in answer.text
    marked = answer.root.one("tr", class_="marked").text
    assert "700 kbit/s" in marked
    assert "changed since" in marked
    assert answer.value("Reason") == "Full."
    assert requested()[0] == Limits(700, 700)


# --- put back -------------------------------------------------------------------------------------------------


def test_putting_back_restores_both_directions_and_leaves_later_changes_alone(
    links: list[Link], staff: User, owner: User, host_a: Host
) -> None:
    before = requested()
    done = bulk_apply(bulk_id=preview(links, staff, "set", 100).pk, actor=staff, reason="x")
    assert requested() == [Limits(100, 100)] * 4
    link_update(link_id=links[0].pk, bandwidth_kbit=123, actor=owner)
    back = bulk_put_back(bulk_id=done.pk, actor=staff)
    assert [line.skipped for line in lines_of(back)] == [CHANGED_SINCE, "", "", ""]
    counters = Counters()
    bulk_apply(bulk_id=back.pk, actor=staff, reason="Room again.")
    assert requested() == [Limits(123, 123), *before[1:]]
    assert counters.risen()[host_a] == (0, 1)
    assert back.puts_back == done


def test_a_preview_is_not_put_back(links: list[Link], staff: User) -> None:
    with pytest.raises(RuleError) as refused:
        bulk_put_back(bulk_id=preview(links, staff, "set", 100).pk, actor=staff)
    assert refused.value.code == "bulk_not_applied"


# --- pages ------------------------------------------------------------------------------------------------------


def page_of(door: Client, change: BulkChange) -> Page:
    return Page(door.get(reverse("cockpit_limits_change", args=[change.pk])))


def choose(door: Client, query: str, **data: Any) -> Any:
    return door.post(reverse("cockpit_limits") + query, {"kind": "cap", "value": "500", **data})


FILTERS = [
    ("", [0, 1, 2, 3]),
    ("?ap={ap}", [0, 1]),
    ("?owner=TEAMMATE", [2, 3]),
    ("?q=17-ffaa:1:1", [0, 1]),
    ("?q=ffaa:1:2", [2]),
    ("?above=599", [0, 1, 3]),
    ("?above=1M", []),
    ("?ap={ap}&owner=teammate", []),
]


@table(("query", "expected"), FILTERS)
def test_links_are_chosen_by_what_they_have_in_common(
    door: Client, links: list[Link], ap: AttachmentPoint, query: str, expected: list[int]
) -> None:
    answer = choose(door, query.format(ap=ap.pk))
    if not expected:
        assert "No link is selected." in Page(answer).text
        return
    change = BulkChange.objects.get()
    assert answer["Location"] == reverse("cockpit_limits_change", args=[change.pk])
    assert [line.key for line in lines_of(change)] == [links[number].pk for number in expected]


def test_only_ticked_links_are_taken_and_only_among_those_that_the_filter_finds(
    door: Client, links: list[Link], ap: AttachmentPoint
) -> None:
    ticked = [str(links[0].pk), str(links[2].pk), "x", "9" * 30]
    choose(door, f"?ap={ap.pk}", scope="ticked", ticked=ticked)
    assert [line.key for line in lines_of(BulkChange.objects.get())] == [links[0].pk]


@table(
    ("data", "words"),
    [
        ({"value": ""}, "Enter a whole number of kbit/s"),
        ({"value": "10 MB/s"}, "is in bytes"),
        ({"kind": "scale", "value": "1.5"}, "is not a whole number of percent"),
        ({"kind": "scale", "value": "20000"}, "is not between 0 and 10 000 %"),
        ({"kind": "drop"}, "Choose an operation."),
    ],
)
def test_what_cannot_be_meant_is_refused_beside_its_field(
    door: Client, links: list[Link], data: dict[str, str], words: str
) -> None:
    assert words in Page(choose(door, "", **data)).text
    assert not BulkChange.objects.exists()


def test_the_preview_names_who_is_affected_and_wants_a_reason(
    door: Client, links: list[Link], owner: User, staff: User
) -> None:
    page = page_of(door, preview(links, staff, "cap", 500))
    for words in (
        "Links with new limits 3",
        "2; each gets one email",
        "New configuration for 17-ffaa:0:1107",
        "1: already has this limit",
    ):
        assert words in page.text
    assert "ffaa:0:1108" not in page.by_id("affected").text
    change = BulkChange.objects.get()
    url = reverse("cockpit_limits_apply", args=[change.pk])
    assert "A reason is missing." in Page(door.post(url, {"reason": " "})).text
    assert requested()[0] == Limits(1000, 1000)
    done = Page(door.post(url, {"reason": "Full."}, follow=True))
    assert "Done: 3 links have new limits." in done.text
    assert "by staff@example.org: Full." in done.text
    back = Page(door.post(reverse("cockpit_limits_put_back", args=[change.pk]), follow=True))
    assert "Preview: Undo" in back.text
    assert "Previous changes" in Page(door.get(reverse("cockpit_limits"))).text


def test_many_links_are_previewed_in_pages_of_bounded_size_and_statements(
    door: Client, links: list[Link], staff: User, django_assert_max_num_queries: Any
) -> None:
    change = preview(links, staff, "cap", 500)
    change.lines = change.lines * 2500
    change.save()
    with django_assert_max_num_queries(10):
        answer = door.get(reverse("cockpit_limits_change", args=[change.pk]), {"page": "3"})
    assert len(answer.content) < 60_000
    assert "Page 3 of 200" in Page(answer).text


def test_an_owner_who_is_the_administrator_needs_no_mail(ap: AttachmentPoint) -> None:
    admin = UserFactory(is_staff=True)
    attach(admin, spec(ap, bandwidth_kbit=900))
    Mail.objects.all().delete()
    bulk_apply(bulk_id=preview(list(Link.objects.all()), admin, "cap", 500).pk, actor=admin, reason="x")
    assert not Mail.objects.exists()
