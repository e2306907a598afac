"""Asking for a higher maximum, and deciding on it in the cockpit; both without a script."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from scionlab.accounts.models import User
from scionlab.limits.defaults import fan_out
from scionlab.limits.models import MaximumException
from scionlab.testbed.models import BandwidthChange, Link, UserAS
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


def test_an_email_is_promised_to_who_gets_one(owner: User, door: Client, user_as: UserAS, link: Link) -> None:
    ask, decide = reverse("exception_new", args=[user_as.pk, link.pk]), "cockpit_exception_decide"
    assert "We will email you their answer." in Page(as_(owner).post(ask, typed(), follow=True)).text
    made = MaximumException.objects.get()
    said = Page(door.post(reverse(decide, args=[made.pk]), {"answer": "The line is full."}, follow=True)).text
    assert "The user gets an email." in said
    User.objects.filter(pk=owner.pk).update(mail_opt_outs=["changed"])
    said = Page(as_(owner).post(ask, typed(), follow=True)).text
    assert "Sent to the administrators. Their answer will be in the history of this link." in said
    made = MaximumException.objects.latest("pk")
    said = Page(door.post(reverse(decide, args=[made.pk]), {"approve": "1", "answer": ""}, follow=True)).text
    assert "Approved: " in said
    assert "gets an email" not in said
    assert "approved: " in Page(as_(owner).get(reverse("link_detail", args=[user_as.pk, link.pk]))).text


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
    door.post(reverse("cockpit_exception_end", args=[made.pk]))
    fan_out()
    assert Link.objects.get().enforced.lowest_kbit == 1000
    found = [one.text.partition(":")[0] for one in BandwidthChange.objects.filter(kind="exception")]
    assert found == ["ended", "approved", "requested"]


def test_what_is_wrong_stands_at_its_field_and_nothing_is_asked(owner: User, user_as: UserAS, link: Link) -> None:
    ask, browser = reverse("exception_new", args=[user_as.pk, link.pk]), as_(owner)
    for field, value, label, words in (
        ("maximum_kbit", "1000", "Maximum [kbit/s]", "is not above the maximum of"),
        ("ends_at", "soon", "Until", "is not a date and time"),
        ("reason", "", "Reason", "Say what the bandwidth is for."),
    ):
        assert words in Page(browser.post(ask, typed(**{field: value}))).beside(label), (field, value)
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
    for text in ("nobody@example.org", "17-ffaa:1:2", "17-ffaa:1:1#2", "17-ffaa:1:1#", "17-ffaa:0:1107", "18-x"):
        page = Page(door.post(LIST, typed(of=text)))
        assert "There is no user, user AS or link" in page.beside("For"), text
    assert MaximumException.objects.count() == 3


def test_a_request_is_declined_only_with_an_answer(door: Client, owner: User, user_as: UserAS, link: Link) -> None:
    as_(owner).post(reverse("exception_new", args=[user_as.pk, link.pk]), typed())
    made = MaximumException.objects.get()
    decide = reverse("cockpit_exception_decide", args=[made.pk])
    assert "An answer is missing." in Page(door.post(decide, {"decline": "1"}, follow=True)).text
    assert "Declined" in Page(door.post(decide, {"decline": "1", "answer": "No."}, follow=True)).text
    assert "staff@example.org declined this request at" in Page(door.post(decide, {"approve": "1"}, follow=True)).text
    assert MaximumException.objects.get().state == "declined"
