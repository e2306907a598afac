"""What the cockpit tells administrators, in how many statements and bytes, and who may see it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.cockpit.testbed import ApState, read_testbed
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.defaults import ap_default_set, fan_out
from scionlab.limits.update import link_set_bandwidth, link_update
from scionlab.testbed.models import AttachmentPoint, BandwidthPolicy, Link
from tests.factories import AttachmentPointFactory, attach, spec
from tests.limits.test_pages_link import MAX_BYTES, weight
from tests.support.html import Page
from tests.usage_world import add_slot, series_of

pytestmark = pytest.mark.django_db

OVERVIEW = "/cockpit/"
WITH_NOTICES = 20  # statements: the notices look at keys, certificates, hosts and addresses


def state_of(ap: AttachmentPoint) -> ApState:
    return next(state for state in read_testbed(now=timezone.now()).states if state.ap == ap)


def troubles(ap: AttachmentPoint) -> list[str]:
    return [trouble.words for trouble in state_of(ap).troubles]


def get(door: Client, url: str, **query: str) -> Page:
    response = door.get(url, query)
    assert response.status_code == 200, response
    return Page(response)


# --- what is judged -------------------------------------------------------------------------------------------


def test_the_sum_of_limits_is_of_active_links_as_they_are_clamped(owner: User, ap: AttachmentPoint, link: Link) -> None:
    attach(owner, spec(ap, public_port=50_010, bandwidth_kbit=300))
    attach(owner, spec(ap, public_port=50_011, bandwidth_kbit=200))
    Link.objects.filter(bandwidth_kbit=300).update(from_user_kbit=64)
    Link.objects.filter(bandwidth_kbit=200).update(active=False)
    AttachmentPoint.objects.filter(pk=ap.pk).update(maximum_kbit=500, uplink_kbit=400)
    state = state_of(ap)
    assert (state.standing, state.clamped, state.active_links) == (Limits(500 + 300, 500 + 64), 1, 2)
    assert state.oversubscription == 2.0
    assert "limits are 2.0 times the uplink" in troubles(ap)


def test_an_enforced_link_is_no_trouble(ap: AttachmentPoint, receipt: HostReceipt) -> None:
    assert troubles(ap) == []
    assert (state_of(ap).contact, state_of(ap).is_behind, state_of(ap).not_enforced) == ("reports", False, 0)


def test_a_silent_agent_is_trouble_and_one_without_links_is_not(
    ap: AttachmentPoint, ap_b: AttachmentPoint, receipt: HostReceipt
) -> None:
    at = timezone.now() - timedelta(seconds=181)
    HostReceipt.objects.update(received_at=at, observed_at=at)
    assert troubles(ap) == [f"No report since {at:%Y-%m-%d %H:%M:%S} UTC"]
    assert troubles(ap_b) == []


def test_an_agent_whose_clock_is_off_is_trouble(ap: AttachmentPoint, receipt: HostReceipt) -> None:
    HostReceipt.objects.update(clock_skew_ms=-600_000)
    (trouble,) = troubles(ap)
    assert "10 min" in trouble


def test_an_agent_that_was_never_heard_is_trouble_where_links_wait(ap: AttachmentPoint, link: Link) -> None:
    assert troubles(ap) == ["agent has never connected (1 link depends on it)"]


def test_an_agent_is_behind_that_has_not_taken_a_change_within_a_minute(
    ap: AttachmentPoint, owner: User, link: Link, receipt: HostReceipt
) -> None:
    attach(owner, spec(ap, public_port=50_010))
    assert state_of(ap).is_behind
    assert "behind: the agent does not have the newest limits" not in troubles(ap)
    Link.objects.update(changed_at=timezone.now() - timedelta(seconds=61))
    assert "behind: the agent does not have the newest limits" in troubles(ap)


def test_reported_problems_are_explained_with_their_remedy(
    door: Client, ap: AttachmentPoint, receipt: HostReceipt
) -> None:
    HostReceipt.objects.update(
        problems=[
            {"code": "foreign_device", "subject": "eth1", "message": "eth1 has <b>cake</b> as its root"},
            {"code": "repeatedly_changed", "subject": "eth1", "message": "3 times in a minute"},
        ]
    )
    assert troubles(ap) == ["the kernel rejects the limits", "foreign traffic control is in the way"]
    page = get(door, reverse("cockpit_ap", args=[ap.pk]))
    for words in ("A foreign device has a name that the limiter needs", "eth1 has <b>cake</b>"):
        assert words in page.text
    for show in ("foreign", "drift", "problems", "trouble"):
        assert "17-ffaa:0:1107" in get(door, OVERVIEW, show=show).text
    for show in ("silent", "behind", "over"):
        assert "No attachment point matches" in get(door, OVERVIEW, show=show).text


# --- pages ------------------------------------------------------------------------------------------------------


def test_a_default_that_the_worker_has_not_applied_yet_is_told(
    door: Client, staff: User, ap: AttachmentPoint, link: Link
) -> None:
    url = reverse("cockpit_ap", args=[ap.pk])
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=0, actor=staff)
    assert "at most 1 000 kbit/s each (the new default of 0 kbit/s is being applied)." in get(door, url).text
    fan_out()
    page = get(door, url)
    assert "at most 0 kbit/s each" in page.text
    (above,) = page.root.all("a", href=f"{reverse('cockpit_not_enforced')}?ap={ap.pk}&why=above")
    assert "17-ffaa:1:1" in get(door, above.attrs["href"]).root.one("tbody").text


def test_the_history_says_who_changed_what_and_is_searched(
    door: Client, staff: User, ap: AttachmentPoint, ap_b: AttachmentPoint, link: Link
) -> None:
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=600, actor=staff, reason="The line is full.")
    link_update(link_id=link.pk, actor=staff, active=False)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=300, actor=staff)

    def found(**query: object) -> list[str]:
        page = get(door, reverse("cockpit_history"), **{name: str(value) for name, value in query.items()})
        return [row.all("td")[1].text for row in page.root.one("tbody").all("tr") if row.all("th")]

    lowered, shaped, made = "none → 600 kbit/s", "1 000 kbit/s → 300 kbit/s", "none → 1 000 kbit/s"
    ended = "Deactivated: in no configuration"
    assert found() == [shaped, ended, lowered, made]
    for query, expected in (
        ({"kind": "link_active"}, [ended]),
        ({"q": "line is"}, [lowered]),
        ({"q": staff.email}, [shaped, ended, lowered]),
        ({"ap": ap.pk}, [shaped, ended, lowered, made]),
        ({"ap": ap_b.pk}, []),
        ({"link": link.pk, "kind": "link"}, [shaped, made]),
        ({"until": f"{timezone.now() - timedelta(days=2):%Y-%m-%d}"}, []),
        ({"until": "yesterday"}, []),
    ):
        assert found(**query) == expected, query
    text = get(door, reverse("cockpit_history")).text
    assert "The line is full." in text
    assert staff.email in text


def test_uplink_and_cost_are_entered_with_units(door: Client, ap: AttachmentPoint) -> None:
    url = reverse("cockpit_uplink", args=[ap.pk])
    assert door.post(url, {"uplink_kbit": "10 Gbit/s", "cost_per_gb": "0.085"}).status_code == 302
    ap.refresh_from_db()
    assert (ap.uplink_kbit, ap.cost_per_gb) == (10_000_000, Decimal("0.085"))
    refused = Page(door.post(url, {"uplink_kbit": "0", "cost_per_gb": "1,5"}))
    assert "is not between 1 kbit/s" in refused.text
    assert '"1,5" is not a cost.' in refused.text
    ap.refresh_from_db()
    assert ap.uplink_kbit == 10_000_000
    door.post(url, {"uplink_kbit": "", "cost_per_gb": ""})
    ap.refresh_from_db()
    assert (ap.uplink_kbit, ap.cost_per_gb) == (None, None)


def test_the_sites_cost_needs_a_currency(door: Client) -> None:
    url = reverse("cockpit_cost")
    assert "Enter three capital letters" in Page(door.post(url, {"cost_per_gb": "1", "currency": "franc"})).text
    assert door.post(url, {"cost_per_gb": "0.1", "currency": "EUR"}).status_code == 302
    policy = BandwidthPolicy.objects.get()
    assert (policy.cost_per_gb, policy.currency) == (Decimal("0.1"), "EUR")


@pytest.fixture
def every_page(ap: AttachmentPoint, link: Link) -> list[str]:
    return [
        OVERVIEW,
        reverse("cockpit_ap", args=[ap.pk]),
        reverse("cockpit_not_enforced"),
        reverse("cockpit_history"),
        reverse("cockpit_traffic"),
        reverse("cockpit_traffic_csv"),
    ]


@pytest.mark.parametrize(
    ("url", "tab"),
    [
        (OVERVIEW, "Overview"),
        ("/cockpit/not-enforced/", "Links by state"),
        ("/cockpit/history/", "History"),
        ("/cockpit/defaults/", "Change defaults"),
        ("/cockpit/exceptions/", "Exceptions"),
        ("/cockpit/groups/", "Exceptions"),
    ],
)
def test_the_menus_say_where_one_is(door: Client, url: str, tab: str) -> None:
    assert [one.text for one in get(door, url).root.all("a", aria_current="page")] == ["Cockpit", tab]
    assert not Page(door.get("/ases/")).root.all("a", href=OVERVIEW, aria_current="page")


def test_odd_addresses_are_no_errors(door: Client, every_page: list[str]) -> None:
    odd = {"page": "0x7", "sort": "-nothing", "show": "x", "why": "x", "ap": "9" * 30, "month": "2026-13", "above": "x"}
    for url in every_page:
        assert door.get(url, odd).status_code == 200, url


# --- size -------------------------------------------------------------------------------------------------------


def test_the_use_of_the_uplink_is_drawn_with_its_gaps(door: Client, ap: AttachmentPoint, link: Link) -> None:
    """Two links with 900 and 600 kbit/s to the user ASes in one slot: 1.5 Mbit/s, and nothing known of the others."""
    now, slot = timezone.now(), timedelta(minutes=5)
    at = now - (now - datetime(1970, 1, 1, tzinfo=UTC)) % slot - 2 * slot
    for number, kbit in ((1, 900), (2, 600)):
        series = series_of(interface_id=number)
        covered_ms = 100_000 * number  # a link that was known for a part of the slot counts with its mean
        add_slot(series, at, to_user_rated_bytes=kbit * covered_ms // 8, to_user_covered_ms=covered_ms)
    AttachmentPoint.objects.filter(pk=ap.pk).update(uplink_kbit=1550)
    page = get(door, reverse("cockpit_ap", args=[ap.pk]))
    to_user, from_user = page.root.all("figure")
    assert "peak 1 500 kbit/s (5-minute means)" in to_user.text
    assert "peak \N{EN DASH}" in from_user.text


def test_full_pages_weigh_less_than_100_kb(
    door: Client, owner: User, ap: AttachmentPoint, receipt: HostReceipt, every_page: list[str]
) -> None:
    """More rows than a page shows, each with something to say; with the style sheet and the script, uncompressed."""
    User.objects.filter(pk=owner.pk).update(as_quota=50, email=f"{'a.long.name.' * 4}@example.org")
    owner.refresh_from_db()
    for number in range(9):
        attach(owner, *[spec(ap, public_port=51_000 + 10 * number + one) for one in range(5)])
    Link.objects.update(from_user_kbit=64)
    problems = [{"code": "hook_obstructed", "subject": "eth1", "message": "m" * 400}] * 20
    HostReceipt.objects.update(problems=problems)
    now = timezone.now()
    for number in range(30):
        other = AttachmentPointFactory(AS__label=f"A label of some length, number {number}", uplink_kbit=1000)
        HostReceipt.objects.create(host=other.host, observed_at=now, received_at=now, problems=problems)
    for url in every_page:
        with CaptureQueriesContext(connection) as captured:
            size = weight(door, url)
        assert size <= MAX_BYTES, f"{url}: {size} bytes"
        assert len(captured) <= (WITH_NOTICES if url == OVERVIEW else 10), url
