"""Who may open which page and press which button; on denial nothing changes."""

from __future__ import annotations

import pytest
from django.test import Client

from scionlab.accounts.models import User
from scionlab.linktests.models import LinkTest
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link, UserAS
from scionlab.user_ases.user_as import user_as_delete
from tests.cases import table
from tests.factories import PASSWORD, attach, spec
from tests.support.html import Page

pytestmark = pytest.mark.django_db

# The pages of one AS: (what follows /ases/<pk>/, the methods that it has).
PAGES_OF_AN_AS = {
    "": {"GET", "HEAD"},
    "edit/": {"GET", "HEAD", "POST"},
    "active/": {"POST"},
    "delete/": {"GET", "HEAD", "POST"},
    "configuration/": {"GET", "HEAD"},
    "links/{link}/": {"GET", "HEAD"},
    "links/{link}/bandwidth/": {"GET", "HEAD", "POST"},  # a refused form that is loaded again leads to its page
    "links/{link}/preview/": {"GET", "HEAD"},
    "links/{link}/history/": {"GET", "HEAD"},
    "links/{link}/why/": {"GET", "HEAD"},
    "links/{link}/timed/": {"GET", "HEAD", "POST"},
    "links/{link}/timed/preview/": {"GET", "HEAD"},
    "links/{link}/timed/1/cancel/": {"POST"},
    "links/{link}/watch/": {"GET", "HEAD", "POST"},
    "links/{link}/test/quick/": {"GET", "HEAD", "POST"},
    "links/{link}/tests/1/": {"GET", "HEAD"},
    "links/{link}/tests/1/test.csv": {"GET", "HEAD"},
    "links/{link}/tests/1/cancel/": {"POST"},
}


def state() -> dict[str, object]:
    return {
        "ases": list(UserAS.objects.order_by("pk").values()),
        "links": list(Link.objects.order_by("pk").values()),
        "hosts": list(Host.objects.order_by("pk").values()),
        "changes": BandwidthChange.objects.count(),
        "tests": LinkTest.objects.count(),
    }


def harmful(link: Link) -> dict[str, str]:
    """A body that would change something behind each of the addresses."""
    return {
        "save": "1",
        "label": "taken over",
        "installation_type": "dedicated",
        "active": "0",
        f"link-{link.pk}-bandwidth_kbit": "1",
        "attachments-0-link_id": str(link.pk),
        "attachments-0-attachment_point": str(link.attachment_point and link.attachment_point.pk),
        "attachments-0-public_ip": "198.51.100.7",
        "attachments-0-public_port": "50000",
        "attachments-0-bandwidth_kbit": "1",
        "attachments-0-bind_ip": "",
        "attachments-0-bind_port": "",
        "watch-duration_s": "10",
        "test-seconds": "5",
        "test-percent": "150",
        "test-payload_bytes": "1452",
    }


def browser_of(user: User | None, *, csrf: bool = False) -> Client:
    browser = Client(enforce_csrf_checks=csrf)
    if user is not None:
        browser.force_login(user)
    return browser


def requests(user_as: UserAS, link: Link) -> list[tuple[str, str]]:
    return [
        (method, f"/ases/{user_as.pk}/{rest.format(link=link.pk)}")
        for rest, methods in PAGES_OF_AN_AS.items()
        for method in sorted(methods)
    ]


def test_an_as_that_is_gone_is_not_found(user_as: UserAS, link: Link, owner: User) -> None:
    urls = requests(user_as, link)
    browser = browser_of(owner)
    browser.post(f"/ases/{user_as.pk}/delete/")
    for method, url in urls:
        assert browser.generic(method, url).status_code == 404, (method, url)


def test_an_as_that_goes_while_its_form_is_saved_is_not_found(
    user_as: UserAS, link: Link, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else deletes it after our look and before the service's lock."""

    def deleted_meanwhile(of: UserAS, links: object = None) -> object:
        if UserAS.objects.filter(pk=of.pk).exists():
            user_as_delete(user_as_id=of.pk, actor=owner)
        return None

    monkeypatch.setattr("scionlab.user_ases.pages.user_as.snapshot", deleted_meanwhile)
    monkeypatch.setattr("scionlab.limits.pages.link.snapshot", deleted_meanwhile)
    browser = browser_of(owner)
    for rest in ("edit/", f"links/{link.pk}/bandwidth/"):
        made = attach(owner, spec(link.attachment_point, public_port=50_777))
        own = Link.objects.get(interface_b__AS=made)
        url = f"/ases/{made.pk}/{rest.replace(str(link.pk), str(own.pk))}"
        data = harmful(own) | {"attachments-0-public_port": "50777"}
        assert browser.post(url, data).status_code == 404, url


def test_an_administrator_sees_and_edits_everybodys_as_and_is_told_whose_it_is(
    user_as: UserAS, link: Link, staff: User
) -> None:
    browser = browser_of(staff)
    page = Page(browser.get(f"/ases/{user_as.pk}/"))
    assert "Owner: owner@example.org." in page.text
    assert page.root.one("a", href="/cockpit/").text == "Cockpit"
    answer = browser.post(f"/ases/{user_as.pk}/links/{link.pk}/bandwidth/", {f"link-{link.pk}-bandwidth_kbit": "640"})
    assert answer.status_code == 302
    link.refresh_from_db()
    assert link.bandwidth_kbit == 640
    assert BandwidthChange.objects.first().actor == staff


def test_the_list_shows_only_ones_own_ases_even_to_an_administrator(
    user_as: UserAS, stranger: User, staff: User
) -> None:
    assert "17-ffaa:1:1" not in Page(browser_of(stranger).get("/ases/")).text
    assert "17-ffaa:1:2" in Page(browser_of(stranger).get("/ases/")).text
    assert "You have no AS yet" in Page(browser_of(staff).get("/ases/")).text


def test_a_link_of_another_as_cannot_be_changed_through_ones_own(
    user_as: UserAS, owner: User, stranger: User, ap_b: AttachmentPoint
) -> None:
    foreign = Link.objects.get(interface_b__AS__useras__owner=stranger)
    before = state()
    url = f"/ases/{user_as.pk}/links/{foreign.pk}/bandwidth/"
    answer = browser_of(owner).post(url, {f"link-{foreign.pk}-bandwidth_kbit": "1"})
    assert answer.status_code == 404
    assert state() == before


@table("rest", [rest for rest, allowed in PAGES_OF_AN_AS.items() if allowed == {"POST"}])
def test_the_address_of_a_button_is_explained_to_who_opens_it(
    user_as: UserAS, link: Link, owner: User, rest: str
) -> None:
    answer = browser_of(owner).get(f"/ases/{user_as.pk}/{rest.format(link=link.pk)}")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    page = Page(answer)
    assert "This address only accepts form submissions." in page.text
    assert [one.attrs["href"] for one in page.root.all("a") if one.text == "Go to the start page"] == ["/"]


def test_every_button_of_the_pages_carries_the_token(user_as: UserAS, link: Link, owner: User) -> None:
    browser = browser_of(owner, csrf=True)
    pressed = []
    for url in (f"/ases/{user_as.pk}/links/{link.pk}/", f"/ases/{user_as.pk}/", f"/ases/{user_as.pk}/delete/"):
        for form in Page(browser.get(url)).root.all("form"):
            data = {one.attrs["name"]: one.attrs.get("value", "") for one in form.all("input")}
            target = form.attrs.get("action", url)
            if target == "/logout/" or form.attrs.get("role") == "search":
                continue
            assert browser.post(target, data | {"active": "1"}).status_code == 302, target
            pressed.append(target)
    assert len(pressed) == 4  # bandwidth, watch, activate, delete
    assert not UserAS.objects.exists()
    page = Page(browser.get("/ases/"))
    token = page.root.one("form", action="/logout/").one("input").attrs["value"]
    assert browser.post("/logout/", {"csrfmiddlewaretoken": token}).headers["Location"] == "/login/"


def test_numbers_in_addresses_that_no_database_can_hold_are_not_found(owner: User) -> None:
    browser = browser_of(owner)
    for number in (2**63, 10**40):
        assert browser.get(f"/ases/{number}/").status_code == 404
        assert browser.post(f"/ases/{number}/links/{number}/bandwidth/").status_code == 404


# --- log in and out -----------------------------------------------------------------------------------------


def test_login_takes_the_address_in_any_case_and_returns_to_where_one_wanted_to_go(owner: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    page = Page(browser.get("/login/?next=/ases/new/"))
    data = {one.attrs["name"]: one.attrs.get("value", "") for one in page.root.one("main").all("input")}
    answer = browser.post("/login/", data | {"username": "Owner@Example.ORG", "password": PASSWORD})
    assert answer.headers["Location"] == "/ases/new/"
    assert browser.get("/login/").headers["Location"] == "/ases/"


def test_login_never_leads_to_another_site(owner: User) -> None:
    data = {"username": owner.email, "password": PASSWORD, "next": "//evil.example/x"}
    assert Client().post("/login/", data).headers["Location"] == "/ases/"


@table(("email", "password"), [("owner@example.org", "wrong"), ("nobody@example.org", PASSWORD)])
def test_a_wrong_password_and_an_unknown_address_get_the_same_answer(owner: User, email: str, password: str) -> None:
    answer = Client().post("/login/", {"username": email, "password": password})
    page = Page(answer)
    assert page.root.one(id="login-error").text == (
        "The email address or the password is wrong. The password is case-sensitive."
    )
    assert page.value("Email address") == email
    assert page.value("Password") == ""
    assert "_auth_user_id" not in answer.wsgi_request.session


def test_an_empty_login_says_what_is_missing_beside_the_fields(db: None) -> None:
    page = Page(Client().post("/login/", {"username": "", "password": ""}))
    assert page.beside("Email address") == "Enter your email address."
    assert page.beside("Password") == "Enter your password."


def test_an_account_that_is_switched_off_cannot_log_in(owner: User) -> None:
    User.objects.filter(pk=owner.pk).update(is_active=False)
    answer = Client().post("/login/", {"username": owner.email, "password": PASSWORD})
    assert answer.status_code == 200
    assert "_auth_user_id" not in answer.wsgi_request.session


def test_logging_out_ends_the_session(owner: User) -> None:
    browser = browser_of(owner)
    assert browser.post("/logout/").headers["Location"] == "/login/"
    assert browser.get("/ases/").status_code == 302


# --- errors --------------------------------------------------------------------------------------


def test_a_page_that_does_not_exist_is_explained_to_everybody(owner: User) -> None:
    for browser in (browser_of(None), browser_of(owner)):
        answer = browser.get("/nothing/here/")
        assert answer.status_code == 404
        assert "Page not found" in Page(answer).text


def test_a_programming_error_shows_the_page_500_and_no_traceback(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(user: User) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("scionlab.testbed.selectors.user_ases_of", broken)
    browser = Client(raise_request_exception=False)
    browser.force_login(owner)
    answer = browser.get("/ases/")
    assert answer.status_code == 500
    assert "Enforced limits stay enforced" in Page(answer).text
    assert b"secret detail" not in answer.content
