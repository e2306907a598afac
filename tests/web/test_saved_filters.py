"""Filters of the cockpit's lists, kept under a name by each administrator."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from scionlab.cockpit.saved import KNOWN, MOST
from scionlab.models import Link, SavedFilter
from tests.factories import UserFactory
from tests.web.html import Page
from tests.web.test_exceptions_pages import as_

pytestmark = pytest.mark.django_db
SAVE = "/cockpit/filters/"


def test_a_filter_is_saved_from_the_list_opened_and_deleted(door: Client, link: Link) -> None:
    assert "Save this filter" not in Page(door.get("/cockpit/not-enforced/")).text
    page = Page(door.get("/cockpit/not-enforced/?sort=-since&why=waiting&page=1"))
    form = page.root.one("details").one("form")
    sent = {one.attrs["name"]: one.attrs.get("value", "") for one in form.all("input")}
    answer = door.post(form.attrs["action"], {**sent, "name": " My  queue "})
    assert answer.headers["Location"] == "/cockpit/not-enforced/?why=waiting&sort=-since"
    page = Page(door.get(answer.headers["Location"]))
    assert "Save this filter" not in page.text
    (opened,) = [one for one in page.root.all("a") if one.text == "My queue"]
    assert (opened.attrs["href"], opened.attrs["aria-current"]) == (answer.headers["Location"], "true")
    assert "My queue" not in Page(door.get("/cockpit/history/")).text, "it is of another list"
    row = SavedFilter.objects.get()
    other = as_(UserFactory(is_staff=True))
    assert "My queue" not in Page(other.get("/cockpit/not-enforced/")).text
    assert other.post(f"{SAVE}{row.pk}/delete/").status_code == 404
    assert door.post(f"{SAVE}{row.pk}/delete/").headers["Location"] == "/cockpit/not-enforced/"
    assert not SavedFilter.objects.exists()


def test_only_filters_of_the_list_are_kept_and_a_name_stands_for_one(door: Client) -> None:
    right = {"view": "cockpit_history", "name": "Limits", "query": "kind=link&page=3"}
    for field, value in (
        ("view", "admin:index"),
        ("view", ""),
        ("query", "kind=link&next=https://example.org"),
        ("query", "page=3"),
        ("query", "q=" + "x" * 151),
        ("name", " "),
        ("name", "x" * 41),
    ):
        assert door.post(SAVE, {**right, field: value}).status_code == 302, field
    assert not SavedFilter.objects.exists()
    for query in ("kind=link", "kind=exception&q=17"):
        door.post(SAVE, {**right, "query": query})
    assert SavedFilter.objects.get().query == "q=17&kind=exception"
    for number in range(MOST):
        door.post(SAVE, {**right, "name": f"{number}"})
    assert SavedFilter.objects.count() == MOST


def test_each_list_shows_them_for_one_statement_more(door: Client, link: Link) -> None:
    pages = {view: door.get(f"/cockpit/{path}") for view, path in PATHS.items()}
    assert {200} == {one.status_code for one in pages.values()}
    assert set(PATHS) == set(KNOWN)
    for view, path in PATHS.items():
        name = KNOWN[view][0]
        SavedFilter.objects.create(user_id=door.session["_auth_user_id"], view=view, name=f"f{view}", query=f"{name}=1")
        with CaptureQueriesContext(connection) as captured:
            page = Page(door.get(f"/cockpit/{path}?{name}=1"))
        assert f"f{view}" in page.text, view
        assert len(captured) <= 10, view


PATHS = {
    "cockpit_not_enforced": "not-enforced/",
    "cockpit_history": "history/",
    "cockpit_traffic": "traffic/",
    "cockpit_limits": "limits/",
    "cockpit_defaults": "defaults/",
}
