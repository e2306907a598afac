"""Which border router a Link ends on: those over a VPN have one of their own, on both hosts, for each tun device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from config_tar import snapshot
from contract.scion_files import build_topology, systemd_units
from scionlab.accounts.models import User
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AttachmentPoint, BorderRouter, Host, Interface, Link, UserAS, numbers
from scionlab.user_ases.admin.link import RouterField
from tests.factories import AttachmentPointFactory, BorderRouterFactory, HostFactory, attach, save, spec, stored
from tests.support.counters import Counters

BOTH = (1, 0)


@pytest.fixture
def ap_c(db: None) -> AttachmentPoint:
    """A second attachment point with a VPN, whose subnet is that of `ap_b`: two tun devices at whoever is in both."""
    return AttachmentPointFactory(host__public_ipv4="192.0.2.4", vpn=True)


def routers(host: Host) -> dict[str, list[str]]:
    """By name, the local addresses in the topology that the host is given."""
    host = Host.objects.get(pk=host.pk)
    assert host.AS is not None
    found = build_topology(host.AS, [snapshot(host)])["border_routers"]
    return {name: [one["underlay"]["local"] for one in router["interfaces"].values()] for name, router in found.items()}


def as_before(user_as: UserAS) -> None:
    """As older versions made them: all Links of a host on its first router."""
    for end in Interface.objects.filter(link_as_a__interface_b__AS=user_as) | Interface.objects.filter(AS=user_as):
        first, _ = BorderRouter.objects.get_or_create(host=end.host, vpn=None, defaults={"number": 9})
        Interface.objects.filter(pk=end.pk).update(border_router=first)
    BorderRouter.objects.filter(interfaces=None).exclude(vpn=None).delete()


def test_links_over_the_vpn_have_a_router_of_their_own_at_both_hosts(owner: User, ap_b: AttachmentPoint) -> None:
    made = attach(owner, spec(ap_b), spec(ap_b, use_vpn=True, public_port=50001))
    assert routers(made.hosts.get()) == {"br-1": ["198.51.100.7:50000"], "br-2": ["10.10.1.2:50001"]}
    assert routers(ap_b.host) == {"br-1": ["192.0.2.2:50000"], "br-2": ["10.10.1.1:50000"]}
    assert systemd_units(snapshot(made.hosts.get()))[:3] == [
        "openvpn@client-scionlab-17-ffaa_0_1108.service",
        "scion-border-router@br-1.service",
        "scion-border-router@br-2.service",
    ]


def test_all_clients_of_a_vpn_share_its_router_at_the_attachment_point(
    owner: User, teammate: User, ap_b: AttachmentPoint
) -> None:
    """There is one tun device; whoever comes later finds its router."""
    attach(owner, spec(ap_b, use_vpn=True))
    attach(teammate, spec(ap_b, use_vpn=True))
    attach(teammate, spec(ap_b, public_ip="198.51.100.8"))
    assert routers(ap_b.host) == {
        "br-1": ["192.0.2.2:50000"],
        "br-2": ["10.10.1.1:50000", "10.10.1.1:50001"],
    }


def test_a_user_as_has_a_router_for_each_vpn(owner: User, ap_b: AttachmentPoint, ap_c: AttachmentPoint) -> None:
    """So the tun of one attachment point takes no Link to the other along. Two Links over one tun share a router."""
    made = attach(
        owner,
        spec(ap_b, use_vpn=True),
        spec(ap_c, use_vpn=True, public_port=50001),
        spec(ap_b, use_vpn=True, public_port=50002),
    )
    assert routers(made.hosts.get()) == {
        "br-1": ["10.10.1.2:50000", "10.10.1.2:50002"],
        "br-2": ["10.10.1.3:50001"],
    }


def test_internal_ports_follow_the_numbers_and_no_number_is_twice_in_an_as(owner: User, ap_b: AttachmentPoint) -> None:
    """The attachment point's AS has br-2 on another host: its VPN's router is br-3, also in the topology there."""
    second = HostFactory(AS=ap_b.AS, public_ipv4="192.0.2.22", internal_ip="10.0.0.22")
    BorderRouterFactory(host=second, number=2)
    attach(owner, spec(ap_b, use_vpn=True))
    assert routers(ap_b.host) == {"br-3": ["10.10.1.1:50000"]}
    router = BorderRouter.objects.get(vpn=ap_b.host.vpn, host=ap_b.host)
    assert (router.number, router.internal_port) == (3, 30_003)


def test_a_link_that_leaves_the_vpn_leaves_its_router(owner: User, ap_b: AttachmentPoint) -> None:
    made = attach(owner, spec(ap_b, use_vpn=True))
    counters = Counters()
    save(made, replace(stored(made)[0], use_vpn=False, public_ip="198.51.100.7"))
    host = made.hosts.get()
    assert counters.risen() == {ap_b.host: BOTH, host: BOTH}
    assert (routers(host), routers(ap_b.host)) == (
        {"br-2": ["198.51.100.7:50000"]},
        {"br-1": ["192.0.2.2:50000"]},
    )
    assert list(host.border_routers.values_list("number", "vpn")) == [(2, None)], "the VPN's is gone with the client"
    assert BorderRouter.objects.filter(host=ap_b.host, vpn=ap_b.host.vpn).exists(), "it waits for the next client"


def test_a_link_that_comes_to_the_vpn_goes_to_its_router(owner: User, ap_b: AttachmentPoint) -> None:
    made = attach(owner, spec(ap_b), spec(ap_b, public_port=50001))
    first, second = stored(made)
    save(made, replace(first, use_vpn=True, public_ip=None), second)
    assert routers(made.hosts.get()) == {"br-1": ["198.51.100.7:50001"], "br-2": ["10.10.1.2:50000"]}
    assert routers(ap_b.host) == {"br-1": ["192.0.2.2:50001"], "br-2": ["10.10.1.1:50000"]}


# --- Links from before ------------------------------------------------------------------------------------------------


@pytest.fixture
def old(owner: User, ap_b: AttachmentPoint) -> UserAS:
    """A Link over a public address and one over the VPN, on one router at each host."""
    made = attach(owner, spec(ap_b), spec(ap_b, use_vpn=True, public_port=50001))
    as_before(made)
    assert routers(ap_b.host) == {"br-1": ["192.0.2.2:50000", "10.10.1.1:50000"]}
    return made


def test_a_link_from_before_moves_when_its_user_changes_it(old: UserAS, teammate: User, ap_b: AttachmentPoint) -> None:
    attach(teammate, spec(ap_b, use_vpn=True, public_port=50003))
    assert routers(ap_b.host) == {
        "br-1": ["192.0.2.2:50000", "10.10.1.1:50000"],
        "br-2": ["10.10.1.1:50001"],
    }
    first, second = stored(old)
    counters = Counters()
    save(old, replace(first, bandwidth_kbit=5), replace(second, bandwidth_kbit=5))
    assert counters.risen() == {ap_b.host: (0, 1)}, "nobody restarts for what stays where it is"
    save(old, first, replace(second, public_port=50009))
    assert routers(ap_b.host) == {"br-1": ["192.0.2.2:50000"], "br-2": ["10.10.1.1:50000", "10.10.1.1:50001"]}
    assert routers(old.hosts.get()) == {"br-1": ["198.51.100.7:50000"], "br-2": ["10.10.1.2:50009"]}


# --- no other Links come to it ----------------------------------------------------------------------------------------


def test_infrastructure_links_do_not_end_on_the_router_of_a_vpn(owner: User, ap_b: AttachmentPoint) -> None:
    attach(owner, spec(ap_b, use_vpn=True))
    BorderRouter.objects.filter(host=ap_b.host, vpn=None).delete()
    core = HostFactory(public_ipv4="192.0.2.77")
    of_vpn = BorderRouter.objects.get(host=ap_b.host)
    assert of_vpn not in (RouterField().queryset or ())
    assert core.AS is not None
    with pytest.raises(FieldRuleError) as refused:
        infrastructure_link_create(a=core.AS, b=ap_b.AS, type=Link.Type.PROVIDER, router_b=of_vpn)
    assert (refused.value.code, refused.value.field) == ("router_of_vpn", "router_b")
    link = infrastructure_link_create(a=core.AS, b=ap_b.AS, type=Link.Type.PROVIDER)
    assert (link.interface_b.border_router.vpn, link.interface_b.border_router.number) == (None, 1)


def test_when_the_numbers_of_routers_are_used_up_it_is_said_at_the_attachment(
    owner: User, ap_b: AttachmentPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "LAST_BORDER_ROUTER", 1)
    with pytest.raises(FieldRuleError) as refused:
        attach(owner, spec(ap_b), spec(ap_b, use_vpn=True, public_port=50001))
    assert (refused.value.code, refused.value.field, refused.value.index) == (
        "border_routers_exhausted",
        "attachment_point_id",
        1,
    )
    assert not UserAS.objects.exists()
