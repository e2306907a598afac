"""Asking for a higher maximum, and deciding on it in the cockpit; both without a script."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from scionlab.accounts.models import User
from scionlab.limits.defaults import fan_out
from scionlab.limits.exceptions import exception_grant
from scionlab.limits.models import MaximumException
from scionlab.testbed.models import BandwidthChange, Link, UserAS
from tests.factories import UserFactory
from tests.limits.test_pages_link import MAX_BYTES, weight
from tests.support.html import Page

pytestmark = pytest.mark.django_db
LIST = "/cockpit/exceptions/"


def typed(**values: str) -> dict[str, str]:
    until = f"{timezone.now() + timedelta(days=7):%Y-%m-%d %H:%M}"
    return {"maximum_kbit": "5 Mbit/s", "ends_at": until, "reason": "A measurement.", **values}


def as_(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def test_a_user_asks_an_administrator_approves_and_the_limit_can_be_set(
    owner: User, door: Client, user_as: UserAS, link: Link
) -> None:
    browser, page = as_(owner), reverse("link_detail", args=[user_as.pk, link.pk])
    ask = reverse("exception_new", args=[user_as.pk, link.pk])
    assert Page(browser.get(page)).root.all("a", href=ask)
    assert "whose maximum is 1 000 kbit/s" in Page(browser.get(ask)).text
    assert browser.post(ask, typed()).status_code == 302
    row = Page(door.get(LIST)).root.all("tbody")[0].one("tr")
    assert "owner@example.org" in row.text
    assert "A measurement." in row.text
    made = MaximumException.objects.get()
    door.post(reverse("cockpit_exception_decide", args=[made.pk]), {"approve": "1", "answer": "Have fun."})
    fan_out()
    held = Page(door.get(LIST)).root.all("tbody")[1].one("tr")
    assert "5 000 kbit/s" in held.text
    assert "From 0 (blocked) to 5 000 kbit/s" in Page(browser.get(page)).text
    sent = browser.post(
        reverse("link_bandwidth", args=[user_as.pk, link.pk]),
        {f"link-{link.pk}-bandwidth_kbit": "4000", "save": "1"},
    )
    assert sent.status_code == 302
    edit = Page(browser.get(reverse("user_as_edit", args=[user_as.pk])))
    assert "Above the maximum" not in edit.text
    door.post(reverse("cockpit_exception_end", args=[made.pk]))
    fan_out()
    assert Link.objects.get().enforced.lowest_kbit == 1000
    assert "clamped to 1 000 kbit/s" in Page(browser.get(reverse("user_as_edit", args=[user_as.pk]))).text
    assert [one.text.partition(":")[0] for one in BandwidthChange.objects.filter(kind="exception")] == [
        "ended",
        "approved",
        "requested",
    ]


def test_what_is_wrong_stands_at_its_field_and_nothing_is_asked(owner: User, user_as: UserAS, link: Link) -> None:
    ask, browser = reverse("exception_new", args=[user_as.pk, link.pk]), as_(owner)
    for field, value, words in (
        ("maximum_kbit", "x", "is not a"),
        ("maximum_kbit", "1000", "is not above the maximum of"),
        ("ends_at", "2020-01-01 00:00", "is not within the next 366 days"),
        ("ends_at", "soon", "is not a date and time"),
        ("reason", "", "Say what the bandwidth is for."),
    ):
        page = Page(browser.post(ask, typed(**{field: value})))
        label = {"maximum_kbit": "Maximum [kbit/s]", "ends_at": "Until", "reason": "Reason"}[field]
        assert words in page.beside(label), (field, value)
    assert not MaximumException.objects.exists()


def test_administrators_grant_to_a_user_an_as_or_a_link(door: Client, owner: User, user_as: UserAS, link: Link) -> None:
    of = {"Owner@Example.org": "user", "17-ffaa:1:1": "user_as", "17-FFAA:1:1#1": "link"}
    for text in of:
        assert door.post(LIST, typed(of=text)).status_code == 302, text
    found = MaximumException.objects.order_by("pk")
    assert [(one.user, one.user_as, one.link) for one in found] == [
        (owner, None, None),
        (None, user_as, None),
        (None, None, link),
    ]
    for text in ("", "nobody@example.org", "17-ffaa:1:2", "17-ffaa:1:1#2", "17-ffaa:1:1#", "17-ffaa:0:1107", "18-x"):
        page = Page(door.post(LIST, typed(of=text)))
        assert "There is no user, user AS or link" in page.beside("For"), text
    assert MaximumException.objects.count() == 3


def test_a_request_is_declined_only_with_an_answer(door: Client, owner: User, user_as: UserAS, link: Link) -> None:
    as_(owner).post(reverse("exception_new", args=[user_as.pk, link.pk]), typed())
    made = MaximumException.objects.get()
    decide = reverse("cockpit_exception_decide", args=[made.pk])
    assert "An answer is missing." in Page(door.post(decide, {"decline": "1"}, follow=True)).text
    assert "Declined" in Page(door.post(decide, {"decline": "1", "answer": "No."}, follow=True)).text
    assert "was declined already" in Page(door.post(decide, {"approve": "1"}, follow=True)).text
    assert MaximumException.objects.get().state == "declined"


def test_strangers_and_users_do_not_get_there(owner: User, stranger: User, user_as: UserAS, link: Link) -> None:
    ask = reverse("exception_new", args=[user_as.pk, link.pk])
    assert as_(stranger).post(ask, typed()).status_code == 404
    assert as_(owner).post(LIST, typed(of="owner@example.org")).status_code == 403
    assert not MaximumException.objects.exists()


def test_a_long_list_takes_10_statements_and_less_than_100_kb(door: Client, staff: User, link: Link) -> None:
    for number in range(45):
        person = UserFactory(email=f"person.{number}@example.org")
        ends_at = timezone.now() + timedelta(days=2)
        of = person if number % 2 else link
        exception_grant(of=of, maximum_kbit=5000, ends_at=ends_at, reason="x" * 200, actor=staff)
    MaximumException.objects.filter(link=link).update(state="asked")
    with CaptureQueriesContext(connection) as captured:
        size = weight(door, LIST)
    assert len(captured) <= 10
    assert size <= MAX_BYTES
