"""The session expired while somebody typed: log-in leads back to the page with what was typed, and nothing is saved
without another click. Real pages, with the tokens that their forms carry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from scionlab.accounts.models import User
from scionlab.limits.models import DefaultChange
from scionlab.testbed.models import Link, UserAS
from scionlab.web.pages.own_pages import MAX_TYPED_BYTES
from tests.cases import table
from tests.factories import PASSWORD
from tests.support.html import Element, Page

pytestmark = pytest.mark.django_db

ORIGIN = {"Origin": "http://testserver"}
EXPIRED = "Your session had expired; nothing was saved. Check the form and submit it again."


# --- a browser --------------------------------------------------------------------------------------------------


def browser_of(user: User | None) -> Client:
    browser = Client(enforce_csrf_checks=True, headers=ORIGIN)
    if user is not None:
        log_in(browser, user, browser.get("/login/"))
    return browser


def fields_of(form: Element) -> dict[str, Any]:
    """What a browser would send of a form, without its buttons."""
    found: dict[str, Any] = {}
    for one in form.all("input"):
        if one.attrs.get("type") in {"radio", "checkbox"} and "checked" not in one.attrs:
            continue
        if "name" in one.attrs:
            found[one.attrs["name"]] = one.attrs.get("value", "")
    for one in form.all("select"):
        options = one.all("option")
        chosen = [option for option in options if "selected" in option.attrs] or options[:1]
        found[one.attrs["name"]] = chosen[0].attrs.get("value", chosen[0].text) if chosen else ""
    return found


def form_with(answer: Any, name: str) -> Element:
    """The form of a page that has this field or button."""
    (found,) = [
        form
        for form in Page(answer).root.all("form", method="post")
        if [one for one in form.all() if one.attrs.get("name") == name]
    ]
    return found


def log_in(browser: Client, user: User, answer: Any) -> Any:
    form = form_with(answer, "username")
    sent = {**fields_of(form), "username": user.email, "password": PASSWORD}
    return browser.post(form.attrs.get("action", "/login/"), sent)


def expire() -> None:
    Session.objects.all().delete()


def value_of(answer: Any, name: str) -> str:
    return str(fields_of(form_with(answer, name))[name])


# --- every form that saves --------------------------------------------------------------------------------------


@dataclass
class Case:
    page: str
    typed: dict[str, str]
    stored: Callable[[], Any]
    button: dict[str, str] = field(default_factory=dict)


def user_as_page() -> str:
    return f"/ases/{UserAS.objects.get().pk}/"


def kbit() -> int:
    return Link.objects.get().bandwidth_kbit


CASES: dict[str, Callable[[Link], Case]] = {
    "limit of a link": lambda link: Case(
        f"{user_as_page()}links/{link.pk}/", {f"link-{link.pk}-bandwidth_kbit": "777"}, kbit, {"save": "1"}
    ),
    "edit of an AS": lambda _: Case(
        f"{user_as_page()}edit/",
        {"label": "renamed", "attachments-0-bandwidth_kbit": "555"},
        lambda: (UserAS.objects.get().label, kbit()),
        {"save": "1"},
    ),
    "defaults": lambda _: Case("/cockpit/defaults/", {"kind": "set", "value": "123"}, DefaultChange.objects.count),
}


@table("how", ["expired", "logged in again in another tab"])
@table("name", CASES)
def test_what_was_typed_comes_back_to_its_page_and_is_saved_by_another_click_only(
    name: str, how: str, link: Link, owner: User, staff: User
) -> None:
    case = CASES[name](link)
    person = staff if case.page.startswith("/cockpit/") else owner
    browser = browser_of(person)
    form = form_with(browser.get(case.page), next(iter(case.typed)))
    sent = {**fields_of(form), **case.typed, **case.button}
    address = form.attrs.get("action") or case.page
    before = case.stored()
    if how == "expired":
        expire()
        asked = browser.post(address, sent)
        assert asked.status_code == 403
        assert "the form will be restored" in Page(asked).text
        assert log_in(browser, person, log_in_wrongly(browser, asked)).status_code == 302
        page = case.page
    else:
        expire()
        log_in(browser, person, browser.get("/login/"))
        led = browser.post(address, sent)
        assert led.status_code == 302
        page = led["Location"]
    back = browser.get(page)
    assert EXPIRED in Page(back).text
    shown = fields_of(form_with(back, next(iter(case.typed))))
    assert {key: shown[key] for key in case.typed} == case.typed
    assert case.stored() == before, "looking saves nothing"
    again = browser.get(page)
    assert EXPIRED not in Page(again).text, "it came back once"
    form = form_with(back, next(iter(case.typed)))
    answer = browser.post(form.attrs.get("action") or page, {**fields_of(form), **case.button})
    assert answer.status_code in {200, 302}
    assert case.stored() != before


def log_in_wrongly(browser: Client, asked: Any) -> Any:
    form = form_with(asked, "username")
    answer = browser.post(form.attrs["action"], {**fields_of(form), "username": "a@example.org", "password": "wrong"})
    assert answer.status_code == 200
    return answer


@table("button", ["active/", "links/{link}/timed/1/cancel/"])
def test_a_button_leads_back_to_its_page_and_does_nothing(button: str, link: Link, owner: User) -> None:
    browser = browser_of(owner)
    user_as = UserAS.objects.get()
    form = form_with(browser.get(f"/ases/{user_as.pk}/"), "active")
    expire()
    url = f"/ases/{user_as.pk}/" + button.format(link=link.pk)
    asked = browser.post(url, {**fields_of(form), "active": "0"})
    led = log_in(browser, owner, asked)
    page = {"active/": f"/ases/{user_as.pk}/"}.get(button, f"/ases/{user_as.pk}/links/{link.pk}/")
    assert (led.status_code, led["Location"]) == (302, page)
    assert browser.get(page).status_code == 200
    assert Link.objects.get().active


# --- what must not happen ---------------------------------------------------------------------------------------


def typed_page(browser: Client, link: Link, kbit: str = "777") -> tuple[str, dict[str, Any]]:
    user_as = UserAS.objects.get()
    form = form_with(browser.get(f"/ases/{user_as.pk}/links/{link.pk}/"), "save")
    name = f"link-{link.pk}-bandwidth_kbit"
    return form.attrs["action"], {**fields_of(form), name: kbit, "save": "1"}


def test_another_person_who_logs_in_meets_nothing_of_what_the_first_one_typed(owner: User, staff: User) -> None:
    browser = browser_of(owner)
    form = form_with(browser.get("/account/"), "full_name")
    expire()
    asked = browser.post("/account/", {**fields_of(form), "full_name": "The owner's name"})
    assert log_in(browser, staff, asked)["Location"] == "/account/"
    page = browser.get("/account/")
    assert "The form was opened by another account" in Page(page).text
    assert value_of(page, "full_name") == ""
    assert "The owner's name" not in page.content.decode() + str(dict(browser.session))


def test_an_old_page_of_another_person_saves_nothing_and_shows_nothing(owner: User, staff: User) -> None:
    """Restored by the browser, or left open in a tab."""
    browser = browser_of(owner)
    form = form_with(browser.get("/account/"), "full_name")
    browser.post("/logout/", fields_of(form))
    log_in(browser, staff, browser.get("/login/"))
    answer = browser.post("/account/", {**fields_of(form), "full_name": "The owner's name"}, follow=True)
    assert "The form was opened by another account" in Page(answer).text
    assert value_of(answer, "full_name") == ""
    assert set(User.objects.values_list("full_name", flat=True)) == {""}


def test_what_another_site_sends_is_refused_and_shown_nowhere(link: Link, owner: User) -> None:
    browser = browser_of(owner)
    url, sent = typed_page(browser, link)
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": ""}):
        answer = browser.post(url, {**sent, "csrfmiddlewaretoken": "x" * 64}, headers=headers)
        assert answer.status_code == 403
        assert "777" not in answer.content.decode()
        assert "Your session has expired, or your browser does not send cookies" in Page(answer).text
    assert "typed" not in browser.session


def test_log_in_leads_to_no_other_site_and_keeps_nothing_for_one(owner: User) -> None:
    browser = browser_of(None)
    asked = browser.get("/login/")
    sent = {**fields_of(form_with(asked, "username")), "username": owner.email, "password": PASSWORD}
    typed = urlencode({"person": owner.pk, "full_name": "x"})
    answer = browser.post("/login/", {**sent, "next": "https://evil.example/", "typed": typed})
    assert (answer.status_code, answer["Location"]) == (302, "/ases/")
    assert "typed" not in browser.session


def test_a_stranger_stores_nothing(link: Link, owner: User) -> None:
    browser = browser_of(owner)
    url, sent = typed_page(browser, link)
    expire()
    assert browser.post(url, sent).status_code == 403
    assert not Session.objects.exists()


def test_too_much_is_not_carried_and_the_page_says_so(link: Link, owner: User) -> None:
    browser = browser_of(owner)
    url, sent = typed_page(browser, link, "7" * MAX_TYPED_BYTES)
    expire()
    asked = browser.post(url, sent)
    assert "Log in and try again." in Page(asked).text
    assert len(asked.content) < 10_000
    led = log_in(browser, owner, asked)
    assert led["Location"] == f"/ases/{UserAS.objects.get().pk}/links/{link.pk}/"


def test_passwords_and_second_factors_are_never_carried(owner: User) -> None:
    browser = browser_of(owner)
    form = form_with(browser.get("/password/"), "old_password")
    expire()
    new = {"old_password": PASSWORD, "new_password1": "y4ht zqpm", "new_password2": "y4ht zqpm"}
    asked = browser.post("/password/", {**fields_of(form), **new, "code": "417302", "credential": "k7pw"})
    assert asked.status_code == 403
    assert [word for word in (PASSWORD, "y4ht", "417302", "k7pw") if word in asked.content.decode()] == []
    assert log_in(browser, owner, asked)["Location"] == "/password/"


def test_a_page_that_refreshes_itself_does_not_take_it(owner: User, link: Link) -> None:
    browser = browser_of(owner)
    url, sent = typed_page(browser, link)
    expire()
    page = log_in(browser, owner, browser.post(url, sent))["Location"]
    behind = browser.get(page, headers={"X-Requested-With": "fetch"})
    assert behind.status_code == 200
    assert value_of(browser.get(page), f"link-{link.pk}-bandwidth_kbit") == "777"
