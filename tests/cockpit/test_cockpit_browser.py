"""The cockpit as a browser shows it: trouble of every kind, light and dark, with axe, and on a phone."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.limits.models import MaximumException
from scionlab.testbed.models import AttachmentPoint, BandwidthPolicy, Link, UserAS
from scionlab.usage.models import UsageCounter, UsageDay
from tests.factories import attach, spec
from tests.support.browser import IN_A_BROWSER, judge
from tests.usage_world import series_of

pytestmark = IN_A_BROWSER


@pytest.fixture
def troubled(owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint, receipt: HostReceipt) -> AttachmentPoint:
    """One link enforced and used, one failed, one in two directions, one above the maximum; a foreign qdisc; an
    uplink too small; and at the other attachment point an agent that is silent."""
    attach(owner, *[spec(ap, public_port=50_010 + number) for number in range(3)], label="Three")
    attach(owner, spec(ap_b, public_port=50_013), label="Elsewhere")
    now = timezone.now()
    enforced, failed, two, above, elsewhere = Link.objects.order_by("pk")
    Link.objects.filter(pk=two.pk).update(from_user_kbit=64)
    Link.objects.filter(pk=above.pk).update(bandwidth_kbit=5000)
    Link.objects.update(wanted_config_version=0)
    versions = {"config_version": 1, "limits_version": 1, "generation": 1, "received_at": now}
    foreign = {"code": "foreign_device", "subject": "eth1", "message": "eth1 has a root qdisc cake 8001: " + "x" * 90}
    HostReceipt.objects.update(problems=[foreign], **versions)
    LinkEnforcement.objects.update(**versions)
    problem = "local_address_missing: nothing leads there"
    LinkEnforcement.objects.create(link=failed, kbit=1000, state="error", problem=problem, since=now, **versions)
    long_ago = now - timedelta(hours=2)
    HostReceipt.objects.create(host=elsewhere.interface_a.host, observed_at=long_ago, received_at=long_ago)
    series = series_of(enforced)
    for direction in ("to_user", "from_user"):
        counted = {"bytes": 1, "packets": 1, "drops": 0, "kbit": 900, "limit_kbit": 1000, "backlog_bytes": 0}
        UsageCounter.objects.create(series=series, direction=direction, segment="a", at=now, **counted)
    UsageDay.objects.create(series=series, begins_at=now.replace(hour=0), to_user_bytes=10**9)
    BandwidthPolicy.objects.update_or_create(pk=1, defaults={"cost_per_gb": Decimal("0.1")})
    AttachmentPoint.objects.filter(pk=ap.pk).update(uplink_kbit=1000, total_kbit=5000, observe_only=True)
    return ap


def test_every_page_is_accessible_and_fits_a_phone(admin_page: Page, troubled: AttachmentPoint) -> None:
    page, link, ends_at = admin_page, Link.objects.latest("pk"), timezone.now() + timedelta(days=7)
    for state in ("asked", "approved"):
        MaximumException.objects.create(link=link, maximum_kbit=5000, ends_at=ends_at, reason="A course", state=state)
    three = UserAS.objects.get(label="Three").pk
    for url, words in (
        ("/cockpit/", "4 links,"),
        ("/cockpit/", "foreign traffic control is in the way"),
        (f"/cockpit/aps/{troubled.pk}/", "Top talkers"),
        ("/cockpit/not-enforced/", "local_address_missing: nothing leads there"),
        ("/cockpit/traffic/", "0.10 CHF"),
        ("/cockpit/exceptions/", "A course"),
        (f"/ases/{link.interface_b.AS_id}/links/{link.pk}/exception/", "An administrator decides"),
        ("/cockpit/groups/", "Exception of a group"),
        (f"/ases/{three}/", "One limit for all links"),
        ("/search/?q=17-ffaa:1:1", "User ASes"),
        ("/cockpit/defaults/", "Follow the site"),
    ):
        page.goto(url)
        expect(page.get_by_text(words).first).to_be_visible()
        judge(page, url)
    page.get_by_label("Default, or percent").fill("500k")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Preview: Defaults: set to 500")).to_be_visible()
    judge(page, "preview")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("alert")).to_be_focused()
    judge(page, "preview without a reason")
    page.get_by_label("Reason").fill("The line is full.")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    judge(page, "done")
