"""The cast: who wants what from the service in these tests.

owner       has `user_as` (17-ffaa:1:1), attached at `ap` by `link` over 198.51.100.7:50000 with 1000 kbit/s
teammate    has no AS yet; a person like the owner, who may attach at the same attachment point
stranger    has an AS of their own at `ap_b` and no business with the owner's
staff       an administrator
host_a      the host of `ap` (17-ffaa:0:1107, 192.0.2.1 and 2001:db8::1)
host_b      the host of `ap_b` (17-ffaa:0:1108, 192.0.2.2), which has a VPN too (10.10.1.0/24)
ap_other    an attachment point of another ISD (19-ffaa:0:1303, 192.0.2.3)
"""

from __future__ import annotations

import pytest

from scionlab.isd_as import parse_as_id
from scionlab.models import AttachmentPoint, Host, Link, User, UserAS
from tests.factories import AttachmentPointFactory, ISDFactory, UserFactory, attach, spec


@pytest.fixture
def owner(db: None) -> User:
    return UserFactory(email="owner@example.org")


@pytest.fixture
def teammate(db: None) -> User:
    return UserFactory(email="teammate@example.org")


@pytest.fixture
def staff(db: None) -> User:
    return UserFactory(email="staff@example.org", is_staff=True, is_superuser=True)


@pytest.fixture
def ap(db: None) -> AttachmentPoint:
    return AttachmentPointFactory(
        AS__as_id=parse_as_id("ffaa:0:1107"), host__public_ipv4="192.0.2.1", host__public_ipv6="2001:db8::1"
    )


@pytest.fixture
def ap_b(db: None) -> AttachmentPoint:
    return AttachmentPointFactory(AS__as_id=parse_as_id("ffaa:0:1108"), host__public_ipv4="192.0.2.2", vpn=True)


@pytest.fixture
def ap_other(db: None) -> AttachmentPoint:
    return AttachmentPointFactory(
        AS__as_id=parse_as_id("ffaa:0:1303"), AS__isd=ISDFactory(isd_id=19), host__public_ipv4="192.0.2.3"
    )


@pytest.fixture
def host_a(ap: AttachmentPoint) -> Host:
    return ap.host


@pytest.fixture
def host_b(ap_b: AttachmentPoint) -> Host:
    return ap_b.host


@pytest.fixture
def user_as(owner: User, ap: AttachmentPoint) -> UserAS:
    return attach(owner, spec(ap), label="Owner's AS")


@pytest.fixture
def link(user_as: UserAS) -> Link:
    return Link.objects.get(interface_b__AS=user_as.pk)


@pytest.fixture
def stranger(ap_b: AttachmentPoint) -> User:
    person = UserFactory(email="stranger@example.org")
    attach(person, spec(ap_b, public_ip="198.51.100.99"), label="Stranger's AS")
    return person
