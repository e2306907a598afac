"""docs/operations.md, "First start": from an empty database to a user AS that is attached, through the pages alone.

Every form is read from its page and sent back as a browser would, with only those fields filled in that the page has.
"""

from __future__ import annotations

import io
import json
import tarfile
import tomllib
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from scionlab.accounts.models import User
from scionlab.delivery.render import config_for
from scionlab.testbed.models import AS, ISD, VPN, AttachmentPoint, BandwidthPolicy, BorderRouter, Host, Link, UserAS
from tests.admin_pages import ADD, CHANGE, LIST, page
from tests.delivery.test_host_api import basic
from tests.support.html import Element, Page

pytestmark = pytest.mark.django_db

ADMINISTRATOR, USER = "admin@example.org", "user@example.org"
PASSWORD = "a long enough phrase"


class Browser:
    """Somebody's browser, which sends CSRF tokens."""

    def __init__(self, email: str) -> None:
        self.client = Client(enforce_csrf_checks=True)
        self.submit(reverse("login"), {"username": email, "password": PASSWORD})

    def read(self, url: str) -> Page:
        response = self.client.get(url, follow=True)
        assert response.status_code == 200, url
        self.url = response.request["PATH_INFO"]  # where redirects led
        return Page(response)

    def submit(self, url: str, values: dict[str, str], *, button: str = "") -> Page:
        """Fill in and send the form at `url`; a value may be the text of an option. Returns the page that follows."""
        forms = self.read(url).root.all("form", method="post")
        form = next(one for one in forms if "logout" not in (one.attrs.get("action") or ""))
        data = _as_it_stands(form)
        assert values.keys() <= _names(form), f"{url} has no field {values.keys() - _names(form)}"
        data |= {name: _option(form, name, value) for name, value in values.items()}
        response = self.client.post(self.url, {**data, button: "1"} if button else data)
        shown = Page(self.client.get(response["Location"])) if response.status_code == 302 else Page(response)
        assert response.status_code == 302, shown.root.text
        return shown

    def add(self, model: Any, **values: str) -> None:
        before = model.objects.count()
        self.submit(page(model, ADD), values)
        assert model.objects.count() == before + 1

    def change(self, row: Any, **values: str) -> None:
        self.submit(page(type(row), CHANGE, row.pk), values)


def _controls(form: Element) -> list[Element]:
    return [one for tag in ("input", "select", "textarea") for one in form.all(tag) if "name" in one.attrs]


def _names(form: Element) -> set[str]:
    return {one.attrs["name"] for one in _controls(form)}


def _as_it_stands(form: Element) -> dict[str, str]:
    data = {}
    for one in _controls(form):
        kind = one.attrs.get("type")
        if one.tag == "select":
            options = one.all("option")
            chosen = [option.attrs["value"] for option in options if "selected" in option.attrs]
            data[one.attrs["name"]] = (chosen or [option.attrs["value"] for option in options] or [""])[0]
        elif kind != "submit" and (kind not in {"checkbox", "radio"} or "checked" in one.attrs):
            data[one.attrs["name"]] = one.attrs.get("value", "on" if kind in {"checkbox", "radio"} else "")
    return data


def _option(form: Element, name: str, value: str) -> str:
    """Of a list the option with this text, as people choose; else what is typed."""
    if not form.all("select", name=name):
        return value
    options = form.one("select", name=name).all("option")
    found = [one for one in options if one.text.startswith(value)]
    assert len(found) == 1, f"{name}: {value} is not one of {[one.text for one in options]}"
    return found[0].attrs["value"]


def host_of(as_text: str) -> Host:
    """The first host of the AS, as one finds it by the search of the list of hosts."""
    return next(host for host in Host.objects.order_by("pk") if host.AS is not None and host.AS.isd_as == as_text)


def build_the_network(admin: Browser) -> None:
    """Steps 4 to 8 of the document."""
    admin.submit(page(BandwidthPolicy, LIST), {"default_bandwidth_kbit": "2000", "reason": "Our line."})
    admin.add(ISD, isd_id="17", label="Laboratory")
    first = {"isd": "ISD 17", "is_core": "on", "public_ipv4": "8.8.4.1"}
    admin.add(AS, as_id="ffaa:0:1101", label="Core", **first)
    admin.add(AS, isd="ISD 17", as_id="ffaa:0:1107", label="Attachment point", public_ipv4="8.8.4.7")
    admin.change(host_of("17-ffaa:0:1101"), internal_ip="10.0.0.1")
    admin.add(Host, AS="17-ffaa:0:1101", label="rack 7", public_ipv4="8.8.4.2", internal_ip="10.0.0.2")
    admin.add(BorderRouter, host="rack 7")
    admin.add(
        Link, type="provider", router_a="17-ffaa:0:1101 (Core): br-3 on rack 7", router_b="17-ffaa:0:1107 (Attachment"
    )
    config_for(host_of("17-ffaa:0:1107"))  # as the worker does after every save
    admin.add(AttachmentPoint, AS="17-ffaa:0:1107", default_bandwidth_kbit="5000")
    admin.add(VPN, host="Attachment point", subnet="10.10.1.0/24")


def test_from_an_empty_database_to_an_attached_user_as(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.UNDERLAY_GLOBAL_ONLY = True
    settings.SITE_URL = "https://scionlab.example.org"
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    call_command("createsuperuser", "--no-input", "--email", ADMINISTRATOR, verbosity=0)
    admin = Browser(ADMINISTRATOR)
    build_the_network(admin)
    admin.add(User, email=USER, password1=PASSWORD, password2=PASSWORD)

    # the operator of the attachment point gets the agent's configuration, which fetches what was built
    host = host_of("17-ffaa:0:1107")
    written = admin.read(page(Host, "agent", host.pk)).by_id("agent-toml").children
    toml = tomllib.loads("".join(str(line) for line in written))
    assert (toml["url"], toml["host_id"]) == ("https://scionlab.example.org", host.uid)
    infrastructure = {"AS_ID": 0x1101, "IsUserAS": False, "Bandwidth": 1_000_000, "IP-Address": "8.8.4.2"}
    assert fetched_by_the_agent(toml) == {"1": infrastructure}

    # a user attaches an AS; the limit is the one of the attachment point
    user = Browser(USER)
    values = {"attachments-0-public_ip": "9.9.9.7", "attachments-0-bandwidth_kbit": "3000", "label": "Office"}
    shown = user.submit(reverse("user_as_create"), values, button="save")
    assert "17-ffaa:1:1" in shown.text
    limited = {"AS_ID": 1, "IsUserAS": True, "Bandwidth": 3000, "IP-Address": "9.9.9.7"}
    assert fetched_by_the_agent(toml) == {"1": infrastructure, "2": limited}

    # the administrator sees it, and the user gets a configuration
    assert "17-ffaa:1:1" in admin.read(page(Link, LIST)).root.text
    response = user.client.get(reverse("user_as_download", args=[UserAS.objects.get().pk]))
    with tarfile.open(fileobj=io.BytesIO(response.content)) as tar:
        assert any(name.endswith("etc/scion/topology.json") for name in tar.getnames())


def fetched_by_the_agent(toml: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The thesis' four keys of each Link in link_info.json, fetched with the credentials of the page."""
    uid, secret = toml["host_id"], toml["host_secret"]
    response = Client().get(f"/api/v4/host/{uid}/config", headers=basic(uid, secret))
    assert response.status_code == 200
    with tarfile.open(fileobj=io.BytesIO(response.content)) as tar:
        member = tar.extractfile("etc/scion/link_info.json")
        assert member is not None
        links = json.load(member)
    keys = ("AS_ID", "IsUserAS", "Bandwidth", "IP-Address")
    return {interface: {key: link[key] for key in keys} for interface, link in links.items()}
