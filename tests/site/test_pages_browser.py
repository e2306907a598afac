"""The few lines of JavaScript, and what only a browser shows: no sideways scrolling, the key Enter."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Page, expect

from scionlab.accounts.models import User
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import AttachmentPoint, Link, UserAS
from scionlab.usage import live
from tests.limits.test_pages_status import confirm
from tests.support.browser import IN_A_BROWSER

BANDWIDTH = "Upper limit for the bandwidth usable for this AS [kbit/s]"

pytestmark = IN_A_BROWSER


@pytest.fixture
def choices(ap: AttachmentPoint, ap_other: AttachmentPoint) -> AttachmentPoint:
    AttachmentPoint.objects.filter(pk=ap_other.pk).update(default_bandwidth_kbit=60_000)
    return ap_other


def test_hint_and_untouched_number_follow_the_attachment_point_and_a_typed_one_stays(
    choices: AttachmentPoint, page: Page
) -> None:
    page.goto("/ases/new/")
    page.get_by_label("Attachment point").select_option(str(choices.pk))
    assert page.get_by_label(BANDWIDTH).input_value() == "60000"
    expect(page.get_by_text("Initial value and maximum at 19-ffaa:0:1303: 60\u00a0000\u00a0kbit/s.")).to_be_visible()
    page.goto("/ases/new/")
    page.get_by_label(BANDWIDTH).fill("640")
    page.get_by_label("Attachment point").select_option(str(choices.pk))
    assert page.get_by_label(BANDWIDTH).input_value() == "640"


def test_the_page_turns_to_enforced_by_itself_and_does_not_touch_what_is_typed(
    user_as: UserAS, link: Link, page: Page
) -> None:
    page.goto(f"/ases/{user_as.pk}/links/{link.pk}/")
    expect(page.locator(".stage")).to_have_text("Waiting")
    page.get_by_label("Bandwidth of this link [kbit/s]").fill("77")
    confirm(link)
    expect(page.locator(".stage")).to_have_text("Enforced")
    expect(page.get_by_role("rowheader", name="To your AS")).to_be_visible()
    assert page.get_by_label("Bandwidth of this link [kbit/s]").input_value() == "77"
    assert page.locator("[data-live]").get_attribute("data-every") == "10"


def test_dials_follow_what_is_reported_and_leave_what_is_typed(user_as: UserAS, link: Link, page: Page) -> None:
    page.goto(f"/ases/{user_as.pk}/links/{link.pk}/")
    expect(page.locator("#dials")).to_contain_text("Asking the attachment point")
    page.get_by_label("Bandwidth of this link [kbit/s]").fill("77")
    for kbit in (412, 88):
        rates = live.Rates(time.time() + 600, 1000, True, live.Side(500, kbit * 125, 0), None)
        live.store(link.interface_a.host.uid, {link.interface_a.interface_id: rates})
        expect(page.get_by_role("meter", name="To your AS")).to_have_attribute("aria-valuenow", str(kbit))
        expect(page.locator("#dials")).to_contain_text(f"{kbit} of 500\u00a0kbit/s")
    assert page.get_by_label("Bandwidth of this link [kbit/s]").input_value() == "77"


def test_enter_in_a_field_saves(user_as: UserAS, link: Link, page: Page) -> None:
    page.goto(f"/ases/{user_as.pk}/edit/")
    page.get_by_role("button", name="Add another attachment").click()
    page.get_by_role("button", name="Remove attachment 2").click()
    page.get_by_label(BANDWIDTH).fill("321")
    page.get_by_label(BANDWIDTH).press("Enter")
    expect(page.get_by_text("enforces 321")).to_be_visible()
    link.refresh_from_db()
    assert link.bandwidth_kbit == 321


def test_after_a_mistake_the_summary_has_the_focus_and_leads_to_the_field(ap: AttachmentPoint, page: Page) -> None:
    page.goto("/ases/new/")
    page.get_by_label("Public IP address").fill("198.51.100.7")
    page.get_by_label(BANDWIDTH).fill("1e3")
    page.get_by_role("button", name="Create AS").click()
    expect(page.get_by_role("alert")).to_be_focused()
    page.get_by_role("alert").get_by_role("link").click()
    expect(page.get_by_label(BANDWIDTH)).to_be_focused()


def test_one_click_decides_about_a_page_that_somebody_made_old(page: Page, link: Link, staff: User) -> None:
    """The button stands in the summary, outside of the form that it sends."""
    page.goto(f"/ases/{link.interface_b.AS_id}/links/{link.pk}/")
    page.get_by_label("Bandwidth of this link [kbit/s]").fill("700")
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=200, actor=staff)
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.get_by_role("alert")).to_contain_text("staff@example.org saved other values")
    page.get_by_role("alert").get_by_role("button", name="Overwrite with mine").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert Link.objects.get(pk=link.pk).bandwidth_kbit == 700
