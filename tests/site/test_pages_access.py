"""What test_access_matrix.py does not ask: lists, a foreign Link below one's own AS, and where log-in leads."""

from __future__ import annotations

import pytest
from django.test import Client

from scionlab.accounts.models import User
from scionlab.testbed.models import BandwidthChange, Link, UserAS
from tests.factories import PASSWORD
from tests.support.html import Page

pytestmark = pytest.mark.django_db


def browser_of(user: User) -> Client:
    browser = Client()
    browser.force_login(user)
    return browser


def test_the_list_shows_only_ones_own_ases_even_to_an_administrator(
    user_as: UserAS, stranger: User, staff: User
) -> None:
    listed = Page(browser_of(stranger).get("/ases/")).text
    assert ("17-ffaa:1:1" in listed, "17-ffaa:1:2" in listed) == (False, True)
    assert "You have no AS yet" in Page(browser_of(staff).get("/ases/")).text


def test_a_link_of_another_as_cannot_be_changed_through_ones_own(user_as: UserAS, owner: User, stranger: User) -> None:
    foreign = Link.objects.get(interface_b__AS__useras__owner=stranger)
    before = list(Link.objects.order_by("pk").values()), BandwidthChange.objects.count()
    url = f"/ases/{user_as.pk}/links/{foreign.pk}/bandwidth/"
    answer = browser_of(owner).post(url, {f"link-{foreign.pk}-bandwidth_kbit": "1"})
    assert answer.status_code == 404
    assert (list(Link.objects.order_by("pk").values()), BandwidthChange.objects.count()) == before


def test_numbers_in_addresses_that_no_database_can_hold_are_not_found(owner: User) -> None:
    browser = browser_of(owner)
    for number in (2**63, 10**40):
        assert browser.get(f"/ases/{number}/").status_code == 404
        assert browser.post(f"/ases/{number}/links/{number}/bandwidth/").status_code == 404


def test_login_takes_the_address_in_any_case_and_returns_to_where_one_wanted_to_go(owner: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    page = Page(browser.get("/login/?next=/ases/new/"))
    data = {one.attrs["name"]: one.attrs.get("value", "") for one in page.root.one("main").all("input")}
    answer = browser.post("/login/", data | {"username": "Owner@Example.ORG", "password": PASSWORD})
    assert answer.headers["Location"] == "/ases/new/"
