"""Limits for a time on the pages: drawn, started, seen running, cancelled; and what a person gets wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.profiles import constant
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import Link, TimedLimit, UserAS
from tests.cases import case, table
from tests.support.html import Page

pytestmark = pytest.mark.django_db

FOR = {"ends": "for", "amount": "2", "amount_unit": "h", "until": ""}


@pytest.fixture
def client(owner: User) -> Client:
    browser = Client()
    browser.force_login(owner)
    return browser


def url_of(link: Link, rest: str = "timed/") -> str:
    return f"/ases/{link.interface_b.AS_id}/links/{link.pk}/{rest}"


def send(client: Client, link: Link, kind: str = "constant", *, button: str = "start", **values: str) -> Page:
    given = {f"timed-{name}": text for name, text in values.items()}
    return Page(client.post(url_of(link), {"kind": kind, button: "1", **given}, follow=True))


def levels(timed: TimedLimit) -> list[tuple[int, int]]:
    return [tuple(step.limits) for step in timed.limits.steps]


def test_a_slow_link_for_the_next_two_hours(
    client: Client, owner: User, user_as: UserAS, link: Link, receipt: HostReceipt
) -> None:
    page = send(client, link, to_user="56", from_user="48", begins_at="", **FOR)
    timed = TimedLimit.objects.get()
    assert levels(timed) == [(56, 48)]
    assert timed.ends_at - timed.begins_at == timedelta(hours=2)
    assert timed.created_by == owner
    assert "Started: takes effect in about a second; until " in page.text
    assert "nothing restarts." in page.text
    assert "Requested temporarily 56 kbit/s to your AS 48 kbit/s from it" in page.text
    (left,) = [one for one in page.root.all("strong") if "data-until" in one.attrs]
    assert left.text in {"2 h", "1 h 59 min"}
    assert datetime.fromisoformat(left.attrs["data-until"]) == timed.ends_at


@table(
    ("kind", "values", "expected"),
    [
        ("outage", FOR, [(0, 0)]),
        (
            "stair",
            {"to_user": "100", "then_to_user": "900", "then_from_user": "500", "count": "3", "each": "90"},
            [(100, 100), (500, 300), (900, 500)],
        ),
        (
            "square",
            {"to_user": "0", "then_to_user": "0.9M", "cycles": "2", "each": "90"},
            [(0, 0), (900, 900), (0, 0), (900, 900)],
        ),
    ],
)
def test_each_kind_is_drawn_first_and_then_started(
    client: Client, user_as: UserAS, link: Link, kind: str, values: dict[str, str], expected: list[tuple[int, int]]
) -> None:
    given = {"from_user": "", "then_from_user": "", "each_unit": "s", "begins_at": "", **values}
    drawn = send(client, link, kind, button="preview", **given)
    assert drawn.root.one("svg", class_="course").one("path", class_="line to-user").attrs["d"].startswith("M0 ")
    assert "then back to 1 000 kbit/s automatically, even if this service is down" in drawn.text
    assert not TimedLimit.objects.exists()
    send(client, link, kind, **given)
    timed = TimedLimit.objects.get()
    assert (timed.kind, levels(timed)) == (kind, expected)


class SlowClock:
    """Every look at it is 7 s after the last one."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=7)
        return self.now


@table("begins", ["", "now"])
def test_the_end_that_was_chosen_is_kept_however_long_the_form_takes(
    client: Client, link: Link, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    """Also through a preview, and where the beginning that was typed is over when the form arrives."""
    now = timezone.now().replace(second=0, microsecond=0)
    until, clock = now + timedelta(hours=3), SlowClock(now)
    monkeypatch.setattr(timezone, "now", clock)
    values = {"to_user": "500", "from_user": "", "ends": "until", "until": f"{until:%Y-%m-%d %H:%M}"}
    values |= {"amount": "", "amount_unit": "h", "begins_at": f"{now:%Y-%m-%d %H:%M}" if begins else ""}
    send(client, link, button="preview", **values)
    send(client, link, **values)
    timed = TimedLimit.objects.get()
    assert timed.begins_at > now
    assert (timed.ends_at, timed.limits.duration_s) == (until, (until - timed.begins_at).total_seconds())


def test_an_end_that_passes_while_the_form_is_on_its_way_is_refused_at_its_field(
    link: Link, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    profile = constant(Limits.both(500), 60)
    with pytest.raises(FieldRuleError) as refused:
        timed_limit_create(link_id=link.pk, profile=profile, begins_at=None, ends_at=now, actor=owner)
    assert (refused.value.code, refused.value.field) == ("timed_past", "ends_at")
    assert not TimedLimit.objects.exists()


def test_hours_that_the_clocks_skip_or_repeat_are_asked_about(
    client: Client, owner: User, user_as: UserAS, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    User.objects.filter(pk=owner.pk).update(time_zone="Europe/Zurich")
    monkeypatch.setattr("django.utils.timezone.now", lambda: datetime(2026, 10, 24, 12, tzinfo=UTC))
    values = {"to_user": "500", "from_user": "", "begins_at": "", "ends": "until", "amount": "", "amount_unit": "h"}
    page = send(client, link, **values, until="2026-10-25 02:30")
    assert "2026-10-25 02:30+02:00 (the first, 00:30 UTC) or 2026-10-25 02:30+01:00" in page.beside("Until", 2)
    page = send(client, link, button="preview", **values, until="2026-10-25 02:30+01:00")
    assert "(13 h 30 min)" in page.text
    monkeypatch.setattr("django.utils.timezone.now", lambda: datetime(2026, 3, 28, 12, tzinfo=UTC))
    page = send(client, link, **values, until="2026-03-29 02:30")
    assert "Enter 2026-03-29 01:30 or 2026-03-29 03:30." in page.beside("Until", 2)
    assert not TimedLimit.objects.exists()


@table(
    ("kind", "values", "label", "sentence"),
    [
        ("constant", {"to_user": "2M"}, "To your AS [kbit/s]", "Choose at most 1 000"),
        ("constant", {"to_user": "1,5M"}, "To your AS [kbit/s]", "Enter 1.5 Mbit/s or 15 Mbit/s."),
        ("constant", {"amount": "x"}, "Duration", '"x" is not a number of seconds'),
        (
            "constant",
            {"amount": "31", "amount_unit": "d"},
            "Duration",
            "exceed the 30 days that a temporary limit may last",
        ),
        ("constant", {"begins_at": "tomorrow"}, "Start", '"tomorrow" is not a date and time.'),
        ("constant", {"begins_at": "2020-01-01 00:00"}, "Start", "is in the past; it is"),
        ("constant", {"ends": "until", "until": ""}, "Until", "A time is missing."),
        ("constant", {"ends": "until", "until": "2020-01-01 00:00"}, "Until", "is not after the start"),
        ("stair", {"count": "1"}, "Number of steps", "A staircase cannot have 1 steps."),
        ("stair", {"count": "201"}, "Number of steps", "Enter a whole number from 1 to 200."),
        ("square", {"cycles": "0"}, "Number of cycles", "Enter a whole number from 1 to 100."),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_nothing_starts(
    client: Client, user_as: UserAS, link: Link, kind: str, values: dict[str, str], label: str, sentence: str
) -> None:
    whole = {"to_user": "500", "from_user": "", "then_to_user": "900", "then_from_user": "", "begins_at": "", **FOR}
    whole |= {"count": "3", "cycles": "3", "each": "60", "each_unit": "s", **values}
    page = send(client, link, kind, **whole)
    named = [one for one in page.root.all("label") if one.text == label]
    found = [
        page.by_id(described).text
        for one in named
        for described in page.by_id(one.attrs["for"]).attrs.get("aria-describedby", "").split()
    ]
    assert any(sentence in text for text in found), found
    assert page.root.one("title").text.startswith("Error: ")
    assert not TimedLimit.objects.exists()


def test_a_timed_limit_is_cancelled_on_the_page_of_its_link(
    client: Client, owner: User, user_as: UserAS, link: Link, receipt: HostReceipt
) -> None:
    made = timed_limit_create(link_id=link.pk, profile=constant(Limits(9, 9), 3600), begins_at=None, actor=owner)
    url = url_of(link, f"timed/{made.pk}/cancel/")
    page = Page(client.get(url_of(link, "")))
    assert [one.attrs["action"] for one in page.root.all("form") if "cancel" in one.attrs["action"]] == [url]
    page = Page(client.post(url, follow=True))
    made.refresh_from_db()
    assert made.cancelled_at is not None
    assert "Cancelled. The regular limits are restored; this takes effect in about a second." in page.text
    assert "Temporary limit cancelled" in page.text
    assert client.post(url_of(link, "timed/4711/cancel/")).status_code == 404


def test_the_timed_limit_of_somebody_elses_link_cannot_be_cancelled_through_ones_own(
    client: Client, stranger: User, user_as: UserAS, link: Link
) -> None:
    foreign = Link.objects.get(interface_b__AS__useras__owner=stranger)
    theirs = timed_limit_create(link_id=foreign.pk, profile=constant(Limits(9, 9), 3600), begins_at=None, actor=None)
    assert client.post(url_of(link, f"timed/{theirs.pk}/cancel/")).status_code == 404
    theirs.refresh_from_db()
    assert theirs.cancelled_at is None


@table("written", ["9999-12-31 23:59Z", "0001-01-01 13:00"])
def test_times_at_the_ends_of_the_calendar_are_wrong_and_no_failure(
    client: Client, owner: User, user_as: UserAS, link: Link, written: str
) -> None:
    User.objects.update(time_zone="Pacific/Kiritimati")
    client.force_login(owner)
    base = f"/ases/{user_as.pk}/links/{link.pk}/timed/"
    for ends, begins_at in (("for", written), ("until", "")):
        fields = {"to_user": "100", "from_user": "100", "ends": ends, "amount": "2", "amount_unit": "h"}
        fields |= {"until": written, "begins_at": begins_at}
        sent = {"kind": "constant", "start": "1"} | {f"timed-{name}": value for name, value in fields.items()}
        assert f'"{written}" is not a date and time' in Page(client.post(base, sent)).text
        assert client.get(f"{base}preview/", sent).status_code == 200


def test_a_start_in_the_past_or_far_ahead_is_said_by_the_preview(
    client: Client, user_as: UserAS, link: Link, subtests: pytest.Subtests
) -> None:
    now = timezone.now()
    table = {
        "past": (now - timedelta(days=1), "is in the past; it is "),
        "far": (now + timedelta(days=400), "days ahead. Choose an earlier start."),
    }
    for name, (begins_at, words) in table.items():
        values = {"to_user": "56", "begins_at": f"{begins_at:%Y-%m-%d %H:%M}", **FOR}
        with case(subtests, f"{name}, part of the page"):
            query = {f"timed-{key}": text for key, text in values.items()}
            assert words in client.get(url_of(link, "timed/preview/"), {"kind": "constant", **query}).content.decode()
        with case(subtests, f"{name}, without JavaScript"):
            assert words in send(client, link, button="preview", **values).text
    assert not TimedLimit.objects.exists()
