"""Which packages of SCION the machine of a user AS has: its owner says so, in the form and by the REST API."""

from __future__ import annotations

import pytest
from django.test import Client
from rest_framework.test import APIClient

from scionlab.accounts.models import User
from scionlab.limits.update import link_update
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from scionlab.user_ases.user_as import user_as_change
from tests.cases import table
from tests.factories import api_token, attach, spec
from tests.support.counters import Counters
from tests.support.html import Page

pytestmark = pytest.mark.django_db

CONFIG = (1, 0)


@pytest.fixture
def host(user_as: UserAS) -> Host:
    return Host.objects.get(AS=user_as.pk)


@pytest.fixture
def door(owner: User) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {api_token(owner)}")
    return client


def packages(host: Host) -> str:
    return Host.objects.values_list("scion_packages", flat=True).get(pk=host.pk)


def test_the_form_has_a_field_for_them(host: Host, user_as: UserAS, link: Link, owner: User) -> None:
    browser, url = Client(), f"/ases/{user_as.pk}/edit/"
    browser.force_login(owner)
    values = Page(browser.get(url)).post_data() | {"save": "1"}
    assert values["scion_packages"] == "scionlab"
    counters = Counters()
    assert browser.post(url, values).status_code == 302
    assert browser.post(url, {name: one for name, one in values.items() if name != "scion_packages"}).status_code == 302
    assert (counters.risen(), packages(host)) == ({}, "scionlab")
    assert browser.post(url, {**values, "scion_packages": "nix"}).status_code == 200
    assert browser.post(url, {**values, "scion_packages": "upstream"}).status_code == 302
    assert (counters.risen(), packages(host)) == ({host: CONFIG}, "upstream")
    stale = browser.post(url, {**values, "label": "Lab"})
    assert stale.status_code == 409
    assert "SCION packages" in stale.content.decode()
    assert packages(host) == "upstream"


def test_the_rest_api_changes_them_once_for_all_that_is_sent(
    host: Host, user_as: UserAS, link: Link, ap: AttachmentPoint, door: APIClient
) -> None:
    url, counters = f"/api/v1/ases/{user_as.pk}/", Counters()
    answer = door.patch(url, {"scion_packages": "upstream", "active": False, "label": "Lab"}, format="json")
    assert (answer.status_code, answer.json()["scion_packages"], answer.json()["label"]) == (200, "upstream", "Lab")
    assert counters.risen() == {host: CONFIG, ap.host: CONFIG}
    attachment = {"attachment_point_id": ap.pk, "link_id": link.pk, "public_ip": "198.51.100.7", "active": False}
    body = {"label": "Lab", "installation_type": "dedicated", "attachments": [attachment]}
    assert door.put(url, body, format="json").json()["scion_packages"] == "upstream", "what is left out stays"
    assert door.put(url, {**body, "scion_packages": "scionlab"}, format="json").json()["scion_packages"] == "scionlab"
    assert door.patch(url, {"scion_packages": "nix"}, format="json").status_code == 400


def test_a_new_as_has_those_that_were_chosen(ap: AttachmentPoint, door: APIClient) -> None:
    body = {"attachments": [{"attachment_point_id": ap.pk, "public_ip": "198.51.100.8"}], "scion_packages": "upstream"}
    made = door.post("/api/v1/ases/", body, format="json").json()
    assert made["scion_packages"] == "upstream"
    assert packages(Host.objects.get(AS=made["id"])) == "upstream"


# --- what else comes with a restart -------------------------------------------------------------------------------


@table("what", ["link", "AS"])
def test_what_is_activated_gets_the_mtu_that_fits_its_addresses(what: str, owner: User, ap: AttachmentPoint) -> None:
    """SCION restarts at both ends anyway."""
    user_as = attach(owner, spec(ap, public_ip="2001:db8::7", active=False))
    (link,) = Link.objects.all()
    Link.objects.update(mtu=1472)  # as it was stored before there was another number for IPv6
    own, counters = Host.objects.get(AS=user_as.pk), Counters()

    def switch(active: bool) -> int:
        if what == "link":
            link_update(link_id=link.pk, actor=owner, active=active)
        else:
            user_as_change(user_as_id=user_as.pk, actor=owner, active=active)
        return Link.objects.values_list("mtu", flat=True).get()

    assert (switch(False), counters.risen()) == (1472, {})
    assert (switch(True), counters.risen()) == (1452, {ap.host: CONFIG, own: CONFIG})
    Link.objects.update(mtu=1472)
    assert (switch(True), counters.risen()) == (1472, {ap.host: CONFIG, own: CONFIG}), "it was active: nobody restarts"
