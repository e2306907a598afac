"""Defaults of many attachment points changed at once: on the page and over REST, as shown or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from scionlab.links.bulk import BulkChangedError, bulk_apply
from scionlab.links.bulk_defaults import affected_by, default_lines_of, defaults_apply, defaults_preview
from scionlab.links.default_plan import DefaultLine, DefaultOperation
from scionlab.links.defaults import ap_default_set, fan_out, site_default_set
from scionlab.models import AttachmentPoint, BandwidthChange, BulkChange, Link, User
from tests.web.counters import Counters
from tests.web.html import Page
from tests.web.test_cockpit_bulk import links
from tests.web.test_rest_api import _no_throttle_counts, api, error_of

pytestmark = pytest.mark.django_db

__all__ = ["_no_throttle_counts", "links"]  # fixtures

URL = "/api/v1/default-changes/"


@pytest.fixture
def program(staff: User) -> APIClient:
    return api(staff)


def own_defaults() -> list[int | None]:
    return list(AttachmentPoint.objects.order_by("pk").values_list("default_bandwidth_kbit", flat=True))


def preview(staff: User, kind: str, value: int = 0) -> BulkChange:
    ids = list(AttachmentPoint.objects.values_list("pk", flat=True))
    operation = DefaultOperation(kind, value)  # type: ignore[arg-type]  # one of the kinds
    return defaults_preview(ap_ids=ids, operation=operation, chosen="some", actor=staff)


def test_a_preview_is_carried_out_once_and_limits_follow(
    links: list[Link], staff: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    ap_default_set(attachment_point_id=ap_b.pk, default_bandwidth_kbit=5000, actor=staff)
    fan_out()
    change = preview(staff, "set", 500)
    assert own_defaults() == [None, 5000]
    counters, audit = Counters(), BandwidthChange.objects.count()
    for _ in range(2):  # a second click does nothing
        done = defaults_apply(bulk_id=change.pk, actor=staff, reason="New lines.")
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


@pytest.mark.parametrize("who", ["site", "here", "gone"])
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
    with pytest.raises(BulkChangedError) as refused:
        defaults_apply(bulk_id=change.pk, actor=staff, reason="x")
    assert "attachment point" in refused.value.message
    assert own_defaults() == before


def test_who_is_affected_is_counted_as_the_links_are_now(links: list[Link], ap: AttachmentPoint) -> None:
    found = affected_by([DefaultLine(ap.pk, None, 700, 1000, 700)])[ap.pk]
    assert (found.links, found.held, len(found.owners)) == (1, 1, 1)
    found = affected_by([DefaultLine(ap.pk, 500, None, 500, 10_000)])[ap.pk]
    assert (found.links, found.held) == (2, 0)
    assert affected_by([DefaultLine(ap.pk, None, 10_000, 10_000, 10_000)]) == {}


def test_a_change_of_defaults_is_none_of_links(links: list[Link], staff: User, program: APIClient) -> None:
    change = preview(staff, "set", 400)
    with pytest.raises(BulkChange.DoesNotExist):
        bulk_apply(bulk_id=change.pk, actor=staff, reason="x")
    assert program.get(f"/api/v1/bulk-changes/{change.pk}/").status_code == 404
    assert program.get("/api/v1/bulk-changes/").json()["count"] == 0


# --- REST -------------------------------------------------------------------------------------------------------


def test_a_script_previews_confirms_and_puts_back(program: APIClient, links: list[Link], ap: AttachmentPoint) -> None:
    body = {"kind": "scale", "percent": 50, "isd": 17}
    made = program.post(URL, body, format="json")
    found = made.json()
    assert (made.status_code, found["status"]) == (201, {"links": 2, "held": 2, "owners": 1})
    first = found["attachment_points"][0]
    assert (first["isd_as"], first["old_own_kbit"], first["new_own_kbit"]) == ("17-ffaa:0:1107", None, 500)

    def confirm(url: str, etag: str) -> Any:
        return program.post(f"{url}apply/", {"reason": "x"}, format="json", headers={"If-Match": etag})

    assert error_of(program.post(f"{made['Location']}apply/", {"reason": "x"}, format="json"))[0] == 428
    links[0].delete()  # somebody's link is no default: the tag confirms still
    done = confirm(made["Location"], made["ETag"])
    assert (done.status_code, done.json()["result"]["attachment_points"]) == (200, 2)
    assert confirm(made["Location"], made["ETag"]).json() == done.json()
    back = program.post(f"{made['Location']}put-back/", {}, format="json")
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=444, actor=None)
    refused = confirm(back["Location"], back["ETag"])
    assert (refused.status_code, refused.json()["current"]["attachment_points"][0]["left_out"]) == (
        412,
        "changed_since",
    )
    assert confirm(back["Location"], refused["ETag"]).status_code == 200
    assert own_defaults() == [444, None]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"kind": "set", "bandwidth_kbit": 5}, "bulk_which"),
        ({"kind": "site", "percent": 5, "isd": 17}, "bulk_value"),
        ({"kind": "set", "isd": 17}, "bulk_value"),
        ({"kind": "site", "isd": 18}, "bulk_nothing_chosen"),
        ({"kind": "site", "attachment_point_ids": [10**30]}, "bulk_nothing_chosen"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    program: APIClient, links: list[Link], body: dict[str, Any], code: str
) -> None:
    assert error_of(program.post(URL, body, format="json")) == (400, code)
    assert not BulkChange.objects.exists()


# --- pages ------------------------------------------------------------------------------------------------------


def choose(door: Client, query: str = "", **data: Any) -> Any:
    return door.post(reverse("cockpit_defaults") + query, {"kind": "set", "value": "2 Mbit/s", **data})


def test_the_pages_lead_from_the_choice_over_the_preview_to_the_record_and_back(
    door: Client, links: list[Link], ap: AttachmentPoint
) -> None:
    assert "17-ffaa:0:1108" in Page(door.get(reverse("cockpit_defaults"))).text
    answer = choose(door, "?q=1107", value="700")
    change = BulkChange.objects.get()
    url = reverse("cockpit_defaults_change", args=[change.pk])
    assert answer["Location"] == url
    page = Page(door.get(url))
    for words in ("Preview: Defaults: set to 700", "1 link of 1 owner", "1 of them clamped"):
        assert words in page.text
    apply = reverse("cockpit_defaults_apply", args=[change.pk])
    assert "A reason is missing." in Page(door.post(apply, {"reason": " "})).text
    assert own_defaults() == [None, None]
    done = Page(door.post(apply, {"reason": "Full."}, follow=True))
    assert "Done: 1 attachment point has a new default." in done.text
    back = Page(door.post(reverse("cockpit_defaults_put_back", args=[change.pk]), follow=True))
    assert "Preview: Defaults: undo" in back.text
    assert "Previous changes" in Page(door.get(reverse("cockpit_defaults"))).text
    assert own_defaults() == [700, None]


def test_the_page_shows_again_what_changed_meanwhile(door: Client, links: list[Link], ap: AttachmentPoint) -> None:
    choose(door)
    change = BulkChange.objects.get()
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=321, actor=None)
    answer = Page(door.post(reverse("cockpit_defaults_apply", args=[change.pk]), {"reason": "Full."}))
    assert "Changed since the preview" in answer.text
    assert "321" in answer.root.one("tr", class_="marked").text
    assert own_defaults() == [321, None]


@pytest.mark.parametrize(
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
    assert not BulkChange.objects.exists()


def test_ticked_ones_follow_the_site_again(door: Client, links: list[Link], ap: AttachmentPoint) -> None:
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=321, actor=None)
    choose(door, kind="site", value="", scope="ticked", ap=[str(ap.pk), "x", "9" * 30])
    assert default_lines_of(BulkChange.objects.get()) == [DefaultLine(ap.pk, 321, None, 321, 1000)]
