"""A setting of a Link is declared once: each door stores, clears and refuses it by that declaration."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.limits.update import link_update
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Link, UserAS
from scionlab.testbed.models.link_settings import LINK_SETTINGS, LinkSetting, Raises
from tests.admin_pages import CHANGE, page
from tests.factories import save, spec
from tests.support.counters import Counters

pytestmark = pytest.mark.django_db

# An optional number that changes no limit while it is above the maximum of the attachment point (1000).
COLUMN = "from_user_kbit"


def declare(monkeypatch: pytest.MonkeyPatch, raises: Raises) -> None:
    said = lambda kbit: "none" if kbit is None else f"{kbit} kbit/s"  # noqa: E731
    monkeypatch.setitem(LINK_SETTINGS, COLUMN, LinkSetting(COLUMN, raises, ("link_number", "a number"), said))


@pytest.mark.parametrize(
    ("raises", "rise", "is_awaited"),
    [
        (Raises.NOTHING, {}, False),
        (Raises.DOCUMENT, {"ap": (0, 1)}, False),
        (Raises.LIMIT, {"ap": (0, 1)}, True),
        (Raises.CONFIGURATION, {"ap": (1, 0), "user": (1, 0)}, True),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_a_change_raises_what_is_declared(
    monkeypatch: pytest.MonkeyPatch, link: Link, owner: User, raises: Raises, rise: Any, is_awaited: bool
) -> None:
    declare(monkeypatch, raises)
    hosts = {"ap": link.interface_a.host, "user": link.interface_b.host}
    for value, text in ((2000, "2000 kbit/s"), (None, "none")):
        counters, changed_at = Counters(), Link.objects.get(pk=link.pk).changed_at
        link_update(link_id=link.pk, actor=owner, reason="why", from_user_kbit=value)
        one = Link.objects.get(pk=link.pk)
        assert one.from_user_kbit == value
        assert counters.risen() == {hosts[name]: by for name, by in rise.items()}
        assert (one.changed_at != changed_at) == is_awaited, "only then is its owner told that the limit is in force"
        newest = BandwidthChange.objects.filter(link=link).first()
        assert newest is not None
        assert (newest.kind, newest.text, newest.reason, newest.actor) == ("link_number", text, "why", owner)
    counters, rows = Counters(), BandwidthChange.objects.count()
    link_update(link_id=link.pk, actor=owner, from_user_kbit=None)
    assert (counters.risen(), BandwidthChange.objects.count()) == ({}, rows)


def test_a_value_outside_of_its_column_is_refused_and_nothing_stored(
    monkeypatch: pytest.MonkeyPatch, link: Link
) -> None:
    declare(monkeypatch, Raises.NOTHING)
    with pytest.raises(FieldRuleError) as refused:
        link_update(link_id=link.pk, actor=None, observe_only=True, from_user_kbit=-1)
    assert (refused.value.code, refused.value.field) == ("min_value", COLUMN)
    assert not Link.objects.get(pk=link.pk).observe_only


# --- an optional number is cleared ----------------------------------------------------------------------------------


def test_django_admin_shows_both_directions_and_clears_one(door: Client, link: Link) -> None:
    link_update(link_id=link.pk, limits=Limits(500, 64), actor=None)
    url = page(Link, CHANGE, link.pk)

    def save(**changes: str) -> None:
        opened = door.get(url)
        form = opened.context["adminform"].form
        values = {name: form[name].value() for name in form.fields} | {"_shown": opened.context["shown"]} | changes
        answer = door.post(url, {name: value for name, value in values.items() if value not in (None, False)})
        assert answer.status_code == 302, answer.content.decode()

    save(observe_only="on")
    one = Link.objects.get(pk=link.pk)
    assert (one.requested, one.observe_only) == (Limits(500, 64), True), "another setting changes no limit"
    save(from_user_kbit="")
    assert Link.objects.get(pk=link.pk).requested == Limits(500, 500)


def test_rest_clears_it_with_null(client: Client, link: Link, owner: User) -> None:
    link_update(link_id=link.pk, limits=Limits(500, 64), actor=None)
    client.force_login(owner)
    for sent, stored in (({"to_user_kbit": 400}, (400, 64)), ({"from_user_kbit": None}, (400, 400))):
        answer = client.patch(f"/api/v1/links/{link.pk}/", sent, content_type="application/json")
        assert (answer.status_code, answer.json()["from_user_kbit"]) == (200, stored[1])
        assert Link.objects.get(pk=link.pk).requested == stored
    answer = client.patch(f"/api/v1/links/{link.pk}/", {"to_user_kbit": None}, content_type="application/json")
    assert (answer.status_code, answer.json()["fields"]["to_user_kbit"][0]["code"]) == (400, "bandwidth_required")


def test_deactivation_on_the_page_of_its_as_is_in_the_history(
    user_as: UserAS, link: Link, ap: AttachmentPoint, owner: User
) -> None:
    for active, text in ((False, "Deactivated: in no configuration"), (True, "Activated")):
        save(user_as, spec(ap, link_id=link.pk, active=active), actor=owner)
        newest = BandwidthChange.objects.filter(link=link).first()
        assert newest is not None
        assert (newest.kind, newest.text, newest.actor) == ("link_active", text, owner)
