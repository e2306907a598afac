"""A person with a real browser: from the form to the kernel of the attachment point, and what a person gets wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from lab.demo.world import PASSWORD, SITE_URL
from tests.e2e.conftest import Stack
from tests.support.browser import ARGUMENTS, CHROMIUM, NEEDS_CHROMIUM

ARTIFACTS = Path(__file__).resolve().parents[2] / "test-artifacts"
BANDWIDTH = "Upper limit for the bandwidth usable for this AS [kbit/s]"

pytestmark = [*NEEDS_CHROMIUM, pytest.mark.kernel]


@contextmanager
def a_page(name: str, *, with_javascript: bool) -> Iterator[Page]:
    """A fresh browser; when the block fails, what it shows is kept as a picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        page = browser.new_context(java_script_enabled=with_javascript, base_url=SITE_URL).new_page()
        page.set_default_timeout(15_000)
        try:
            yield page
        except BaseException:
            ARTIFACTS.mkdir(exist_ok=True)
            page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)
            raise
        finally:
            browser.close()


def in_browser(stack: Stack, name: str, visit: Callable[[Page], None], *, with_javascript: bool) -> None:
    def run() -> None:
        with a_page(name, with_javascript=with_javascript) as page:
            visit(page)

    stack.in_network(run)


def log_in(page: Page, email: str) -> None:
    page.goto("/login/")
    page.get_by_label("Email address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("link", name="Account")).to_be_visible()  # on the start page of owner or administrator


def fill_in_new_as(page: Page, *, label: str, ip: str, port: int, bandwidth: str) -> None:
    page.goto("/ases/new/")
    page.get_by_label("Label").fill(label)
    page.get_by_label("Public IP address").fill(ip)
    page.get_by_label("Public port (UDP)").fill(str(port))
    page.get_by_label(BANDWIDTH).fill(bandwidth)
    page.get_by_role("button", name="Create AS").click()


def reload_until_stage(page: Page, stage: str, *, within_s: float = 20.0) -> None:
    """Without JavaScript a page does not change by itself."""
    deadline = time.monotonic() + within_s
    while (shown := page.locator(".stage").all_inner_texts()) != [stage]:
        assert time.monotonic() < deadline, f"the page says {shown}, and never {stage!r}"
        time.sleep(0.3)
        page.reload()


def wait_for_kernel(
    stack: Stack, interface_id: int, kbit: int | None, from_user: int | None = None, *, within_s: float = 15.0
) -> None:
    """`from_user` None: the same as `kbit`, to the user AS."""
    wanted, deadline = (kbit, kbit if from_user is None else from_user), time.monotonic() + within_s
    while (found := stack.agent.kernel_rates_kbit(interface_id)) != wanted:
        assert time.monotonic() < deadline, f"tc shows {found}, not {wanted} kbit/s to the user AS and from it"
        time.sleep(0.1)


@pytest.mark.parametrize("with_javascript", [True, False], ids=["with JavaScript", "without JavaScript"])
def test_a_form_two_directions_and_a_time_reach_the_kernel_and_return(stack: Stack, with_javascript: bool) -> None:
    owner, port, label = "emma@example.org", 50_400 + with_javascript, f"Directions {with_javascript}"

    def visit(page: Page) -> None:
        log_in(page, owner)
        fill_in_new_as(page, label=label, ip="192.0.2.15", port=port, bandwidth="1.5M")
        links = stack.site.links(owner)
        number = next(int(one["attachment_point_interface_id"]) for one in links if one["as_label"] == label)
        wait_for_kernel(stack, number, 1500)
        reload_until_stage(page, "Enforced")

        page.get_by_role("link", name="Edit", exact=True).click()
        page.get_by_label(BANDWIDTH).fill("0")
        page.get_by_role("button", name="Save", exact=True).last.click()
        wait_for_kernel(stack, number, 0)

        page.get_by_role("link", name="Change, usage and history").click()
        page.get_by_label("Bandwidth of this link [kbit/s]").fill("2 Mbit/s")
        page.get_by_text("Different in each direction").click()
        page.get_by_label("Bandwidth from your AS [kbit/s]").fill("640")
        if not with_javascript:
            page.get_by_role("button", name="Preview", exact=True).click()
        expect(page.locator("#preview")).to_contain_text("from it 640\u00a0kbit/s; takes effect")
        page.get_by_role("button", name="Save", exact=True).last.click()
        wait_for_kernel(stack, number, 2000, 640)

        page.get_by_role("link", name="Set a temporary limit").click()
        page.get_by_label("To your AS [kbit/s]").fill("56")
        page.get_by_label("From your AS [kbit/s]").fill("48")
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.get_by_text("Ends in")).to_be_visible()
        wait_for_kernel(stack, number, 56, 48)
        page.get_by_role("button", name="Cancel").click()
        wait_for_kernel(stack, number, 2000, 640)

        page.get_by_role("link", name="17-ffaa:1:").click()
        page.get_by_role("link", name="Delete").click()
        page.get_by_role("button", name="Delete").click()
        wait_for_kernel(stack, number, None)

    in_browser(stack, f"directions-{with_javascript}", visit, with_javascript=with_javascript)
