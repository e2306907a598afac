"""The first visit: the front page, the log-in that follows registration, where people land, and the mails of a
development site."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.core.mail import EmailMessage, get_connection
from django.test import Client
from pytest_django import Settings

from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import Link
from tests.accounts.test_accounts import FORM, registered
from tests.cases import table
from tests.factories import PASSWORD, UserFactory
from tests.limits.test_pages_status import confirm
from tests.support.html import Page

pytestmark = pytest.mark.django_db


def front_text() -> str:
    cache.clear()
    return Page(Client().get("/")).root.one("main").text


def test_the_front_page_counts_what_reports_and_what_is_in_force(link: Link, stranger: User) -> None:
    assert "0 of 2 attachment points report what they enforce." in front_text()
    confirm(link)
    told = front_text()
    assert "1 of 2 attachment points report" in told
    assert "The limits of 1 of 2 links are in force." in told
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=77, actor=None)
    assert "The limits of 0 of 2 links are in force." in front_text()
    HostReceipt.objects.update(received_at="2026-01-01T00:00:00Z")
    assert "0 of 2 attachment points report" in front_text()


def test_strangers_have_the_testbed_counted_at_most_every_ten_seconds(link: Link) -> None:
    before = front_text()
    confirm(link)
    assert Page(Client().get("/")).root.one("main").text == before


@table(("is_staff", "start"), [(False, "/ases/"), (True, "/cockpit/")])
def test_people_land_where_they_work(is_staff: bool, start: str) -> None:
    person = UserFactory(email="person@example.org", is_staff=is_staff)
    browser = Client()
    credentials = {"username": person.email, "password": PASSWORD}
    assert browser.post("/login/", credentials)["Location"] == start
    for page in ("/", "/login/", "/account/register/"):
        assert browser.get(page)["Location"] == start


def test_who_has_registered_is_logged_in_with_their_time_zone(settings: Settings) -> None:
    browser = registered("new@example.org", settings)
    refused = browser.post("/account/confirm/", FORM | {"password2": "another", "time_zone": "Asia/Tokyo"})
    select = Page(refused).root.one("select", name="time_zone")
    assert [one.text for one in select.all("option") if "selected" in one.attrs] == ["Asia/Tokyo"]
    assert "_auth_user_id" not in browser.session
    assert browser.post("/account/confirm/", FORM | {"time_zone": "Asia/Tokyo"})["Location"] == "/"
    user = User.objects.get()
    assert (user.time_zone, browser.session["_auth_user_id"]) == ("Asia/Tokyo", str(user.pk))


def test_a_time_zone_that_does_not_exist_makes_no_account(settings: Settings) -> None:
    browser = registered("new@example.org", settings)
    answer = browser.post("/account/confirm/", FORM | {"time_zone": "Mars/Base"})
    assert '"Mars/Base" is not a time zone.' in Page(answer).text
    assert not User.objects.exists()
    assert not Session.objects.filter(session_data__contains="_auth_user_id").exists()


def test_development_settings_show_the_newest_mails_and_others_none(settings: Settings, tmp_path: Path) -> None:
    settings.EMAIL_FILE_PATH = str(tmp_path)
    writer = get_connection("django.core.mail.backends.filebased.EmailBackend", file_path=str(tmp_path))
    for number in range(12):
        writer.send_messages(
            [EmailMessage(f"Mail {number}", "Open\nhttp://127.0.0.1/x/", "a@b.example", ["c@d.example"])]
        )
    assert Client().get("/mails/").status_code == 404
    settings.SHOW_MAILS = True
    shown = Page(Client().get("/mails/")).root
    assert [one.text for one in shown.one("main").all("h2")] == [f"Mail {number}" for number in range(11, 1, -1)]
    assert len(shown.all("a", href="http://127.0.0.1/x/")) == 10
