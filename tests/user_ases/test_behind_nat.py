"""A virtual machine binds to an address that it has, and a port that a NAT forwards leads to one machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from config_tar import snapshot
from contract.scion_files import build_topology
from scionlab.accounts.models import User
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import AttachmentPoint, Interface, Link, UserAS
from scionlab.user_ases.attachment_rules import check_attachments
from scionlab.user_ases.attachments import VM_ADDRESS, AttachmentSpec
from scionlab.user_ases.user_as import user_as_create, values_of_user_as
from tests.cases import table
from tests.factories import attach, save, spec, stored
from tests.support.counters import Counters
from tests.support.html import Page

CONFIG = (1, 0)


def in_vm(owner: User, *specs: AttachmentSpec, label: str = "") -> UserAS:
    return user_as_create(owner=owner, actor=owner, label=label, installation_type="vm", attachments=specs)


def underlay(as_: UserAS | AttachmentPoint) -> list[dict[str, str]]:
    """Of all Links of the AS, in the order of interface ids, as its topology.json has them."""
    host = as_.hosts.get() if isinstance(as_, UserAS) else as_.host
    host.refresh_from_db()
    assert host.AS is not None
    routers = build_topology(host.AS, [snapshot(host)])["border_routers"].values()
    interfaces = {int(number): one for router in routers for number, one in router["interfaces"].items()}
    return [interfaces[number]["underlay"] for number in sorted(interfaces)]


# --- what a virtual machine binds to ----------------------------------------------------------------------------------


def test_a_virtual_machine_binds_to_its_own_address_and_others_see_the_public_one(
    owner: User, ap: AttachmentPoint
) -> None:
    made = in_vm(owner, spec(ap))
    assert underlay(made) == [{"local": "10.0.2.15:50000", "remote": "192.0.2.1:50000"}]
    assert underlay(ap) == [{"local": "192.0.2.1:50000", "remote": "198.51.100.7:50000"}]


@table(
    ("values", "local"),
    [
        ({"bind_port": 40_000}, "10.0.2.15:40000"),
        ({"bind_ip": "192.168.56.10"}, "192.168.56.10:50000"),
        ({"bind_ip": "198.51.100.7"}, "198.51.100.7:50000"),  # a machine in a cloud, or bridged
        ({"public_ip": "2001:db8::77"}, "[2001:db8::77]:50000"),  # VirtualBox's NAT translates IPv4 alone
    ],
)
def test_what_else_a_virtual_machine_may_bind_to(
    values: dict[str, str | int], local: str, owner: User, ap: AttachmentPoint
) -> None:
    assert underlay(in_vm(owner, spec(ap, **values)))[0]["local"] == local


def test_over_the_vpn_a_virtual_machine_binds_to_its_tun(owner: User, ap_b: AttachmentPoint) -> None:
    assert underlay(in_vm(owner, spec(ap_b, use_vpn=True)))[0]["local"] == "10.10.1.2:50000"


def test_the_form_shows_what_was_asked_for_and_saves_it_again_without_a_change(
    owner: User, ap: AttachmentPoint
) -> None:
    made = in_vm(owner, spec(ap))
    browser = Client()
    browser.force_login(owner)
    assert Page(browser.get(f"/ases/{made.pk}/edit/")).value("Bind IP address") == ""
    counters = Counters()
    save(made, *stored(made))
    save(made, replace(stored(made)[0], bind_ip=VM_ADDRESS))
    assert counters.risen() == {}


def test_another_installation_type_binds_elsewhere_and_the_attachment_point_sees_nothing_of_it(
    owner: User, ap: AttachmentPoint
) -> None:
    made = in_vm(owner, spec(ap))
    counters = Counters()
    save(made, *stored(made), installation_type="dedicated")
    assert underlay(made)[0]["local"] == "198.51.100.7:50000"
    assert counters.risen() == {made.hosts.get(): CONFIG}
    made.refresh_from_db()
    save(made, *stored(made), installation_type="vm")
    assert underlay(made)[0]["local"] == "10.0.2.15:50000"


@pytest.fixture
def old(owner: User, ap: AttachmentPoint) -> UserAS:
    """As older versions made it: bound to an address that it may not have."""
    made = in_vm(owner, spec(ap))
    Interface.objects.filter(AS=made).update(bind_ip=None)
    return made


def test_nobody_restarts_for_a_virtual_machine_from_before_that_is_saved_as_it_was(old: UserAS) -> None:
    counters = Counters()
    save(old, *stored(old))
    save(old, replace(stored(old)[0], bandwidth_kbit=5))
    assert list(counters.risen().values()) == [(0, 1)]
    assert underlay(old)[0]["local"] == "198.51.100.7:50000"


def test_a_page_of_a_virtual_machine_is_not_old_because_of_its_own_address(old: UserAS) -> None:
    before = values_of_user_as(old)
    Interface.objects.filter(AS=old).update(bind_ip=VM_ADDRESS)
    assert values_of_user_as(old) == before


# --- ports that a NAT forwards ----------------------------------------------------------------------------------------


def refusal(user_as: UserAS | None, reader: User | None, *specs: AttachmentSpec, kind: str = "vm") -> FieldRuleError:
    (error,) = check_attachments(specs, user_as=user_as, installation_type=kind, reader=reader)
    return error


def test_two_virtual_machines_behind_one_nat_have_two_public_ports(
    owner: User, teammate: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    """At whichever attachment points: the NAT looks at its own address and port alone."""
    in_vm(owner, spec(ap))
    with pytest.raises(FieldRuleError) as refused:
        in_vm(teammate, spec(ap_b))
    assert (refused.value.code, refused.value.field, refused.value.index) == ("endpoint_taken", "public_port", 0)
    assert underlay(in_vm(teammate, spec(ap_b, public_port=50_001)))[0]["local"] == "10.0.2.15:50001"


def test_the_other_as_is_named_to_whoever_may_see_it(
    owner: User, teammate: User, staff: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    in_vm(owner, spec(ap), label="Cellar")
    named = "198.51.100.7 port 50000 is in use by 17-ffaa:1:1 (Cellar). Choose another port, or another address."
    unnamed = named.replace("17-ffaa:1:1 (Cellar)", "another AS")
    for at in (ap, ap_b):
        readers = (owner, staff, teammate, None)
        assert [refusal(None, reader, spec(at)).message for reader in readers] == [named, named, unnamed, unnamed]


def test_two_links_of_one_virtual_machine_have_two_ports_on_it(owner: User, ap: AttachmentPoint) -> None:
    """Two public addresses, one card."""
    both = (spec(ap), spec(ap, public_ip="198.51.100.8"))
    error = refusal(None, owner, *both)
    assert (error.code, error.field, error.index) == ("bind_twice", "bind_port", 1)
    assert check_attachments(both, user_as=None, installation_type="dedicated") == []
    made = in_vm(owner, both[0], replace(both[1], bind_port=50_001))
    assert [one["local"] for one in underlay(made)] == ["10.0.2.15:50000", "10.0.2.15:50001"]


def test_who_shares_a_socket_from_before_may_save_all_but_take_it_to_where_the_other_as_has_it(
    owner: User, teammate: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    """As a dump of upstream's service may have it: one socket for two ASes, at two attachment points."""
    ases = attach(owner, spec(ap)), attach(teammate, spec(ap_b, public_port=50_001))
    Interface.objects.filter(AS=ases[1]).update(public_port=50_000)
    for one in ases:
        save(one, replace(stored(one)[0], bandwidth_kbit=5))
    assert set(Link.objects.values_list("bandwidth_kbit", flat=True)) == {5}
    moved = replace(stored(ases[0])[0], attachment_point_id=ap_b.pk)
    error = refusal(ases[0], None, moved, kind="dedicated")
    assert error.code == "endpoint_taken", "the attachment point could not tell their packets from each other"
