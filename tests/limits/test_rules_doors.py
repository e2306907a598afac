"""One table of rules, each tried at every door: what a person may send is refused with the same code and the same
sentence by the form, the REST API, the services, and where they know it by the administrators' pages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.test import Client

from bandwidth_config import RuleError, parse_bandwidth
from scionlab.accounts.models import User
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Interface, Link, UserAS
from scionlab.user_ases.attachments import AttachmentSpec
from scionlab.user_ases.user_as import user_as_create
from tests.cases import table
from tests.factories import attach, spec

Refusals = set[tuple[str, str, str]]  # (field, code, sentence)


@dataclass(frozen=True)
class Rule:
    """A value that breaks one rule; `text`: its sentence, of some (all: tests/contract/test_bandwidth_config.py)."""

    values: dict[str, str]
    field: str
    code: str
    text: str = ""
    doors: set[str] = field(default_factory=lambda: {"form", "api", "service"})


def kbit(value: str, code: str, text: str = "") -> Rule:
    return Rule({"bandwidth_kbit": value}, "bandwidth_kbit", code, text, {"form", "api", "service", "admin"})


def address(value: str, code: str, text: str = "") -> Rule:
    return Rule({"public_ip": value}, "public_ip", code, text)


def port(value: str, code: str = "port_range", text: str = "") -> Rule:
    return Rule({"public_port": value}, "public_port", code, text)


_NB = "\N{NO-BREAK SPACE}"
RULES: dict[str, Rule] = {
    # bandwidth
    "no bandwidth": kbit("", "bandwidth_required"),
    "below 0": kbit("-1", "bandwidth_negative"),
    "a fraction": kbit("1.5", "bandwidth_invalid"),
    "a unit": Rule({"bandwidth_kbit": "500 kbit/s"}, "bandwidth_kbit", "bandwidth_invalid", doors={"api", "admin"}),
    "one above the maximum": kbit(
        "1001",
        "bandwidth_too_high",
        f"Bandwidth 1{_NB}001{_NB}kbit/s is above this link's maximum of 1{_NB}000{_NB}kbit/s. Choose at "
        f"most 1{_NB}000, or ask the administrators to raise it.",
    ),
    "2^63": kbit(str(2**63), "bandwidth_too_high"),
    "a number of 400 digits": kbit("9" * 400, "bandwidth_too_high"),
    # addresses
    "no address": address("", "address_required"),
    "no address at all": address("198.51.100", "address_invalid"),
    "a leading zero": address("198.51.100.07", "address_invalid"),
    "a shell command as address": address("198.51.100.7; reboot", "address_invalid"),
    "a zone": address("fe80::1%eth0", "address_invalid"),
    "loopback": address("127.0.0.1", "address_refused"),
    "unspecified of IPv6": address("::", "address_refused"),
    "multicast of IPv6": address("ff02::1", "address_refused"),
    "broadcast": address("255.255.255.255", "address_refused"),
    "reserved": address("240.0.0.1", "address_refused"),
    "IPv4 written as IPv6": address("::ffff:198.51.100.7", "address_refused"),
    "the attachment point's own address": address(
        "192.0.2.1",
        "address_own",
        "192.0.2.1 is the attachment point's own address. Use the address of the user AS as seen by the "
        "attachment point.",
    ),
    "the attachment point's own address in capitals": address("2001:DB8:0::1", "address_own"),
    # ports
    "no port": Rule({"public_port": ""}, "public_port", "port_required", doors={"form"}),
    "port 1023": port("1023"),
    "port 65536": port("65536"),
    "port 2^31": port(str(2**31)),
    "the port of another AS at the same address": Rule(
        {"public_ip": "198.51.100.99", "public_port": "50009"},
        "public_port",
        "endpoint_taken",
        "198.51.100.99 port 50009 is in use by another AS. Choose another port, or another address.",
    ),
    # binding
    "a bind address that is none": Rule({"bind_ip": "eth0"}, "bind_ip", "address_invalid"),
    "a bind address on loopback": Rule({"bind_ip": "127.0.0.1"}, "bind_ip", "address_refused"),
    "a bind address of the other family": Rule({"bind_ip": "2001:db8::5"}, "bind_ip", "address_family"),
    "a bind port below 1024": Rule({"bind_port": "80"}, "bind_port", "port_range"),
    # the attachment point
    "no VPN there": Rule({"use_vpn": "on"}, "use_vpn", "vpn_missing"),
    "no such attachment point": Rule(
        {"attachment_point_id": "4711"}, "attachment_point_id", "attachment_point_unknown", doors={"api", "service"}
    ),  # the form's list says it in the same words, with a code of Django's
}
GOOD = {
    "public_ip": "198.51.100.7",
    "public_port": "50000",
    "bandwidth_kbit": "500",
    "bind_ip": "",
    "bind_port": "",
}


# --- the doors ------------------------------------------------------------------------------------------------


def through_form(person: User, ap: AttachmentPoint, values: dict[str, str]) -> Refusals:
    browser = Client()
    browser.force_login(person)
    sent = {"attachment_point": str(ap.pk), **GOOD, **values}
    data = {f"attachments-0-{name}": value for name, value in sent.items()}
    response = browser.post("/ases/new/", {"label": "", "installation_type": "dedicated", "save": "1", **data})
    if response.status_code == 302:
        return set()
    row = response.context["editor"].rows[0]
    content = response.content.decode()
    found: Refusals = set()
    for name, errors in row.errors.as_data().items():
        for error in errors:
            found.add((name, error.code, error.messages[0]))
            assert f'id="{row[name].auto_id}"' in content, "the field is on the page that is shown again"
    return found


def through_api(person: User, ap: AttachmentPoint, values: dict[str, str]) -> Refusals:
    """Numbers travel as JSON numbers where they are some; a bandwidth as the text that was typed."""
    sent: dict[str, Any] = {"attachment_point_id": ap.pk, **GOOD, **values}
    for name in ("attachment_point_id", "public_port", "bind_port"):
        sent[name] = int(sent[name]) if sent[name] != "" else None
    sent["use_vpn"] = "use_vpn" in values
    sent = {name: value for name, value in sent.items() if value != "" or name == "bandwidth_kbit"}
    script = Client()
    script.force_login(person)
    response = script.post("/api/v1/ases/", {"attachments": [sent]}, content_type="application/json")
    if response.status_code == 201:
        return set()
    assert response.status_code == 400
    answer = response.json()
    found = {
        (name.removeprefix("attachments.0."), error["code"], error["message"])
        for name, errors in answer["fields"].items()
        for error in errors
    }
    assert (answer["code"], answer["message"]) in {(code, text) for _, code, text in found}
    return found


def through_service(person: User, ap: AttachmentPoint, values: dict[str, str]) -> Refusals:
    sent = {**GOOD, **values}
    try:
        wanted = AttachmentSpec(
            attachment_point_id=int(sent.get("attachment_point_id", ap.pk)),
            use_vpn="use_vpn" in sent,
            public_ip=sent["public_ip"] or None,
            public_port=int(sent["public_port"]),
            bandwidth_kbit=parse_bandwidth(sent["bandwidth_kbit"]),
            bind_ip=sent["bind_ip"] or None,
            bind_port=int(sent["bind_port"]) if sent["bind_port"] else None,
        )
        user_as_create(owner=person, actor=person, label="", installation_type="dedicated", attachments=[wanted])
    except FieldRuleError as exc:
        where = exc.field if exc.index == 0 else f"{exc.field} of attachment {exc.index}"
        return {(where, exc.code, exc.message)}
    except RuleError as exc:  # what is no number at all never reaches a service: its parser says so
        return {("bandwidth_kbit", exc.code, exc.message)}
    return set()


def through_admin(staff: User, ap: AttachmentPoint, values: dict[str, str]) -> Refusals:
    link = Link.objects.get(interface_a__AS=ap.AS_id)
    browser = Client()
    browser.force_login(staff)
    data = {"active": "on", "reason": "", **values}
    response = browser.post(f"/admin/testbed/link/{link.pk}/change/", data)
    if response.status_code == 302:
        return set()
    errors = response.context["adminform"].form.errors.as_data()
    return {(name, error.code, error.messages[0]) for name, listed in errors.items() for error in listed}


@pytest.fixture
def taken(teammate: User, ap: AttachmentPoint) -> UserAS:
    """Somebody else's AS at the same attachment point, at 198.51.100.99 port 50009."""
    return attach(teammate, spec(ap, public_ip="198.51.100.99", public_port=50009))


Door = Callable[[dict[str, str]], Refusals]


@pytest.fixture
def doors(owner: User, staff: User, ap: AttachmentPoint, taken: UserAS) -> dict[str, Door]:
    return {
        "form": lambda values: through_form(owner, ap, values),
        "api": lambda values: through_api(owner, ap, values),
        "service": lambda values: through_service(owner, ap, values),
        "admin": lambda values: through_admin(staff, ap, values),
    }


def everything() -> list[list[dict[str, Any]]]:
    tables = (UserAS, Host, Interface, Link, BandwidthChange)
    return [list(table.objects.order_by("pk").values()) for table in tables]


# --- the tests ------------------------------------------------------------------------------------------------

# The first of each code: these are tried at every door, the others where the rule is asked.
AT_EVERY_DOOR = set({one.code: name for name, one in reversed(RULES.items())}.values())


@table("name", RULES)
def test_a_broken_rule_is_refused_in_the_same_words_and_changes_nothing(name: str, doors: dict[str, Door]) -> None:
    rule, said = RULES[name], set()
    before = everything()
    is_told_everywhere = name in AT_EVERY_DOOR or "service" not in rule.doors
    for door in sorted(rule.doors) if is_told_everywhere else ["service"]:
        found = doors[door](rule.values)
        wanted_field = "attachment_point" if door == "form" and rule.field == "attachment_point_id" else rule.field
        ours = {(where, code, text) for where, code, text in found if code == rule.code}
        assert {where for where, _, _ in ours} == {wanted_field}, (door, found)
        assert found == ours, (door, "one sentence for one mistake")
        said |= {text for _, _, text in ours}
        assert everything() == before, door
    assert len(said) == 1, said
    if rule.text:
        assert said == {rule.text}


ACCEPTED: list[tuple[dict[str, str], str, object]] = [  # what is sent, and what is stored of the user AS
    ({}, "bandwidth_kbit", 500),
    ({"bandwidth_kbit": " 0 "}, "bandwidth_kbit", 0),
    ({"bandwidth_kbit": "1"}, "bandwidth_kbit", 1),
    ({"bandwidth_kbit": "1000"}, "bandwidth_kbit", 1000),
    ({"public_port": "1024"}, "interface_b__public_port", 1024),
    ({"public_port": "65535"}, "interface_b__public_port", 65535),
    ({"public_ip": "198.51.100.99", "public_port": "50010"}, "interface_b__public_port", 50010),  # another port there
    ({"public_ip": "198.51.100.98", "public_port": "50009"}, "interface_b__public_ip", "198.51.100.98"),
    ({"public_ip": "2001:DB8:0:0::0077"}, "interface_b__public_ip", "2001:db8::77"),
]


@table("door", ["form", "api", "service"])
@table(("values", "name", "stored"), ACCEPTED)
def test_good_values_pass_every_door(
    door: str, values: dict[str, str], name: str, stored: object, doors: dict[str, Door], owner: User
) -> None:
    assert doors[door](values) == set()
    assert Link.objects.filter(interface_b__AS__useras__owner=owner).values_list(name, flat=True).get() == stored


def test_0_is_stored_as_0_by_administrators_too(doors: dict[str, Door], taken: UserAS) -> None:
    assert doors["admin"]({"bandwidth_kbit": "0"}) == set()
    link = Link.objects.get(interface_b__AS=taken.pk)
    assert (link.bandwidth_kbit, link.enforced_kbit) == (0, 0)


# --- one number at a time: the page of an AS and PATCH --------------------------------------------------------------


ONE_NUMBER = {name: RULES[name] for name in RULES if name in AT_EVERY_DOOR and RULES[name].field == "bandwidth_kbit"}


@table("name", ONE_NUMBER)
def test_the_page_of_a_link_and_patch_refuse_the_same(name: str, link: Link, user_as: UserAS, owner: User) -> None:
    rule = RULES[name]
    browser = Client()
    browser.force_login(owner)
    before = everything()
    data = {f"link-{link.pk}-bandwidth_kbit": rule.values["bandwidth_kbit"]}
    shown = browser.post(f"/ases/{user_as.pk}/links/{link.pk}/bandwidth/", data)
    assert shown.status_code == 200
    (error,) = shown.context["form"].errors.as_data()["bandwidth_kbit"]
    answer = browser.patch(f"/api/v1/links/{link.pk}/", rule.values, content_type="application/json")
    assert answer.status_code == 400
    assert error.code == answer.json()["code"] == rule.code
    assert error.messages == [answer.json()["message"]]
    if rule.text:
        assert error.messages == [rule.text]
    assert everything() == before


@table("sent", [1.5, True, [500], {"kbit": 500}, None, 2**63])
def test_json_values_that_are_no_bandwidth(sent: object, link: Link, owner: User) -> None:
    script = Client()
    script.force_login(owner)
    response = script.patch(f"/api/v1/links/{link.pk}/", {"bandwidth_kbit": sent}, content_type="application/json")
    assert response.status_code == 400
    assert response.json()["code"].startswith("bandwidth_")
    link.refresh_from_db()
    assert link.bandwidth_kbit == 1000
