"""The page of one Link: its limits in both directions with units, previews, well-known links, history and budgets."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.defaults import ap_default_set, fan_out
from scionlab.limits.profiles import constant, square_wave
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_update
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Link, TimedLimit, UserAS
from scionlab.usage.pages.usage_panel import span_named
from tests.cases import table
from tests.factories import attach, spec
from tests.limits.test_pages_status import cells, confirm
from tests.support.html import Element, Page
from tests.usage_world import add_slot, series_of

pytestmark = pytest.mark.django_db

BANDWIDTH = "Bandwidth of this link [kbit/s]"
FROM_USER = "Bandwidth from your AS [kbit/s]"
MAX_STATEMENTS, MAX_BYTES = 10, 102_000


@pytest.fixture
def client(owner: User) -> Client:
    browser = Client()
    browser.force_login(owner)
    return browser


@pytest.fixture
def wide(ap: AttachmentPoint, staff: User) -> AttachmentPoint:
    """The attachment point lets 10 Mbit/s through."""
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=10_000, actor=staff)
    fan_out()
    ap.refresh_from_db()
    return ap


def url_of(link: Link, rest: str = "") -> str:
    return f"/ases/{link.interface_b.AS_id}/links/{link.pk}/{rest}"


def send(client: Client, link: Link, *, button: str = "save", value: str = "1", **values: str) -> Page:
    data = {f"link-{link.pk}-{name}": text for name, text in values.items()} | {button: value}
    return Page(client.post(url_of(link, "bandwidth/"), data, follow=True))


def steps(page: Page) -> list[str]:
    return [step.text for step in page.root.one("ol", class_="way four").all("li")]


def preview(client: Client, link: Link, **values: str) -> str:
    query = {f"link-{link.pk}-{name}": text for name, text in values.items()}
    answer = client.get(url_of(link, "preview/"), query)
    assert answer.status_code == 200
    root = Element("root")
    root.children = Page(answer).root.children
    return root.text


# --- both directions, with units ------------------------------------------------------------------------------


def test_limits_with_units_are_stored_in_kbit(
    client: Client, wide: AttachmentPoint, user_as: UserAS, link: Link
) -> None:
    page = send(client, link, bandwidth_kbit="1.5M", from_user_kbit="64 kbit/s")
    link.refresh_from_db()
    assert link.requested == Limits(1500, 64)
    assert (page.value(BANDWIDTH), page.value(FROM_USER)) == ("1500", "64")
    assert steps(page)[0].startswith("Requested 1 500 kbit/s to your AS 64 kbit/s from it for ")
    send(client, link, bandwidth_kbit="10 Mbit/s", from_user_kbit="")
    link.refresh_from_db()
    assert (link.bandwidth_kbit, link.from_user_kbit) == (10_000, None), "an empty second number means the same"


@table(
    ("values", "label", "sentence"),
    [
        ({"bandwidth_kbit": "1,5M"}, BANDWIDTH, "Enter 1.5 Mbit/s or 15 Mbit/s."),
        ({"bandwidth_kbit": "500", "from_user_kbit": "11M"}, FROM_USER, "maximum of 10 000 kbit/s"),
    ],
)
def test_what_is_wrong_is_said_beside_the_number_that_is(
    client: Client,
    wide: AttachmentPoint,
    user_as: UserAS,
    link: Link,
    values: dict[str, str],
    label: str,
    sentence: str,
) -> None:
    before = Link.objects.get(pk=link.pk).requested
    page = send(client, link, **values)
    assert sentence in page.beside(label)
    assert sentence in page.root.one("div", class_="summary").text
    assert page.value(BANDWIDTH) == values["bandwidth_kbit"]
    assert Link.objects.get(pk=link.pk).requested == before


# --- what it would do -----------------------------------------------------------------------------------------


def test_the_preview_says_what_was_understood_and_when_it_counts(
    client: Client, user_as: UserAS, link: Link, receipt: HostReceipt
) -> None:
    before = list(BandwidthChange.objects.values())
    assert preview(client, link, bandwidth_kbit="0.9M", from_user_kbit="64k").startswith(
        "To the user AS 900 kbit/s, from it 64 kbit/s; takes effect in about a second; nothing restarts."
    )
    assert "no change" in preview(client, link, bandwidth_kbit="1000")
    assert "Enter 1.5 Mbit/s or 15 Mbit/s" in preview(client, link, bandwidth_kbit="1,5M")
    assert "Choose at most 1 000" in preview(client, link, bandwidth_kbit="2M")
    assert "0 blocks the direction from the user AS" in preview(client, link, bandwidth_kbit="9", from_user_kbit="0")
    HostReceipt.objects.update(received_at=timezone.now() - timedelta(minutes=10))
    assert "takes effect when the attachment point reports again" in preview(client, link, bandwidth_kbit="500")
    HostReceipt.objects.all().delete()
    assert "(no agent there has reported yet)" in preview(client, link, bandwidth_kbit="500")
    Link.objects.filter(pk=link.pk).update(active=False)
    assert "takes effect when the link is activated" in preview(client, link, bandwidth_kbit="500")
    assert list(BandwidthChange.objects.values()) == before


def test_a_well_known_link_fills_the_numbers_in_and_saves_nothing(
    client: Client, wide: AttachmentPoint, user_as: UserAS, link: Link
) -> None:
    before = link.requested
    page = send(client, link, button="preset", value="adsl", bandwidth_kbit="1")
    assert (page.value(BANDWIDTH), page.value(FROM_USER)) == ("6144", "640")
    assert "To the user AS 6 144 kbit/s, from it 640 kbit/s" in page.text
    assert Link.objects.get(pk=link.pk).requested == before


# --- an old page ----------------------------------------------------------------------------------------------


def test_a_page_that_somebody_made_old_undoes_no_other_direction(
    client: Client, owner: User, staff: User, user_as: UserAS, link: Link
) -> None:
    shown = Page(client.get(url_of(link))).root.one("input", name=f"link-{link.pk}-shown").attrs["value"]
    link_update(link_id=link.pk, limits=Limits(1000, 64), actor=staff)
    prefix = f"link-{link.pk}-"
    typed = {f"{prefix}bandwidth_kbit": "900", f"{prefix}from_user_kbit": "", f"{prefix}shown": shown}
    answer = client.post(url_of(link, "bandwidth/"), typed)
    page = Page(answer)
    assert answer.status_code == 409
    assert page.value(BANDWIDTH) == "900"
    assert "staff@example.org saved other values" in page.text
    assert "Bandwidth from the user AS the same as to it 64 kbit/s" in page.text
    assert Link.objects.get(pk=link.pk).requested == Limits(1000, 64)
    again = page.root.one("input", name=f"link-{link.pk}-shown").attrs["value"]
    send(client, link, bandwidth_kbit="900", from_user_kbit="", shown=again)
    assert Link.objects.get(pk=link.pk).requested == Limits(900, 900)


# --- in whose zone --------------------------------------------------------------------------------------------


def test_each_time_on_a_page_is_that_of_the_readers_clock(
    client: Client, owner: User, staff: User, user_as: UserAS, link: Link
) -> None:
    User.objects.filter(pk=owner.pk).update(time_zone="Asia/Tokyo")
    now = timezone.now()
    timed = constant(Limits(9, 9), 3600)
    made = timed_limit_create(link_id=link.pk, profile=timed, begins_at=now + timedelta(days=1), actor=owner)
    confirm(link)
    HostReceipt.objects.update(received_at=now - timedelta(hours=1))
    page = Page(client.get(url_of(link)))
    begins_at = made.begins_at.astimezone(ZoneInfo("Asia/Tokyo"))
    assert f"No report since {now.astimezone(ZoneInfo('Asia/Tokyo')) - timedelta(hours=1):%Y-%m-%d %H:%M:%S} JST" in (
        page.text
    )
    assert f"created: constant from {begins_at:%Y-%m-%d %H:%M:%S} JST until" in page.text, "as the audit says it"
    shown = page.root.one("input", name=f"link-{link.pk}-shown").attrs["value"]
    link_update(link_id=link.pk, limits=Limits(1000, 64), actor=staff)
    typed = {"kind": "constant", "start": "1", "timed-to_user": "56", "timed-ends": "for", "timed-amount": "2"}
    typed |= {"timed-amount_unit": "d"}
    overlap = Page(client.post(url_of(link, "timed/"), typed))
    assert f"temporary limit of this link: constant from {begins_at:%Y-%m-%d %H:%M:%S} JST until" in overlap.text
    stale = send(client, link, bandwidth_kbit="900", from_user_kbit="", shown=shown)
    untouched = send(client, link, bandwidth_kbit="1000", from_user_kbit="", shown=shown)
    for one, expected in ((stale, "saved other values on "), (untouched, "saved other values at ")):
        told = one.text[one.text.index(expected) :]
        assert " JST" in told[:60], told[:60]
    assert all("UTC" not in one.text for one in (page, overlap, stale, untouched))


# --- since when, and who --------------------------------------------------------------------------------------


def test_the_history_names_who_changed_a_limit_when_the_account_is_gone(
    client: Client, staff: User, link: Link
) -> None:
    link_update(link_id=link.pk, limits=Limits.both(300), actor=staff)
    link_update(link_id=link.pk, limits=Limits.both(200), actor=None)
    staff.delete()
    rows = Page(client.get(url_of(link, "history/"))).root.one("table", class_="stack history").one("tbody").all("tr")
    by = [row.one("td", **{"data-label": "By"}).text for row in rows]
    assert by == ["the service", "staff@example.org (deleted)", "owner@example.org"]


def test_the_history_goes_on_on_pages_of_its_own(client: Client, owner: User, user_as: UserAS, link: Link) -> None:
    for kbit in range(1, 30):
        link_update(link_id=link.pk, limits=Limits(kbit, 2 * kbit), actor=owner)
    page = Page(client.get(url_of(link)))
    assert len(page.root.one("table", class_="stack history").one("tbody").all("tr")) == 5
    rows = Page(client.get(url_of(link, "history/"))).root.one("tbody").all("tr")
    assert len(rows) == 25
    assert cells(rows[0])[2] == "29 kbit/s to your AS 58 kbit/s from it"
    assert len(Page(client.get(url_of(link, "history/?page=2"))).root.one("tbody").all("tr")) == 5


# --- how much one page costs ----------------------------------------------------------------------------------


def busy(owner: User, ap: AttachmentPoint) -> Link:
    """A link that has everything: both directions, timed limits, use without two equal values, a long history."""
    made = attach(owner, *[spec(ap, public_port=50_100 + number, bandwidth_kbit=900) for number in range(5)])
    link = Link.objects.filter(interface_b__AS=made).order_by("pk")[0]
    for kbit in range(100, 130):
        link_update(link_id=link.pk, limits=Limits(kbit, kbit + 1), actor=owner, reason="another try " * 5)
    now = timezone.now()
    wave = square_wave(Limits(100, 50), Limits(900, 90), 60, 100)
    for number in range(20):
        begins_at = now + timedelta(hours=4 * number) if number else None
        timed_limit_create(link_id=link.pk, profile=wave, begins_at=begins_at, actor=owner)
    confirm(link)
    measured(link, 260)
    return link


def measured(link: Link, slots: int) -> None:
    """So many sums of 5 minutes, the last one of this hour."""
    series = series_of(link)
    start = timezone.now().replace(minute=0, second=0, microsecond=0)
    for number in range(slots):
        values = {
            "bytes": 10_000 * (number * 7919 % 331),
            "rated_bytes": 10_000 * (number * 7919 % 331),
            "drops": number % 2,
            "covered_ms": 300_000,
            "at_limit_ms": 300_000 * (number % 3 == 0),
            "limit_kbit": 900 + number % 5,
        }
        both = {f"{way}_{name}": value for way in ("to_user", "from_user") for name, value in values.items()}
        add_slot(series, start - timedelta(minutes=5 * number), **both)


def weight(client: Client, url: str) -> int:
    """HTML, CSS and JavaScript as they are sent."""
    answer = client.get(url)
    assert answer.status_code == 200, url
    names = ["site.css", "site.js", "logo.svg", *(["cockpit.css"] if b"cockpit.css" in answer.content else [])]
    static = sum(Path(str(finders.find(f"scionlab/{name}"))).stat().st_size for name in names)
    return len(answer.content) + static


def test_no_page_of_a_user_is_heavy_or_asks_much(
    client: Client,
    owner: User,
    ap: AttachmentPoint,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    link = busy(owner, ap)
    own = f"/ases/{link.interface_b.AS_id}/"
    spans = [url_of(link, f"?span={span}") for span in ("hour", "day", "week", "quarter", "all")]
    others = [url_of(link, rest) for rest in ("", "history/", "timed/?kind=stair", "timed/?kind=square")]
    for url in ["/ases/", "/ases/new/", own, f"{own}edit/", f"{own}delete/", *spans, *others]:
        with django_assert_max_num_queries(MAX_STATEMENTS, info=url):
            bytes_ = weight(client, url)
        assert bytes_ <= MAX_BYTES, f"{url}: {bytes_} bytes"
    assert TimedLimit.objects.filter(link=link).count() == 20


def test_a_page_that_refreshes_itself_takes_no_message_from_its_reader(
    client: Client, user_as: UserAS, link: Link
) -> None:
    client.post(url_of(link, "bandwidth/"), {f"link-{link.pk}-bandwidth_kbit": "640"})
    behind = client.get(url_of(link), headers={"X-Requested-With": "fetch"})
    assert "Saved." not in Page(behind).text
    assert "Saved. 17-ffaa:0:1107 enforces 640 kbit/s when" in Page(client.get(url_of(link))).text


def test_a_link_shows_the_shortest_period_with_figures_first(client: Client, link: Link) -> None:
    add_slot(series_of(link), timezone.now() - timedelta(days=3))
    periods = Page(client.get(url_of(link))).root.one("nav", aria_label="Period")
    assert periods.one(aria_current="page").text == "Last week"


@pytest.mark.parametrize(
    ("asked", "step", "ago", "shown"),
    [
        ("", "10s", timedelta(minutes=59), "hour"),
        ("", "10s", timedelta(minutes=61), "day"),
        ("nonsense", "5min", timedelta(hours=1), "day"),
        ("all", "5min", timedelta(hours=1), "all"),
        ("", "5min", timedelta(days=3), "week"),
        ("", "day", timedelta(days=20), "quarter"),
        ("", "day", timedelta(days=200), "all"),
    ],
)
def test_a_period_is_chosen_by_the_newest_figures_of_its_step(
    asked: str, step: str, ago: timedelta, shown: str
) -> None:
    now = timezone.now()
    assert span_named(asked, {step: now - ago}, now=now) == shown
