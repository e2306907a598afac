"""The administrators' pages: who may see them, what they show, and that every change goes through its service."""

from __future__ import annotations

import html
import io
import tarfile
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from scionlab.accounts.models import Mail, User
from scionlab.delivery.enrolment import enrolment_token_create
from scionlab.delivery.models import EnrolmentToken, SigningKey
from scionlab.delivery.signing import key_ring
from scionlab.enforcement.models import HostReceipt
from scionlab.linktests.models import TestPolicy
from scionlab.linktests.test_policy import BUILT_IN
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import (
    AS,
    ISD,
    VPN,
    AttachmentPoint,
    BandwidthChange,
    BandwidthPolicy,
    BorderRouter,
    Host,
    Interface,
    Link,
    UserAS,
)
from tests.admin_pages import ADD, CHANGE, LIST, page, versions
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


# --- who may ------------------------------------------------------------------------------------------------


def registered() -> list[Any]:
    return list(admin.site._registry)


@pytest.fixture
def one_of_each(link: Link, receipt: HostReceipt, ap_b: AttachmentPoint, stranger: User) -> None:
    attach(stranger, spec(ap_b, use_vpn=True, public_ip=None), label="Over the VPN")
    BandwidthPolicy.objects.get_or_create(pk=1)
    enrolment_token_create(host_id=link.interface_a.host_id, actor=None)
    Mail.objects.create(key="one", recipient="owner@example.org", subject="Enforced", body="It is.")
    TestPolicy.objects.create(applies_to="staff", **BUILT_IN.columns())
    Group.objects.create(name="students")


ADDED_HERE = {AS, AttachmentPoint, BorderRouter, Group, Host, ISD, Link, TestPolicy, User, VPN}


def every_page() -> list[str]:
    pages = [reverse("admin:index")]
    for model in registered():
        pages.append(page(model, LIST))
        pages.append(page(model, CHANGE, model.objects.order_by("pk")[0].pk))
    host = Host.objects.order_by("pk")[0]
    pages += [page(model, ADD) for model in ADDED_HERE]
    return [*pages, page(Host, "agent", host.pk), page(Host, "config", host.pk)]


def test_what_administrators_need_is_registered_and_nothing_that_shows_tokens() -> None:
    names = {model.__name__ for model in registered()}
    wanted = {"BandwidthPolicy", "AttachmentPoint", "Link", "Host", "AS", "UserAS", "User", "VPN", "BorderRouter"}
    wanted |= {"ISD", "Interface", "Mail", "HostReceipt"}
    assert names == wanted | {"SigningKey", "EnrolmentToken", "TestPolicy", "Group"}


def test_every_page_loads_for_an_administrator(door: Client, one_of_each: None) -> None:
    for url in every_page():
        assert door.get(url, follow=True).status_code == 200, url


def test_only_what_has_a_service_to_make_it_is_added_here(door: Client) -> None:
    offered = {model for model in registered() if door.get(page(model, ADD)).status_code == 200}
    assert offered == ADDED_HERE


def test_every_page_is_refused_to_others(client: Client, owner: User, one_of_each: None) -> None:
    for user in (None, owner):
        if user is not None:
            client.force_login(user)
        for url in every_page():
            response = client.get(url)
            assert response.status_code == 302, url
            assert response["Location"].startswith(reverse("admin:login")), url


READ_ONLY = [Mail, HostReceipt, Interface, SigningKey, EnrolmentToken]


@table("model", READ_ONLY, ids=lambda model: model.__name__)
def test_records_are_only_looked_at(door: Client, one_of_each: None, model: Any) -> None:
    row = model.objects.order_by("pk")[0]
    before = model.objects.filter(pk=row.pk).values().get()
    assert door.get(page(model, ADD)).status_code == 403
    assert door.post(page(model, CHANGE, row.pk), {"reason": "x", "body": "x", "kbit": "1"}).status_code == 403
    assert door.post(page(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    assert model.objects.filter(pk=row.pk).values().get() == before


def test_the_site_default_is_one_row_that_stays(door: Client) -> None:
    assert door.get(page(BandwidthPolicy, LIST))["Location"] == page(BandwidthPolicy, CHANGE, 1)
    assert door.get(page(BandwidthPolicy, ADD)).status_code == 403
    assert door.post(page(BandwidthPolicy, "delete", 1), {"post": "yes"}).status_code == 403
    assert BandwidthPolicy.objects.count() == 1


# --- bandwidths ---------------------------------------------------------------------------------------------


def test_a_changed_bandwidth_raises_limits_of_the_attachment_points_host_alone(
    door: Client, staff: User, link: Link, host_a: Host, host_b: Host
) -> None:
    customer = link.interface_b.host
    (config, limits), other, own = versions(host_a, host_b, customer)
    values = {"bandwidth_kbit": "0", "active": "on", "reason": "It floods."}
    assert door.post(page(Link, CHANGE, link.pk), values).status_code == 302
    link.refresh_from_db()
    assert link.bandwidth_kbit == 0
    assert versions(host_a, host_b, customer) == [(config, limits + 1), other, own]
    change = BandwidthChange.objects.filter(link=link).latest("pk")
    assert (change.actor, change.old_kbit, change.new_kbit, change.reason) == (staff, 1000, 0, "It floods.")


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


def test_the_secret_is_on_no_other_page(door: Client, host_a: Host) -> None:
    for url in (page(Host, LIST), page(Host, CHANGE, host_a.pk)):
        assert host_a.secret not in door.get(url).content.decode()


def test_the_tarball_that_an_administrator_downloads_is_the_hosts_own(door: Client, link: Link, host_a: Host) -> None:
    response = door.get(page(Host, "config", host_a.pk))
    assert response["Content-Type"] == "application/gzip"
    with tarfile.open(fileobj=io.BytesIO(response.content)) as tar:
        assert {"scionlab-config.json", "etc/scion/link_info.json"} <= set(tar.getnames())


def test_a_host_without_an_as_has_no_tarball_and_says_so(door: Client) -> None:
    host = Host.objects.create(label="spare")
    response = door.get(page(Host, "config", host.pk), follow=True)
    assert "Spare belongs to no AS: it has no configuration." in response.content.decode()


def addresses(host: Host, **changed: str) -> dict[str, str]:
    names = ("label", "public_ipv4", "public_ipv6", "bind_ip", "internal_ip", "scion_packages")
    values = {name: getattr(host, name) or "" for name in names}
    return {**values, **changed}


@table(
    ("field", "written", "code"),
    [
        ("public_ipv4", "127.0.0.1", "address_refused"),
        ("public_ipv4", "not an address", "address_invalid"),
        ("public_ipv4", "2001:db8::7", "address_family"),
        ("public_ipv6", "ff02::1", "address_refused"),
        ("public_ipv4", "", "address_in_use"),
        ("bind_ip", "1.2.3", "address_invalid"),
    ],
)
def test_a_refused_address_stands_beside_its_field(
    door: Client, link: Link, host_a: Host, field: str, written: str, code: str
) -> None:
    before = versions(host_a, link.interface_b.host)
    response = door.post(page(Host, CHANGE, host_a.pk), addresses(host_a, **{field: written}))
    assert [found for found, _ in field_errors(response)[field]] == [code]
    host_a.refresh_from_db()
    assert (host_a.public_ipv4, host_a.public_ipv6, host_a.bind_ip) == ("192.0.2.1", "2001:db8::1", None)
    assert versions(host_a, link.interface_b.host) == before


# --- ASes ---------------------------------------------------------------------------------------------------


@pytest.fixture
def isd(db: None) -> ISD:
    return ISD.objects.get_or_create(isd_id=17)[0]


def new_as(isd: ISD, as_text: str, **values: str) -> dict[str, str]:
    return {"isd": str(isd.pk), "as_id": as_text, "label": "New", "public_ipv4": "192.0.2.90", **values}


def test_an_as_is_added_by_its_hexadecimal_id_with_its_host(door: Client, isd: ISD) -> None:
    assert door.post(page(AS, ADD), new_as(isd, "FFAA:0:0b6")).status_code == 302
    as_ = AS.objects.get(as_id=0xFFAA_0000_00B6)
    assert as_.isd_as == "17-ffaa:0:b6"
    host = as_.hosts.get()
    assert (host.public_ipv4, host.border_routers.count()) == ("192.0.2.90", 1)
    assert "17-ffaa:0:b6" in door.get(page(AS, LIST)).content.decode()


@table(
    ("as_text", "code"),
    [
        ("", "as_id_invalid"),
        ("ffaa:0", "as_id_invalid"),
        ("ffaa:0:10000", "as_id_invalid"),
        ("ffaa:0:xyz", "as_id_invalid"),
        ("182", "as_id_invalid"),
        ("9" * 500, "as_id_invalid"),
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


def test_an_infrastructure_link_is_deleted_and_both_hosts_told(
    door: Client, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    made = infrastructure_link_create(a=ap.AS, b=ap_b.AS, type=Link.Type.PROVIDER)
    before = versions(ap.host, ap_b.host)
    deleted(door, Link, made.pk)
    assert not Link.objects.exists()
    assert not Interface.objects.exists()
    assert versions(ap.host, ap_b.host) == [(config + 1, limits) for config, limits in before]


def test_no_list_offers_to_delete_what_is_selected(door: Client, one_of_each: None) -> None:
    for model in registered():
        if model is not BandwidthPolicy:
            assert "delete_selected" not in door.get(page(model, LIST)).content.decode(), model


# --- attachment points and VPNs -----------------------------------------------------------------------------


def test_an_as_becomes_an_attachment_point_at_the_default_in_force(door: Client, isd: ISD) -> None:
    door.post(page(AS, ADD), new_as(isd, "ffaa:0:77"))
    as_ = AS.objects.get()
    assert door.post(page(AttachmentPoint, ADD), {"AS": as_.pk, "default_bandwidth_kbit": ""}).status_code == 302
    ap = AttachmentPoint.objects.get(AS=as_)
    assert (ap.default_bandwidth_kbit, ap.maximum_kbit, ap.host) == (None, 1000, as_.hosts.get())


@table(
    ("subnet", "code"),
    [("10.10.1.0", "subnet_too_small"), ("10.10.1.0/33", "subnet_invalid"), ("; reboot", "subnet_invalid")],
)
def test_a_vpns_subnet_is_judged(door: Client, ap: AttachmentPoint, subnet: str, code: str) -> None:
    response = door.post(page(VPN, ADD), {"host": ap.host.pk, "subnet": subnet, "server_port": "1194"})
    assert [found for found, _ in field_errors(response)["subnet"]] == [code]
    assert not VPN.objects.exists()


@table("port", ["0", "65536"])
def test_a_vpns_port_is_judged(door: Client, ap: AttachmentPoint, port: str) -> None:
    response = door.post(page(VPN, ADD), {"host": ap.host.pk, "subnet": "10.10.1.0/24", "server_port": port})
    assert [found for found, _ in field_errors(response)["server_port"]] == ["vpn_port_range"]
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


def test_an_e_mail_address_is_taken_in_any_case(door: Client, owner: User) -> None:
    secret = "a long enough phrase"
    values = {"email": "OWNER@example.org", "as_quota": "2", "password1": secret, "password2": secret}
    assert "email" in field_errors(door.post(page(User, ADD), values))
    assert User.objects.filter(email__iexact="owner@example.org").count() == 1


def test_a_password_is_changed_and_never_shown(door: Client, owner: User) -> None:
    assert owner.password not in door.get(page(User, CHANGE, owner.pk)).content.decode()
    url = reverse("admin:auth_user_password_change", args=[owner.pk])
    secret = "quite another phrase"
    assert door.post(url, {"password1": secret, "password2": secret, "usable_password": "true"}).status_code == 302
    owner.refresh_from_db()
    assert owner.check_password(secret)


def test_a_quota_is_set_and_its_use_shown(door: Client, owner: User, user_as: UserAS) -> None:
    values = {"email": owner.email, "full_name": "", "as_quota": "1", "is_active": "on"}
    assert door.post(page(User, CHANGE, owner.pk), values).status_code == 302
    owner.refresh_from_db()
    assert owner.as_quota == 1
    assert "1 of 1" in door.get(page(User, LIST)).content.decode()


def test_administrators_do_not_lock_themselves_out(door: Client, staff: User) -> None:
    values = {"email": staff.email, "full_name": "Me", "as_quota": "5"}  # neither administrator nor active
    assert door.post(page(User, CHANGE, staff.pk), values).status_code == 302
    assert door.post(page(User, "delete", staff.pk), {"post": "yes"}).status_code == 403
    staff.refresh_from_db()
    assert (staff.full_name, staff.is_staff, staff.is_active) == ("Me", True, True)
