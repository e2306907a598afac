"""A person without an account: from the form and the mail to a program with a token, and a forgotten password."""

from __future__ import annotations

import email
import re
import time
from email import policy
from typing import Any

import pytest
import requests
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from lab.demo.world import SITE_URL
from tests.e2e.conftest import Stack
from tests.e2e.test_browser import in_browser
from tests.support.browser import NEEDS_CHROMIUM, RULES, narrow

pytestmark = [*NEEDS_CHROMIUM, pytest.mark.kernel]

ADDRESS, FIRST, SECOND = "greta@example.org", "a long first phrase", "a long second phrase"


def link_of_mail(stack: Stack, subject: str, *, within_s: float = 40.0) -> str:
    """The link of the mail with this subject, once it came over SMTP."""
    deadline = time.monotonic() + within_s
    while True:
        for raw in stack.mailbox.received:
            mail: Any = email.message_from_string(raw, policy=policy.default)
            found = re.search(rf"{re.escape(SITE_URL)}(/account/\S+)", mail.get_content())
            if mail["To"] == ADDRESS and mail["Subject"] == subject and found:
                return str(found[1])
        assert time.monotonic() < deadline, f'no mail "{subject}" among {len(stack.mailbox.received)}'
        time.sleep(0.2)


def judge(page: Page, name: str) -> None:
    """No barrier that axe knows of, and nothing to scroll sideways on a telephone."""
    narrow(page, name)
    page.emulate_media(reduced_motion="reduce")  # a colour that changes has no contrast yet
    found = Axe().run(page, options=RULES["light"])
    assert found.violations_count == 0, f"{name}: {found.generate_report()}"


def ask_for_mail(page: Page, link: str, name: str) -> None:
    page.goto("/login/")
    page.get_by_role("link", name=link).click()
    judge(page, name)
    page.get_by_label("Email address").fill(ADDRESS)
    page.get_by_role("button", name="Send email").click()
    expect(page.get_by_role("heading", name="Check your email")).to_be_visible()
    judge(page, f"{name}-sent")


def log_in(page: Page, password: str) -> None:
    page.get_by_label("Email address").fill(ADDRESS)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="My ASes")).to_be_visible()


def status(token: str) -> int:
    session = requests.Session()
    session.trust_env = False
    headers = {"Authorization": f"Bearer {token}"}
    return session.get(f"{SITE_URL}/api/v1/links/", headers=headers, timeout=20).status_code


def test_from_no_account_to_a_token_and_a_forgotten_password(stack: Stack) -> None:
    def visit(page: Page) -> None:
        page.goto("/login/")
        judge(page, "login")
        ask_for_mail(page, "Register", "register")
        page.goto(link_of_mail(stack, "Your account at the SCIONLab Bandwidth Service"))
        assert page.url == f"{SITE_URL}/account/confirm/", "the link is not in the address any more"
        judge(page, "new-account")
        page.get_by_label("Name").fill("Greta")
        page.get_by_label("Password", exact=True).fill(FIRST)
        page.get_by_label("Repeat password").fill(FIRST)
        page.get_by_role("button", name="Create my account").click()
        expect(page.get_by_role("heading", name="My ASes")).to_be_visible()

        page.get_by_role("link", name="Account").click()
        judge(page, "profile")
        page.get_by_label("Time zone").select_option("Europe/Zurich")
        page.get_by_label("An attachment point of mine has sent no report").uncheck()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_have_text("Saved.")
        assert not page.get_by_label("An attachment point of mine has sent no report").is_checked()
        for path, name in (("email", "email"), ("delete", "delete")):
            page.goto(f"/account/{path}/")
            judge(page, name)

        page.get_by_role("link", name="API tokens").click()
        page.get_by_label("Name").fill("laptop")
        page.get_by_role("button", name="Create token").click()
        token = page.locator("code.secret").inner_text()
        judge(page, "tokens")
        assert status(token) == 200
        page.get_by_role("link", name="Password").click()
        judge(page, "password")
        page.get_by_role("button", name="Log out").click()

        ask_for_mail(page, "Forgot your password?", "reset")
        page.goto(link_of_mail(stack, "Choose a new password"))
        assert page.url.endswith("/set-password/")
        judge(page, "new-password")
        page.get_by_label("New password", exact=True).fill(SECOND)
        page.get_by_label("New password confirmation").fill(SECOND)
        page.get_by_role("button", name="Set password").click()
        assert status(token) == 401
        log_in(page, SECOND)
        page.goto(link_of_mail(stack, "Choose a new password"))
        expect(page.get_by_role("heading", name="This link is no longer valid")).to_be_visible()
        judge(page, "link-invalid")

    in_browser(stack, "accounts", visit, with_javascript=True)
