"""Limits for a time on the pages: drawn, started, seen running, cancelled; and what a person gets wrong."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.enforcement.status import link_status
from scionlab.limits.pages.consequences import local, preview_limits, preview_timed
from scionlab.limits.profiles import constant
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.testbed.models import Link, TimedLimit, UserAS
from scionlab.testbed.selectors import links_of
from tests.cases import table
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
    query = {f"timed-{name}": text for name, text in given.items()} | {"kind": kind}
    part = client.get(url_of(link, "timed/preview/"), query).content.decode()
    assert 'class="line to-user"' in part, "the same, as the part of the page that follows what one types"
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


@table(
    ("kind", "values", "label", "sentence"),
    [
        ("constant", {"to_user": "2M"}, "To your AS [kbit/s]", "Choose at most 1 000"),
        ("constant", {"amount": "x"}, "Duration", '"x" is not a number of seconds'),
        ("constant", {"amount": "31", "amount_unit": "d"}, "Duration", "exceed the 30 days that"),
        ("constant", {"begins_at": "9999-12-31 23:59Z"}, "Start", '"9999-12-31 23:59Z" is not a date and time'),
        ("constant", {"begins_at": "2020-01-01 00:00"}, "Start", "is in the past; it is"),
        ("constant", {"ends": "until", "until": ""}, "Until", "A time is missing."),
        ("constant", {"ends": "until", "until": "2020-01-01 00:00"}, "Until", "is not after the start"),
        ("square", {"cycles": "0"}, "Number of cycles", "Enter a whole number from 1 to 100."),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_nothing_starts(
    client: Client, user_as: UserAS, link: Link, kind: str, values: dict[str, str], label: str, sentence: str
) -> None:
    whole = {"to_user": "500", "from_user": "", "then_to_user": "900", "then_from_user": "", "begins_at": "", **FOR}
    whole |= {"count": "3", "cycles": "3", "each": "60", "each_unit": "s", **values}
    page = send(client, link, kind, **whole)
    assert sentence in page.beside(label, 2 if label == "Until" else 1)
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


def test_one_that_was_cancelled_before_it_began_changed_no_limit_however_late_one_presses(
    client: Client, owner: User, user_as: UserAS, link: Link, receipt: HostReceipt
) -> None:
    soon = timezone.now() + timedelta(hours=1)
    made = timed_limit_create(link_id=link.pk, profile=constant(Limits(9, 9), 3600), begins_at=soon, actor=owner)
    url, said = url_of(link, f"timed/{made.pk}/cancel/"), "Cancelled before it started. The limits do not change."
    assert said in Page(client.post(url, follow=True)).text
    began = timezone.now() - timedelta(minutes=1)  # as if it were later now
    TimedLimit.objects.update(begins_at=began, cancelled_at=began - timedelta(minutes=1))
    assert said in Page(client.post(url, follow=True)).text


def test_a_promise_waits_for_all_that_comes_before(
    client: Client, owner: User, user_as: UserAS, link: Link, receipt: HostReceipt
) -> None:
    now = timezone.now().replace(microsecond=0)
    first = timed_limit_create(link_id=link.pk, profile=constant(Limits(9, 9), 3600), begins_at=None, actor=owner)
    second = timed_limit_create(
        link_id=link.pk, profile=constant(Limits(7, 7), 3600), begins_at=first.ends_at, actor=owner
    )

    def regular() -> str:
        return preview_limits(link_status(links_of(user_as)[0], now=now), Limits(5, 5), now=now).effect

    def timed(begins_at: datetime) -> str:
        status, steps = link_status(links_of(user_as)[0], now=now), constant(Limits(3, 3), 60).steps
        return preview_timed(status, steps, begins_at=begins_at, duration_s=60, now=now).effect

    ends = f"the temporary limit ends, at {local(second.ends_at)}"
    assert regular() == f"takes effect when {ends}; nothing restarts"
    before = first.begins_at - timedelta(seconds=60)
    nine = "9\N{NO-BREAK SPACE}kbit/s automatically"
    assert timed(before).startswith(f"nothing restarts; then {nine}")
    assert timed(second.ends_at).startswith("nothing restarts; then back to 1\N{NO-BREAK SPACE}000")
    HostReceipt.objects.update(received_at=now - timedelta(minutes=10))
    assert regular().endswith(f"), and not before {ends}; nothing restarts")
    assert timed(second.ends_at).startswith("takes effect when the attachment point reports again (no report since")
    Link.objects.filter(pk=link.pk).update(observe_only=True)
    observed = "takes effect when the attachment point limits this link again (it is observed); nothing restarts"
    assert regular() == observed
    assert timed(second.ends_at).startswith(observed)


def test_one_for_later_is_scheduled_and_says_if_no_agent_will_start_it(
    client: Client, user_as: UserAS, link: Link
) -> None:
    begins_at = (timezone.now() + timedelta(days=1)).strftime("%Y-%m-%d %H:%M")
    page = send(client, link, to_user="56", from_user="48", begins_at=begins_at, **FOR)
    assert f"Scheduled: from {begins_at} UTC on; takes effect when the attachment point next fetches" in page.text
