"""Defaults of attachment points and of the site changed at once: in the cockpit and from Django admin, as shown or not
at all."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from bandwidth_config import Limits, RuleError
from scionlab.accounts.models import User
from scionlab.limits.default_changes import (
    DefaultChangedError,
    default_change_apply,
    default_change_preview,
    default_change_put_back,
    default_change_refresh,
    lines_of,
)
from scionlab.limits.default_effects import affected_by
from scionlab.limits.default_plan import SITE, Line, Operation
from scionlab.limits.defaults import ap_default_set, fan_out, site_default_set
from scionlab.limits.models import DefaultChange
from scionlab.limits.update import link_update
from scionlab.testbed import selectors
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Link
from tests.cases import table
from tests.factories import attach, spec
from tests.support.counters import Counters
from tests.support.html import Page

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


def own_defaults() -> list[int | None]:
    return list(AttachmentPoint.objects.order_by("pk").values_list("default_bandwidth_kbit", flat=True))


def site_kbit() -> int:
    return selectors.policy().default_bandwidth_kbit


def preview(staff: User, kind: str, value: int = 0, *keys: int) -> DefaultChange:
    """Of these attachment points, or of all."""
    ids = keys or list(AttachmentPoint.objects.values_list("pk", flat=True))
    operation = Operation(kind, value)  # type: ignore[arg-type]  # one of the kinds
    return default_change_preview(keys=ids, operation=operation, chosen="some", actor=staff)


def test_a_preview_is_carried_out_once_and_limits_follow(
    links: list[Link], staff: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    ap_default_set(attachment_point_id=ap_b.pk, default_bandwidth_kbit=5000, actor=staff)
    fan_out()
    change = preview(staff, "set", 500)
    assert own_defaults() == [None, 5000]
    counters, audit = Counters(), BandwidthChange.objects.count()
    for _ in range(2):  # a second click does nothing
        done = default_change_apply(change_id=change.pk, actor=staff, reason="New lines.")
    assert own_defaults() == [500, 500]
    assert done.result == {"attachment_points": 2, "links": 2}  # at ap 1000 and 600; at ap_b 300, and 800 inactive
    rows = list(BandwidthChange.objects.order_by("pk"))[audit:]
    assert [(row.kind, row.old_kbit, row.new_kbit, row.reason) for row in rows] == [
        ("ap_default", None, 500, "New lines."),
        ("ap_default", 5000, 500, "New lines."),
    ]
    assert counters.risen() == {}
    fan_out()
    assert counters.risen() == {ap.host: (0, 1)}


@table("who", ["site", "here", "gone"])
def test_a_default_that_changed_since_the_preview_refuses_all_of_it(
    links: list[Link], staff: User, ap: AttachmentPoint, ap_other: AttachmentPoint, who: str
) -> None:
    change = preview(staff, "cap", 400)
    if who == "site":
        site_default_set(default_bandwidth_kbit=900, actor=staff)
    elif who == "here":
        ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=700, actor=staff)
    else:
        ap_other.delete()
    before = own_defaults()
    with pytest.raises(DefaultChangedError) as refused:
        default_change_apply(change_id=change.pk, actor=staff, reason="x")
    assert refused.value.code == "changed_meanwhile"
    assert own_defaults() == before
    assert default_change_refresh(change_id=change.pk) != []
    default_change_apply(change_id=change.pk, actor=staff, reason="x")
    assert set(own_defaults()) == {400}


def test_a_preview_is_not_put_back(links: list[Link], staff: User) -> None:
    with pytest.raises(RuleError) as refused:
        default_change_put_back(change_id=preview(staff, "set", 100).pk, actor=staff)
    assert refused.value.code == "not_applied"


@table(
    ("own", "before", "after", "expected"),  # links, held, blocked, released
    [
        (None, 1000, 700, (1, 1, 0, 0)),
        (500, 500, 10_000, (2, 0, 0, 2)),
        (500, 500, 800, (2, 1, 0, 1)),
        (None, 1000, 0, (2, 2, 2, 0)),
    ],
)
def test_who_is_affected_is_counted_as_the_links_are_now(
    links: list[Link], ap: AttachmentPoint, own: int | None, before: int, after: int, expected: tuple[int, ...]
) -> None:
    found = affected_by([Line(ap.pk, own, after, before, after)])[ap.pk]
    assert (found.links, found.held, found.blocked, found.released, len(found.owners)) == (*expected, 1)


# --- the site's -------------------------------------------------------------------------------------------------


@pytest.fixture
def points(links: list[Link], ap_b: AttachmentPoint, ap_other: AttachmentPoint) -> list[AttachmentPoint]:
    """One with a default of its own, two that follow the site's 1000 kbit/s."""
    ap_default_set(attachment_point_id=ap_b.pk, default_bandwidth_kbit=5000, actor=None)
    fan_out()
    return list(AttachmentPoint.objects.order_by("pk"))


def test_the_sites_default_is_previewed_applied_once_and_undone(
    points: list[AttachmentPoint], links: list[Link], staff: User, ap: AttachmentPoint, ap_other: AttachmentPoint
) -> None:
    change, before = preview(staff, "set", 500, SITE), Counters()
    followers = [Line(one.pk, None, None, 1000, 500) for one in (ap, ap_other)]
    assert lines_of(change) == [Line(SITE, 1000, 500, 1000, 500), *followers]
    own = own_defaults()
    link_update(link_id=links[1].pk, limits=Limits.both(100), actor=staff)  # an owner's save refuses nothing
    counters, audit = Counters(), BandwidthChange.objects.count()
    done = default_change_apply(change_id=change.pk, actor=staff, reason="Full.")
    assert (site_kbit(), own_defaults(), done.result) == (500, own, {"attachment_points": 2, "links": 1})
    (row,) = list(BandwidthChange.objects.order_by("pk"))[audit:]
    assert (row.kind, row.old_kbit, row.new_kbit, row.reason, row.actor) == ("site_default", 1000, 500, "Full.", staff)
    fan_out()
    assert counters.risen() == {ap.host: (0, 1)}
    assert before.risen() == {ap.host: (0, 2)}
    back = default_change_put_back(change_id=change.pk, actor=staff)
    default_change_apply(change_id=back.pk, actor=staff, reason="Room.")
    assert (site_kbit(), own_defaults()) == (1000, own)


@table("who", ["site", "a follower leaves", "another follows"])
def test_what_the_sites_default_reaches_is_what_was_shown(
    points: list[AttachmentPoint], staff: User, ap: AttachmentPoint, ap_b: AttachmentPoint, who: str
) -> None:
    change = preview(staff, "set", 500, SITE)
    if who == "site":
        site_default_set(default_bandwidth_kbit=900, actor=staff)
    else:
        one, kbit = (ap, 700) if who == "a follower leaves" else (ap_b, None)
        ap_default_set(attachment_point_id=one.pk, default_bandwidth_kbit=kbit, actor=staff)
    before = site_kbit()
    with pytest.raises(DefaultChangedError):
        default_change_apply(change_id=change.pk, actor=staff, reason="x")
    assert site_kbit() == before


# --- pages ------------------------------------------------------------------------------------------------------


def choose(door: Client, query: str = "", **data: Any) -> Any:
    return door.post(reverse("cockpit_defaults") + query, {"kind": "set", "value": "2 Mbit/s", **data})


def test_the_pages_lead_from_the_choice_over_the_preview_to_the_record_and_back(
    door: Client, links: list[Link], ap: AttachmentPoint
) -> None:
    assert "17-ffaa:0:1108" in Page(door.get(reverse("cockpit_defaults"))).text
    answer = choose(door, "?q=1107", value="700")
    change = DefaultChange.objects.get()
    url = reverse("cockpit_defaults_change", args=[change.pk])
    assert answer["Location"] == url
    assert "1 link of 1 owner; 1 of them clamped" in Page(door.get(url)).text
    apply = reverse("cockpit_defaults_apply", args=[change.pk])
    assert "A reason is missing." in Page(door.post(apply, {"reason": " "})).text
    assert own_defaults() == [None, None]
    door.post(apply, {"reason": "Full."})
    assert own_defaults() == [700, None]
    back = Page(door.post(reverse("cockpit_defaults_put_back", args=[change.pk]), follow=True))
    assert "Preview: Defaults: undo" in back.text


def test_the_page_shows_again_what_changed_meanwhile(door: Client, links: list[Link], ap: AttachmentPoint) -> None:
    choose(door)
    change = DefaultChange.objects.get()
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=321, actor=None)
    answer = Page(door.post(reverse("cockpit_defaults_apply", args=[change.pk]), {"reason": "Full."}))
    assert "Changed since the preview" in answer.text
    assert "321" in answer.root.one("tr", class_="marked").text
    assert own_defaults() == [321, None]


@table(
    ("data", "words"),
    [
        ({"value": ""}, "Enter a whole number of kbit/s"),
        ({"kind": "scale", "value": "x"}, "is not a whole number of percent"),
        ({"kind": ""}, "Choose an operation."),
        ({"scope": "ticked"}, "No attachment point is selected."),
    ],
)
def test_what_cannot_be_meant_is_said_beside_its_field(
    door: Client, links: list[Link], data: dict[str, str], words: str
) -> None:
    assert words in Page(choose(door, **data)).text
    assert not DefaultChange.objects.exists()


def test_ticked_ones_follow_the_site_again(door: Client, links: list[Link], ap: AttachmentPoint) -> None:
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=321, actor=None)
    choose(door, kind="site", value="", scope="ticked", ticked=[str(ap.pk), "x", "9" * 30])
    assert lines_of(DefaultChange.objects.get()) == [Line(ap.pk, 321, None, 321, 1000)]


# --- Django admin -----------------------------------------------------------------------------------------------


def page_of(ap: AttachmentPoint | None) -> str:
    name, pk = ("bandwidthpolicy", 1) if ap is None else ("attachmentpoint", ap.pk)
    return reverse(f"admin:testbed_{name}_change", args=[pk])


@table("of", ["site", "here"])
def test_a_default_that_links_feel_is_confirmed_in_its_preview(
    door: Client, points: list[AttachmentPoint], ap: AttachmentPoint, of: str
) -> None:
    url = page_of(None if of == "site" else ap)
    typed = {"default_bandwidth_kbit": "700", "reason": "Full."} | ({"total_kbit": "9000"} if of == "here" else {})
    page = Page(door.post(url, typed, follow=True))
    assert (site_kbit(), own_defaults()) == (1000, [None, 5000, None]), "nothing yet"
    assert "1 link of 1 owner; 1 of them clamped" in page.text
    assert page.value("Reason") == "Full."
    ap.refresh_from_db()
    assert ap.total_kbit == (9000 if of == "here" else None)
    change = DefaultChange.objects.get()
    done = Page(door.post(reverse("cockpit_defaults_apply", args=[change.pk]), {"reason": "Full."}, follow=True))
    assert "Done:" in done.text
    assert (site_kbit(), own_defaults()) == ((700, [None, 5000, None]) if of == "site" else (1000, [700, 5000, None]))
    assert BandwidthChange.objects.first().reason == "Full."


@table("typed", ["1000", "", "2000"])
def test_a_default_that_no_link_feels_is_saved_at_once(
    door: Client, points: list[AttachmentPoint], ap: AttachmentPoint, ap_other: AttachmentPoint, typed: str
) -> None:
    """The same default in force, or an attachment point without Links."""
    one = ap_other if typed == "2000" else ap
    answer = door.post(page_of(one), {"default_bandwidth_kbit": typed, "total_kbit": "9000"})
    assert answer["Location"] == reverse("admin:testbed_attachmentpoint_changelist")
    one.refresh_from_db()
    assert (one.default_bandwidth_kbit, one.total_kbit) == (int(typed) if typed else None, 9000)
    assert not DefaultChange.objects.exists()


def test_an_inactive_link_feels_its_maximum_too(
    door: Client, points: list[AttachmentPoint], owner: User, ap_other: AttachmentPoint
) -> None:
    attach(owner, spec(ap_other, public_ip="198.51.100.9"))
    Link.objects.filter(interface_a__AS=ap_other.AS_id).update(active=False)
    door.post(page_of(ap_other), {"default_bandwidth_kbit": "400"})
    assert (own_defaults()[-1], DefaultChange.objects.count()) == (None, 1)


@table("of", ["site", "here"])
def test_a_page_of_django_admin_that_is_older_makes_no_preview(
    door: Client, points: list[AttachmentPoint], ap: AttachmentPoint, of: str
) -> None:
    url = page_of(None if of == "site" else ap)
    shown = door.get(url).context["shown"]
    if of == "site":
        site_default_set(default_bandwidth_kbit=900, actor=None)
    else:
        ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=900, actor=None)
    answer = door.post(url, {"default_bandwidth_kbit": "700", "_shown": shown})
    assert "saved other values" in answer.content.decode()
    assert not DefaultChange.objects.exists()
