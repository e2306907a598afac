"""The rules over several attachments, several ASes and several people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from scionlab.accounts.models import User
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AS, AttachmentPoint, Host, Interface, Link, UserAS, VPNClient, numbers
from scionlab.testbed.selectors import links_of
from scionlab.user_ases.attachment_rules import check_attachments
from scionlab.user_ases.attachments import AttachmentSpec
from scionlab.user_ases.user_as import user_as_create, user_as_delete, user_as_update
from tests.cases import table
from tests.factories import (
    ASFactory,
    AttachmentPointFactory,
    BorderRouterFactory,
    HostFactory,
    UserASFactory,
    attach,
    spec,
)

Refused = set[tuple[int | None, str, str]]  # (attachment, field, code)


# --- the doors for a whole AS -----------------------------------------------------------------------------------


def _answers_of_form(response: Any) -> Refused:
    if response.status_code == 302:
        return set()
    editor = response.context["editor"]
    found: Refused = set()
    for index, form in ((None, editor.form), *enumerate(editor.rows)):
        for name, errors in form.errors.as_data().items():
            found |= {(index, name, error.code) for error in errors}
    return found


def _form_data(specs: list[AttachmentSpec]) -> dict[str, str]:
    data = {"label": "Lab", "installation_type": "dedicated", "save": "1"}
    for index, one in enumerate(specs):
        row = {
            "attachment_point": one.attachment_point_id,
            "public_ip": one.public_ip or "",
            "public_port": one.public_port,
            "bandwidth_kbit": 500 if one.bandwidth_kbit is None else one.bandwidth_kbit,
            "bind_ip": one.bind_ip or "",
            "bind_port": one.bind_port or "",
            "link_id": one.link_id or "",
        }
        row |= {"active": "on"} if one.active else {}
        row |= {"use_vpn": "on"} if one.use_vpn else {}
        data |= {f"attachments-{index}-{name}": str(value) for name, value in row.items()}
    return data


def through_form(person: User, specs: list[AttachmentSpec], user_as: UserAS | None) -> Refused:
    browser = Client()
    browser.force_login(person)
    url = "/ases/new/" if user_as is None else f"/ases/{user_as.pk}/edit/"
    return _answers_of_form(browser.post(url, _form_data(specs)))


def through_api(person: User, specs: list[AttachmentSpec], user_as: UserAS | None) -> Refused:
    script = Client()
    script.force_login(person)
    rows = [{name: value for name, value in vars(one).items() if value is not None} for one in specs]
    body = {"label": "Lab", "installation_type": "dedicated", "attachments": rows}
    if user_as is None:
        response = script.post("/api/v1/ases/", body, content_type="application/json")
    else:
        response = script.put(f"/api/v1/ases/{user_as.pk}/", body, content_type="application/json")
    if response.status_code in {200, 201}:
        return set()
    assert response.status_code == 400
    found: Refused = set()
    for path, errors in response.json()["fields"].items():
        parts = path.split(".")
        index = int(parts[1]) if len(parts) == 3 else None
        found |= {(index, parts[-1], error["code"]) for error in errors}
    return found


def through_service(person: User, specs: list[AttachmentSpec], user_as: UserAS | None) -> Refused:
    """A service stops at the first; the whole list comes from `check_attachments`, which it calls."""
    values: dict[str, Any] = {"actor": person, "label": "Lab", "installation_type": "dedicated", "attachments": specs}
    try:
        if user_as is None:
            user_as_create(owner=person, **values)
        else:
            user_as_update(user_as_id=user_as.pk, **values)
    except FieldRuleError as exc:
        found = check_attachments(specs, user_as=user_as, installation_type="dedicated")
        listed = {(e.index, e.field, e.code) for e in found}
        return listed | {(exc.index, exc.field, exc.code)}
    return set()


Door = Callable[[User, list[AttachmentSpec], UserAS | None], Refused]
DOORS: dict[str, Door] = {"form": through_form, "api": through_api, "service": through_service}

each_door = pytest.mark.parametrize("door", DOORS)


def _name_at(door: str, field: str) -> str:
    """The form calls the attachment point's field without `_id`; what belongs to no field stands on top."""
    if door != "form":
        return field
    return {"attachment_point_id": "attachment_point", "attachments": "__all__"}.get(field, field)


@dataclass(frozen=True)
class Points:
    a: AttachmentPoint
    b: AttachmentPoint
    other: AttachmentPoint
    v6: AttachmentPoint
    vpn_only: AttachmentPoint


@pytest.fixture
def points(ap: AttachmentPoint, ap_b: AttachmentPoint, ap_other: AttachmentPoint) -> Points:
    return Points(
        ap,
        ap_b,
        ap_other,
        AttachmentPointFactory(host__public_ipv4=None, host__public_ipv6="2001:db8::6"),
        AttachmentPointFactory(
            host__public_ipv4=None, vpn=True, vpn__subnet="10.10.9.0/30", vpn__server_ip="10.10.9.1"
        ),
    )


NEW_AS: dict[str, tuple[Callable[[Points], list[AttachmentSpec]], set[tuple[int | None, str, str]]]] = {
    "no attachment": (lambda _: [], {(None, "attachments", "attachments_none")}),
    "six attachments": (
        lambda p: [spec(p.a, public_port=50000 + n) for n in range(6)],
        {(None, "attachments", "attachments_too_many")},
    ),
    "five attachments": (lambda p: [spec(p.a, public_port=50000 + n) for n in range(5)], set()),
    "attachment points of two ISDs": (
        lambda p: [spec(p.a), spec(p.other, public_port=50001)],
        {(1, "attachment_point_id", "attachment_point_isd")},
    ),
    "the same port twice at one attachment point": (
        lambda p: [spec(p.a), spec(p.a)],
        {(1, "public_port", "endpoint_twice")},
    ),
    "the same port twice, written in two ways": (
        lambda p: [spec(p.a, public_ip="2001:db8::77"), spec(p.a, public_ip="2001:DB8:0::77")],
        {(1, "public_port", "endpoint_twice")},
    ),
    "the same socket for two attachment points": (
        lambda p: [spec(p.a), spec(p.b)],
        {(1, "public_port", "endpoint_twice")},
    ),
    "the same port on two addresses": (lambda p: [spec(p.a), spec(p.a, public_ip="198.51.100.8")], set()),
    "two public ports on one bind port": (
        lambda p: [
            spec(p.a, bind_ip="10.0.0.5", bind_port=40000),
            spec(p.a, public_port=50001, bind_ip="10.0.0.5", bind_port=40000),
        ],
        {(1, "bind_port", "bind_twice")},
    ),
    "the same port twice over one VPN": (
        lambda p: [spec(p.b, use_vpn=True), spec(p.b, use_vpn=True)],
        {(1, "public_port", "endpoint_twice")},
    ),
    "two ports over one VPN": (
        lambda p: [spec(p.b, use_vpn=True), spec(p.b, use_vpn=True, public_port=50001)],
        set(),
    ),
    "IPv4 where there is only IPv6": (lambda p: [spec(p.v6)], {(0, "public_ip", "address_family")}),
    "IPv6 where there is only IPv4": (
        lambda p: [spec(p.b, public_ip="2001:db8::77")],
        {(0, "public_ip", "address_family")},
    ),
    "a public address where there is only a VPN": (
        lambda p: [spec(p.vpn_only)],
        {(0, "use_vpn", "attachment_point_vpn_only")},
    ),
    "the VPN where there is only a VPN": (lambda p: [spec(p.vpn_only, use_vpn=True)], set()),
    "every mistake at once": (
        lambda p: [
            spec(p.a, public_ip="127.0.0.1", public_port=80, bandwidth_kbit=2000),
            spec(p.a, use_vpn=True, bandwidth_kbit=-1),
        ],
        {
            (0, "public_ip", "address_refused"),
            (0, "public_port", "port_range"),
            (0, "bandwidth_kbit", "bandwidth_too_high"),
            (1, "use_vpn", "vpn_missing"),
            (1, "bandwidth_kbit", "bandwidth_negative"),
        },
    ),
}


@each_door
@table("name", NEW_AS)
def test_attachments_of_a_new_as(name: str, door: str, owner: User, points: Points) -> None:
    make, expected = NEW_AS[name]
    found = DOORS[door](owner, make(points), None)
    if door == "form" and name == "every mistake at once":
        # What is no port at all is said first; the rules then look at the rows that could be read.
        assert {(0, "public_port", "port_range")} <= found
        return
    assert found == {(index, _name_at(door, field), code) for index, field, code in expected}
    assert UserAS.objects.count() == (0 if expected else 1)


def _stored(user_as: UserAS) -> list[AttachmentSpec]:
    return [
        AttachmentSpec(
            attachment_point_id=link.attachment_point.pk if link.attachment_point else 0,
            public_ip=link.interface_b.public_ip,
            public_port=link.interface_b.public_port,
            bandwidth_kbit=link.bandwidth_kbit,
            link_id=link.pk,
        )
        for link in links_of(user_as)
    ]


@each_door
def test_an_as_cannot_move_to_another_isd(door: str, owner: User, user_as: UserAS, points: Points) -> None:
    found = DOORS[door](owner, [spec(points.other)], user_as)
    assert found == {(0, _name_at(door, "attachment_point_id"), "attachment_point_isd")}
    assert [link.interface_a.AS.isd_as for link in links_of(user_as)] == ["17-ffaa:0:1107"]


@each_door
def test_a_user_as_that_is_an_attachment_point_cannot_attach_to_itself(door: str, owner: User, user_as: UserAS) -> None:
    host = user_as.hosts.get()
    Host.objects.filter(pk=host.pk).update(public_ipv4="198.51.100.7")
    own = _make_ap(user_as)
    found = DOORS[door](owner, [*_stored(user_as), spec(own, public_ip="198.51.100.8")], user_as)
    assert found == {(1, _name_at(door, "attachment_point_id"), "attachment_point_own")}


def _make_ap(user_as: UserAS) -> AttachmentPoint:
    host = user_as.hosts.get()
    return AttachmentPoint.objects.create(AS=user_as, host=host, maximum_kbit=1000)


@each_door
def test_an_attachment_of_somebody_else_cannot_be_edited(
    door: str, owner: User, user_as: UserAS, teammate: User, ap: AttachmentPoint
) -> None:
    foreign = links_of(attach(teammate, spec(ap, public_ip="198.51.100.99")))[0]
    found = DOORS[door](owner, [replace(_stored(user_as)[0], link_id=foreign.pk)], user_as)
    assert {code for _, _, code in found} == {"link_unknown"}
    assert Link.objects.filter(pk=foreign.pk).exists()


@each_door
def test_one_attachment_cannot_be_given_twice(door: str, owner: User, user_as: UserAS) -> None:
    one = _stored(user_as)[0]
    found = DOORS[door](owner, [one, replace(one, public_port=50001)], user_as)
    assert {code for _, _, code in found} == {"link_twice"}


@each_door
def test_a_clamped_choice_may_stay_when_something_else_is_edited(
    door: str, owner: User, user_as: UserAS, ap: AttachmentPoint
) -> None:
    AttachmentPoint.objects.filter(pk=ap.pk).update(default_bandwidth_kbit=300, maximum_kbit=300)
    one = _stored(user_as)[0]
    assert DOORS[door](owner, [replace(one, public_port=50009)], user_as) == set()
    assert [(link.bandwidth_kbit, link.interface_b.public_port) for link in links_of(user_as)] == [(1000, 50009)]
    assert DOORS[door](owner, [replace(one, bandwidth_kbit=999)], user_as) == {
        (0, "bandwidth_kbit", "bandwidth_too_high")
    }


@each_door
def test_private_and_documentation_addresses_are_refused_in_production(
    door: str, owner: User, ap: AttachmentPoint, settings: Settings
) -> None:
    settings.UNDERLAY_GLOBAL_ONLY = True
    for refused in ("10.1.2.3", "192.168.1.2", "198.51.100.7", "fe80::1", "fd00::1", "2001:db8::7", "100.64.0.1"):
        found = DOORS[door](owner, [spec(ap, public_ip=refused)], None)
        assert found == {(0, "public_ip", "address_not_global")}, refused
    assert DOORS[door](owner, [spec(ap, public_ip="193.0.14.129", bind_ip="10.1.2.3")], None) == set()


# --- quota ------------------------------------------------------------------------------------------------------


@each_door
def test_the_quota_bounds_how_many_ases_a_person_has(
    door: str, owner: User, user_as: UserAS, ap: AttachmentPoint
) -> None:
    User.objects.filter(pk=owner.pk).update(as_quota=2)
    owner.refresh_from_db()
    assert DOORS[door](owner, [spec(ap, public_port=50001)], None) == set()
    found = DOORS[door](owner, [spec(ap, public_port=50002)], None)
    assert {code for _, _, code in found} == {"quota_exceeded"}
    assert UserAS.objects.filter(owner=owner).count() == 2


def test_a_deleted_as_no_longer_counts(owner: User, user_as: UserAS, ap: AttachmentPoint) -> None:
    owner.as_quota = 1
    owner.save()
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    assert attach(owner, spec(ap)).isd_as == "17-ffaa:1:1"


# --- numbers that are given out ---------------------------------------------------------------------------------


def test_as_ids_count_in_hexadecimal_and_fill_gaps(owner: User, ap: AttachmentPoint) -> None:
    owner.as_quota = 20
    owner.save()
    made = [attach(owner, spec(ap, public_port=50000 + n)) for n in range(11)]
    assert [one.isd_as for one in made[8:]] == ["17-ffaa:1:9", "17-ffaa:1:a", "17-ffaa:1:b"]
    user_as_delete(user_as_id=made[3].pk, actor=owner)
    assert attach(owner, spec(ap, public_port=50003)).isd_as == "17-ffaa:1:4"


def test_the_last_as_id_is_ffff(owner: User, ap: AttachmentPoint) -> None:
    UserASFactory(as_id=parse_as_id("ffaa:1:ffff"))
    assert attach(owner, spec(ap)).isd_as == "17-ffaa:1:1", "the gaps below it are filled first"


def test_when_all_as_ids_are_taken_it_is_said(
    monkeypatch: pytest.MonkeyPatch, owner: User, ap: AttachmentPoint
) -> None:
    monkeypatch.setattr(numbers, "LAST_USER_AS_ID", parse_as_id("ffaa:1:2"))
    attach(owner, spec(ap))
    attach(owner, spec(ap, public_port=50001))
    with pytest.raises(FieldRuleError) as refused:
        attach(owner, spec(ap, public_port=50002))
    assert refused.value.code == "as_ids_exhausted"


@table(
    ("as_id", "code"),
    [
        (parse_as_id("ffaa:0:1107"), "as_id_not_for_users"),
        (parse_as_id("ffaa:1:0"), "as_id_not_for_users"),
        (parse_as_id("ffaa:2:1"), "as_id_not_for_users"),
        (-1, "as_id_not_for_users"),
        (2**48, "as_id_not_for_users"),
        (2**200, "as_id_not_for_users"),
        (parse_as_id("ffaa:1:b6"), "as_id_taken"),
    ],
)
def test_a_chosen_as_id_must_be_one_of_user_ases_and_free(
    as_id: int, code: str, owner: User, ap: AttachmentPoint
) -> None:
    def make(chosen: int) -> UserAS:
        values: dict[str, Any] = {"label": "", "installation_type": "dedicated", "attachments": [spec(ap)]}
        return user_as_create(owner=owner, actor=owner, as_id=chosen, **values)

    UserASFactory(as_id=parse_as_id("ffaa:1:b6"))
    with pytest.raises(FieldRuleError) as refused:
        make(as_id)
    assert refused.value.code == code
    assert make(parse_as_id("ffaa:1:b7")).isd_as == "17-ffaa:1:b7"


def test_interface_ids_and_ports_are_the_smallest_free_ones(owner: User, ap: AttachmentPoint) -> None:
    """Interface ids per AS, ports per address of the attachment point's host."""
    made = attach(
        owner,
        spec(ap),
        spec(ap, public_port=50001),
        spec(ap, public_ip="2001:db8::77"),
        spec(ap, public_port=50003),
    )
    ends = [
        (end.interface_a.interface_id, end.interface_a.public_ip, end.interface_a.public_port) for end in links_of(made)
    ]
    assert ends == [
        (1, "192.0.2.1", 50000),
        (2, "192.0.2.1", 50001),
        (3, "2001:db8::1", 50000),
        (4, "192.0.2.1", 50002),
    ]
    specs = _stored(made)
    user_as_update(
        user_as_id=made.pk, actor=owner, label="", installation_type="dedicated", attachments=[specs[0], *specs[2:]]
    )
    again = attach(owner, spec(ap, public_port=50077))
    end = links_of(again)[0].interface_a
    assert (end.interface_id, end.public_port) == (2, 50001)


def test_a_full_attachment_point_is_said_at_the_attachment(
    owner: User, ap: AttachmentPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "MAX_INTERFACE_ID", 2)
    attach(owner, spec(ap), spec(ap, public_port=50001))
    with pytest.raises(FieldRuleError) as refused:
        attach(owner, spec(ap, public_port=50002))
    assert (refused.value.code, refused.value.field, refused.value.index) == (
        "interface_ids_exhausted",
        "attachment_point_id",
        0,
    )
    assert UserAS.objects.count() == 1


def test_when_all_ports_are_taken_it_is_said(owner: User, ap: AttachmentPoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "MAX_PORT", 50_001)
    attach(owner, spec(ap), spec(ap, public_port=50001))
    with pytest.raises(FieldRuleError) as refused:
        attach(owner, spec(ap, public_port=50002))
    assert refused.value.code == "ports_exhausted"
    made = attach(owner, spec(ap, public_ip="2001:db8::77"))
    assert links_of(made)[0].interface_a.public_port == 50000, "another address has ports of its own"


def test_vpn_addresses_are_given_out_kept_and_freed(owner: User, ap_b: AttachmentPoint) -> None:
    made = attach(owner, spec(ap_b, use_vpn=True), spec(ap_b, use_vpn=True, public_port=50001))
    second = attach(owner, spec(ap_b, use_vpn=True))
    assert [link.interface_b.public_ip for link in (*links_of(made), *links_of(second))] == [
        "10.10.1.2",
        "10.10.1.2",
        "10.10.1.3",
    ]
    near = links_of(made)[0].interface_a
    assert (near.public_ip, near.public_port, near.bind_ip) == ("10.10.1.1", 50000, None)
    user_as_delete(user_as_id=made.pk, actor=owner)
    assert list(VPNClient.objects.values_list("ip", flat=True)) == ["10.10.1.3"]
    assert links_of(attach(owner, spec(ap_b, use_vpn=True)))[0].interface_b.public_ip == "10.10.1.2"


def test_leaving_the_vpn_frees_its_address(owner: User, ap_b: AttachmentPoint) -> None:
    made = attach(owner, spec(ap_b, use_vpn=True))
    one = AttachmentSpec(attachment_point_id=ap_b.pk, public_ip="198.51.100.7", link_id=links_of(made)[0].pk)
    user_as_update(user_as_id=made.pk, actor=owner, label="", installation_type="dedicated", attachments=[one])
    link = links_of(made)[0]
    assert (link.interface_b.public_ip, link.interface_a.public_ip) == ("198.51.100.7", "192.0.2.2")
    assert not VPNClient.objects.exists()


@each_door
def test_addresses_of_the_vpn_are_not_public_ones(
    door: str, teammate: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    """Else somebody could claim the socket of the next client, and two Links would match the same packets."""
    for ip, code in (("10.10.1.1", "address_own"), ("10.10.1.2", "address_in_vpn")):
        assert DOORS[door](teammate, [spec(ap_b, public_ip=ip)], None) == {(0, "public_ip", code)}
    elsewhere = DOORS[door](teammate, [spec(ap, public_ip="10.10.1.2")], None)
    assert elsewhere == {(0, "public_ip", "address_in_vpn")}, "another attachment point's VPN, where it may be a client"


def test_a_full_vpn_is_said(owner: User, points: Points) -> None:
    """10.10.9.0/30 has the server and one client."""
    attach(owner, spec(points.vpn_only, use_vpn=True))
    with pytest.raises(FieldRuleError) as refused:
        attach(owner, spec(points.vpn_only, use_vpn=True))
    assert (refused.value.code, refused.value.field, refused.value.index) == ("vpn_full", "use_vpn", 0)


def test_the_ap_binds_where_its_host_says(owner: User) -> None:
    ap = AttachmentPointFactory(
        host__public_ipv4="192.0.2.9", host__public_ipv6="2001:db8::9", host__bind_ip="10.0.0.9", vpn=True
    )
    made = attach(owner, spec(ap), spec(ap, public_ip="2001:db8::77"), spec(ap, use_vpn=True, public_port=50002))
    assert [(link.interface_a.public_ip, link.interface_a.bind_ip) for link in links_of(made)] == [
        ("192.0.2.9", "10.0.0.9"),
        ("2001:db8::9", None),
        ("10.10.1.1", None),
    ]


def test_the_far_end_of_an_infrastructure_link_cannot_be_claimed(owner: User, ap: AttachmentPoint) -> None:
    """Else its owner could have the backbone's packets limited."""
    neighbour = ASFactory(as_id=parse_as_id("ffaa:0:1199"))
    BorderRouterFactory(host=HostFactory(AS=neighbour, public_ipv4="192.0.2.200"))
    infrastructure_link_create(a=neighbour, b=AS.objects.get(pk=ap.AS_id), type=Link.Type.PROVIDER)
    far = Interface.objects.get(AS=neighbour)
    with pytest.raises(FieldRuleError) as refused:
        attach(owner, spec(ap, public_ip=far.public_ip, public_port=far.public_port))
    assert refused.value.code == "address_of_host"


def test_an_inactive_link_keeps_its_place(owner: User, teammate: User, user_as: UserAS, ap: AttachmentPoint) -> None:
    """Else it could not be activated again."""
    Link.objects.update(active=False)
    with pytest.raises(FieldRuleError) as refused:
        attach(teammate, spec(ap))
    assert refused.value.code == "endpoint_taken"


def test_an_as_at_which_others_attach_is_not_deleted(owner: User, teammate: User, user_as: UserAS) -> None:
    Host.objects.filter(pk=user_as.hosts.get().pk).update(public_ipv4="198.51.100.7")
    own = _make_ap(user_as)
    customer = attach(teammate, spec(own, public_ip="198.51.100.99"))
    with pytest.raises(FieldRuleError) as refused:
        user_as_delete(user_as_id=user_as.pk, actor=owner)
    assert refused.value.message == (
        "Other ASes are attached to 17-ffaa:1:1 (1). They must be detached before it can be deleted."
    )
    user_as_delete(user_as_id=customer.pk, actor=teammate)
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    assert UserAS.objects.count() == 0


def test_a_copied_default_is_a_number_of_its_own(owner: User, ap: AttachmentPoint) -> None:
    made = attach(owner, spec(ap))
    assert links_of(made)[0].bandwidth_kbit == 1000
    AttachmentPoint.objects.filter(pk=ap.pk).update(default_bandwidth_kbit=5000, maximum_kbit=5000)
    assert links_of(made)[0].bandwidth_kbit == 1000


@table(("label", "kind", "code"), [("x" * 101, "vm", "label_too_long"), ("", "cloud", "installation_type_unknown")])
def test_label_and_installation_type(label: str, kind: str, code: str, owner: User, ap: AttachmentPoint) -> None:
    with pytest.raises(FieldRuleError) as refused:
        user_as_create(owner=owner, actor=owner, label=label, installation_type=kind, attachments=[spec(ap)])
    assert refused.value.code == code


def test_deleting_leaves_nothing_behind(user_as: UserAS, owner: User, ap: AttachmentPoint) -> None:
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    assert not Link.objects.exists()
    assert not Interface.objects.exists()
    assert list(Host.objects.all()) == [ap.host]
    assert list(AS.objects.values_list("pk", flat=True)) == [ap.AS_id]
