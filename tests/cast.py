"""The cast: who wants what from the service in these tests.

owner       has `user_as` (17-ffaa:1:1), attached at `ap` by `link` over 198.51.100.7:50000 with 1000 kbit/s
teammate    has no AS yet; a person like the owner, who may attach at the same attachment point
stranger    has an AS of their own at `ap_b` and no business with the owner's
staff       an administrator
host_a      the host of `ap` (17-ffaa:0:1107, 192.0.2.1 and 2001:db8::1)
door        a browser in which the administrator is logged in
receipt     the agent of host_a enforces `link` and has just said so
host        host_a, as `link` is in its configuration: 1.2, L 1
server      the web server, in this process (tests/support/polling.py)
host_b      the host of `ap_b` (17-ffaa:0:1108, 192.0.2.2), which has a VPN too (10.10.1.0/24)
ap_other    an attachment point of another ISD (19-ffaa:0:1303, 192.0.2.3)
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from scionlab.accounts.last_use import TOKENS, TOKENS_USED
from scionlab.accounts.models import User
from scionlab.delivery.last_contact import CONTACTS, HOSTS
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.platform import clock
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.platform.redis_client import REST, client
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from tests.factories import AttachmentPointFactory, ISDFactory, UserFactory, attach, spec
from tests.support.polling import WebServer, serve

FOLDERS = {path.parent.name for path in (Path(__file__).parents[1] / "scionlab").glob("*/__init__.py")}
FOLDERS |= {"clients", "core", "lab"}


@pytest.fixture(autouse=True)
def _as_if_it_were_the_first(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the service that uses a database needs real servers: saves and web servers have threads and connections
    of their own, which a SQLite in memory has not."""
    if request.path.parent.name not in FOLDERS:
        return
    has_database = request.node.get_closest_marker("django_db") or {"db", "transactional_db"} & {*request.fixturenames}
    if has_database and (connection.vendor != "postgresql" or not settings.REDIS_URL):
        pytest.skip("needs PostgreSQL and Redis: python -m tests.servers -- python -m pytest FILES")
    # Whoever had to do without Redis leaves it alone for some seconds.
    monkeypatch.setattr(REST, "_until", 0.0)
    # A test whose clock stands still may have measured how far the database's is off from it.
    monkeypatch.setattr(clock, "_ahead_s", 0.0)
    monkeypatch.setattr(clock, "_measured_at", time.monotonic())
    # What earlier tests noted and did not write would be written, and counted, by this one.
    monkeypatch.setattr(CONTACTS, "_times", {})
    monkeypatch.setattr(TOKENS_USED, "_times", {})
    if settings.REDIS_URL:
        client().delete(*(key for ledger in (HOSTS, TOKENS) for key in (ledger.key, ledger.taken)))


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


@pytest.fixture
def door(staff: User, client: Client) -> Client:
    """A browser in which an administrator is logged in; `staff` is a plain one, without Django's superuser flag."""
    User.objects.filter(pk=staff.pk).update(is_superuser=False)
    client.force_login(staff)
    return client


@pytest.fixture
def receipt(link: Link, host_a: Host) -> HostReceipt:
    """The agent of `host_a` says now that it enforces what `link` wants."""
    now = timezone.now()
    host_a.refresh_from_db()
    Host.objects.filter(pk=host_a.pk).update(
        last_seen_at=now,
        delivered_at=now,
        delivered_config_version=host_a.config_version,
        delivered_limits_version=host_a.limits_version,
    )
    versions = {
        "generation": 1,
        "config_version": host_a.config_version,
        "limits_version": host_a.limits_version,
        "received_at": now,
    }
    LinkEnforcement.objects.create(
        link=link,
        kbit=1000,
        state="enforced",
        since=now,
        to_user_rate_kbit=1000,
        from_user_rate_kbit=1000,
        to_user_packets=9,
        to_user_bytes=1200,
        to_user_drops=3,
        **versions,
    )
    return HostReceipt.objects.create(host=host_a, agent_version="0.1.0", content="proven", observed_at=now, **versions)


# --- the web server (tests/support/polling.py) ----------------------------------------------------------------------


@pytest.fixture
def host(link: Link) -> Host:
    return Host.objects.get(pk=link.interface_a.host_id)


@pytest.fixture
def _no_messages(settings: Settings) -> None:
    """The embedded set-up: there is no Redis."""
    settings.REDIS_URL = ""


@pytest.fixture
def server(host: Host) -> Iterator[WebServer]:
    yield from serve()
