"""Nobody registers an address of the testbed's hosts; administrators are told which addresses several owners have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from scionlab.accounts.models import User
from scionlab.cockpit.notices import notices
from scionlab.testbed.address_owners import SharedAddress, shared_addresses
from scionlab.testbed.host import host_set_addresses
from scionlab.testbed.models import AttachmentPoint, Host, UserAS
from scionlab.testbed.selectors import links_of
from scionlab.user_ases.attachment_rules import check_attachments
from scionlab.user_ases.attachments import AttachmentSpec
from tests.cases import table
from tests.factories import HostFactory, attach, save, spec

OWN = "198.51.100.7"


def codes(user_as: UserAS | None, *specs: AttachmentSpec) -> list[str]:
    return [error.code for error in check_attachments(specs, user_as=user_as, installation_type="dedicated")]


def kept(user_as: UserAS) -> AttachmentSpec:
    (link,) = links_of(user_as)
    ap = AttachmentPoint.objects.get(AS=link.interface_a.AS_id)
    return spec(ap, public_ip=link.interface_b.public_ip, bandwidth_kbit=link.bandwidth_kbit, link_id=link.pk)


@pytest.fixture
def router(db: None) -> Host:
    """Infrastructure that is no attachment point: 192.0.2.50 and 2001:db8::50."""
    return HostFactory(public_ipv4="192.0.2.50", public_ipv6="2001:db8::50")


@pytest.fixture
def serving(user_as: UserAS) -> AttachmentPoint:
    """The owner's AS lets others attach at its own address, 198.51.100.7."""
    host = user_as.hosts.get()
    Host.objects.filter(pk=host.pk).update(public_ipv4=OWN)
    return AttachmentPoint.objects.create(AS=user_as, host=host, maximum_kbit=1000)


@table("address", ["192.0.2.50", "2001:DB8:0::50", "192.0.2.2"])
def test_an_address_of_the_testbed_is_refused(
    address: str, ap: AttachmentPoint, ap_b: AttachmentPoint, router: Host
) -> None:
    assert codes(None, spec(ap, public_ip=address)) == ["address_of_host"]


def test_a_user_as_that_lets_others_attach_keeps_its_address_to_itself(
    user_as: UserAS, serving: AttachmentPoint, ap: AttachmentPoint
) -> None:
    save(user_as, kept(user_as), spec(ap, public_port=50001))
    assert codes(None, spec(ap, public_port=50002)) == ["address_of_host"]


def test_its_attachments_do_not_take_a_socket_that_it_serves_others_on(
    user_as: UserAS, serving: AttachmentPoint, teammate: User
) -> None:
    one = kept(user_as)
    save(user_as, replace(one, public_port=50009))
    attach(teammate, spec(serving, public_ip="198.51.100.20"))  # gets 198.51.100.7 port 50000
    (error,) = check_attachments([one], user_as=user_as, installation_type="dedicated")
    assert (error.code, error.field) == ("endpoint_own", "public_port")


def test_a_host_of_a_user_as_that_serves_nobody_may_share_its_address(user_as: UserAS, ap: AttachmentPoint) -> None:
    Host.objects.filter(AS=user_as.pk).update(public_ipv4=OWN)
    assert codes(None, spec(ap, public_port=50001)) == []


def test_an_address_to_which_a_host_moves_later_stays_and_administrators_are_told(
    user_as: UserAS, router: Host, staff: User, door: Client
) -> None:
    host_set_addresses(host_id=router.pk, actor=staff, public_ipv4=OWN, public_ipv6=None, bind_ip=None)
    isd_as = router.AS.isd_as if router.AS else ""
    assert shared_addresses() == [SharedAddress(OWN, ["owner@example.org"], isd_as)]
    save(user_as, replace(kept(user_as), public_port=50009))
    assert codes(None, kept(user_as)) == ["link_unknown", "address_of_host"]
    page = door.get("/cockpit/").content.decode()
    assert f"198.51.100.7</a> (owner@example.org, a host of {isd_as})" in page


def test_owners_who_share_an_address_are_told_to_administrators(
    user_as: UserAS, owner: User, teammate: User, stranger: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    attach(owner, spec(ap_b, public_port=50001))
    attach(owner, spec(ap_b, use_vpn=True))
    assert shared_addresses() == [], "one owner may have several ASes behind one address"
    attach(teammate, spec(ap_b, public_port=50002))
    attach(teammate, spec(ap, public_ip="198.51.100.99", public_port=50003))
    assert shared_addresses() == [
        SharedAddress(OWN, ["owner@example.org", "teammate@example.org"], ""),
        SharedAddress("198.51.100.99", ["stranger@example.org", "teammate@example.org"], ""),
    ]
    (notice,) = notices()
    assert notice.tone == "info"
    shown = '<a href="/admin/testbed/link/?q=198.51.100.7">198.51.100.7</a> (owner@example.org, teammate@example.org)'
    assert shown in notice.text
