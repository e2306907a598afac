"""The administrators' pages: that every change goes through its service. Who may see them: test_access_matrix.py."""

from __future__ import annotations

import html
import io
import tarfile
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client, RequestFactory

from scionlab.accounts.models import User
from scionlab.delivery.signing import key_ring
from scionlab.testbed.models import AS, ISD, VPN, AttachmentPoint, Host, Link
from tests.admin_pages import ADD, CHANGE, page, versions
from tests.cases import table
from tests.factories import attach, spec

pytestmark = pytest.mark.django_db


def field_errors(response: Any) -> dict[str, list[tuple[str, str]]]:
    """Per field the code and the sentence of each error that the page shows."""
    assert response.status_code == 200, f"{response.status_code}: the page accepted what it should refuse"
    form = response.context["adminform"].form
    text = html.unescape(response.content.decode())
    for messages in form.errors.values():
        assert all(message in text for message in messages), messages
    return {
        name: [(error.code, "".join(error.messages)) for error in errors.as_data()]
        for name, errors in form.errors.items()
    }


def test_no_list_offers_to_delete_what_is_selected(staff: User) -> None:
    request = RequestFactory().get("/")
    request.user = staff
    for model_admin in admin.site._registry.values():
        assert "delete_selected" not in model_admin.get_actions(request), model_admin


# --- hosts --------------------------------------------------------------------------------------------------


def test_the_agent_accepts_the_snippet_as_it_is(door: Client, host_a: Host, settings: Any, tmp_path: Any) -> None:
    from ap_agent.agent.settings import load_settings  # noqa: PLC0415  the two programs meet in this test only

    settings.SITE_URL = "http://192.0.2.80:8000"
    file = tmp_path / "agent.toml"
    file.write_text(door.get(page(Host, "agent", host_a.pk)).context["agent_toml"])
    file.chmod(0o600)
    read = load_settings(file, {})
    assert (read.url, read.host_id, read.host_secret) == ("http://192.0.2.80:8000", host_a.uid, host_a.secret)
    assert read.allow_plain_http
    assert [one.to_json() for one in read.service_keys] == key_ring().entries


def test_the_tarball_that_an_administrator_downloads_is_the_hosts_own(door: Client, link: Link, host_a: Host) -> None:
    response = door.get(page(Host, "config", host_a.pk))
    assert response["Content-Type"] == "application/gzip"
    with tarfile.open(fileobj=io.BytesIO(response.content)) as tar:
        assert {"scionlab-config.json", "etc/scion/link_info.json"} <= set(tar.getnames())


def test_a_host_without_an_as_has_no_tarball_and_says_so(door: Client) -> None:
    host = Host.objects.create(label="spare")
    response = door.get(page(Host, "config", host.pk), follow=True)
    assert "Spare belongs to no AS: it has no configuration." in response.content.decode()


# --- ASes ---------------------------------------------------------------------------------------------------


@pytest.fixture
def isd(db: None) -> ISD:
    return ISD.objects.get_or_create(isd_id=17)[0]


def new_as(isd: ISD, as_text: str, **values: str) -> dict[str, str]:
    return {"isd": str(isd.pk), "as_id": as_text, "label": "New", "public_ipv4": "192.0.2.90", **values}


@table(
    ("as_text", "code"),
    [
        ("182", "as_id_invalid"),
        ("ffaa:1:b6", "as_id_for_users"),
        ("ffaa:0:1107", "as_id_taken"),
    ],
)
def test_a_malformed_or_taken_as_id_is_refused_with_its_sentence(
    door: Client, ap: AttachmentPoint, isd: ISD, as_text: str, code: str
) -> None:
    count = AS.objects.count()
    response = door.post(page(AS, ADD), new_as(isd, as_text))
    assert [found for found, _ in field_errors(response)["as_id"]] == [code]
    assert AS.objects.count() == count


def test_core_is_in_the_configuration_and_the_label_is_not(door: Client, link: Link, ap: AttachmentPoint) -> None:
    before = versions(ap.host)
    door.post(page(AS, CHANGE, ap.AS.pk), {"label": "Renamed"})
    assert versions(ap.host) == before
    door.post(page(AS, CHANGE, ap.AS.pk), {"label": "Renamed", "is_core": "on"})
    assert versions(ap.host) == [(config + 1, limits) for config, limits in before]
    ap.AS.refresh_from_db()
    assert (ap.AS.label, ap.AS.is_core) == ("Renamed", True)


def deleted(door: Client, model: Any, pk: int) -> str:
    """What the page says after the attempt."""
    return door.post(page(model, "delete", pk), {"post": "yes"}, follow=True).content.decode()


def test_what_links_depend_on_is_not_deleted(
    door: Client, link: Link, ap: AttachmentPoint, ap_b: AttachmentPoint, stranger: User, owner: User
) -> None:
    attach(stranger, spec(ap_b, use_vpn=True, public_ip=None), label="Over the VPN")
    assert "Links end at" in deleted(door, AS, ap.AS.pk)
    assert "1 Links to user ASes end at" in deleted(door, AttachmentPoint, ap.pk)
    assert "This Link is an attachment of" in deleted(door, Link, link.pk)
    assert "1 hosts have an address in" in deleted(door, VPN, ap_b.host.vpn.pk)
    assert "still owns 17-ffaa:1:1. Delete these ASes first" in deleted(door, User, owner.pk)
    for row in (link, ap, ap.AS, ap_b.host.vpn, owner):
        row.refresh_from_db()
    assert door.post(page(Host, "delete", ap.host.pk), {"post": "yes"}).status_code == 403


# --- attachment points and VPNs -----------------------------------------------------------------------------


@table(
    ("field", "written", "code"),
    [
        ("subnet", "10.10.1.0", "subnet_too_small"),
        ("subnet", "; reboot", "subnet_invalid"),
        ("server_port", "65536", "vpn_port_range"),
    ],
)
def test_a_vpns_subnet_and_port_are_judged(
    door: Client, ap: AttachmentPoint, field: str, written: str, code: str
) -> None:
    values = {"host": ap.host.pk, "subnet": "10.10.1.0/24", "server_port": "1194", field: written}
    assert [found for found, _ in field_errors(door.post(page(VPN, ADD), values))[field]] == [code]
    assert not VPN.objects.exists()


def test_a_vpn_gets_the_first_address_of_its_subnet(door: Client, ap: AttachmentPoint) -> None:
    values = {"host": ap.host.pk, "subnet": "10.10.7.0/24", "server_port": "1194"}
    assert door.post(page(VPN, ADD), values).status_code == 302
    assert VPN.objects.get().server_ip == "10.10.7.1"


# --- accounts -----------------------------------------------------------------------------------------------


def test_an_account_is_added_by_e_mail_and_can_log_in(door: Client, client: Client) -> None:
    secret = "a long enough phrase"
    values = {"email": "New.Person@Example.org", "as_quota": "2", "password1": secret, "password2": secret}
    assert door.post(page(User, ADD), values).status_code == 302
    user = User.objects.get(email="new.person@example.org")
    assert (user.as_quota, user.is_staff, user.check_password(secret)) == (2, False, True)
    credentials = {"username": "new.person@example.org", "password": secret}
    assert Client().post("/login/", credentials).headers["Location"] == "/ases/"


def test_administrators_do_not_lock_themselves_out(door: Client, staff: User) -> None:
    values = {"email": staff.email, "full_name": "Me", "as_quota": "5"}  # neither administrator nor active
    assert door.post(page(User, CHANGE, staff.pk), values).status_code == 302
    assert door.post(page(User, "delete", staff.pk), {"post": "yes"}).status_code == 403
    staff.refresh_from_db()
    assert (staff.full_name, staff.is_staff, staff.is_active) == ("Me", True, True)
