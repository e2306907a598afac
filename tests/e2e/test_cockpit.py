"""An administrator with a browser: raises a default, lowers it below limits, undoes it; and the kernel follows."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Page, expect

from bandwidth_config import format_kbit
from lab.demo.world import ADMIN
from tests.e2e.conftest import Stack
from tests.e2e.test_browser import fill_in_new_as, in_browser, log_in, wait_for_kernel
from tests.support.browser import CHROMIUM

pytestmark = [
    pytest.mark.browser,
    pytest.mark.kernel,
    pytest.mark.skipif(CHROMIUM is None, reason="browser: Debian's chromium is not installed"),
]
OWNER = "david@example.org"


def set_default(page: Page, ap_id: int, text: str) -> None:
    """By the way that the cockpit shows."""
    page.goto(f"/cockpit/aps/{ap_id}/")
    page.get_by_role("link", name="Default and total").click()
    page.get_by_label("Default here [kbit/s]").fill(text)
    page.get_by_label("Reason").fill("A browser test.")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="Change 1 default").click()  # links are there: it is previewed
    # A worker carries it out in its own time, and this page is not refreshed without JavaScript.
    shown = page.get_by_text(f"at most {format_kbit(int(text))} each")
    deadline = time.monotonic() + 60
    while True:
        page.goto(f"/cockpit/aps/{ap_id}/")
        if shown.is_visible() or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    expect(shown).to_be_visible()


def test_a_lowered_default_clamps_limits_and_gives_them_back(stack: Stack) -> None:
    def number(label: str) -> int:
        links = stack.site.links(OWNER)
        return next(int(link["attachment_point_interface_id"]) for link in links if link["as_label"] == label)

    def own(page: Page) -> None:
        log_in(page, OWNER)
        for port, bandwidth in ((50_500, "5000"), (50_501, "700")):
            fill_in_new_as(page, label=f"Bulk {port}", ip="192.0.2.14", port=port, bandwidth=bandwidth)
            expect(page.get_by_role("heading", name=f"Bulk {port}")).to_be_visible()
        wait_for_kernel(stack, number("Bulk 50500"), 5000)

    def administer(page: Page) -> None:
        log_in(page, ADMIN)
        page.get_by_role("link", name="Cockpit").click()
        expect(page.get_by_role("cell", name="reports")).to_be_visible()
        set_default(page, stack.attachment_point_id, "70000")
        set_default(page, stack.attachment_point_id, "60000")

        page.get_by_role("link", name="Change its default").click()
        page.get_by_label("Default, or percent").fill("1 Mbit/s")
        page.get_by_role("button", name="Preview").click()
        wait_for_kernel(stack, number("Bulk 50500"), 5000)  # nothing is done yet
        page.get_by_label("Reason").fill("The line is full.")
        page.get_by_role("button", name="Change 1 default").click()
        expect(page.get_by_text("Done: 1 attachment point has a new default.")).to_be_visible()
        wait_for_kernel(stack, number("Bulk 50500"), 1000)
        wait_for_kernel(stack, number("Bulk 50501"), 700)

        page.get_by_role("button", name="Undo").click()
        page.get_by_label("Reason").fill("There is room again.")
        page.get_by_role("button", name="Change 1 default").click()
        expect(page.get_by_text("Done: 1 attachment point has a new default.")).to_be_visible()
        wait_for_kernel(stack, number("Bulk 50500"), 5000)
        wait_for_kernel(stack, number("Bulk 50501"), 700)

    in_browser(stack, "bulk-owner", own, with_javascript=False)
    in_browser(stack, "bulk-administrator", administer, with_javascript=False)
