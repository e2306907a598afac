"""Each change that an administrator makes by a form of Django admin is in the history, with its reason."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from scionlab.accounts.models import User
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link, UserAS
from scionlab.user_ases.user_as import user_as_set_active
from tests.admin_pages import CHANGE, page
from tests.web.html import Page

pytestmark = pytest.mark.django_db
WHY = "Agreed with the operator on Monday."


def save(door: Client, model: Any, pk: int, **changes: Any) -> list[tuple[str, str, str]]:
    """The history of the form with these fields changed, and the reason."""
    url = page(model, CHANGE, pk)
    form = door.get(url).context["adminform"].form
    values = {name: form[name].value() for name in form.fields} | changes | {"reason": WHY}
    before = set(BandwidthChange.objects.values_list("pk", flat=True))
    answer = door.post(url, {name: value for name, value in values.items() if value not in (None, False)})
    assert answer.status_code == 302, answer.content
    made = BandwidthChange.objects.exclude(pk__in=before).order_by("pk")
    return [(one.kind, one.text, one.reason) for one in made]


def test_activation_of_a_link(door: Client, link: Link, owner: User) -> None:
    assert save(door, Link, link.pk, active=False) == [("link_active", "Deactivated: in no configuration", WHY)]
    door.force_login(owner)
    history = reverse("link_history", args=[link.interface_b.AS_id, link.pk])
    assert WHY in Page(door.get(history)).text


@pytest.mark.parametrize(
    ("changes", "made"),
    [
        ({"active": False, "bandwidth_kbit": "700"}, ["link", "link_active"]),
        ({"observe_only": True}, ["link_observe"]),
        ({"bandwidth_kbit": "700"}, ["link"]),
        ({}, []),
    ],
)
def test_other_changes_of_a_link(changes: Any, made: list[str], door: Client, link: Link) -> None:
    assert [(kind, why) for kind, _, why in save(door, Link, link.pk, **changes)] == [(kind, WHY) for kind in made]


def test_activation_by_its_owner_is_in_the_history_too(link: Link, user_as: UserAS, owner: User) -> None:
    for active, text in ((False, "Deactivated: in no configuration"), (True, "Activated")):
        user_as_set_active(user_as_id=user_as.pk, active=active, actor=owner)
        newest = BandwidthChange.objects.filter(kind="link_active").first()
        assert newest is not None
        assert (newest.text, newest.actor) == (text, owner)
        user_as_set_active(user_as_id=user_as.pk, active=active, actor=owner)
    assert BandwidthChange.objects.filter(kind="link_active").count() == 2


def test_addresses_and_settings_of_a_host(door: Client, host: Host) -> None:
    changes = {"public_ipv4": "192.0.2.77", "reports_from_elsewhere": True}
    ((kind, text, why),) = save(door, Host, host.pk, **changes)
    assert (kind, why) == ("host_settings", WHY)
    assert "public_ipv4: 192.0.2.1 \N{RIGHTWARDS ARROW} 192.0.2.77" in text
    assert "reports_from_elsewhere: none \N{RIGHTWARDS ARROW} True" in text


@pytest.mark.parametrize(
    ("changes", "made"),
    [
        ({"total_kbit": "9000"}, ["ap_total"]),
        ({"observe_only": True}, ["ap_observe"]),
        ({"publishes_limits": True}, ["ap_metadata"]),
        ({"path_metadata": '{"Note": "x"}'}, ["ap_metadata"]),
    ],
)
def test_settings_of_an_attachment_point(changes: Any, made: list[str], door: Client, ap: AttachmentPoint) -> None:
    found = save(door, AttachmentPoint, ap.pk, **changes)
    assert [(kind, why) for kind, _, why in found] == [(kind, WHY) for kind in made]
