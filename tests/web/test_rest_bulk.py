"""Many limits changed at once over the REST API: what a script of an administrator looks at is what it carries out."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from bandwidth_config import Limits
from scionlab.links.update import link_update
from scionlab.models import AttachmentPoint, BandwidthChange, BulkChange, Link, Mail, User
from tests.cases import table
from tests.web.test_cockpit_bulk import links, requested
from tests.web.test_rest_api import _no_throttle_counts, api, error_of

pytestmark = pytest.mark.django_db

__all__ = ["_no_throttle_counts", "links"]  # fixtures

URL = "/api/v1/bulk-changes/"
CAP = {"kind": "cap", "bandwidth_kbit": 500, "every_link": True}


@pytest.fixture
def door(staff: User) -> APIClient:
    return api(staff)


def preview(door: APIClient, **body: Any) -> Any:
    answer = door.post(URL, body or CAP, format="json")
    assert answer.status_code == 201, answer.content
    return answer


def confirm(door: APIClient, url: str, etag: str, reason: str = "Full.") -> Any:
    return door.post(f"{url}apply/", {"reason": reason}, format="json", headers={"If-Match": etag})


def test_preview_is_looked_at_carried_out_once_and_put_back(door: APIClient, links: list[Link], owner: User) -> None:
    before = requested()
    made = preview(door)
    url, etag, found = made["Location"], made["ETag"], made.json()
    assert requested() == before
    assert (found["links"], found["owners"], found["attachment_points"]) == (3, 2, ["17-ffaa:0:1107"])
    assert found["left_out"] == [{"why": "same", "count": 1}]
    lines = door.get(f"{url}links/", {"left_out": "false", "limit": 1}).json()
    assert (lines["count"], lines["results"][0]["isd_as"], lines["results"][0]["new"]) == (
        3,
        "17-ffaa:1:1",
        {"to_user_kbit": 500, "from_user_kbit": 500},
    )
    audit = BandwidthChange.objects.count()
    done = confirm(door, url, etag)
    assert (done.status_code, done.json()["result"]) == (200, {"links": 3, "hosts": 1, "mails": 2})
    again = confirm(door, url, etag)  # no answer came, so the script sends it again
    assert (again.status_code, again.json()) == (200, done.json())
    assert BandwidthChange.objects.count() == audit + 3
    back = door.post(f"{url}put-back/", {}, format="json")
    assert (back.status_code, back.json()["puts_back"]) == (201, found["id"])
    assert confirm(door, back["Location"], back["ETag"]).status_code == 200
    assert requested() == before
    listed = door.get(URL, {"applied": "true"}).json()
    assert [one["id"] for one in listed["results"]] == [back.json()["id"], found["id"]]


def test_who_did_not_say_what_was_looked_at_confirms_nothing(door: APIClient, links: list[Link]) -> None:
    url, before = preview(door)["Location"], requested()
    assert error_of(door.post(f"{url}apply/", {"reason": "x"}, format="json")) == (428, "if_match_missing")
    assert confirm(door, url, '"other"').status_code == 412
    assert error_of(confirm(door, url, "*", reason="  "))[0] == 400
    assert requested() == before


def test_what_changed_since_refuses_all_and_the_former_tag_confirms_nothing_more(
    door: APIClient, links: list[Link], owner: User
) -> None:
    made = preview(door)
    link_update(link_id=links[0].pk, bandwidth_kbit=700, actor=owner)
    before = requested()
    refused = confirm(door, made["Location"], made["ETag"])
    assert (refused.status_code, refused.json()["code"]) == (412, "stale")
    assert refused.json()["current"]["lines_sha256"] != made.json()["lines_sha256"]
    assert confirm(door, made["Location"], made["ETag"]).status_code == 412  # a script that tries again unseen
    assert requested() == before
    assert confirm(door, made["Location"], refused["ETag"]).status_code == 200
    assert requested()[0] == Limits(500, 500)


@table(
    ("which", "expected"),
    [
        ({"every_link": True}, [0, 1, 2, 3]),
        ({"attachment_point_id": "ap"}, [0, 1]),
        ({"owner": "TEAMMATE"}, [2, 3]),
        ({"user_as": "17-ffaa:1:1"}, [0, 1]),
        ({"above_kbit": 599}, [0, 1, 3]),
        ({"link_ids": "first and third", "attachment_point_id": "ap"}, [0]),
    ],
)
def test_links_are_chosen_as_on_the_page(
    door: APIClient, links: list[Link], ap: AttachmentPoint, which: dict[str, Any], expected: list[int]
) -> None:
    values = {"ap": ap.pk, "first and third": [links[0].pk, links[2].pk]}
    which = {name: values.get(value, value) if isinstance(value, str) else value for name, value in which.items()}
    preview(door, kind="scale", percent=50, **which)
    stored = BulkChange.objects.get().lines
    assert [line[0] for line in stored] == [links[number].pk for number in expected]


@table(
    ("body", "code"),
    [
        ({"kind": "cap", "bandwidth_kbit": 5}, "bulk_which"),
        ({"kind": "cap", "bandwidth_kbit": 5, "every_link": True, "owner": "x"}, "bulk_which"),
        ({"kind": "cap", "percent": 5, "every_link": True}, "bulk_value"),
        ({"kind": "scale", "bandwidth_kbit": 5, "every_link": True}, "bulk_value"),
        ({"kind": "scale", "percent": 5, "bandwidth_kbit": 5, "every_link": True}, "bulk_value"),
        ({"kind": "scale", "percent": 20_000, "every_link": True}, "max_value"),
        ({"kind": "cap", "bandwidth_kbit": 5, "attachment_point_id": 10**30}, "attachment_point_unknown"),
        ({"kind": "cap", "bandwidth_kbit": 5, "owner": "nobody at all"}, "bulk_nothing_chosen"),
        ({"kind": "cap", "bandwidth_kbit": 5, "link_ids": [10**30]}, "bulk_nothing_chosen"),
        ({"kind": "put_back", "every_link": True}, "invalid_choice"),
    ],
)
def test_what_cannot_be_meant_is_refused(door: APIClient, links: list[Link], body: dict[str, Any], code: str) -> None:
    assert error_of(door.post(URL, body, format="json")) == (400, code)
    assert not BulkChange.objects.exists()


def test_a_preview_sent_twice_is_made_once(door: APIClient, links: list[Link]) -> None:
    for _ in range(2):
        door.post(URL, CAP, format="json", headers={"Idempotency-Key": "one"})
    assert BulkChange.objects.count() == 1


def test_nobody_else_learns_of_it(door: APIClient, links: list[Link], owner: User) -> None:
    url = preview(door)["Location"]
    client = api(owner)
    Mail.objects.all().delete()
    for ask in (client.get(url), client.get(URL), confirm(client, url, "*")):
        assert error_of(ask) == (403, "administrators_only")
    assert not Mail.objects.exists()
