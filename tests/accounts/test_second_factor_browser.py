"""A security key in a real Chromium, under our content security policy; and the pages of the second factor by axe."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from scionlab.accounts.models import User
from tests.factories import PASSWORD
from tests.site.test_pages_policy import Witness, witness
from tests.support.browser import IN_A_BROWSER, judge, log_in

__all__ = ["witness"]  # the fixture
pytestmark = IN_A_BROWSER

HOME = "/account/second-factor/"
USB_KEY = {"protocol": "ctap2", "transport": "usb", "hasUserVerification": True, "isUserVerified": True}


@pytest.mark.usefixtures("browser")
def test_a_security_key_is_added_logs_in_and_is_removed(witness: Witness, owner: User) -> None:
    page = witness.page
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": {**USB_KEY, "automaticPresenceSimulation": True}})
    log_in(page, owner)
    witness.visit(HOME)
    judge(page, "no second factor")
    page.get_by_role("link", name="Add a security key").click()
    judge(page, "password")
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_role("button", name="Continue").click()
    page.get_by_label("Name").fill("Blue key")
    judge(page, "add a key")
    page.get_by_role("button", name="Add key").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    judge(page, "recovery codes")
    witness.visit(f"{HOME}app/")
    judge(page, "set up an app")
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Email address").fill(owner.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    judge(page, "code or key")
    page.get_by_role("button", name="Use a security key").click()
    expect(page.get_by_role("heading", name="My ASes")).to_be_visible()
    page.goto(f"{HOME}key/?next={HOME}")
    page.get_by_role("button", name="Use a security key").click()
    expect(page.get_by_role("rowheader", name="Blue key")).to_be_visible()
    judge(page, "all of them")
    page.get_by_role("link", name="Remove Blue key").click()
    page.get_by_role("button", name="Remove key").click()
    expect(page.get_by_text("The security key was removed.")).to_be_visible()
    expect(page.get_by_text("You log in with only your password.")).to_be_visible()
