"""What every operation of the REST API does alike: ETags and preconditions, requests sent twice, lists, errors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from bandwidth_config import Limits
from scionlab.accounts.api_token import api_token_create
from scionlab.accounts.models import ApiToken, User
from scionlab.limits.update import link_update
from scionlab.site.tasks import forget_old_rows
from scionlab.testbed.models import AttachmentPoint, BandwidthPolicy, Link, TimedLimit, UserAS
from scionlab.web.models import ApiRequest
from tests.cases import table
from tests.factories import HostReceiptFactory, LinkEnforcementFactory, attach, spec
from tests.user_ases.test_rest_api import _no_throttle_counts, api, error_of

pytestmark = pytest.mark.django_db

__all__ = ["_no_throttle_counts"]


@pytest.fixture
def client(owner: User) -> APIClient:
    return api(owner)


@pytest.fixture
def url(link: Link) -> str:
    return f"/api/v1/links/{link.pk}/"


# --- ETags --------------------------------------------------------------------------------------------------


def test_what_is_known_is_not_sent_again(client: APIClient, url: str) -> None:
    etag = client.get(url)["ETag"]
    again = client.get(url, headers={"If-None-Match": f'"other", W/{etag}'})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", etag)
    client.patch(url, {"bandwidth_kbit": 500}, format="json")
    assert client.get(url, headers={"If-None-Match": etag}).status_code == 200


@table("path", ["links/", "ases/", "attachment-points/", "policy/"])
def test_lists_have_tags_too(client: APIClient, link: Link, path: str) -> None:
    etag = client.get(f"/api/v1/{path}")["ETag"]
    assert client.get(f"/api/v1/{path}", headers={"If-None-Match": etag}).status_code == 304


def test_change_for_another_state_is_refused_and_shows_what_is_there(
    client: APIClient, url: str, link: Link, staff: User
) -> None:
    etag = client.get(url)["ETag"]
    link_update(link_id=link.pk, limits=Limits.both(700), actor=staff)
    refused = client.patch(url, {"bandwidth_kbit": 500}, format="json", headers={"If-Match": etag})
    body = refused.json()
    assert (refused.status_code, body["code"], body["current"]["bandwidth_kbit"]) == (412, "stale", 700)
    assert Link.objects.get(pk=link.pk).bandwidth_kbit == 700
    done = client.patch(url, {"bandwidth_kbit": 500}, format="json", headers={"If-Match": refused["ETag"]})
    assert (done.status_code, done.json()["bandwidth_kbit"]) == (200, 500)


def test_what_the_kernel_confirmed_meanwhile_refuses_no_change(client: APIClient, url: str, link: Link) -> None:
    etag = client.get(url)["ETag"]
    now = timezone.now()
    HostReceiptFactory(host=link.interface_a.host, received_at=now)
    LinkEnforcementFactory(link=link, received_at=now)
    fresh = client.get(url, headers={"If-None-Match": etag})
    assert (fresh.status_code, fresh.json()["status"]["stage"]) == (200, "enforced")
    assert client.patch(url, {"bandwidth_kbit": 5}, format="json", headers={"If-Match": etag}).status_code == 200


@table("method", ["put", "patch", "delete"])
def test_every_change_of_an_as_looks_at_if_match(
    client: APIClient, link: Link, user_as: UserAS, staff: User, method: str
) -> None:
    url = f"/api/v1/ases/{user_as.pk}/"
    etag = client.get(url)["ETag"]
    link_update(link_id=link.pk, limits=Limits.both(700), actor=staff)
    ap = link.interface_a.AS.attachment_point
    attachment = {"link_id": link.pk, "attachment_point_id": ap.pk, "public_ip": "198.51.100.7"}
    body = {"put": {"attachments": [attachment]}, "patch": {"active": False}, "delete": None}[method]
    response = getattr(client, method)(url, body, format="json", headers={"If-Match": etag})
    assert (response.status_code, response.json()["current"]["links"][0]["bandwidth_kbit"]) == (412, 700)
    assert Link.objects.get(pk=link.pk).bandwidth_kbit == 700
    response = getattr(client, method)(url, body, format="json", headers={"If-Match": response["ETag"]})
    assert response.status_code == (204 if method == "delete" else 200)


def test_other_things_look_at_if_match_too(staff: User, ap: AttachmentPoint) -> None:
    client = api(staff)
    for url, name in (
        ("/api/v1/policy/", "default_bandwidth_kbit"),
        (f"/api/v1/attachment-points/{ap.pk}/", "own_default_bandwidth_kbit"),
    ):
        etag = client.get(url)["ETag"]
        assert client.patch(url, {name: 2000}, format="json", headers={"If-Match": etag}).status_code == 200
        assert client.patch(url, {name: 3000}, format="json", headers={"If-Match": etag}).status_code == 412
        assert client.get(url).json()[name] == 2000


@table(
    ("header", "status"),
    [("*", 200), ("{etag}", 200), ("W/{etag}", 412), ("nonsense", 400), ('W/"a.b"', 412), ('"a", "b"', 412)],
)
def test_if_match_is_read_as_the_rfc_says(client: APIClient, url: str, header: str, status: int) -> None:
    sent = header.replace("{etag}", client.get(url)["ETag"])
    response = client.patch(url, {"bandwidth_kbit": 5}, format="json", headers={"If-Match": sent})
    assert response.status_code == status


# --- sent twice ---------------------------------------------------------------------------------------------


@pytest.fixture
def body(ap: AttachmentPoint) -> dict[str, Any]:
    return {"label": "Lab", "attachments": [{"attachment_point_id": ap.pk, "public_ip": "198.51.100.30"}]}


def test_request_sent_twice_is_done_once_and_answers_the_same(teammate: User, body: dict[str, Any]) -> None:
    client, headers = api(teammate), {"Idempotency-Key": "night-1"}
    first, second = (client.post("/api/v1/ases/", body, format="json", headers=headers) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert (first["Location"], first["ETag"]) == (second["Location"], second["ETag"])
    assert ("Idempotency-Replayed" in first, second["Idempotency-Replayed"]) == (False, "true")
    assert client.get(first["Location"]).json() == first.json()
    assert UserAS.objects.count() == 1


def test_key_of_another_request_is_refused(teammate: User, body: dict[str, Any]) -> None:
    client, headers = api(teammate), {"Idempotency-Key": "night-1"}
    client.post("/api/v1/ases/", body, format="json", headers=headers)
    other = client.post("/api/v1/ases/", {**body, "label": "Other"}, format="json", headers=headers)
    assert error_of(other) == (422, "idempotency_mismatch")
    assert UserAS.objects.count() == 1


def test_key_is_one_person_s_own(teammate: User, owner: User, body: dict[str, Any]) -> None:
    headers = {"Idempotency-Key": "night-1"}
    body["attachments"][0]["public_ip"] = "198.51.100.31"
    api(teammate).post("/api/v1/ases/", body, format="json", headers=headers)
    body["attachments"][0]["public_ip"] = "198.51.100.32"
    assert api(owner).post("/api/v1/ases/", body, format="json", headers=headers).status_code == 201


def test_refused_request_does_not_use_its_key_up(teammate: User, body: dict[str, Any]) -> None:
    client, headers = api(teammate), {"Idempotency-Key": "night-1"}
    wrong = {**body, "attachments": [{**body["attachments"][0], "bandwidth_kbit": 10**6}]}
    assert error_of(client.post("/api/v1/ases/", wrong, format="json", headers=headers))[0] == 400
    assert not ApiRequest.objects.exists()
    assert client.post("/api/v1/ases/", body, format="json", headers=headers).status_code == 201


def test_key_is_free_again_after_a_day(teammate: User, body: dict[str, Any]) -> None:
    client, headers = api(teammate), {"Idempotency-Key": "night-1"}
    client.post("/api/v1/ases/", body, format="json", headers=headers)
    ApiRequest.objects.update(created_at=timezone.now() - timedelta(hours=25))
    body["attachments"][0]["public_ip"] = "198.51.100.33"
    assert client.post("/api/v1/ases/", body, format="json", headers=headers).status_code == 201
    assert UserAS.objects.count() == 2
    forget_old_rows()
    assert ApiRequest.objects.count() == 1
    ApiRequest.objects.update(created_at=timezone.now() - timedelta(hours=25))
    forget_old_rows()
    assert not ApiRequest.objects.exists()


@table("key", ["", "x" * 201, "a\tb", "\u00e9"])
def test_key_that_is_none_is_refused(teammate: User, body: dict[str, Any], key: str) -> None:
    response = api(teammate).post("/api/v1/ases/", body, format="json", headers={"Idempotency-Key": key})
    assert error_of(response) == (400, "idempotency_key_invalid")
    assert not UserAS.objects.exists()


def test_secret_is_not_kept_for_whoever_sends_the_request_again(owner: User) -> None:
    client, headers = api(owner), {"Idempotency-Key": "token-1"}
    made = client.post("/api/v1/tokens/", {"name": "monitor"}, format="json", headers=headers)
    assert made.json()["token"].startswith("slbwu_")
    again = client.post("/api/v1/tokens/", {"name": "monitor"}, format="json", headers=headers)
    assert error_of(again) == (409, "idempotency_secret")
    assert made.json()["token"] not in ApiRequest.objects.get().body
    assert ApiToken.objects.filter(name="monitor").count() == 1


# --- lists --------------------------------------------------------------------------------------------------


@pytest.fixture
def links(owner: User, link: Link, ap: AttachmentPoint, ap_b: AttachmentPoint) -> list[Link]:
    """Four Links of two ASes: 1000 kbit/s at `ap`; 300, 200 (inactive) and 100 in an AS called Slow."""
    attach(
        owner,
        spec(ap, public_ip="198.51.100.20", bandwidth_kbit=300),
        spec(ap_b, public_ip="198.51.100.20", public_port=50001, bandwidth_kbit=200, active=False),
        spec(ap_b, public_ip="198.51.100.20", public_port=50002, bandwidth_kbit=100),
        label="Slow",
    )
    return list(Link.objects.order_by("pk"))


@table(
    ("query", "wanted"),
    [
        ("", [1000, 300, 200, 100]),
        ("sort=bandwidth_kbit", [100, 200, 300, 1000]),
        ("active=false", [200]),
        ("as_id={slow}&sort=bandwidth_kbit", [100, 200, 300]),
        ("min_kbit=200&max_kbit=300", [300, 200]),
        ("attachment_point_id={ap_b}", [200, 100]),
        ("stage=inactive", [200]),
        ("stage=waiting&limit=1&offset=1", [300]),
        ("owner=stranger@example.org", []),
        ("owner=OWNER@example.org", [1000, 300, 200, 100]),
    ],
)
def test_links_are_filtered_and_sorted(
    client: APIClient, links: list[Link], ap_b: AttachmentPoint, stranger: User, query: str, wanted: list[int]
) -> None:
    query = query.format(ap_b=ap_b.pk, slow=links[1].interface_b.AS_id)
    found = client.get(f"/api/v1/links/?{query}").json()["results"]
    assert [one["bandwidth_kbit"] for one in found] == wanted


@table(
    ("query", "wanted"),
    [
        ("sort=bandwidth_kbit", [100, 150, 200, 300]),
        ("min_kbit=150&sort=bandwidth_kbit", [150, 200, 300]),
    ],
)
def test_links_are_filtered_and_sorted_by_the_number_that_is_shown(
    client: APIClient, links: list[Link], query: str, wanted: list[int]
) -> None:
    """Of two directions that is the lower one."""
    Link.objects.filter(pk=links[0].pk).update(from_user_kbit=150)
    found = client.get(f"/api/v1/links/?{query}").json()["results"]
    assert [one["bandwidth_kbit"] for one in found] == wanted


@table(
    ("query", "wanted"),
    [
        ("sort=-label", ["Slow", "Owner's AS"]),
        ("label=slo", ["Slow"]),
        ("attachment_point_id={ap_b}", ["Slow"]),
    ],
)
def test_ases_are_filtered_and_sorted(
    client: APIClient, links: list[Link], ap_b: AttachmentPoint, query: str, wanted: list[str]
) -> None:
    found = client.get(f"/api/v1/ases/?{query.format(ap_b=ap_b.pk)}").json()["results"]
    assert [one["label"] for one in found] == wanted


def test_attachment_points_are_filtered(client: APIClient, ap_b: AttachmentPoint, ap_other: AttachmentPoint) -> None:
    def names(query: str) -> list[str]:
        return [one["isd_as"] for one in client.get(f"/api/v1/attachment-points/?{query}").json()["results"]]

    assert names("isd=19") == ["19-ffaa:0:1303"]
    assert names("has_vpn=true") == ["17-ffaa:0:1108"]
    assert names("sort=-isd_as") == ["19-ffaa:0:1303", "17-ffaa:0:1108"]


@table(
    ("path", "query", "code"),
    [
        ("links/", "activ=true", "unknown_parameter"),
        ("links/", "active=perhaps", "invalid"),
        ("links/", "sort=owner", "invalid_choice"),
        ("links/", "limit=5&limit=6", "parameter_twice"),
        ("ases/", "label=%00", "null_characters_not_allowed"),
    ],
)
def test_parameter_that_is_not_known_is_refused(client: APIClient, path: str, query: str, code: str) -> None:
    response = client.get(f"/api/v1/{path}?{query}")
    assert error_of(response) == (400, code)
    assert "Known parameters: active, as_id" in response.json()["message"] or "activ=" not in query


def test_pages_are_linked_in_a_header(client: APIClient, links: list[Link]) -> None:
    def linked(query: str) -> dict[str, str]:
        header = client.get(f"/api/v1/links/?{query}")["Link"]
        found = [one.split("; rel=") for one in header.split(", ")]
        return {name.strip('"'): address.strip("<>").partition("?")[2] for address, name in found}

    body = client.get("/api/v1/links/?limit=1").json()
    assert (body["count"], len(body["results"])) == (4, 1)
    assert body["next"].endswith("/api/v1/links/?limit=1&offset=1")
    following = "limit=3&offset=3&sort=-id"
    assert linked("limit=3&sort=-id") == {"first": "limit=3&offset=0&sort=-id", "next": following, "last": following}
    assert linked("limit=2&offset=2") == {"first": "limit=2&offset=0", "prev": "limit=2", "last": "limit=2&offset=2"}


# --- limits of each direction, and for a time ------------------------------------------------------------------


def test_directions_are_set_together_or_one_by_one(client: APIClient, url: str) -> None:
    def limits(body: dict[str, Any]) -> tuple[int, int, int]:
        found = client.patch(url, body, format="json").json()
        return found["bandwidth_kbit"], found["to_user_kbit"], found["from_user_kbit"]

    assert limits({"from_user_kbit": 200}) == (200, 1000, 200)
    assert limits({"to_user_kbit": 100}) == (100, 100, 200)
    assert limits({"bandwidth_kbit": 500}) == (500, 500, 500)
    assert limits({"to_user_kbit": 0, "from_user_kbit": 7}) == (0, 0, 7)


def test_bandwidth_is_said_in_one_way(client: APIClient, url: str) -> None:
    response = client.patch(url, {"bandwidth_kbit": 5, "from_user_kbit": 6}, format="json")
    assert error_of(response) == (400, "bandwidth_twice")


def test_rule_stands_at_the_name_that_was_sent(client: APIClient, url: str) -> None:
    response = client.patch(url, {"to_user_kbit": 10**6, "from_user_kbit": 5}, format="json")
    assert error_of(response) == (400, "bandwidth_too_high")
    assert list(response.json()["fields"]) == ["to_user_kbit"]


PROFILES: list[tuple[dict[str, Any], list[tuple[int, int, int]]]] = [
    ({"kind": "constant", "limits": 200, "duration_s": 60}, [(0, 200, 200)]),
    (
        {"kind": "stair", "start": 100, "end": {"to_user_kbit": 300, "from_user_kbit": 500}, "count": 3, "step_s": 10},
        [(0, 100, 100), (10, 200, 300), (20, 300, 500)],
    ),
]


@table(("body", "steps"), PROFILES, ids=lambda one: one["kind"] if isinstance(one, dict) else "")
def test_timed_limit_is_made_listed_and_cancelled(
    client: APIClient, url: str, link: Link, body: dict[str, Any], steps: list[tuple[int, int, int]]
) -> None:
    made = client.post(f"{url}timed-limits/", body, format="json")
    assert made.status_code == 201, made.content
    found = made.json()
    assert [tuple(one.values()) for one in found["steps"]] == steps
    assert (found["kind"], found["state"], found["created_by"]) == (body["kind"], "running", "owner@example.org")
    status = client.get(url).json()["status"]
    assert status["wanted"] == {"to_user_kbit": steps[0][1], "from_user_kbit": steps[0][2]}
    assert status["running"]["id"] == found["id"]
    assert client.get(made["Location"]).json() == found
    assert [one["id"] for one in client.get(f"{url}timed-limits/").json()["results"]] == [found["id"]]
    assert client.delete(made["Location"]).status_code == 204
    assert client.get(made["Location"]).json()["state"] == "cancelled"
    assert client.get(f"{url}timed-limits/").json()["count"] == 0
    assert client.get(f"{url}timed-limits/?all=true").json()["count"] == 1
    kinds = [one["kind"] for one in client.get(f"{url}history/").json()["results"]]
    assert kinds == ["timed_limit", "timed_limit", "link"]


def test_timed_limit_later_and_until(client: APIClient, url: str) -> None:
    begins_at = (timezone.now() + timedelta(hours=1)).replace(microsecond=0)
    body = {
        "kind": "constant",
        "limits": 5,
        "begins_at": begins_at.isoformat(),
        "ends_at": (begins_at + timedelta(seconds=90)).isoformat(),
    }
    found = client.post(f"{url}timed-limits/", body, format="json").json()
    assert (found["state"], TimedLimit.objects.get().limits.duration_s) == ("upcoming", 90)
    overlap = client.post(f"{url}timed-limits/", body, format="json")
    assert error_of(overlap) == (400, "timed_overlap")


@table(
    ("body", "code"),
    [
        ({"kind": "sine"}, "timed_kind"),
        ({"kind": "constant", "limits": 5}, "timed_length"),
        ({"kind": "constant", "limits": 5, "duration_s": 9, "ends_at": "2026-11-21T06:00:00Z"}, "timed_length"),
        ({"kind": "constant", "limits": 10**6, "duration_s": 9}, "bandwidth_too_high"),
        ({"kind": "outage", "duration_s": 9, "begins_at": "2020-01-01T00:00:00Z"}, "timed_past"),
        ({"kind": "square", "low": 1, "high": 2, "half_period_s": 1, "cycles": 101}, "max_value"),
    ],
)
def test_timed_limit_that_is_none_is_refused(client: APIClient, url: str, body: dict[str, Any], code: str) -> None:
    assert error_of(client.post(f"{url}timed-limits/", body, format="json")) == (400, code)
    assert not TimedLimit.objects.exists()


# --- who may ------------------------------------------------------------------------------------------------


def test_defaults_are_set_by_administrators_alone(client: APIClient, staff: User, ap: AttachmentPoint) -> None:
    for who, status in ((client, 403), (api(staff), 200)):
        url = f"/api/v1/attachment-points/{ap.pk}/"
        assert who.patch(url, {"own_default_bandwidth_kbit": 700}, format="json").status_code == status
        assert who.patch("/api/v1/policy/", {"default_bandwidth_kbit": 900}, format="json").status_code == status
        assert who.get(url).status_code == who.get("/api/v1/policy/").status_code == 200
    assert BandwidthPolicy.objects.get().default_bandwidth_kbit == 900
    assert AttachmentPoint.objects.get(pk=ap.pk).default_bandwidth_kbit == 700


def test_token_for_reading_changes_nothing_and_gets_no_secret(owner: User, url: str, user_as: UserAS) -> None:
    text = api_token_create(user_id=owner.pk, name="monitor", may_write=False).text
    reader = APIClient()
    reader.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    assert reader.get(url).status_code == 200
    configuration = f"/api/v1/ases/{user_as.pk}/configuration/"
    answers = [reader.patch(url, {"bandwidth_kbit": 5}, format="json"), reader.get(configuration)]
    assert {error_of(one) for one in answers} == {(403, "token_read_only")}
    assert api(owner).get(configuration)["Content-Type"] == "application/gzip"


# --- errors -------------------------------------------------------------------------------------------------


@table("path", ["/api/", "/api/v1/links/x/", "/api/v4/nothing"])
def test_address_that_is_none_is_told_in_the_one_shape(path: str) -> None:
    assert error_of(Client().get(path)) == (404, "not_found")


def test_mistake_of_ours_is_told_in_the_one_shape(owner: User, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("scionlab.user_ases.rest.link_views.link_update", mistaken)
    client = APIClient(raise_request_exception=False)
    client.credentials(HTTP_AUTHORIZATION=f"Token {api_token_create(user_id=owner.pk, name='t').text}")
    response = client.patch(f"/api/v1/links/{link.pk}/", {"bandwidth_kbit": 5}, format="json")
    assert error_of(response) == (500, "server_error")


@table(
    "content",
    [
        b'{"active":' + b"[" * 100_000,
        b'{"bandwidth_kbit": 5, "bandwidth_kbit": 6}',
        b'{"bandwidth_kbit": NaN}',
        b'{"bandwidth_kbit": ' + b"1" * 5000 + b"}",
        b'{"bandwidth_kbit": "\xff"}',
    ],
    ids=["many brackets", "a key twice", "NaN", "many digits", "not UTF-8"],
)
def test_body_that_two_readers_could_take_differently_is_refused(
    client: APIClient, url: str, link: Link, content: bytes
) -> None:
    response = client.patch(url, content, content_type="application/json")
    assert error_of(response) == (400, "parse_error")
    stored = link.bandwidth_kbit
    link.refresh_from_db()
    assert link.bandwidth_kbit == stored
