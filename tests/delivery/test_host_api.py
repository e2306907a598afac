"""The host API v4, line by line of DOMAIN section 4: what the unmodified stock client and our agent are answered."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any
from urllib.parse import unquote

import pytest
from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client
from pytest_django import DjangoAssertNumQueries, Settings

from scionlab.accounts.models import User
from scionlab.delivery.host_api import views
from scionlab.delivery.last_contact import CONTACTS
from scionlab.delivery.render import user_download
from scionlab.delivery.tasks import flush_seen
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import AttachmentPoint, Host, Link, ServiceState, UserAS
from scionlab.user_ases.user_as import user_as_delete
from tests.cases import table
from tests.contract.stock_client import complaints
from tests.factories import HostFactory
from tests.support.polling import AGENT, WRONG, basic, config_members, credentials

pytestmark = pytest.mark.django_db


def poll(host: Host, query: str = "", *, method: str = "get", headers: dict[str, str] | None = None) -> HttpResponse:
    send = getattr(Client(), method)
    response: HttpResponse = send(
        f"/api/v4/host/{host.uid}/config{query}", headers=credentials(host) if headers is None else headers
    )
    return response


@pytest.fixture
def ap_host(link: Link) -> Host:
    """The host of the attachment point: G 1, H 18, L 7, and one limited Link."""
    host = link.interface_a.host
    Host.objects.filter(pk=host.pk).update(config_version=18, limits_version=7)
    host.refresh_from_db()
    return host


# --- the status table ---------------------------------------------------------------------------------------


@table(
    ("query", "status"),
    [
        ("", 200),
        ("?version=", 200),  # empty counts as absent
        ("?version=1.18", 304),
        ("?version=01.018", 304),  # equal as numbers
        ("?version=1.17", 200),
        ("?version=1.19", 200),  # from the future, after a restored backup
        ("?version=2.18", 200),
        ("?version=0.18", 200),
        ("?version=1.181", 200),
        (f"?version=1.{'9' * 5000}", 200),  # well-formed; more digits than int() takes
        ("?version=1.18&limits=7", 304),
        ("?version=1.18&limits=007", 304),
        ("?version=1.18&limits=", 304),
        ("?version=1.18&limits=6", 200),
        ("?version=1.18&limits=8", 200),
        ("?version=1.17&limits=7", 200),
        ("?limits=7", 200),
        (f"?version=1.18&limits={'9' * 5000}", 200),
        ("?version=1.18&limits=7&wait=30", 304),  # Django answers at once; who waits is held before it
        ("?version=1.17&wait=30", 200),
        ("?version=1.18&wait=x", 304),
        ("?version=18", 400),
        ("?version=1.18.0", 400),
        ("?version=.18", 400),
        ("?version=1.", 400),
        ("?version=-1.18", 400),
        ("?version=1.-18", 400),
        ("?version=1,18", 400),
        ("?version=a.b", 400),
        ("?version=1.18%0A", 400),
        ("?version=%201.18", 400),
        ("?version=1.%D9%A1%D9%A8", 400),  # Arabic digits
        ("?version=1.1%C2%B2", 400),  # superscript two
        ("?version=1.18%00", 400),
        ("?version=1.18&limits=x", 400),
        ("?version=1.18&limits=-7", 400),
        ("?version=1.18&limits=7.0", 400),
        ("?version=1.18&limits=%D9%A7", 400),
    ],
)
@table("method", ["get", "head"])
def test_status_of_a_poll(ap_host: Host, method: str, query: str, status: int) -> None:
    response = poll(ap_host, query, method=method)
    assert response.status_code == status
    if status == 304:
        assert response.content == b""
    if status == 400 and method == "get":
        error = json.loads(response.content)
        assert sorted(error) == ["code", "fields", "message"]
        assert error["code"] == ("limits_invalid" if "limits" in query else "version_invalid")


def test_generation_counts_as_the_first_half_of_the_version(ap_host: Host) -> None:
    ServiceState.objects.update_or_create(pk=1, defaults={"generation": 3})
    assert poll(ap_host, "?version=1.18").status_code == 200
    assert poll(ap_host, "?version=3.18").status_code == 304
    assert manifest_of(poll(ap_host))["version"] == "3.18"


@table("query", ["", "?version=1.1", "?version=1.1&limits=1"])
@table("method", ["get", "head"])
def test_host_without_as_is_answered_204(method: str, query: str) -> None:
    response = poll(HostFactory(AS=None), query, method=method)
    assert (response.status_code, response.content) == (204, b"")


# --- who may ask --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path", "status"),
    [
        ("config_for", "config", 204),
        ("refusal", "config?version=1.9999", 204),
        ("full_fetched", "config", 204),
        ("manifest_note", "installed", 401),
    ],
)
def test_a_host_that_is_deleted_while_it_is_answered(
    user_as: UserAS, monkeypatch: pytest.MonkeyPatch, name: str, path: str, status: int
) -> None:
    host, work = user_as.hosts.get(), getattr(views, name)

    def too_late(*args: Any, **values: Any) -> Any:
        user_as_delete(user_as_id=user_as.pk, actor=None)
        return work(*args, **values)

    monkeypatch.setattr(views, name, too_late)
    url, headers = f"/api/v4/host/{host.uid}/{path}", credentials(host) | {"User-Agent": "Python-urllib/3.13"}
    if path == "installed":
        answer = Client().post(url, '{"host_id": "another"}', "application/json", headers=headers)
    else:
        answer = Client().get(url, headers=headers)
    assert answer.status_code == status


@table(
    "header",
    [
        "",
        "Basic",
        "Basic !!!!",
        "Basic YTpi\u00e9",
        "Bearer abc",
        "Basic " + base64.b64encode(b"without a colon").decode(),
        "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(),
    ],
)
def test_header_that_cannot_be_read_is_no_credentials(ap_host: Host, header: str) -> None:
    assert poll(ap_host, headers={"Authorization": header}).status_code == 401


@table("uid", ["x", "a%00b", "%2e%2e", "é", "0" * 64])
def test_uid_that_nobody_has_is_401_and_no_server_error(uid: str) -> None:
    response = Client().get(f"/api/v4/host/{uid}/config", headers=basic(unquote(uid), "secret"))
    assert response.status_code == 401


def test_scheme_is_read_in_any_case(ap_host: Host) -> None:
    header = credentials(ap_host)["Authorization"].replace("Basic", "basic")
    assert poll(ap_host, headers={"Authorization": header} | AGENT).status_code == 200


# --- what a poll delivers -----------------------------------------------------------------------------------


def member_of(response: HttpResponse, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(config_members(response.content)[name])
    return found


def manifest_of(response: HttpResponse) -> dict[str, Any]:
    return member_of(response, "scionlab-config.json")


def test_delivery_has_the_headers_of_the_contract(ap_host: Host) -> None:
    response = poll(ap_host)
    assert response["Content-Type"] == "application/gzip"
    assert response["Content-Disposition"] == 'attachment; filename="scionlab_17-ffaa_0_1107_v18.tar.gz"'
    assert response["Content-Length"] == str(len(response.content))
    assert response["ETag"] == f'"{hashlib.sha256(response.content).hexdigest()}"'
    assert response["Cache-Control"] == "private, no-store"


def test_head_has_the_headers_of_get_and_no_body(ap_host: Host) -> None:
    head, get = poll(ap_host, method="head"), poll(ap_host)
    assert head.content == b""
    for name in ("Content-Type", "Content-Disposition", "Content-Length", "ETag"):
        assert head[name] == get[name]


def test_etag_never_turns_a_200_of_the_table_into_a_304(ap_host: Host) -> None:
    etag = poll(ap_host)["ETag"]
    response = poll(ap_host, "?version=1.19", headers={**credentials(ap_host), "If-None-Match": etag})
    assert response.status_code == 200


def test_delivery_pleases_the_stock_client_and_has_this_link(ap_host: Host, link: Link) -> None:
    response = poll(ap_host)
    assert complaints(response.content) == []
    manifest = manifest_of(response)
    assert (manifest["version"], manifest["limits_version"]) == ("1.18", 7)
    assert (manifest["host_id"], manifest["host_secret"]) == (ap_host.uid, ap_host.secret)
    assert member_of(response, "etc/scion/link_info.json") == {
        "1": {
            "AS_ID": 1,
            "IsUserAS": True,
            "Bandwidth": 1000,
            "IP-Address": "198.51.100.7",
            "ISD-AS": "17-ffaa:1:1",
            "Port": 50000,
            "Local-IP": "192.0.2.1",
            "Local-Port": 50000,
            "VPN": False,
        }
    }


def test_changed_bandwidth_is_news_for_the_agent_and_none_for_the_stock_client(
    ap_host: Host, link: Link, owner: User
) -> None:
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    assert poll(ap_host, "?version=1.18").status_code == 304
    response = poll(ap_host, "?version=1.18&limits=7")
    assert response.status_code == 200
    assert manifest_of(response)["limits_version"] == 8
    assert member_of(response, "etc/scion/link_info.json")["1"]["Bandwidth"] == 500


def test_stock_client_gets_the_newest_limits_too(ap_host: Host, link: Link, owner: User) -> None:
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=0, actor=owner)
    assert member_of(poll(ap_host, "?version=1.17"), "etc/scion/link_info.json")["1"]["Bandwidth"] == 0


def test_lowered_maximum_is_not_delivered_before_it_is_carried_out(ap_host: Host, ap: AttachmentPoint) -> None:
    """A configuration is a function of its versions: (18, 7) is the same bytes before and after."""
    before = poll(ap_host).content
    AttachmentPoint.objects.filter(pk=ap.pk).update(default_bandwidth_kbit=200)
    cache.clear()
    assert poll(ap_host).content == before


def test_new_secret_is_in_the_next_tarball_whatever_is_cached(ap_host: Host) -> None:
    poll(ap_host)
    Host.objects.filter(pk=ap_host.pk).update(secret="5ec4e7" + "0" * 26)
    assert poll(ap_host).status_code == 401
    ap_host.refresh_from_db()
    assert manifest_of(poll(ap_host))["host_secret"] == "5ec4e7" + "0" * 26


# --- what a poll costs and leaves ---------------------------------------------------------------------------


@table("query", ["?version=1.18", "?version=1.18&limits=7"])
def test_poll_answered_304_costs_one_statement_and_writes_nothing(
    ap_host: Host, query: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    ServiceState.objects.get_or_create(pk=1)
    before = Host.objects.values().get(pk=ap_host.pk)
    with django_assert_num_queries(1) as captured:
        assert poll(ap_host, query).status_code == 304
    assert captured.captured_queries[0]["sql"].startswith("SELECT")
    assert Host.objects.values().get(pk=ap_host.pk) == before


@table("headers", [{}, basic(WRONG, WRONG)])
def test_poll_without_credentials_asks_the_database_nothing(
    ap_host: Host, headers: dict[str, str], django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        assert poll(ap_host, headers=headers).status_code == 401


def test_a_poll_is_noted_in_memory_and_written_later(
    ap_host: Host, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    poll(ap_host, "?version=1.18")
    ap_host.refresh_from_db()
    assert ap_host.last_seen_at is None
    CONTACTS.hand_over(at_once=True)
    with django_assert_num_queries(1):
        flush_seen()
    ap_host.refresh_from_db()
    assert ap_host.last_seen_at is not None


def test_delivery_is_noted_with_both_versions(ap_host: Host) -> None:
    poll(ap_host, "?version=1.17&limits=7")
    ap_host.refresh_from_db()
    assert (ap_host.delivered_config_version, ap_host.delivered_limits_version) == (18, 7)
    assert ap_host.delivered_at is not None


@table(("method", "query"), [("head", "?version=1.17&limits=7"), ("get", "?version=1.18&limits=7")])
def test_what_was_not_handed_over_is_not_noted(ap_host: Host, method: str, query: str) -> None:
    poll(ap_host, query, method=method)
    ap_host.refresh_from_db()
    assert (ap_host.delivered_config_version, ap_host.delivered_at) == (0, None)


# --- the deployed version -----------------------------------------------------------------------------------


@table(
    ("deployed", "version", "status", "stored"),
    [
        (0, "1.18", 200, 18),
        (0, "1.17", 200, 17),
        (17, "1.18", 200, 18),
        (18, "1.18", 200, 18),
        (0, "1.0018", 200, 18),
        (0, "1.19", 304, 0),  # above config_version
        (18, "1.17", 304, 18),  # below the deployed one
        (0, f"1.{'9' * 5000}", 304, 0),
        (0, "18", 400, 0),
        (0, "", 400, 0),
        (0, "1.x", 400, 0),
        (0, "1.\u0661\u0668", 400, 0),
        (0, None, 400, 0),
    ],
)
def test_deployed_version(ap_host: Host, deployed: int, version: str | None, status: int, stored: int) -> None:
    Host.objects.filter(pk=ap_host.pk).update(config_version_deployed=deployed)
    url = f"/api/v4/host/{ap_host.uid}/deployed_config_version"
    data = {} if version is None else {"version": version}
    assert Client().post(url, data, headers=credentials(ap_host)).status_code == status
    ap_host.refresh_from_db()
    assert ap_host.config_version_deployed == stored


@table(("installation", "has_vagrantfile"), [("vm", True), ("dedicated", False)])
def test_download_is_for_its_machine_from_this_site(
    user_as: UserAS, settings: Settings, installation: str, has_vagrantfile: bool
) -> None:
    settings.SITE_URL = "https://lab.example.org"
    user_as.installation_type = installation
    name, content = user_download(user_as)
    members = config_members(content)
    host = Host.objects.get(AS=user_as)
    assert name == f"scionlab_{user_as.isd_as.replace(':', '_')}.tar.gz"
    assert any(one.endswith("/Vagrantfile") for one in members) is has_vagrantfile
    (manifest,) = [json.loads(text) for name, text in members.items() if name.endswith("scionlab-config.json")]
    assert (manifest["url"], manifest["version"]) == ("https://lab.example.org", f"1.{host.config_version}")
