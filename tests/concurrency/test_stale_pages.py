"""Pages that were open while somebody else saved: nobody's change is undone unseen.

Each page is a real one: what the browser sends is what stands on it. Also for two saves that arrive at the very same
time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db import models
from django.test import Client, RequestFactory
from django.utils import timezone

from scionlab.accounts import account
from scionlab.accounts.models import User
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import AS, ISD, AttachmentPoint, BandwidthChange, BandwidthPolicy, Host, Link, UserAS
from scionlab.testbed.selectors import links_of
from scionlab.user_ases.user_as import user_as_delete
from tests.admin_pages import CHANGE, page
from tests.concurrency.conftest import AtOnce, browser_of, versions
from tests.factories import UserFactory, attach, spec
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


def fields(response: Any, form_class: str) -> dict[str, str]:
    """What the browser sends when a form of the page is submitted as it stands."""
    shown = Page(response)
    forms = shown.root.all("form")
    return shown.post_data(next(one for one in forms if form_class in (one.attrs.get("class"), one.attrs.get("id"))))


class EditPage:
    """The page of a user AS, as it was when it was opened."""

    def __init__(self, user: User, made: UserAS) -> None:
        self.client, self.url = browser_of(user), f"/ases/{made.pk}/edit/"
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


# --- two tabs -----------------------------------------------------------------------------------------------------


def test_the_second_tab_is_told_keeps_what_was_typed_and_one_click_decides(
    owner: User, made: UserAS, one: Link, ap: AttachmentPoint
) -> None:
    first, second = EditPage(owner, made), EditPage(owner, made)
    assert first.save(bandwidth_kbit="300").status_code == 302
    before = versions(ap)
    told = second.save(label="Lab", bandwidth_kbit="400")
    assert told.status_code == 409
    shown = Page(told)
    assert "you, in another window, saved other values on" in shown.text
    assert [cell.text for cell in shown.root.one("table").all("td")] == ["900 kbit/s", "300 kbit/s", "400 kbit/s"]
    assert (kbit(one), UserAS.objects.get(pk=made.pk).label, versions(ap)) == (300, "Office", before)
    assert (shown.value(BANDWIDTH), shown.value("Label")) == ("400", "Lab"), "what was typed"
    assert Page(second.client.get(shown.root.one("a", href=second.url).attrs["href"])).value(BANDWIDTH) == "300"
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
    before = versions(ap)
    assert page_.save().status_code == 302
    link_set_bandwidth(link_id=one.pk, bandwidth_kbit=300, actor=owner)
    after = versions(ap)
    assert after == (before[0], before[1] + 1)
    answer = page_.client.post(page_.url, {**page_.typed, "save": "1"}, follow=True)
    assert (
        "You made no changes, so nothing was saved. In the meantime you, in another window, saved" in Page(answer).text
    )
    assert (kbit(one), versions(ap)) == (300, after)
    assert EditPage(owner, made).save(bandwidth_kbit="300").status_code == 302
    same = EditPage(owner, made)
    link_set_bandwidth(link_id=one.pk, bandwidth_kbit=500, actor=owner)
    assert same.save(bandwidth_kbit="500").status_code == 302, "both want the same: there is nothing to decide"


@pytest.mark.parametrize("text", ["", '{"label": [1]}', "9" * 20_000])
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

# Of the first row of each: the field, what the one and what the other types.
KINDS: dict[type[models.Model], tuple[str, str, str]] = {
    BandwidthPolicy: ("default_bandwidth_kbit", "500", "600"),
    AttachmentPoint: ("default_bandwidth_kbit", "500", "600"),
    Link: ("bandwidth_kbit", "500", "600"),
    Host: ("public_ipv4", "192.0.2.50", "192.0.2.60"),
    AS: ("label", "Zurich", "Geneva"),
    ISD: ("label", "Europe", "Asia"),
    User: ("as_quota", "7", "8"),
    Group: ("name", "Lecture", "Seminar"),
}


def first_of(model: type[models.Model]) -> models.Model:
    row = model._base_manager.order_by("pk").first()
    assert row is not None
    return row


def save(window: Client, url: str, typed: dict[str, str]) -> int:
    """Save the page, and confirm the preview that a default leads to: 302, or 200 where one of the two is refused."""
    answer = window.post(url, typed)
    if "/cockpit/" in answer.headers.get("Location", ""):
        answer = window.post(f"{answer['Location']}apply/", {"reason": "a test"})
    return answer.status_code


def opened(model: type[models.Model], person: User) -> tuple[Client, str, dict[str, str]]:
    """A browser in which this person has the page open, its address, and what stands in its form."""
    window, url = browser_of(person), page(model, CHANGE, first_of(model).pk)
    return window, url, fields(window.get(url), f"{model._meta.model_name}_form")


@pytest.mark.usefixtures("one")
def test_an_administrators_old_page_saved_as_it_stands_or_with_a_mistake_undoes_nothing(
    staff: User, boss: User
) -> None:
    first, url, typed = opened(Link, boss)
    second, _, other = opened(Link, staff)
    assert save(first, url, {**typed, "bandwidth_kbit": "500"}) == 302
    answer = second.post(url, other, follow=True).content.decode()
    assert "You made no changes, so nothing was saved. In the meantime boss@example.org saved" in answer
    wrong = second.post(url, {**other, "bandwidth_kbit": "much"})
    assert wrong.status_code == 200
    told = second.post(url, {**fields(wrong, "link_form"), "bandwidth_kbit": "600"})
    assert (told.status_code, kbit(Link.objects.get())) == (200, 500)


@pytest.fixture
def course(transactional_db: None) -> Group:
    return Group.objects.create(name="Course")


@pytest.mark.usefixtures("one", "course")
def test_every_page_that_takes_values_compares_them(staff: User, rf: RequestFactory) -> None:
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
    assert seen >= {"BandwidthPolicy", "AttachmentPoint", "Link", "Host", "AS", "ISD", "User", "Group"}


@pytest.mark.usefixtures("one", "course")
@pytest.mark.parametrize("model", KINDS)
def test_of_two_administrators_at_once_one_is_told(
    model: type[models.Model], staff: User, boss: User, at_once: AtOnce
) -> None:
    name, theirs, mine = KINDS[model]
    first, url, typed = opened(model, boss)
    second, _, other = opened(model, staff)
    answers = at_once(
        partial(save, first, url, {**typed, name: theirs}),
        partial(save, second, url, {**other, name: mine}),
    )
    assert sorted(answers) == [200, 302], answers
    assert str(getattr(first_of(model), name)) == (theirs, mine)[answers.index(302)]


def test_what_was_deleted_meanwhile_is_told(owner: User, made: UserAS, one: Link) -> None:
    detail, edit = browser_of(owner), EditPage(owner, made)
    quick = fields(detail.get(f"/ases/{made.pk}/links/{one.pk}/"), "limits")
    user_as_delete(user_as_id=made.pk, actor=owner)
    assert detail.post(f"/ases/{made.pk}/links/{one.pk}/bandwidth/", quick).status_code == 404
    gone = edit.save(bandwidth_kbit="400")
    assert gone.status_code == 404
    assert "was deleted" in gone.content.decode()


def test_a_login_while_an_administrator_saves_the_account_is_kept(
    owner: User, staff: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was typed is written: Django's own page would write the whole row as it was read."""
    client, url, typed = opened(User, staff)
    now = timezone.now()
    original = account.refuse_stale

    def logs_in_meanwhile(**values: Any) -> None:
        original(**values)
        User.objects.filter(pk=owner.pk).update(last_login=now)

    monkeypatch.setattr(account, "refuse_stale", logs_in_meanwhile)
    assert client.post(url, {**typed, "as_quota": "9"}).status_code == 302
    found = User.objects.get(pk=owner.pk)
    assert (found.as_quota, found.last_login) == (9, now)
