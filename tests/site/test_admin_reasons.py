"""Each change that an administrator makes by a form of Django admin is in the history, with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.test import Client
from django.urls import reverse

from scionlab.accounts.models import User
from scionlab.testbed.infrastructure import attachment_point_create, vpn_create
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AS, VPN, AttachmentPoint, BandwidthChange, BorderRouter, Host, Link, UserAS
from scionlab.user_ases.user_as import user_as_change
from tests.admin_pages import CHANGE, page
from tests.factories import ASFactory, BorderRouterFactory, HostFactory
from tests.support.html import Page

pytestmark = pytest.mark.django_db
WHY = "Agreed with the operator on Monday."
Step = Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]  # of rows: where to post what


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
        user_as_change(user_as_id=user_as.pk, active=active, actor=owner)
        newest = BandwidthChange.objects.filter(kind="link_active").first()
        assert newest is not None
        assert (newest.text, newest.actor) == (text, owner)
        user_as_change(user_as_id=user_as.pk, active=active, actor=owner)
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


# --- each form, deletion and action -------------------------------------------------------------------------------


def form(model: Any, **values: Any) -> Step:
    """Of a new row."""
    return lambda _: (page(model, "add"), values)


def deletion(model: Any, row: str) -> Step:
    return lambda rows: (page(model, "delete", rows[row].pk), {"post": "yes"})


def action(model: Any, name: str, row: str, **values: Any) -> Step:
    return lambda rows: (page(model, "changelist"), {"action": name, ACTION_CHECKBOX_NAME: rows[row].pk, **values})


def button(name: str, row: str, **values: Any) -> Step:
    return lambda rows: (reverse(f"admin:testbed_{name}", args=[rows[row].pk]), values)


NEW_AS = {"as_id": "ffaa:0:1200", "label": "New", "public_ipv4": "192.0.2.120"}


@pytest.mark.parametrize(
    ("step", "made"),
    [
        (lambda rows: form(AS, isd=rows["as"].isd_id, **NEW_AS)(rows), ("as", "Created with its first host")),
        (deletion(AS, "as"), ("as", "Deleted with its hosts")),
        (lambda rows: form(Host, AS=rows["as"].pk, label="b", public_ipv4="192.0.2.121", internal_ip="10.0.0.2")(rows),
         ("host_settings", "Created")),
        (lambda rows: form(BorderRouter, host=rows["host"].pk)(rows), ("host_settings", "Border router br-2 added")),
        (lambda rows: form(VPN, host=rows["ap_host"].pk, subnet="10.10.7.0/24", server_port=1194)(rows),
         ("host_settings", "VPN 10.10.7.0/24 added, port 1194")),
        (deletion(VPN, "vpn"), ("host_settings", "VPN 10.10.9.0/24 removed")),
        (action(VPN, "make_keys", "vpn"), ("host_settings", "New keys for VPN 10.10.9.0/24")),
        (lambda rows: form(Link, type=Link.Type.PROVIDER, router_a=rows["router"].pk, router_b=rows["other_router"].pk,
                           bandwidth_kbit="5000")(rows), ("link", "none \N{RIGHTWARDS ARROW} 5 000 kbit/s")),
        (deletion(Link, "infrastructure"), ("link", "7 000 kbit/s \N{RIGHTWARDS ARROW} none")),
        (lambda rows: form(AttachmentPoint, AS=rows["as"].pk)(rows), ("ap_default", "Created, with the site default")),
        (lambda rows: form(AttachmentPoint, AS=rows["as"].pk, default_bandwidth_kbit="800")(rows),
         ("ap_default", "none \N{RIGHTWARDS ARROW} 800 kbit/s")),
        (deletion(AttachmentPoint, "ap_without_links"), ("ap_default", "Attachment point deleted")),
        (action(Host, "rotate_secret", "host", how="stolen"),
         ("host_settings", "Secret rotated, the previous one revoked")),
        (button("host_rotate", "host", how="keep"), ("host_settings", "Secret rotated")),
        (button("host_enrol", "host"), ("host_settings", "Enrolment token created")),
        (button("host_files_change", "host", do="limits_only"),
         ("host_limits_only", "Limits only: another service manages the SCION files")),
        (action(UserAS, "deactivate", "user_as"), ("link_active", "Deactivated: in no configuration")),
        (deletion(UserAS, "user_as"), ("link", "1 000 kbit/s \N{RIGHTWARDS ARROW} none")),
    ],
)  # fmt: skip
def test_each_form_deletion_and_action_is_one_line_with_its_reason(
    step: Step, made: tuple[str, str], door: Client, link: Link, user_as: UserAS, ap: AttachmentPoint
) -> None:
    one, other = (ASFactory(as_id=as_id) for as_id in (0xFFAA00001130, 0xFFAA00001131))
    hosts = [
        HostFactory(AS=as_, internal_ip=f"10.0.0.{130 + n}", public_ipv4=f"192.0.2.{130 + n}")
        for n, as_ in enumerate((one, other))
    ]
    routers = [BorderRouterFactory(host=host) for host in hosts]
    spare = attachment_point_create(as_=other)
    linked = [ASFactory(as_id=0xFFAA00001140 + n) for n in range(2)]
    for n, as_ in enumerate(linked):
        BorderRouterFactory(host=HostFactory(AS=as_, public_ipv4=f"192.0.2.{140 + n}"))
    rows = {
        "as": one, "host": hosts[0], "router": routers[0], "other_router": routers[1], "user_as": user_as,
        "ap_without_links": spare, "ap_host": spare.host,
        "vpn": vpn_create(host=ap.host, subnet="10.10.9.0/24"),
        "infrastructure": infrastructure_link_create(
            a=linked[0], b=linked[1], type=Link.Type.PROVIDER, bandwidth_kbit=7000
        ),
    }  # fmt: skip
    before = set(BandwidthChange.objects.values_list("pk", flat=True))
    url, values = step(rows)
    answer = door.post(url, {**values, "reason": WHY})
    errors = answer.context["adminform"].form.errors if "adminform" in (answer.context or {}) else None
    made_rows = BandwidthChange.objects.exclude(pk__in=before).exclude(kind__in=["certificate", "trc"])
    assert [(row.kind, row.text.replace("\xa0", " "), row.reason) for row in made_rows] == [(*made, WHY)], errors
    assert made_rows[0].actor is not None


def test_label_and_role_of_an_as(door: Client, ap: AttachmentPoint) -> None:
    ((kind, text, why),) = save(door, AS, ap.AS.pk, label="Renamed")
    assert (kind, why) == ("as", WHY)
    assert text.endswith('\N{RIGHTWARDS ARROW} "Renamed"')
    assert save(door, AS, ap.AS.pk) == []


def test_every_form_that_saves_a_row_of_the_network_asks_for_the_reason(door: Client) -> None:
    """A form that is added without a reason is seen here."""
    asked = {}
    for model in (AS, AttachmentPoint, BorderRouter, Host, Link, VPN):
        asked[model.__name__] = "reason" in door.get(page(model, "add")).context["adminform"].form.fields
    assert asked == dict.fromkeys(("AS", "AttachmentPoint", "BorderRouter", "Host", "Link", "VPN"), True)
