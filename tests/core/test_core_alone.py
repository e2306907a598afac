"""The installation without extensions, beside SCIONLab's own coordinator: it migrates from nothing, serves every page,
and carries a limit from the form to the kernel's receipt and back to the page."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from ap_agent.agent.bundle import read_bundle
from scionlab.accounts.models import User
from scionlab.celery import app
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from tests.factories import api_token
from tests.support.html import Element, Page
from tests.support.polling import credentials

pytestmark = pytest.mark.django_db

CORE = {"platform", "web", "accounts", "testbed", "delivery", "enforcement", "limits", "user_ases", "cockpit", "site"}
ABSENT = {"scion_config", "usage", "linktests", "paths", "importer"}
# One URL of each kind that an extension has where it is installed.
OF_EXTENSIONS = [
    "/paths/",
    "/ases/now/",
    "/cockpit/traffic/",
    "/api/v1/paths/",
    "/api/v1/tests/1/",
    "/api/v1/traffic/",
    "/admin/linktests/testpolicy/",
    "/admin/scion_config/certificate/",
]
UPLOADS = ["usage", "live", "test_results"]


def browser_of(person: User | None) -> Client:
    browser = Client()
    if person is not None:
        browser.force_login(person)
    return browser


# --- what is there ----------------------------------------------------------------------------------------------------


def test_only_the_core_is_installed_and_migrated() -> None:
    ours = {one.label for one in apps.get_app_configs() if one.name.startswith("scionlab.")}
    assert ours == CORE
    assert settings.SCIONLAB_EXTENSIONS == ()
    tables = {name.partition("_")[0] for name in connection.introspection.table_names()}
    assert {"testbed", "delivery", "enforcement", "limits", "accounts"} <= tables
    assert tables & {"usage", "linktests", "paths", "importer", "scion"} == set()


def test_no_periodic_task_is_of_an_extension() -> None:
    app.loader.import_default_modules()
    scheduled = {one["task"] for one in settings.CELERY_BEAT_SCHEDULE.values()}
    assert "scionlab.tasks.sweep" in scheduled
    assert sorted(scheduled - set(app.tasks)) == []


# --- form, tarball, receipt, page -------------------------------------------------------------------------------------


@pytest.fixture
def made(owner: User, ap: AttachmentPoint) -> UserAS:
    """As its user makes it, with 640 kbit/s."""
    typed = {
        "label": "Office",
        "installation_type": "dedicated",
        "save": "1",
        "attachments-0-attachment_point": str(ap.pk),
        "attachments-0-public_ip": "198.51.100.7",
        "attachments-0-public_port": "50000",
        "attachments-0-bandwidth_kbit": "640",
        "attachments-0-bind_ip": "",
        "attachments-0-bind_port": "",
    }
    assert browser_of(owner).post("/ases/new/", typed).status_code == 302
    return UserAS.objects.get(owner=owner)


def pull(host: Host) -> HttpResponse:
    answer: HttpResponse = Client().get(f"/api/v4/host/{host.uid}/config", headers=credentials(host))
    return answer


def confirm(host: Host) -> None:
    """The agent of this attachment point enforces all of its newest tarball, and says so."""
    bundle = read_bundle(pull(host).content, host_id=host.uid)
    counted = {"rate_kbit": 640, "bytes": 0, "packets": 0, "drops": 0, "backlog_bytes": 0}
    both = {"to_user": {"dev": "eth0", **counted}, "from_user": {"dev": "eth1", **counted}}
    receipt = {
        "schema": 1,
        "agent_version": "0.1.0",
        "version": bundle.version,
        "limits_version": bundle.limits_version,
        "limits_digest": bundle.limits_digest,
        "observed_at": timezone.now().isoformat(),
        "writes": 4,
        "links": {"1": {"kbit": 640, "state": "enforced", "problem": None, **both}},
        "problems": [],
    }
    answer = Client().post(
        f"/api/v4/host/{host.uid}/enforcement",
        json.dumps(receipt),
        content_type="application/json",
        headers=credentials(host),
    )
    assert (answer.status_code, json.loads(answer.content)) == (200, {"stored": True})


def test_a_limit_goes_from_the_form_to_the_kernel_and_back_to_the_page(made: UserAS, host_a: Host) -> None:
    link, browser = Link.objects.get(interface_b__AS=made.pk), browser_of(made.owner)
    page = f"/ases/{made.pk}/links/{link.pk}/"
    assert Page(browser.get(page)).by_id("stage").text != "Enforced"
    bundle = read_bundle(pull(host_a).content, host_id=host_a.uid)
    assert bundle.signed is not None
    assert sorted(bundle.members) == ["etc/scion/link_info.json", "scionlab-config.json"]
    assert [(number, one.bandwidth_kbit) for number, one in bundle.links.items()] == [(1, 640)]
    confirm(host_a)
    assert Page(browser.get(page)).by_id("stage").text == "Enforced"


# --- every page -------------------------------------------------------------------------------------------------------

KEPT_OUT = re.compile(r"/(logout|static|admin/jsi18n)/|^/admin/r/|\.json$")
ADDRESS = re.compile(r'(?:href|action|data-live|data-preview|data-dials|data-address)="(/[^"#]*)')
LEADS_NOWHERE = re.compile(r'data-(?:live|preview|dials)=""')
MOST_PAGES = 400


def crawled(browser: Client, *start: str) -> Iterator[tuple[str, HttpResponse]]:
    """Everything that pages lead to, once for each path; forms are not sent."""
    seen, waiting = {one.partition("?")[0] for one in start}, deque(start)
    while waiting:
        url = waiting.popleft()
        answer = browser.get(url)
        yield url, answer
        if not answer.headers.get("Content-Type", "").startswith("text/html"):
            found = [answer.headers["Location"]] if answer.status_code in {301, 302} else []
        else:
            found = ADDRESS.findall(answer.content.decode().replace("&amp;", "&"))
        for one in found:
            path = one.partition("?")[0]
            if path not in seen and not KEPT_OUT.search(path):
                seen.add(path)
                waiting.append(one)
        assert len(seen) < MOST_PAGES


def empty_boxes(page: Page) -> list[Element]:
    return [one for one in page.root.all() if "card" in one.attrs.get("class", "").split() and not one.text]


@pytest.mark.parametrize(
    ("who", "start", "among"),
    [
        ("nobody", ["/"], ["/", "/login/", "/account/register/", "/api/docs/"]),
        ("owner", ["/ases/", "/search/?q=17"], ["/ases/new/", "/account/", "/search/"]),
        ("staff", ["/cockpit/", "/admin/", "/search/?q=17"], ["/cockpit/history/", "/admin/testbed/host/", "/ases/"]),
    ],
)
def test_no_page_has_a_dead_link_or_an_empty_box(
    made: UserAS, host_a: Host, staff: User, who: str, start: list[str], among: list[str]
) -> None:
    confirm(host_a)
    visited = []
    for url, answer in crawled(browser_of({"nobody": None, "owner": made.owner, "staff": staff}[who]), *start):
        visited.append(url.partition("?")[0])
        assert answer.status_code in {200, 302, 405}, url  # 405: the address of a form
        if answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/html"):
            text = answer.content.decode()
            assert url.startswith("/admin/") or empty_boxes(Page(answer)) == [], url  # Django's own are not well-formed
            assert [one for one in ABSENT if f"/{one}/" in text] == [], url
            assert LEADS_NOWHERE.findall(text) == [], url
    assert set(among) <= set(visited)


def routes() -> Iterator[str]:
    def walk(resolver: URLResolver, prefix: str) -> Iterator[str]:
        for one in resolver.url_patterns:
            if isinstance(one, URLPattern):
                yield prefix + str(one.pattern)
            else:
                yield from walk(one, prefix + str(one.pattern))

    return walk(get_resolver(), "/")


@pytest.mark.parametrize("who", ["nobody", "owner", "staff"])
def test_every_address_is_answered(made: UserAS, host_a: Host, staff: User, who: str) -> None:
    """GET, with keys of what is there where its route names one."""
    confirm(host_a)
    link = Link.objects.get(interface_b__AS=made.pk)
    key_in = {"ases": made.pk, "links": link.pk, "ap": link.attachment_point.pk}
    person = {"nobody": None, "owner": made.owner, "staff": staff}[who]
    browser, asked = browser_of(person), 0
    headers = {} if person is None else {"Authorization": f"Token {api_token(person)}"}
    for route in routes():
        before = route.partition("<")[0].rstrip("/").rpartition("/")[2]
        url = re.sub(r"<str:uid>", host_a.uid, route)
        url = re.sub(r"<key:link_id>|<path:object_id>", str(link.pk), url)
        url = re.sub(r"<[^>]*>", str(key_in.get(before, 1)), url)
        if "(?P" in url or "logout" in url:
            continue
        answer = browser.get(url, headers=headers if url.startswith("/api/") else {})
        assert answer.status_code < 500, url
        asked += 1
    assert asked > 100


# --- what is not there ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", OF_EXTENSIONS)
def test_a_page_of_an_extension_is_not_found(staff: User, url: str) -> None:
    assert browser_of(staff).get(url).status_code == 404


def test_no_host_can_be_given_scion_files_without_keys(host_a: Host, staff: User) -> None:
    answer = browser_of(staff).post(
        f"/admin/testbed/host/{host_a.pk}/files/change/", {"do": "not_limits_only"}, follow=True
    )
    assert "scion_config is not in SCIONLAB_EXTENSIONS. The host keeps limits only." in answer.content.decode()
    host_a.refresh_from_db()
    assert host_a.limits_only is True


@pytest.mark.parametrize("document", UPLOADS)
def test_a_document_for_an_extension_is_refused_in_words(link: Link, host_a: Host, document: str) -> None:
    answer = Client().post(
        f"/api/v4/host/{host_a.uid}/{document}", "{}", content_type="application/json", headers=credentials(host_a)
    )
    assert answer.status_code == 404
    assert json.loads(answer.content) == {
        "code": "not_found",
        "message": "No such document, or the part of the service that takes it is not enabled here. It was not stored.",
        "fields": {},
    }


def test_the_description_of_the_api_names_no_address_that_is_not_there() -> None:
    described = json.loads(Client().get("/api/v1/schema/").content)
    assert "/api/v4/host/{uid}/enforcement" in described["paths"]
    assert [
        url for url in described["paths"] if re.search(r"usage|traffic|tests?/|test_results|live$|paths/", url)
    ] == []
    assert {"tests", "paths"} & {one["name"] for one in described["tags"]} == set()
