"""What is told of the traffic: bills of a month, who sends the most now, and files (docs/api.md)."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.cockpit.testbed import load_talkers, load_use, read_testbed
from scionlab.limits.update import link_update
from scionlab.testbed.models import AttachmentPoint, Host, Interface, Link, UserAS
from scionlab.usage import months
from scionlab.usage.cockpit.offer import TrafficOffer
from scionlab.usage.formats import usage_csv, usage_document
from scionlab.usage.measured import MeasuredTraffic
from scionlab.usage.models import UsageMonth, UsageSeries, UsageSlot
from scionlab.usage.report import TrafficRow, monthly_traffic, rates_now
from scionlab.usage.rollup import roll_up
from scionlab.usage.rows import LARGEST_KBIT
from scionlab.usage.series import usage_of_link
from scionlab.user_ases.user_as import user_as_delete
from tests.factories import attach, spec
from tests.usage_world import Column, add_slot, document, iso, series_of, simple, store, upload

pytestmark = pytest.mark.django_db

T0 = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def other(host: Host, ap: AttachmentPoint, teammate: User) -> Link:
    """Another person's Link at the same attachment point, interface 2."""
    return Link.objects.get(interface_b__AS=attach(teammate, spec(ap, public_ip="198.51.100.8")).pk)


# --- 95th percentile: test_usage_partitions.py too ------------------------------------------------------------


def test_last_month_is_computed_while_something_may_come_and_then_stands(host: Host, link: Link) -> None:
    add_slot(series_of(link), T0, to_user_rated_bytes=600 * 37_500, to_user_covered_ms=300_000)
    months.compute_due(now=datetime(2026, 12, 4, tzinfo=UTC))
    assert UsageMonth.objects.get(isd_as="").begins_on.isoformat() == "2026-11-01"
    UsageSlot.objects.all().delete()
    months.compute_due(now=datetime(2026, 12, 5, tzinfo=UTC))
    assert UsageMonth.objects.get(isd_as="").to_user_p95_kbit == 600


# --- bills ----------------------------------------------------------------------------------------------------


def test_a_bill_survives_the_as_and_its_owner(
    host: Host, link: Link, other: Link, owner: User, user_as: UserAS, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    both = {"to_user": Column("a", [(1000, 4000, 4, 0, 0)]), "from_user": Column("b", [(1000, 500, 1, 0, 0)])}
    store(host, document(host, [T0], {1: both, 2: {"to_user": both["to_user"]}}), T0)
    roll_up()
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    owner.delete()
    with django_assert_num_queries(2):
        month = monthly_traffic(2026, 11)
    ap_id = host.attachment_point.pk
    nothing = (None, None, 0, 0)
    assert month.ases == [
        TrafficRow(ap_id, "17-ffaa:0:1107", "17-ffaa:1:1", "owner@example.org", 4000, 500, *nothing),
        TrafficRow(ap_id, "17-ffaa:0:1107", "17-ffaa:1:2", "teammate@example.org", 4000, 0, *nothing),
    ]
    assert month.attachment_points == [TrafficRow(ap_id, "17-ffaa:0:1107", "", "", 8000, 500, *nothing)]
    assert month.computed_at is None
    assert monthly_traffic(2026, 10).ases == monthly_traffic(2026, 12).ases == []


def test_a_bill_keeps_its_percentiles_when_the_owner_has_another_address(host: Host, link: Link) -> None:
    store(host, simple(host, T0, [0, 1_250_000, 2_500_000]), T0 + MINUTE)
    roll_up()
    months.compute_due(now=T0)
    UsageSeries.objects.update(owner_email="new@example.org")  # as the next batch does after the change
    (row,) = monthly_traffic(2026, 11).ases
    assert (row.owner_email, row.to_user_p95_kbit) == ("new@example.org", 1000)
    UsageMonth.objects.create(
        begins_on=T0.date().replace(day=1),
        ap_isd_as=row.ap_isd_as,
        isd_as=row.isd_as,
        owner_email="third@example.org",
        to_user_slots=0,
        from_user_slots=0,
        computed_at=T0,
    )
    assert monthly_traffic(2026, 11).ases[0].to_user_p95_kbit is None, "whose they are is not known"


def test_an_agent_that_tells_tales_keeps_nothing_else_from_being_counted(host: Host, link: Link, other: Link) -> None:
    """The largest counters that are read, within a millisecond: what no column holds is cut, here and in the sums."""
    now = timezone.now().replace(microsecond=0)
    body = simple(host, now, [0, 2**60])
    body["times"] = [iso(now), iso(now + timedelta(milliseconds=1))]
    body["links"]["2"] = body["links"]["1"]
    assert upload(host, body).status_code == 200
    roll_up()
    months.compute_due(now=now)
    assert UsageMonth.objects.get(isd_as="").to_user_p95_kbit == 2 * LARGEST_KBIT


# --- now ------------------------------------------------------------------------------------------------------


def test_top_talkers(host: Host, link: Link, other: Link, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    column = Column("a", [(1000, 0, 0, 0, 0), (1000, 1_250_000, 9, 0, 0)])
    idle = Column("b", [(500, 7, 1, 0, 0), (500, 7, 1, 0, 0)])
    times = [T0, T0 + timedelta(seconds=10)]
    store(host, document(host, times, {1: {"to_user": idle}, 2: {"to_user": column, "from_user": idle}}), T0 + MINUTE)
    ap_id = host.attachment_point.pk
    with django_assert_num_queries(1):
        found = rates_now(ap_id, now=T0 + MINUTE)
    assert list(found.items()) == [(other.pk, (1000, 0)), (link.pk, (0, None))]
    assert rates_now(ap_id, now=T0 + 4 * MINUTE) == {}


def test_a_rate_that_is_not_known_is_not_0(host: Host, link: Link, other: Link) -> None:
    """Of the first sample of a class; the sum is of what is known."""
    first, two = Column("a", [(1000, 7, 1, 0, 0)]), Column("b", [(1000, 0, 0, 0, 0), (1000, 1_250_000, 9, 0, 0)])
    store(host, document(host, [T0], {1: {"to_user": first}}), T0)
    ap_id = host.attachment_point.pk
    assert TrafficOffer().rates_of_points(T0) == {ap_id: (None, None)}
    assert rates_now(ap_id, now=T0) == {link.pk: (None, None)}
    assert rates_now(ap_id, now=T0)[link.pk].highest_kbit is None
    store(host, document(host, [T0, T0 + timedelta(seconds=10)], {2: {"to_user": two}}), T0 + MINUTE)
    assert TrafficOffer().rates_of_points(T0 + MINUTE) == {ap_id: (1000, None)}
    assert MeasuredTraffic().now_kbit(ap_id, now=T0 + MINUTE) == 1000


def test_overview_and_page_of_an_attachment_point_have_the_same_rates(host: Host, link: Link, owner: User) -> None:
    """The importer gave the Link another interface id; then it is deactivated."""
    store(host, simple(host, T0, [0, 1_250_000]), T0 + MINUTE)
    Interface.objects.filter(link_as_a=link).update(interface_id=9)
    later = T0 + timedelta(seconds=20)
    store(host, simple(host, later, [0, 2_500_000], segment="b", interface_id=9), T0 + MINUTE)
    state = read_testbed(now=T0 + MINUTE, attachment_point_id=host.attachment_point.pk).states[0]
    load_use([state], now=T0 + MINUTE)
    assert state.used == (2000, None)
    load_talkers(state, now=T0 + MINUTE)
    assert state.used == (2000, None)
    link_update(link_id=link.pk, active=False, actor=owner)
    assert TrafficOffer().rates_of_points(T0 + MINUTE) == rates_now(host.attachment_point.pk, now=T0 + MINUTE) == {}


# --- of one link ----------------------------------------------------------------------------------------------


def test_steps_that_fit_the_time(host: Host, link: Link) -> None:
    now = timezone.now()

    def step(length: timedelta, ago: timedelta = timedelta(0)) -> int:
        return usage_of_link(link.pk, begins_at=now - ago - length, ends_at=now - ago).step_s

    assert [step(timedelta(hours=hours)) for hours in (1, 2, 3, 24 * 7, 24 * 8)] == [10, 10, 300, 300, 86_400]
    assert step(timedelta(hours=1), timedelta(days=2)) == 300
    assert step(timedelta(hours=1), timedelta(days=90)) == 86_400


def test_what_cannot_be_told_is_refused(link: Link) -> None:
    with pytest.raises(RuleError) as caught:
        usage_of_link(link.pk, begins_at=T0, ends_at=T0)
    assert caught.value.code == "usage_span"
    with pytest.raises(RuleError) as caught:
        usage_of_link(link.pk, begins_at=T0, ends_at=T0 + timedelta(days=2), step="10s")
    assert caught.value.code == "usage_too_many"
    assert "17280 points of 10s are above the limit of 9000" in caught.value.message
    assert len(usage_of_link(link.pk, begins_at=T0, ends_at=T0 + timedelta(days=1), step="10s").points) == 8640


def test_points_fill_the_time_from_the_step_that_has_its_beginning(host: Host, link: Link) -> None:
    begins_at, ends_at = T0 + timedelta(seconds=3), T0 + timedelta(seconds=21)
    points = usage_of_link(link.pk, begins_at=begins_at, ends_at=ends_at, step="10s").points
    assert [point.begins_at for point in points] == [T0, T0 + timedelta(seconds=10), T0 + timedelta(seconds=20)]


# --- files ----------------------------------------------------------------------------------------------------


def test_gaps_are_null_in_json_and_empty_in_csv(host: Host, link: Link) -> None:
    store(host, simple(host, T0, [0, 1_187_500]), T0 + MINUTE)
    usage = usage_of_link(link.pk, begins_at=T0, ends_at=T0 + timedelta(seconds=20), step="10s")
    known = {
        "bytes": 1_187_500,
        "packets": 11_875,
        "drops": 0,
        "kbit": 950,
        "limit_kbit": 1000,
        "covered_s": 10.0,
        "at_limit_s": 10.0,
        "backlog_bytes": 0,
    }
    assert usage_document(usage) == {
        "link_id": link.pk,
        "begins_at": "2026-11-21T06:00:00Z",
        "ends_at": "2026-11-21T06:00:20Z",
        "step_s": 10,
        "points": [
            {"begins_at": "2026-11-21T06:00:00Z", "to_user": known, "from_user": None},
            {"begins_at": "2026-11-21T06:00:10Z", "to_user": None, "from_user": None},
        ],
    }
    header, first, second = csv.reader(io.StringIO(usage_csv(usage)))
    assert (header[0], header[1], header[5]) == ("begins_at (UTC)", "step (s)", "to_user rate (kbit/s)")
    assert first[:6] == ["2026-11-21T06:00:00Z", "10", "1187500", "11875", "0", "950"]
    assert first[10:] == second[2:10] == second[10:] == [""] * 8


def test_files_for_people(host: Host, link: Link, user_as: UserAS, owner: User, stranger: User) -> None:
    store(host, simple(host, T0, [0, 1000]), T0 + MINUTE)
    address = f"/ases/{user_as.pk}/links/{link.pk}/usage."
    query = "?begins_at=2026-11-21T06:00:00Z&ends_at=2026-11-21T07:00:00%2B01:00&step=10s"
    browser = Client()
    browser.force_login(owner)
    assert browser.get(f"{address}json{query}").status_code == 400, "begins and ends at the same moment"
    query = query.replace("07:00:00%2B01:00", "06:01:00Z")
    told = browser.get(f"{address}json{query}")
    assert len(json.loads(told.content)["points"]) == 6
    assert "no-store" in told["Cache-Control"]
    name = "usage_17-ffaa_1_1_at_17-ffaa_0_1107_20261121T0600Z_10s"
    assert told["Content-Disposition"] == f'attachment; filename="{name}.json"'
    table = browser.get(f"{address}csv{query}")
    assert table["Content-Disposition"] == f'attachment; filename="{name}.csv"'
    assert len(table.content.decode().split("\r\n")) == 8
    for wrong in ("?step=1h", "?begins_at=2026-11-21T06:00:00", "?ends_at=2026-02-31T00:00:00Z"):
        assert browser.get(f"{address}csv{wrong}").status_code == 400
    theirs = Link.objects.get(interface_b__AS__useras__owner=stranger)
    assert browser.get(f"/ases/{user_as.pk}/links/{theirs.pk}/usage.csv").status_code == 404
