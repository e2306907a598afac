"""Receipts that arrive while people save: neither waits for the other for ever, and each is stored whole."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scionlab.accounts.models import Mail, User
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.receipt import receipt_store
from scionlab.enforcement.receipt_format import Receipt
from scionlab.testbed.models import Host, Link
from tests.concurrency.conftest import AtOnce, failures
from tests.factories import AttachmentPointFactory, attach, spec
from tests.receipts import enforced_entry, receipt_at

T0 = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
LINKS = 5


@pytest.fixture
def links(owner: User) -> list[Link]:
    ap = AttachmentPointFactory()
    attach(owner, *[spec(ap, public_port=50_000 + n) for n in range(LINKS)])
    return list(Link.objects.order_by("pk"))


def receipt(host: Host, kbit: int, observed_at: datetime) -> Receipt:
    host.refresh_from_db()
    links = dict.fromkeys(range(1, LINKS + 1), enforced_entry(kbit))
    version = f"1.{host.config_version}"
    return receipt_at(observed_at, links, version=version, limits_version=host.limits_version)


def test_first_receipt_that_comes_twice_at_once_is_stored_once(links: list[Link], at_once: AtOnce) -> None:
    host = links[0].interface_a.host
    same = receipt(host, 1000, T0)
    assert failures(at_once(*[lambda: receipt_store(host_id=host.pk, receipt=same, now=T0)] * 4)) == []
    assert HostReceipt.objects.count() == 1
    assert LinkEnforcement.objects.count() == LINKS
    assert Mail.objects.count() == LINKS
