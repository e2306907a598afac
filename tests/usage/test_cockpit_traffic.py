"""What a month's traffic costs: bytes times the cost per GB, exactly, on the page and in the CSV file."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.test import Client
from django.urls import reverse

from scionlab.testbed.models import AttachmentPoint, BandwidthPolicy
from scionlab.usage.cockpit.traffic import Billed, bill_of
from scionlab.usage.models import UsageDay, UsageMonth
from scionlab.usage.report import TrafficRow
from tests.cases import table
from tests.support.html import Page
from tests.usage_world import series_of

pytestmark = pytest.mark.django_db

OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)


def series(ap: AttachmentPoint, isd_as: str, owner: str, to_user: int, from_user: int) -> None:
    """Two thirds of the bytes on the 1st of October, the rest on the 31st; a byte of November is not counted."""
    made = series_of(attachment_point=ap, ap_isd_as=ap.AS.isd_as, isd_as=isd_as, owner_email=owner)
    first = to_user * 2 // 3
    UsageDay.objects.create(series=made, begins_at=OCTOBER, to_user_bytes=first, from_user_bytes=from_user)
    UsageDay.objects.create(series=made, begins_at=OCTOBER.replace(day=31), to_user_bytes=to_user - first)
    UsageDay.objects.create(series=made, begins_at=OCTOBER.replace(month=11), to_user_bytes=1)


@pytest.fixture
def october(ap: AttachmentPoint, ap_b: AttachmentPoint) -> None:
    """At `ap`, which has a cost of its own: 12.345 678 901 GB and 1 GB; at `ap_b`: half a GB."""
    BandwidthPolicy.objects.update_or_create(pk=1, defaults={"cost_per_gb": Decimal("0.0850"), "currency": "EUR"})
    AttachmentPoint.objects.filter(pk=ap.pk).update(cost_per_gb=Decimal("0.1000"))
    series(ap, "17-ffaa:1:1", "owner@example.org", 12_345_678_901, 7)
    series(ap, "17-ffaa:1:2", "=cmd@example.org", 10**9, 10**8)
    series(ap_b, "17-ffaa:1:3", "third@example.org", 5 * 10**8, 0)
    UsageMonth.objects.create(
        begins_on=OCTOBER.date(),
        ap_isd_as="17-ffaa:0:1107",
        isd_as="17-ffaa:1:1",
        owner_email="owner@example.org",
        to_user_p95_kbit=9400,
        from_user_p95_kbit=None,
        to_user_slots=8000,
        from_user_slots=0,
        computed_at=OCTOBER,
    )


def test_egress_times_the_cost_per_gb_with_the_attachment_points_own_cost_first(october: None) -> None:
    bill = bill_of(2026, 10)
    points = [(one.row.ap_isd_as, one.row.to_user_bytes, one.cost_per_gb, one.cost) for one in bill.attachment_points]
    assert points == [
        ("17-ffaa:0:1107", 13_345_678_901, Decimal("0.1000"), Decimal("1.33")),
        ("17-ffaa:0:1108", 500_000_000, Decimal("0.0850"), Decimal("0.04")),
    ]
    assert [one.cost for one in bill.ases] == [Decimal("1.23"), Decimal("0.10"), Decimal("0.04")]
    # 1.3345678901 + 0.0425: the total is rounded once, so it is not the sum of what was rounded.
    assert (bill.cost, bill.currency, bill.is_complete) == (Decimal("1.38"), "EUR", True)


@table(
    ("egress", "cost_per_gb", "cost"),
    [
        (0, "1", "0.00"),
        (10**9, "0.005", "0.01"),  # a half is rounded up
        (10**9 - 1, "0.005", "0.00"),
        (10**18, "0.0001", "100000.00"),
    ],
)
def test_costs_are_exact_and_rounded_once(egress: int, cost_per_gb: str, cost: str) -> None:
    row = TrafficRow(None, "a", "", "", egress, 0, None, None, 0, 0)
    assert Billed(row, Decimal(cost_per_gb)).cost == Decimal(cost)
    assert Billed(row, None).cost is None


def test_what_a_gb_costs_may_be_unknown(october: None) -> None:
    BandwidthPolicy.objects.update(cost_per_gb=None)
    bill = bill_of(2026, 10)
    assert [one.cost for one in bill.attachment_points] == [Decimal("1.33"), None]
    assert (bill.cost, bill.is_complete) == (Decimal("1.33"), False)
    AttachmentPoint.objects.update(cost_per_gb=None)
    assert bill_of(2026, 10).cost is None


def test_an_attachment_point_that_is_gone_is_billed_with_the_sites_cost(october: None, ap: AttachmentPoint) -> None:
    ap.AS.delete()
    bill = bill_of(2026, 10)
    gone = bill.attachment_points[0]
    assert (gone.row.attachment_point_id, gone.cost) == (None, Decimal("1.13"))


def test_the_file_has_every_row_exactly(door: Client, october: None) -> None:
    response = door.get(reverse("cockpit_traffic_csv"), {"month": "2026-10"})
    assert response["Content-Disposition"] == 'attachment; filename="scionlab-traffic-2026-10.csv"'
    rows = list(csv.DictReader(io.StringIO(response.content.decode())))
    assert [(row["attachment_point"], row["user_as"]) for row in rows] == [
        ("17-ffaa:0:1107", ""),
        ("17-ffaa:0:1108", ""),
        ("17-ffaa:0:1107", "17-ffaa:1:1"),
        ("17-ffaa:0:1107", "17-ffaa:1:2"),
        ("17-ffaa:0:1108", "17-ffaa:1:3"),
    ]
    assert rows[2] == {
        "month": "2026-10",
        "attachment_point": "17-ffaa:0:1107",
        "user_as": "17-ffaa:1:1",
        "owner": "owner@example.org",
        "to_user_bytes": "12345678901",
        "to_user_gb": "12.345678901",
        "from_user_bytes": "7",
        "from_user_gb": "0.000000007",
        "to_user_p95_kbit_s": "9400",
        "from_user_p95_kbit_s": "",
        "to_user_p95_values": "8000",
        "from_user_p95_values": "0",
        "cost_per_gb": "0.1000",
        "cost": "1.23",
        "currency": "EUR",
    }
    assert rows[3]["owner"] == "'=cmd@example.org"  # no spreadsheet carries it out


def test_the_page_shows_a_month_and_those_without_traffic_are_empty(door: Client, october: None) -> None:
    url = reverse("cockpit_traffic")
    text = Page(door.get(url, {"month": "2026-10"})).text
    for words in ("1.38 EUR", "12.346 GB", "9 400 kbit/s", "owner@example.org", "The top 3 of 3 user ASes"):
        assert words in text
    of_one = Page(door.get(url, {"month": "2026-10", "ap": "17-ffaa:0:1108"})).text
    assert "The top 1 of 1 user AS at 17-ffaa:0:1108" in of_one
    assert "No agent reported traffic in this month." in Page(door.get(url, {"month": "2020-02"})).text
