"""The REST API v1: own ASes and Links, the same rules and sentences as the pages, one shape for every error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from rest_framework.test import APIClient
from rest_framework.throttling import SimpleRateThrottle

from scionlab.accounts.api_token import api_token_create
from scionlab.accounts.models import ApiToken, User
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link, UserAS
from tests.cases import table
from tests.factories import PASSWORD
from tests.support.counters import Counters

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_throttle_counts() -> None:
    """Each test has the allowance of a new day."""
    cache.clear()


def token_of(user: User) -> str:
    return api_token_create(user_id=user.pk, name="test", replaces=True).text


def api(user: User | None) -> APIClient:
    client = APIClient()
    if user is not None:
        client.credentials(HTTP_AUTHORIZATION=f"Token {token_of(user)}")
    return client


def error_of(response: Any) -> tuple[int, str]:
    """Status and code, of an error in the one shape."""
    body = response.json()
    assert sorted(body) == ["code", "fields", "message"]
    assert body["message"]
    for errors in body["fields"].values():
        assert all(sorted(one) == ["code", "message"] for one in errors)
    return response.status_code, body["code"]


# --- Links --------------------------------------------------------------------------------------------------


def test_link_tells_what_is_requested_and_what_is_enforced(link: Link, owner: User, ap: AttachmentPoint) -> None:
    Link.objects.filter(pk=link.pk).update(from_user_kbit=64)
    body = api(owner).get(f"/api/v1/links/{link.pk}/").json()
    expected = {
        "id": link.pk,
        "as_id": link.interface_b.AS_id,
        "isd_as": "17-ffaa:1:1",
        "interface_id": 1,
        "attachment_point_id": ap.pk,
        "attachment_point": "17-ffaa:0:1107",
        "attachment_point_ip": "192.0.2.1",
        "attachment_point_port": 50000,
        "public_ip": "198.51.100.7",
        "active": True,
        "bandwidth_kbit": 64,
        "to_user_kbit": 1000,
        "from_user_kbit": 64,
    }
    assert {name: body[name] for name in expected} == expected
    status = body["status"]
    assert (status["stage"], status["maximum_kbit"], status["enforced"]) == ("waiting", 1000, None)
    assert status["requested"] == status["wanted"] == {"to_user_kbit": 1000, "from_user_kbit": 64}


def test_patch_sets_the_bandwidth(link: Link, owner: User) -> None:
    before = Host.objects.get(pk=link.interface_a.host_id)
    url = f"/api/v1/links/{link.pk}/"
    response = api(owner).patch(url, {"bandwidth_kbit": 500}, format="json")
    assert response.status_code == 200
    assert (response.json()["bandwidth_kbit"], response.json()["status"]["wanted_kbit"]) == (500, 500)
    link.refresh_from_db()
    assert link.bandwidth_kbit == 500
    after = Host.objects.get(pk=before.pk)
    assert (after.config_version, after.limits_version) == (before.config_version, before.limits_version + 1)
    change = BandwidthChange.objects.get(link=link, old_kbit=1000, new_kbit=500)
    assert (change.actor, change.reason) == (owner, "API")
    assert api(owner).patch(url, {"active": False}, format="json").json()["status"]["stage"] == "inactive"
    assert not Link.objects.get(pk=link.pk).active


def test_patch_renames_an_as_and_no_host_hears_of_it(link: Link, user_as: UserAS, owner: User) -> None:
    before, url = Counters(), f"/api/v1/ases/{user_as.pk}/"
    answer = api(owner).patch(url, {"label": "Lab"}, format="json")
    assert (answer.status_code, answer.json()["label"], before.risen()) == (200, "Lab", {})
    both = api(owner).patch(url, {"label": "Attic", "active": False}, format="json").json()
    assert (both["label"], [one["active"] for one in both["links"]]) == ("Attic", [False])
    assert error_of(api(owner).patch(url, {}, format="json")) == (400, "nothing_to_change")
    assert error_of(api(owner).patch(url, {"label": "x" * 101}, format="json"))[0] == 400
    user_as.refresh_from_db()
    assert (user_as.label, user_as.changed_by) == ("Attic", owner)


@table(("body", "code"), [({}, "nothing_to_change"), ({"bandwith_kbit": 5}, "unknown_field")])
def test_patch_that_changes_nothing_says_so(link: Link, owner: User, body: dict[str, Any], code: str) -> None:
    response = api(owner).patch(f"/api/v1/links/{link.pk}/", body, format="json")
    assert error_of(response) == (400, code)


def test_patch_of_two_things_is_done_whole_or_not_at_all(
    link: Link, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removed_meanwhile(*_: object, **__: object) -> None:
        raise Link.DoesNotExist

    monkeypatch.setattr("scionlab.limits.update.note_change", removed_meanwhile)  # when both were written
    response = api(owner).patch(f"/api/v1/links/{link.pk}/", {"bandwidth_kbit": 5, "active": False}, format="json")
    assert error_of(response) == (404, "not_found")
    link.refresh_from_db()
    assert link.bandwidth_kbit == 1000


@table("body", [{"bandwidth_kbit": {"\ud800": ["\udfff"]}}, {"active": "\ud800"}])
def test_half_a_character_is_refused_in_an_answer_that_can_be_sent(
    link: Link, owner: User, body: dict[str, Any]
) -> None:
    """JSON can name surrogates, and UTF-8 has none: the sentence repeats what was sent."""
    content = json.dumps(body).encode()
    response = api(owner).patch(f"/api/v1/links/{link.pk}/", content, content_type="application/json")
    assert error_of(response)[0] == 400


# --- who sees what ------------------------------------------------------------------------------------------


@table("url", ["/api/v1/ases/", "/api/v1/links/", "/api/v1/attachment-points/"])
def test_lists_need_a_token(url: str) -> None:
    response = api(None).get(url)
    assert error_of(response) == (401, "not_authenticated")
    assert response["WWW-Authenticate"] == "Token"


def test_lists_hold_one_s_own_alone(link: Link, owner: User, stranger: User, staff: User) -> None:
    def ids(user: User, url: str) -> list[int]:
        return [one["id"] for one in api(user).get(url).json()["results"]]

    assert ids(owner, "/api/v1/links/") == [link.pk]
    assert link.pk not in ids(stranger, "/api/v1/links/")
    assert ids(owner, "/api/v1/ases/") == [link.interface_b.AS_id]
    assert link.interface_b.AS_id not in ids(stranger, "/api/v1/ases/")
    assert len(ids(staff, "/api/v1/links/")) == Link.objects.count() == 2
    assert len(ids(staff, "/api/v1/ases/")) == 2


@table("query", ["limit=9223372036854775808", "limit=1001", "limit=0", "offset=" + "9" * 4000])
@table("path", ["links", "ases", "attachment-points", "tokens"])
def test_page_of_any_size_is_refused(owner: User, link: Link, path: str, query: str) -> None:
    """No number reaches the database that is too large for it."""
    response = api(owner).get(f"/api/v1/{path}/?{query}")
    assert error_of(response)[0] == 400
    assert list(response.json()["fields"]) == [query.partition("=")[0]]


# --- user ASes ----------------------------------------------------------------------------------------------


def test_create_edit_and_delete_an_as(teammate: User, ap: AttachmentPoint) -> None:
    client = api(teammate)
    made = client.post(
        "/api/v1/ases/",
        {
            "label": "Lab",
            "installation_type": "dedicated",
            "attachments": [{"attachment_point_id": ap.pk, "public_ip": "198.51.100.30", "bandwidth_kbit": 250}],
        },
        format="json",
    )
    assert made.status_code == 201, made.content
    body = made.json()
    assert (body["isd_as"], body["label"], body["owner"]) == ("17-ffaa:1:1", "Lab", "teammate@example.org")
    assert [one["bandwidth_kbit"] for one in body["links"]] == [250]

    link_id = body["links"][0]["id"]
    kept = {"attachment_point_id": ap.pk, "link_id": link_id, "public_ip": "198.51.100.30", "bandwidth_kbit": 300}
    added = {"attachment_point_id": ap.pk, "public_ip": "198.51.100.30", "public_port": 50001}
    url = f"/api/v1/ases/{body['id']}/"
    edited = client.put(url, {"label": "Lab 2", "attachments": [kept, added]}, format="json")
    assert edited.status_code == 200, edited.content
    links = {one["id"]: one["bandwidth_kbit"] for one in edited.json()["links"]}
    assert (links.pop(link_id), list(links.values())) == (300, [1000])  # left out: the default, copied

    off = client.patch(url, {"active": False}, format="json")
    assert [one["active"] for one in off.json()["links"]] == [False, False]
    assert client.delete(url).status_code == 204
    assert not UserAS.objects.filter(pk=body["id"]).exists()


def test_values_that_are_none_are_told_at_their_place(teammate: User, ap: AttachmentPoint) -> None:
    body = {"installation_type": "cloud", "attachments": [{"attachment_point_id": "x", "bandwidth_kbit": "1e3"}]}
    response = api(teammate).post("/api/v1/ases/", body, format="json")
    assert error_of(response)[0] == 400
    assert {name: errors[0]["code"] for name, errors in response.json()["fields"].items()} == {
        "installation_type": "invalid_choice",
        "attachments.0.attachment_point_id": "invalid",
        "attachments.0.bandwidth_kbit": "bandwidth_invalid",
    }


# --- tokens and throttles -----------------------------------------------------------------------------------


def test_password_is_exchanged_for_a_token_that_works_until_it_is_revoked(owner: User, link: Link) -> None:
    client = APIClient()
    response = client.post("/api/v1/token/", {"email": "Owner@Example.org", "password": PASSWORD}, format="json")
    assert response.status_code == 200
    client.credentials(HTTP_AUTHORIZATION=f"Token {response.json()['token']}")
    assert client.get("/api/v1/links/").status_code == 200
    assert client.delete("/api/v1/token/").status_code == 204
    assert client.get("/api/v1/links/").status_code == 401


@table(("email", "password"), [("owner@example.org", "wrong"), ("nobody@example.org", PASSWORD), ("a\0b", "x")])
def test_wrong_password_and_unknown_person_are_told_apart_by_nothing(owner: User, email: str, password: str) -> None:
    response = APIClient().post("/api/v1/token/", {"email": email, "password": password}, format="json")
    assert response.status_code in {400, 401}
    if "\0" not in email:
        assert error_of(response) == (401, "authentication_failed")
        assert response.json()["message"] == "The email address or the password is wrong."
    assert not ApiToken.objects.exists()


def test_person_who_is_not_active_gets_no_token(owner: User) -> None:
    User.objects.filter(pk=owner.pk).update(is_active=False)
    response = APIClient().post("/api/v1/token/", {"email": owner.email, "password": PASSWORD}, format="json")
    assert error_of(response) == (401, "authentication_failed")


def test_guessing_is_throttled_with_retry_after(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SimpleRateThrottle.THROTTLE_RATES, "token", "2/min")
    client, wrong = APIClient(), {"email": owner.email, "password": "wrong"}
    for _ in range(2):
        assert client.post("/api/v1/token/", wrong, format="json").status_code == 401
    response = client.post("/api/v1/token/", {"email": owner.email, "password": PASSWORD}, format="json")
    assert error_of(response) == (429, "throttled")
    assert 1 <= int(response["Retry-After"]) <= 60
    assert f"{response['Retry-After']} s" in response.json()["message"]


def test_forwarded_address_buys_no_more_guesses(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SimpleRateThrottle.THROTTLE_RATES, "token", "2/min")
    wrong = {"email": owner.email, "password": "wrong"}
    answers = [
        APIClient().post("/api/v1/token/", wrong, format="json", headers={"X-Forwarded-For": f"203.0.113.{n}"})
        for n in range(3)
    ]
    assert [one.status_code for one in answers] == [401, 401, 429]


def test_scripts_are_throttled_with_retry_after(owner: User, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SimpleRateThrottle.THROTTLE_RATES, "user", "2/min")
    client = api(owner)
    assert [client.get("/api/v1/links/").status_code for _ in range(3)] == [200, 200, 429]


def test_session_of_the_pages_needs_its_csrf_token(link: Link, owner: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    url = f"/api/v1/links/{link.pk}/"
    assert client.get(url).status_code == 200
    response = client.patch(url, json.dumps({"bandwidth_kbit": 5}), content_type="application/json")
    assert error_of(response) == (403, "permission_denied")
    link.refresh_from_db()
    assert link.bandwidth_kbit == 1000


# --- the shape and the schema -------------------------------------------------------------------------------


def test_other_errors_have_the_shape_too(owner: User, link: Link) -> None:
    client = api(owner)
    url = f"/api/v1/links/{link.pk}/"
    assert error_of(client.post(url, {}, format="json")) == (405, "method_not_allowed")
    assert error_of(client.patch(url, "x", content_type="text/csv")) == (415, "unsupported_media_type")
    assert error_of(client.get(url, headers={"accept": "image/png"})) == (406, "not_acceptable")
    assert error_of(client.patch(url, [1], format="json"))[0] == 400


@table("times", ["ends_at=0001-01-01T00:00:00Z", "begins_at=9999-12-31T00:00:00Z&ends_at=9999-12-31T23:59:59Z"])
def test_times_at_the_ends_of_the_calendar_are_refused_and_no_failure(owner: User, link: Link, times: str) -> None:
    assert error_of(api(owner).get(f"/api/v1/links/{link.pk}/usage/?{times}")) == (400, "time_invalid")


def test_token_ends_at_a_time_that_every_zone_can_show(owner: User) -> None:
    sent = {"name": "for ever", "expires_at": "9999-12-31T23:59:59Z"}
    assert error_of(api(owner).post("/api/v1/tokens/", sent, format="json")) == (400, "token_expiry_far")
