"""The session expired while somebody typed, in a real Chromium; test_expired_sessions.py is without JavaScript."""

from __future__ import annotations

from django.contrib.sessions.models import Session
from playwright.sync_api import Page, expect

from scionlab.accounts.models import User
from scionlab.testbed.models import Link
from tests.factories import PASSWORD
from tests.support.browser import IN_A_BROWSER

pytestmark = IN_A_BROWSER


def test_a_typed_limit_survives_an_expired_session_and_is_saved_by_a_second_click(
    page: Page, link: Link, owner: User
) -> None:
    page.goto(f"/ases/{link.interface_b.AS_id}/links/{link.pk}/")
    bandwidth = page.get_by_label("Bandwidth of this link [kbit/s]")
    bandwidth.fill("777")
    Session.objects.all().delete()
    page.get_by_role("button", name="Save").last.click()
    expect(page.get_by_role("alert")).to_contain_text("Your session has expired. Nothing was saved.")
    page.get_by_label("Email address").fill(owner.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("Your session had expired; nothing was saved.")).to_be_visible()
    expect(bandwidth).to_have_value("777")
    assert Link.objects.get().bandwidth_kbit == 1000
    page.get_by_role("button", name="Save").last.click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert Link.objects.get().bandwidth_kbit == 777
