"""Pages that were open while somebody else saved: nobody's change is undone unseen.

Each page is a real one: what the browser sends is what stands on it. First the loss, with the comparison switched off;
then that it cannot happen, also for two saves that arrive at the very same time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client, RequestFactory
from django.utils import timezone

from scionlab.accounts import account
from scionlab.accounts.models import User
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import (
    AS,
    ISD,
    AttachmentPoint,
    BandwidthChange,
    BandwidthPolicy,
    Host,
    Link,
    ServiceState,
    UserAS,
)
from scionlab.testbed.selectors import links_of
from scionlab.user_ases.user_as import user_as_delete, user_as_update
from tests.admin_pages import CHANGE, page
from tests.concurrency.conftest import AtOnce
from tests.factories import ISDFactory, UserFactory, attach, spec
from tests.support.html import Page

BANDWIDTH = "Upper limit for the bandwidth usable for this AS [kbit/s]"


@pytest.fixture
def made(owner: User, ap: AttachmentPoint) -> UserAS:
    return attach(owner, spec(ap, bandwidth_kbit=900), label="Office")


@pytest.fixture
def one(made: UserAS) -> Link:
    return links_of(made)[0]


@pytest.fixture
def staff(transactional_db: None) -> User:
    return UserFactory(email="staff@example.org", is_staff=True)


@pytest.fixture
def boss(transactional_db: None) -> User:
    return UserFactory(email="boss@example.org", is_staff=True)


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def fields(response: Any, form_class: str) -> dict[str, str]:
    """What the browser sends when a form of the page is submitted as it stands."""
    found = Page(response).root.all("form")
    form = next(one for one in found if form_class in (one.attrs.get("class"), one.attrs.get("id")))
    data: dict[str, str] = {}
    for control in form.all("input"):
        kind = control.attrs.get("type")
        if kind == "submit" or (kind in {"checkbox", "radio"} and "checked" not in control.attrs):
            continue
        data[control.attrs["name"]] = control.attrs.get("value", "on" if kind in {"checkbox", "radio"} else "")
    for control in form.all("select"):
        chosen = [one.attrs["value"] for one in control.all("option") if "selected" in one.attrs]
        data[control.attrs["name"]] = (chosen or [""])[0]
    return data


class EditPage:
    """The page of a user AS, as it was when it was opened."""

    def __init__(self, user: User, made: UserAS) -> None:
        self.client, self.url = browser(user), f"/ases/{made.pk}/edit/"
        self.typed = fields(self.client.get(self.url), "editor")

    def save(self, **typed: str) -> Any:
        self.typed |= {name if name == "label" else f"attachments-0-{name}": value for name, value in typed.items()}
        return self.client.post(self.url, {**self.typed, "save": "1"})

    def again(self, response: Any) -> Any:
        """One click on what the page offers."""
        assert Page(response).root.all("button", name="save", form="as-editor"), "the page offers to overwrite"
        return self.client.post(self.url, {**fields(response, "editor"), "save": "1"})


def kbit(one: Link) -> int:
    return Link.objects.get(pk=one.pk).bandwidth_kbit


def counters(ap: AttachmentPoint) -> tuple[int, int]:
    return Host.objects.values_list("config_version", "limits_version").get(pk=ap.host.pk)


# --- two tabs -----------------------------------------------------------------------------------------------------


def test_the_second_tab_is_told_keeps_what_was_typed_and_one_click_decides(
    owner: User, made: UserAS, one: Link, ap: AttachmentPoint
) -> None:
    first, second = EditPage(owner, made), EditPage(owner, made)
    assert first.save(bandwidth_kbit="300").status_code == 302
    before = counters(ap)
    told = second.save(label="Lab", bandwidth_kbit="400")
    assert told.status_code == 409
    shown = Page(told)
    assert "you, in another window, saved other values on" in shown.text
    row = [cell.text for cell in shown.root.one("table").all("td")]
    assert row == ["900 kbit/s", "300 kbit/s", "400 kbit/s"]
    assert shown.root.one("table").one("tbody").one("th").text == "Bandwidth of the link to 17-ffaa:0:1107"
    assert (kbit(one), UserAS.objects.get(pk=made.pk).label, counters(ap)) == (300, "Office", before)
    assert (shown.value(BANDWIDTH), shown.value("Label")) == ("400", "Lab"), "what was typed"
    theirs = shown.root.one("a", href=second.url)
    assert theirs.text == "Keep theirs"
    assert Page(second.client.get(second.url)).value(BANDWIDTH) == "300"
    assert second.again(told).status_code == 302
    assert (kbit(one), UserAS.objects.get(pk=made.pk).label) == (400, "Lab")


def test_a_mistake_in_an_old_page_does_not_make_it_a_new_one(owner: User, made: UserAS, one: Link) -> None:
    """Neither does a row more or less: what was shown first counts until something is saved."""
    page_ = EditPage(owner, made)
    link_set_bandwidth(link_id=one.pk, bandwidth_kbit=300, actor=owner)
    rearranged = page_.client.post(page_.url, {**page_.typed, "add": "1"})
    assert fields(rearranged, "editor")["shown"] == page_.typed["shown"]
    wrong = page_.save(public_port="0")
    assert wrong.status_code == 409, "told of the change, although there is a mistake as well"
    assert page_.save(public_port="50001").status_code == 409
    assert kbit(one) == 300


def test_saving_what_stands_there_never_conflicts_and_raises_nothing(
    owner: User, made: UserAS, one: Link, ap: AttachmentPoint
) -> None:
    page_ = EditPage(owner, made)
    before = counters(ap)
    assert page_.save().status_code == 302
    link_set_bandwidth(link_id=one.pk, bandwidth_kbit=300, actor=owner)
    after = counters(ap)
    assert after == (before[0], before[1] + 1)
    answer = page_.client.post(page_.url, {**page_.typed, "save": "1"}, follow=True)
    assert (
        "You made no changes, so nothing was saved. In the meantime you, in another window, saved" in Page(answer).text
    )
    assert (kbit(one), counters(ap)) == (300, after)
    assert EditPage(owner, made).save(bandwidth_kbit="300").status_code == 302
    same = EditPage(owner, made)
    link_set_bandwidth(link_id=one.pk, bandwidth_kbit=500, actor=owner)
    assert same.save(bandwidth_kbit="500").status_code == 302, "both want the same: there is nothing to decide"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"label": [1]}', "[" * 9000, "9" * 20_000, '{"0.attachment_point_id": 1e9}']
)
def test_a_page_that_does_not_say_what_it_showed_is_an_old_one(text: str, owner: User, made: UserAS, one: Link) -> None:
    page_ = EditPage(owner, made)
    page_.typed["shown"] = text
    assert page_.save(bandwidth_kbit="400").status_code == 409
    assert kbit(one) == 900


# --- at the very same time ----------------------------------------------------------------------------------------


def test_of_two_tabs_saved_at_once_one_is_told(owner: User, made: UserAS, one: Link, at_once: AtOnce) -> None:
    first, second = EditPage(owner, made), EditPage(owner, made)
    answers = at_once(partial(first.save, bandwidth_kbit="300"), partial(second.save, bandwidth_kbit="400"))
    assert sorted(answer.status_code for answer in answers) == [302, 409]
    saved = (300, 400)[[answer.status_code for answer in answers].index(302)]
    assert kbit(one) == saved
    assert BandwidthChange.objects.filter(link=one).count() == 2, "made, and changed once"


# --- two administrators --------------------------------------------------------------------------------------------

AdminCase = tuple[Callable[[], Any], str, str, str, str]


@pytest.fixture
def cases(ap: AttachmentPoint, one: Link, owner: User) -> dict[str, AdminCase]:
    """Per kind of page: the row, the form's id, the field, what the one and what the other types."""
    isd = ISDFactory(isd_id=17)
    return {
        "policy": (
            BandwidthPolicy.objects.get,
            "bandwidthpolicy_form",
            "default_bandwidth_kbit",
            "500",
            "600",
        ),
        "attachment point": (
            lambda: AttachmentPoint.objects.get(pk=ap.pk),
            "attachmentpoint_form",
            "default_bandwidth_kbit",
            "500",
            "600",
        ),
        "link": (lambda: Link.objects.get(pk=one.pk), "link_form", "bandwidth_kbit", "500", "600"),
        "host": (lambda: Host.objects.get(pk=ap.host.pk), "host_form", "public_ipv4", "192.0.2.50", "192.0.2.60"),
        "as": (lambda: AS.objects.get(pk=ap.AS.pk), "as_form", "label", "Zurich", "Geneva"),
        "isd": (lambda: ISD.objects.get(pk=isd.pk), "isd_form", "label", "Europe", "Asia"),
        "user": (lambda: User.objects.get(pk=owner.pk), "user_form", "as_quota", "7", "8"),
    }


KINDS = ["policy", "attachment point", "link", "host", "as", "isd", "user"]


def save(window: Client, url: str, typed: dict[str, str]) -> int:
    """Save the page, and confirm the preview that a default leads to: 302, or 200 where one of the two is refused."""
    answer = window.post(url, typed)
    if "/cockpit/" in answer.headers.get("Location", ""):
        answer = window.post(f"{answer['Location']}apply/", {"reason": "a test"})
    return answer.status_code


def opened(url: str, form: str, person: User) -> tuple[Client, dict[str, str]]:
    """A browser in which this person has the page open, and what stands in its form."""
    window = browser(person)
    return window, fields(window.get(url), form)


def test_a_mistake_in_an_administrators_old_page_does_not_make_it_a_new_one(
    cases: dict[str, AdminCase], staff: User, boss: User
) -> None:
    row, form, field, mine, theirs = cases["link"]
    url = page(Link, CHANGE, row().pk)
    (first, typed), (second, other) = [opened(url, form, person) for person in (boss, staff)]
    assert save(first, url, {**typed, field: theirs}) == 302
    wrong = second.post(url, {**other, field: "much"})
    assert wrong.status_code == 200
    told = second.post(url, {**fields(wrong, form), field: mine})
    assert (told.status_code, str(getattr(row(), field))) == (200, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_an_administrators_old_page_saved_as_it_stands_undoes_nothing(
    kind: str, cases: dict[str, AdminCase], staff: User, boss: User
) -> None:
    row, form, field, _, theirs = cases[kind]
    url = page(type(row()), CHANGE, row().pk)
    (first, typed), (second, other) = [opened(url, form, person) for person in (boss, staff)]
    save(first, url, {**typed, field: theirs})
    answer = second.post(url, other, follow=True)
    assert (
        "You made no changes, so nothing was saved. In the meantime boss@example.org saved" in answer.content.decode()
    )
    assert str(getattr(row(), field)) == theirs


def test_every_page_that_takes_values_compares_them(
    cases: dict[str, AdminCase], staff: User, rf: RequestFactory
) -> None:
    """Also one that somebody adds later."""
    request, seen = rf.get("/"), set()
    request.user = staff
    for model, found in admin.site._registry.items():
        row = model._base_manager.order_by("pk").first()
        if row is None or not found.has_change_permission(request, row):
            continue
        assert (*found.list_editable, *found.inlines) == (), "not compared: they have no `_shown`"
        typed = set(found.get_form(request, row, change=True).base_fields) - {"reason", "password"}
        assert typed == set(getattr(found, "compared", ())), model.__name__
        seen.add(model.__name__)
    assert seen >= {"BandwidthPolicy", "AttachmentPoint", "Link", "Host", "AS", "ISD", "User"}


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_administrators_at_once_one_is_told(
    kind: str, cases: dict[str, AdminCase], staff: User, boss: User, at_once: AtOnce
) -> None:
    row, form, field, mine, theirs = cases[kind]
    url = page(type(row()), CHANGE, row().pk)
    (first, typed), (second, other) = [opened(url, form, person) for person in (boss, staff)]
    answers = at_once(
        lambda: save(first, url, {**typed, field: theirs}),
        lambda: save(second, url, {**other, field: mine}),
    )
    assert sorted(answers) == [200, 302], answers
    assert str(getattr(row(), field)) == (theirs, mine)[answers.index(302)]
    assert ServiceState.objects.count() == 1


def test_what_was_deleted_meanwhile_is_told(owner: User, made: UserAS, one: Link, staff: User) -> None:
    detail, edit, admins = browser(owner), EditPage(owner, made), browser(staff)
    quick = fields(detail.get(f"/ases/{made.pk}/links/{one.pk}/"), "limits")
    admin_page = fields(admins.get(page(Link, CHANGE, one.pk)), "link_form")
    user_as_update(
        user_as_id=made.pk,
        actor=owner,
        label="",
        installation_type="dedicated",
        attachments=[spec(one.attachment_point, public_port=50009)],  # type: ignore[arg-type]
    )
    answer = detail.post(f"/ases/{made.pk}/links/{one.pk}/bandwidth/", quick, follow=True)
    assert "The link was removed while this page was open. Nothing was saved." in Page(answer).text
    user_as_delete(user_as_id=made.pk, actor=owner)
    gone = edit.save(bandwidth_kbit="400")
    assert gone.status_code == 404
    assert "was deleted" in gone.content.decode()
    answer = admins.post(page(Link, CHANGE, one.pk), admin_page, follow=True)
    assert "Perhaps it was deleted?" in answer.content.decode()


def test_a_login_while_an_administrator_saves_the_account_is_kept(
    cases: dict[str, AdminCase], staff: User, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was typed is written: Django's own page would write the whole row as it was read."""
    url = page(User, CHANGE, owner.pk)
    client, now = browser(staff), timezone.now()
    typed = fields(client.get(url), "user_form")
    original = account.refuse_stale

    def logs_in_meanwhile(**values: Any) -> None:
        original(**values)
        User.objects.filter(pk=owner.pk).update(last_login=now)

    monkeypatch.setattr(account, "refuse_stale", logs_in_meanwhile)
    assert client.post(url, {**typed, "as_quota": "9"}).status_code == 302
    found = User.objects.get(pk=owner.pk)
    assert (found.as_quota, found.last_login) == (9, now)
