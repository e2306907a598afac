"""The first visit in a browser: the time zone that is offered, and what axe and a telephone say of the new pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from scionlab.accounts.models import User
from tests.accounts.test_accounts import ask, deliver, path_in
from tests.cockpit.test_setup import CORE, POINT
from tests.support.browser import IN_A_BROWSER, judge, log_in, window

pytestmark = IN_A_BROWSER


@pytest.mark.parametrize(("zone", "offered"), [("Asia/Tokyo", "Asia/Tokyo"), ("Etc/GMT+3", "UTC")])
def test_who_registers_is_offered_the_time_zone_of_their_browser(
    browser: Browser, live_server: LiveServer, settings: Settings, zone: str, offered: str
) -> None:
    ask("register", "new@example.org")
    (mail,) = deliver()
    with window(browser, live_server, timezone_id=zone) as page:
        page.goto(path_in(mail, settings))
        expect(page.get_by_label("Time zone")).to_have_value(offered)
        judge(page, "a new account")
        page.get_by_label("Password", exact=True).fill("a long new phrase")
        page.get_by_label("Repeat password").fill("a long new phrase")
        page.get_by_role("button", name="Create my account").click()
        expect(page.get_by_role("heading", name="My ASes")).to_be_visible()
    assert User.objects.get().time_zone == offered


def test_front_page_setup_and_mails_are_accessible_and_fit_a_phone(
    browser: Browser, live_server: LiveServer, staff: User, settings: Settings, tmp_path: Path
) -> None:
    settings.SHOW_MAILS, settings.EMAIL_FILE_PATH = True, str(tmp_path)
    (tmp_path / "1.log").write_text("Subject: Hello\nTo: a@b.example\n\nOpen http://127.0.0.1/" + 90 * "x" + "/\n")
    with window(browser, live_server) as page:
        for url in ("/", "/mails/"):
            page.goto(url)
            judge(page, url)
        log_in(page, staff)
        page.get_by_role("link", name="Set up this site").click()
        judge(page, "the first step")
        page.get_by_role("button", name="Set the default and continue").click()
        page.get_by_role("button", name="Create").click()
        judge(page, "a step with its errors")
        for values in (CORE, POINT):
            for name, value in values.items():
                if name != "step":
                    page.locator(f"[name={name}]").fill(value)
            page.get_by_role("button", name="Create").click()
        page.get_by_role("button", name="Create a token").click()
        expect(page.locator("pre")).to_have_count(2)
        judge(page, "the token")
