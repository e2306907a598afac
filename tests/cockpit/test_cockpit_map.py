"""The map of the cockpit, and the last 24 hours of each agent's reports."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scionlab.accounts.models import User
from scionlab.cockpit import map as cockpit_map
from scionlab.cockpit.reports import SLOTS, Reports, load_reports
from scionlab.cockpit.testbed import read_testbed
from scionlab.enforcement.models import HostReceipt, LinkEnforcement, ReportGap
from scionlab.enforcement.receipt import receipt_store
from scionlab.enforcement.receipt_format import Receipt
from scionlab.testbed.models import AttachmentPoint, Host, Link, TimedLimit
from tests.factories import AttachmentPointFactory, attach, spec
from tests.limits.test_pages_link import MAX_BYTES, weight
from tests.support.html import Page

pytestmark = pytest.mark.django_db
OVERVIEW = "/cockpit/"
NOW = timezone.now()
MINUTE = timedelta(minutes=1)


def receipt(at: datetime, version: str, limits_version: int, number: int) -> Receipt:
    return Receipt(
        schema=1,
        agent_version="1",
        written_version=version,
        limits_version=limits_version,
        written_at=at.isoformat(),
        writes=0,
        links={},
        problems=[],
        run="a" * 32,
        number=number,
    )


def store(host: Host, at: datetime) -> None:
    said = receipt(at, f"1.{host.config_version}", host.limits_version, int(at.timestamp()))
    receipt_store(host_id=host.pk, receipt=said, now=at)


def reports_of(ap: AttachmentPoint, now: datetime = NOW) -> Reports:
    return load_reports(read_testbed(now=now).states, now=now)[ap.pk]


# --- gaps -------------------------------------------------------------------------------------------------------


def test_a_gap_is_recorded_when_the_agent_reports_again_after_more_than_3_minutes(ap: AttachmentPoint) -> None:
    for minutes in (60, 57, 53, 52):  # after 3 minutes, after 4, after 1
        store(ap.host, NOW - minutes * MINUTE)
    (gap,) = ReportGap.objects.all()
    assert (gap.host, gap.begins_at, gap.ends_at) == (ap.host, NOW - 57 * MINUTE, NOW - 53 * MINUTE)


def test_an_older_receipt_ends_no_gap(ap: AttachmentPoint) -> None:
    store(ap.host, NOW - 60 * MINUTE)
    assert not receipt_store(host_id=ap.host_id, receipt=receipt(NOW, "1.1", 1, 1), now=NOW).stored
    assert not ReportGap.objects.exists()


def test_a_gap_that_lasts_and_one_that_began_before_yesterday_count(ap: AttachmentPoint, ap_b: AttachmentPoint) -> None:
    store(ap.host, NOW - timedelta(days=3))
    HostReceipt.objects.update(gaps_since=NOW - MINUTE)
    silent = reports_of(ap)
    assert (silent.words, silent.gap_path) == ("1 gap, 24 h", f"M0 0h{SLOTS}v6h-{SLOTS}z")
    assert silent.known_path == silent.gap_path, "what is silent since then is known since then"
    store(ap.host, NOW - 12 * timedelta(hours=1))
    assert [ends - begins for begins, ends in reports_of(ap).gaps] == [timedelta(hours=12)] * 2
    assert reports_of(ap_b).words == "never reported"


def test_links_of_a_silent_agent_are_one_row(
    door: Client, owner: User, ap: AttachmentPoint, receipt: HostReceipt, stranger: User
) -> None:
    for number in range(3):
        attach(owner, spec(ap, public_port=50_020 + number))
    at = timezone.now() - timedelta(minutes=10)
    HostReceipt.objects.update(received_at=at, observed_at=at)
    for query in ({}, {"why": "no_report"}):
        page = Page(door.get("/cockpit/not-enforced/", query))
        silent = page.root.all("table")[0].one("tbody").all("tr")
        assert [row.text for row in silent] == ["17-ffaa:0:1107 10 min ago 4 links"]
        assert page.root.one("main").text.count("17-ffaa:0:1107") == 1, query
    assert "5 links" in Page(door.get("/cockpit/not-enforced/")).text, "with that of the other attachment point"
    url = silent[0].one("a", href=f"?why=no_report&ap={ap.pk}").attrs["href"]
    assert len(Page(door.get(f"/cockpit/not-enforced/{url}")).root.one("tbody").all("tr")) == 4


# --- the map ----------------------------------------------------------------------------------------------------


def test_the_map_shows_every_attachment_point_by_its_links_and_what_needs_attention_first(
    ap: AttachmentPoint,
    ap_b: AttachmentPoint,
    ap_other: AttachmentPoint,
    receipt: HostReceipt,
    owner: User,
    stranger: User,
) -> None:
    for number in range(3):
        attach(owner, spec(ap, public_port=50_020 + number))
    LinkEnforcement.objects.update(state="error", problem="local_address_missing: nothing leads there")
    first, second = cockpit_map.draw(read_testbed(now=timezone.now()).states)
    assert (first.name[:6], second.name[:6]) == ("ISD 17", "ISD 19")
    assert [(node.name, node.radius, node.edge, node.words) for node in (*first.nodes, *second.nodes)] == [
        ("ffaa:0:1107", 15, "bad", "4 links, 1 failed"),
        ("ffaa:0:1108", 10, "info", "1 link, waiting"),
        ("ffaa:0:1303", 4, "none", "no links"),
    ]


def test_the_overview_of_200_attachment_points_takes_10_statements_and_less_than_100_kb(
    door: Client, owner: User, ap: AttachmentPoint, receipt: HostReceipt
) -> None:
    User.objects.filter(pk=owner.pk).update(as_quota=50)
    owner.refresh_from_db()
    for number in range(4):
        attach(owner, *[spec(ap, public_port=51_000 + 10 * number + one) for one in range(5)])
    times = {"begins_at": NOW - MINUTE, "ends_at": NOW + 8 * MINUTE}
    link = Link.objects.latest("pk")
    TimedLimit.objects.create(link=link, kind="outage", steps=[[0, 0, 0]], step_count=1, highest_kbit=0, **times)
    for number in range(199):
        other = AttachmentPointFactory(AS__label=f"A label of some length, number {number}", uplink_kbit=1000)
        HostReceipt.objects.create(host=other.host, observed_at=NOW, received_at=NOW, gaps_since=NOW - 300 * MINUTE)
        for hours in range(3):
            ends_at = NOW - hours * timedelta(hours=1)
            ReportGap.objects.create(host=other.host, begins_at=ends_at - 4 * MINUTE, ends_at=ends_at)
    door.get(OVERVIEW)
    with CaptureQueriesContext(connection) as captured:
        size = weight(door, OVERVIEW)
    assert len(captured) <= 10, "\n".join(one["sql"] for one in captured)
    assert size <= MAX_BYTES
