"""The second line: what the database itself refuses, whoever writes past models and services."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.db.models import F

from bandwidth_config import MAX_BANDWIDTH_KBIT
from scionlab.accounts.models import User
from scionlab.testbed import selectors
from scionlab.testbed.models import (
    AS,
    ISD,
    AttachmentPoint,
    BandwidthPolicy,
    Host,
    Interface,
    Link,
    ServiceState,
    VPNClient,
)
from tests.cases import table
from tests.factories import InterfaceFactory, UserFactory, attach, spec

Write = Callable[[Link], object]


def _copy(end: Interface, **values: object) -> None:
    row = Interface.objects.get(pk=end.pk)
    row.pk = None
    row.interface_id, row.public_port = 99, 50_099
    for name, value in values.items():
        setattr(row, name, value)
    row.save(force_insert=True)


WRITES: dict[str, Write] = {
    "a bandwidth below 0": lambda link: Link.objects.filter(pk=link.pk).update(bandwidth_kbit=-1),
    "a bandwidth above all bounds": lambda link: Link.objects.filter(pk=link.pk).update(
        bandwidth_kbit=MAX_BANDWIDTH_KBIT + 1
    ),
    "no bandwidth": lambda link: Link.objects.filter(pk=link.pk).update(bandwidth_kbit=None),
    "a link to itself": lambda link: Link.objects.filter(pk=link.pk).update(interface_b=link.interface_a),
    "a second link on one end": lambda link: Link.objects.create(
        interface_a=link.interface_a, interface_b=InterfaceFactory(), bandwidth_kbit=1
    ),
    "an interface id twice in one AS": lambda link: _copy(link.interface_a, interface_id=1),
    "interface id 0": lambda link: _copy(link.interface_a, interface_id=0),
    "interface id 4095": lambda link: _copy(link.interface_a, interface_id=4095),
    "one socket twice on one host": lambda link: _copy(link.interface_a, public_port=50_000),
    "port 1023": lambda link: _copy(link.interface_a, public_port=1023),
    "port 65536": lambda link: _copy(link.interface_a, public_port=65_536),
    "a site default above all bounds": lambda _: BandwidthPolicy.objects.update(
        default_bandwidth_kbit=MAX_BANDWIDTH_KBIT + 1
    ),
    "a default of an attachment point below 0": lambda _: AttachmentPoint.objects.update(default_bandwidth_kbit=-1),
    "a second policy": lambda _: BandwidthPolicy.objects.create(id=2),
    "a second state of the service": lambda _: ServiceState.objects.create(id=2),
    "an AS number of 49 bits": lambda link: AS.objects.filter(pk=link.interface_a.AS_id).update(as_id=2**48),
    "AS number 0": lambda link: AS.objects.filter(pk=link.interface_a.AS_id).update(as_id=0),
    "ISD 0": lambda _: ISD.objects.update(isd_id=0),
    "ISD 65536": lambda _: ISD.objects.update(isd_id=65_536),
    "an AS number twice": lambda link: AS.objects.create(isd=link.interface_a.AS.isd, as_id=link.interface_a.AS.as_id),
    "a host id twice": lambda link: Host.objects.create(uid=link.interface_a.host.uid),
    "an email address in other letters": lambda _: User.objects.create(email="OWNER@example.org"),
}


@table("name", WRITES)
def test_the_database_refuses(name: str, link: Link) -> None:
    selectors.policy()
    with pytest.raises(IntegrityError), transaction.atomic():
        WRITES[name](link)


def test_a_vpn_address_is_given_once(ap_b: AttachmentPoint, owner: User) -> None:
    attach(owner, spec(ap_b, use_vpn=True))
    client = VPNClient.objects.get()
    with pytest.raises(IntegrityError), transaction.atomic():
        VPNClient.objects.create(vpn=client.vpn, host=ap_b.host, ip=client.ip)


def test_the_links_of_a_host_come_in_the_order_of_their_keys(ap: AttachmentPoint, owner: User) -> None:
    """Whoever locks rows by this list locks them in this order, wherever the database keeps the rows."""
    for port in range(50_000, 50_005):
        attach(owner, spec(ap, public_port=port))
    keys = sorted(Link.objects.values_list("pk", flat=True))
    for key in reversed(keys):  # PostgreSQL writes a changed row anew, behind the others
        Link.objects.filter(pk=key).update(mtu=F("mtu"))
    assert [link.pk for link in selectors.limited_links(ap.host_id).values()] == keys


def test_log_in_names_are_kept_in_lower_case(db: None) -> None:
    assert UserFactory(email="Some.Body@Example.ORG").email == "some.body@example.org"


def test_the_migrations_are_those_of_the_models(db: None) -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
