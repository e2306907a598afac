"""The search in the header: who finds what."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from scionlab.accounts.models import User
from scionlab.site import search
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from tests.factories import attach, spec
from tests.support.html import Page

pytestmark = pytest.mark.django_db
EVERYTHING = ("17-ffaa:1:1", "ffaa:1:1", "owner's", "owner@ex", "198.51.100.7")


def found(client: Client, q: str) -> list[str]:
    page = Page(client.get(reverse("search"), {"q": q}))
    return [one.attrs["href"] for one in page.root.one("main").all("a")]


def test_administrators_find_ases_owners_attachment_points_and_addresses(
    door: Client, user_as: UserAS, stranger: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    for q in EVERYTHING:
        assert found(door, q) == [reverse("user_as_detail", args=[user_as.pk])], q
    for q in ("17-ffaa:0:1107", "ffaa:0:1107", "192.0.2.1", "2001:db8::1", "[2001:DB8:0::1]"):
        assert found(door, q) == [reverse("cockpit_ap", args=[ap.pk])], q
    assert len(found(door, "example.org")) == 2
    for q in ("", "nobody", "198.51.100", "\0", "%"):
        assert found(door, q) == [], q


def test_nobody_finds_what_is_somebody_elses(client: Client, user_as: UserAS, owner: User, stranger: User) -> None:
    client.force_login(stranger)
    for q in (*EVERYTHING, "17-ffaa:0:1107", "192.0.2.1"):
        assert found(client, q) == [], q
    assert found(client, "198.51.100.99") == [reverse("user_as_detail", args=[UserAS.objects.get(owner=stranger).pk])]
    client.force_login(owner)
    for q in EVERYTHING:
        assert found(client, q) == [reverse("user_as_detail", args=[user_as.pk])], q


def test_more_than_are_shown_are_said_and_cost_nothing(
    door: Client, owner: User, ap: AttachmentPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        attach(owner, *(spec(ap, public_port=50_000 + 10 * number + one) for one in range(2)))
    monkeypatch.setattr(search, "SHOWN", 2)
    assert (Host.objects.count(), Link.objects.count()) == (4, 6)
    with CaptureQueriesContext(connection) as captured:
        page = Page(door.get(reverse("search"), {"q": "198.51.100.7"}))
    assert len(page.root.one("main").all("a")) == 2
    assert "Only the first 2 results of each kind are shown." in page.text
    assert len(captured) == 4
