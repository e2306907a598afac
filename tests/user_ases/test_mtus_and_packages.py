"""Which files a host has by its SCION packages, and the MTU of its Links; what of it raises H."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from scionlab.accounts.models import User
from scionlab.delivery.installed import full_configuration
from scionlab.delivery.render import config_for
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from scionlab.user_ases.attachments import AttachmentSpec
from tests.admin_pages import CHANGE, page
from tests.factories import ASFactory, HostFactory, attach, save, spec
from tests.support.counters import Counters
from tests.support.polling import config_members

pytestmark = pytest.mark.django_db

CONFIG, LIMITS = (1, 0), (0, 1)


def members(host: Host) -> dict[str, bytes]:
    return config_members(config_for(Host.objects.get(pk=host.pk)).content)


def units(host: Host) -> list[str]:
    found: list[str] = json.loads(members(host)["scionlab-config.json"])["systemd_units"]
    return found


def addresses(host: Host, **changed: Any) -> dict[str, Any]:
    names = ("public_ipv4", "public_ipv6", "bind_ip", "internal_ip", "label")
    return {name: getattr(host, name) for name in names} | changed


def test_the_files_that_pages_name_are_those_of_the_tarball(link: Link) -> None:
    for host in Host.objects.all():
        assert full_configuration(host) == (members(host).keys() - {"scionlab-config.json"}, units(host))


# --- packages --------------------------------------------------------------------------------------------------------


def test_other_packages_raise_h_once_and_the_same_ones_do_not(door: Client, user_as: UserAS) -> None:
    host = Host.objects.get(AS=user_as.pk)
    values = {name: value or "" for name, value in addresses(host).items()}
    counters = Counters()
    assert door.post(page(Host, CHANGE, host.pk), values | {"scion_packages": "scionlab"}).status_code == 302
    assert counters.risen() == {}
    assert door.post(page(Host, CHANGE, host.pk), values | {"scion_packages": "upstream"}).status_code == 302
    assert counters.risen() == {host: CONFIG}
    assert "scion-router@br-1.service" in units(host)
    assert {"etc/scion/daemon.toml", "etc/scion/dispatcher.toml"} <= members(host).keys()


# --- MTUs ------------------------------------------------------------------------------------------------------------


def over_ipv6(ap: AttachmentPoint, **values: Any) -> AttachmentSpec:
    return spec(ap, **{"public_ip": "2001:db8::7", **values})


def mtu_of(link: Link) -> int:
    return Link.objects.values_list("mtu", flat=True).get(pk=link.pk)


def test_new_links_have_an_mtu_that_fits_their_underlay(owner: User, ap: AttachmentPoint) -> None:
    made = attach(owner, spec(ap), over_ipv6(ap))
    links = Link.objects.filter(interface_b__AS=made.pk).order_by("pk")
    assert list(links.values_list("mtu", flat=True)) == [1472, 1452]


def test_new_links_between_infrastructure_ases_too(ap: AttachmentPoint) -> None:
    core = ASFactory()
    HostFactory(AS=core, public_ipv4=None, public_ipv6="2001:db8::11")
    assert infrastructure_link_create(a=core, b=ap.AS, type=Link.Type.PROVIDER).mtu == 1452


def test_a_link_from_before_keeps_its_mtu_until_something_else_of_it_changes(owner: User, ap: AttachmentPoint) -> None:
    user_as = attach(owner, over_ipv6(ap))
    link = Link.objects.get(interface_b__AS=user_as.pk)
    Link.objects.update(mtu=1472)
    host = Host.objects.get(AS=user_as.pk)
    counters = Counters()
    save(user_as, over_ipv6(ap, link_id=link.pk))
    assert (mtu_of(link), counters.risen()) == (1472, {})
    save(user_as, over_ipv6(ap, link_id=link.pk, bandwidth_kbit=77))
    assert (mtu_of(link), counters.risen()) == (1472, {ap.host: LIMITS})
    save(user_as, over_ipv6(ap, link_id=link.pk, bandwidth_kbit=77, public_port=50_009))
    assert mtu_of(link) == 1452
    assert counters.risen() == {ap.host: (1, 1), host: CONFIG}
    topology = json.loads(members(host)["etc/scion/topology.json"])
    (interface,) = topology["border_routers"]["br-1"]["interfaces"].values()
    assert (interface["mtu"], topology["mtu"]) == (1452, 1472)


def test_an_mtu_that_somebody_chose_is_only_lowered(owner: User, ap: AttachmentPoint) -> None:
    user_as = attach(owner, spec(ap))
    link = Link.objects.get(interface_b__AS=user_as.pk)
    Link.objects.update(mtu=1400)
    save(user_as, spec(ap, link_id=link.pk, public_port=50_009))
    assert mtu_of(link) == 1400
    Link.objects.update(mtu=1460)
    save(user_as, over_ipv6(ap, link_id=link.pk))
    assert mtu_of(link) == 1452
    save(user_as, spec(ap, link_id=link.pk))
    assert mtu_of(link) == 1472, "back at IPv4 it has room again"
