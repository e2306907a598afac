"""Whatever endpoints the attachments of one AS exchange in one save: it stores what was asked for, and nothing else.

Sockets are few here (three addresses, two ports), so that most saves take what another attachment has or leaves. Runs
on PostgreSQL and on the embedded SQLite, whichever DATABASE_URL says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scionlab.testbed.models import AS, AttachmentPoint, BandwidthChange, Host, Interface, Link, UserAS, VPNClient
from scionlab.user_ases.attachment_rules import check_attachments
from scionlab.user_ases.attachments import AttachmentSpec
from tests.cases import table
from tests.factories import AttachmentPointFactory, UserFactory, attach, save, spec

NEW = None


@pytest.fixture
def aps(db: None) -> list[AttachmentPoint]:
    return [
        AttachmentPointFactory(
            host__public_ipv4=f"192.0.2.{number}",
            host__public_ipv6=f"2001:db8::{number}",
            vpn=True,
            vpn__subnet=f"10.10.{number}.0/29",
            vpn__server_ip=f"10.10.{number}.1",
        )
        for number in (1, 2)
    ]


def end_of(one: Interface) -> tuple[object, ...]:
    return (one.pk, one.interface_id, one.public_ip, one.public_port, one.bind_ip, one.bind_port, one.vpn_client_id)


def seen_by_hosts(user_as: UserAS) -> dict[int, set[tuple[object, ...]]]:
    """By host, what its SCION configuration says of the Links of this AS; one made anew is another one."""
    found: dict[int, set[tuple[object, ...]]] = {}
    for link in Link.objects.filter(interface_b__AS=user_as.pk).select_related("interface_a", "interface_b"):
        for near, far in ((link.interface_a, link.interface_b), (link.interface_b, link.interface_a)):
            views = found.setdefault(near.host_id, set())
            views.add((link.pk, *end_of(near)[1:], far.public_ip, far.public_port))
    return found


def foreign_rows(user_as: UserAS) -> list[Any]:
    """All that belongs to others, but for the counters of hosts."""
    counted = {"config_version", "limits_version", "content_stamp"}
    hosts = [
        {name: value for name, value in row.items() if name not in counted}
        for row in Host.objects.order_by("pk").values()
    ]
    others = Link.objects.exclude(interface_b__AS=user_as.pk)
    ends = Interface.objects.exclude(link_as_a__interface_b__AS=user_as.pk).exclude(AS=user_as.pk)
    tables = (others, ends, AS.objects, VPNClient.objects.exclude(host__AS=user_as.pk))
    return [hosts, *(list(table.order_by("pk").values()) for table in tables)]


def on(ip: str, port: int = 50000) -> AttachmentSpec:
    return AttachmentSpec(attachment_point_id=0, public_ip=ip, public_port=port, bandwidth_kbit=500)


A, B, A1, A6 = on("198.51.100.7"), on("198.51.100.8"), on("198.51.100.7", 50001), on("2001:db8::77")
VPN = AttachmentSpec(attachment_point_id=0, use_vpn=True, public_port=50000, bandwidth_kbit=500)


EXCHANGES: dict[str, tuple[list[AttachmentSpec], list[tuple[int | None, AttachmentSpec]]]] = {
    "two addresses": ([A, B], [(0, B), (1, A)]),
    "two ports": ([A, A1], [(0, A1), (1, A)]),
    "a new one takes what a kept one leaves": ([A], [(NEW, A), (0, B)]),
    "a chain of these": ([A, A1], [(NEW, A), (0, A1), (1, B)]),
    "two families, and so the attachment point's addresses": ([A, A6], [(0, A6), (1, A)]),
    "the VPN goes from one Link to the other": ([A, VPN], [(0, VPN), (1, A)]),
}


@table("name", EXCHANGES)
def test_each_kind_of_exchange_is_one_save(name: str, aps: list[AttachmentPoint]) -> None:
    try_exchange(*EXCHANGES[name], aps)


def try_exchange(
    stored: list[AttachmentSpec], rows: list[tuple[int | None, AttachmentSpec]], aps: list[AttachmentPoint]
) -> None:
    def at_ap(one: AttachmentSpec) -> AttachmentSpec:
        return replace(one, attachment_point_id=aps[one.attachment_point_id].pk)

    attach(UserFactory(), spec(aps[0], public_ip="198.51.100.99"), spec(aps[1], use_vpn=True))
    user_as = attach(UserFactory(), *map(at_ap, stored))
    links = list(Link.objects.filter(interface_b__AS=user_as.pk).order_by("pk"))
    before = {link.pk: (end_of(link.interface_a), end_of(link.interface_b)) for link in links}
    wanted = [replace(at_ap(one), link_id=None if at is NEW else links[at].pk) for at, one in rows]
    assert check_attachments(wanted, user_as=user_as, installation_type="dedicated") == []
    foreign, views = foreign_rows(user_as), seen_by_hosts(user_as)
    counters = {host.pk: (host.config_version, host.limits_version) for host in Host.objects.all()}
    clients = dict(VPNClient.objects.filter(host__AS=user_as.pk).values_list("vpn__host", "ip"))
    last_change = BandwidthChange.objects.count()

    save(user_as, *wanted)

    # The rows of the user AS are those asked for; the ones that stay keep their ids.
    known = {link.pk for link in links}
    found = {link.pk: link for link in Link.objects.filter(interface_b__AS=user_as.pk)}
    kept = {one.link_id: one for one in wanted if one.link_id is not None}
    assert found.keys() & known == kept.keys()
    for pk, one in kept.items():
        assert_is(found[pk], one)
        assert [found[pk].interface_a.pk, found[pk].interface_b.pk] == [end[0] for end in before[pk]]
        assert [found[pk].interface_a.interface_id, found[pk].interface_b.interface_id] == [e[1] for e in before[pk]]
    made = [one for one in wanted if one.link_id is None]
    for one, pk in zip(made, sorted(found.keys() - known), strict=True):
        assert_is(found[pk], one)
    assert BandwidthChange.objects.count() - last_change == len(made) + len(known - kept.keys())

    # A port of an attachment point stays, unless the Link goes to another address where somebody has it.
    sockets = {(end.host_id, end.public_ip, end.public_port): end.pk for end in Interface.objects.all()}
    assert len(sockets) == Interface.objects.count()
    for pk in kept:
        near = found[pk].interface_a
        _, _, ip, port, *_ = before[pk][0]
        if near.public_port != port:
            assert near.public_ip != ip
            assert sockets[(near.host_id, near.public_ip, port)] != near.pk

    # An address in a VPN stays as long as an attachment uses it.
    assert dict(VPNClient.objects.filter(host__AS=user_as.pk).values_list("vpn__host", "ip")) == clients

    # H rises once where the configuration is another one, and nothing else is touched.
    becomes = seen_by_hosts(user_as)
    for host in Host.objects.all():
        rises = int(views.get(host.pk) != becomes.get(host.pk))
        assert (host.config_version, host.limits_version) == (counters[host.pk][0] + rises, counters[host.pk][1])
    assert foreign_rows(user_as) == foreign


def assert_is(link: Link, one: AttachmentSpec) -> None:
    far, near = link.interface_b, link.interface_a
    ap = AttachmentPoint.objects.select_related("host__vpn").get(pk=one.attachment_point_id)
    assert (near.host_id, far.public_port) == (ap.host_id, one.public_port)
    if one.use_vpn:
        assert far.vpn_client is not None
        assert (far.public_ip, far.bind_ip, far.bind_port) == (far.vpn_client.ip, None, None)
        assert (far.vpn_client.vpn_id, near.public_ip) == (ap.host.vpn.pk, ap.host.vpn.server_ip)
    else:
        assert far.vpn_client is None
        assert (far.public_ip, far.bind_ip, far.bind_port) == (one.public_ip, one.bind_ip, one.bind_port)
        assert near.public_ip == (ap.host.public_ipv4 if "." in str(one.public_ip) else ap.host.public_ipv6)
