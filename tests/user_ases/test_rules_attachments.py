"""The rules over several attachments, several ASes and several people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
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
    save,
    spec,
    stored,
)

Refused = set[tuple[int | None, str, str]]  # (attachment, field, code)


def refused_by_service(person: User, specs: list[AttachmentSpec], user_as: UserAS | None) -> Refused:
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
    "the same socket for two attachment points": (
        lambda p: [spec(p.a), spec(p.b)],
        {(1, "public_port", "endpoint_twice")},
    ),
    "the same port twice, written in two ways": (
        lambda p: [spec(p.a, public_ip="2001:db8::77"), spec(p.a, public_ip="2001:DB8:0::77")],
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
    "IPv4 where there is only IPv6": (lambda p: [spec(p.v6)], {(0, "public_ip", "address_family")}),
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


@table("name", NEW_AS)
def test_attachments_of_a_new_as(name: str, owner: User, points: Points) -> None:
    make, expected = NEW_AS[name]
    assert refused_by_service(owner, make(points), None) == expected
    assert UserAS.objects.count() == (0 if expected else 1)


def test_an_as_cannot_move_to_another_isd(owner: User, user_as: UserAS, points: Points) -> None:
    found = refused_by_service(owner, [spec(points.other)], user_as)
    assert found == {(0, "attachment_point_id", "attachment_point_isd")}
    assert [link.interface_a.AS.isd_as for link in links_of(user_as)] == ["17-ffaa:0:1107"]


def test_a_user_as_that_is_an_attachment_point_cannot_attach_to_itself(owner: User, user_as: UserAS) -> None:
    host = user_as.hosts.get()
    Host.objects.filter(pk=host.pk).update(public_ipv4="198.51.100.7")
    own = _make_ap(user_as)
    found = refused_by_service(owner, [*stored(user_as), spec(own, public_ip="198.51.100.8")], user_as)
    assert found == {(1, "attachment_point_id", "attachment_point_own")}


def _make_ap(user_as: UserAS) -> AttachmentPoint:
    host = user_as.hosts.get()
    return AttachmentPoint.objects.create(AS=user_as, host=host, maximum_kbit=1000)


def test_an_attachment_of_somebody_else_cannot_be_edited(
    owner: User, user_as: UserAS, teammate: User, ap: AttachmentPoint
) -> None:
    foreign = links_of(attach(teammate, spec(ap, public_ip="198.51.100.99")))[0]
    found = refused_by_service(owner, [replace(stored(user_as)[0], link_id=foreign.pk)], user_as)
    assert {code for _, _, code in found} == {"link_unknown"}
    assert Link.objects.filter(pk=foreign.pk).exists()


def test_one_attachment_cannot_be_given_twice(owner: User, user_as: UserAS) -> None:
    one = stored(user_as)[0]
    found = refused_by_service(owner, [one, replace(one, public_port=50001)], user_as)
    assert {code for _, _, code in found} == {"link_twice"}


def test_private_and_documentation_addresses_are_refused_in_production(
    owner: User, ap: AttachmentPoint, settings: Settings
) -> None:
    settings.UNDERLAY_GLOBAL_ONLY = True
    for refused in ("10.1.2.3", "198.51.100.7", "fe80::1", "fd00::1", "100.64.0.1"):
        found = refused_by_service(owner, [spec(ap, public_ip=refused)], None)
        assert found == {(0, "public_ip", "address_not_global")}, refused
    assert refused_by_service(owner, [spec(ap, public_ip="193.0.14.129", bind_ip="10.1.2.3")], None) == set()


# --- quota ------------------------------------------------------------------------------------------------------


def test_the_quota_bounds_how_many_ases_a_person_has(owner: User, user_as: UserAS, ap: AttachmentPoint) -> None:
    User.objects.filter(pk=owner.pk).update(as_quota=2)
    owner.refresh_from_db()
    assert refused_by_service(owner, [spec(ap, public_port=50001)], None) == set()
    found = refused_by_service(owner, [spec(ap, public_port=50002)], None)
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


@table(
    ("number", "last", "code"),
    [
        ("LAST_USER_AS_ID", parse_as_id("ffaa:1:1"), "as_ids_exhausted"),
        ("MAX_INTERFACE_ID", 1, "interface_ids_exhausted"),
        ("MAX_PORT", 50_000, "ports_exhausted"),
    ],
)
def test_when_numbers_are_used_up_it_is_said(
    number: str, last: int, code: str, owner: User, ap: AttachmentPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, number, last)
    attach(owner, spec(ap))
    with pytest.raises(FieldRuleError) as refused:
        attach(owner, spec(ap, public_port=50001))
    assert refused.value.code == code
    assert UserAS.objects.count() == 1


@table(
    ("as_id", "code"),
    [
        (parse_as_id("ffaa:1:0"), "as_id_not_for_users"),
        (parse_as_id("ffaa:2:1"), "as_id_not_for_users"),
        (-1, "as_id_not_for_users"),
        (2**200, "as_id_not_for_users"),
        (parse_as_id("ffaa:1:b6"), "as_id_taken"),
    ],
)
def test_a_chosen_as_id_must_be_one_of_user_ases_and_free(
    as_id: int, code: str, owner: User, ap: AttachmentPoint
) -> None:
    UserASFactory(as_id=parse_as_id("ffaa:1:b6"))
    values: dict[str, Any] = {"label": "", "installation_type": "dedicated", "attachments": [spec(ap)]}
    with pytest.raises(FieldRuleError) as refused:
        user_as_create(owner=owner, actor=owner, as_id=as_id, **values)
    assert refused.value.code == code
    made = user_as_create(owner=owner, actor=owner, as_id=parse_as_id("ffaa:1:b7"), **values)
    assert made.isd_as == "17-ffaa:1:b7"


def test_interface_ids_and_ports_are_the_smallest_free_ones(owner: User, ap: AttachmentPoint) -> None:
    """Interface ids per AS, ports per address of the attachment point's host."""
    of_ipv6 = spec(ap, public_ip="2001:db8::77")
    made = attach(owner, spec(ap), spec(ap, public_port=50001), of_ipv6, spec(ap, public_port=50003))
    ends = [link.interface_a for link in links_of(made)]
    assert [(end.interface_id, end.public_ip, end.public_port) for end in ends] == [
        (1, "192.0.2.1", 50000),
        (2, "192.0.2.1", 50001),
        (3, "2001:db8::1", 50000),
        (4, "192.0.2.1", 50002),
    ]
    specs = stored(made)
    save(made, specs[0], *specs[2:])
    end = links_of(attach(owner, spec(ap, public_port=50077)))[0].interface_a
    assert (end.interface_id, end.public_port) == (2, 50001)


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
    save(made, spec(ap_b, link_id=links_of(made)[0].pk))
    link = links_of(made)[0]
    assert (link.interface_b.public_ip, link.interface_a.public_ip) == ("198.51.100.7", "192.0.2.2")
    assert not VPNClient.objects.exists()


def test_addresses_of_the_vpn_are_not_public_ones(teammate: User, ap: AttachmentPoint, ap_b: AttachmentPoint) -> None:
    """Else somebody could claim the socket of the next client, and two Links would match the same packets."""
    for ip, code in (("10.10.1.1", "address_own"), ("10.10.1.2", "address_in_vpn")):
        assert refused_by_service(teammate, [spec(ap_b, public_ip=ip)], None) == {(0, "public_ip", code)}
    elsewhere = refused_by_service(teammate, [spec(ap, public_ip="10.10.1.2")], None)
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
    with pytest.raises(FieldRuleError, match="Other ASes are attached to 17-ffaa:1:1 \\(1\\)"):
        user_as_delete(user_as_id=user_as.pk, actor=owner)
    user_as_delete(user_as_id=customer.pk, actor=teammate)
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    assert UserAS.objects.count() == 0


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
