"""Debian's Chromium for tests of pages: who is logged in, what axe says of a page (WCAG 2.1 A, AA), and a telephone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

from scionlab.accounts.models import User
from tests.factories import PASSWORD, UserFactory

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
NEEDS_CHROMIUM = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="browser: Debian's chromium is not installed"),
]
# Of each test that has one: `pytestmark = IN_A_BROWSER`.
IN_A_BROWSER = [*NEEDS_CHROMIUM, pytest.mark.timeout(300), pytest.mark.django_db(transaction=True)]
# In the dark only the colours are others. Of what is no violation axe need not say where it stands.
ONLY: Any = {"resultTypes": ["violations"]}
RULES: dict[str, Any] = {
    "light": {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}, **ONLY},
    "dark": {"runOnly": {"type": "rule", "values": ["color-contrast"]}, **ONLY},
}
# Axe needs 5 to 10 ms for an element: of rows and items that differ in their words alone one is judged.
ONE_OF_EACH = """
    for (const list of document.querySelectorAll("tbody, ul, ol")) {
        const seen = new Set();
        for (const one of [...list.children]) {
            const parts = [one, ...one.querySelectorAll("*")].map(
                part => [part.tagName, part.getAttribute("class"), ...part.getAttributeNames()].join(" "));
            if (seen.has(parts.join("/"))) one.remove();
            seen.add(parts.join("/"));
        }
    }
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # playwright's own event loop runs in this thread
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        yield found
        found.close()


def log_in(page: Page, user: User) -> None:
    page.goto("/login/")
    page.get_by_label("Email address").fill(user.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Cockpit" if user.is_staff else "My ASes")).to_be_visible()


@contextmanager
def window(browser: Browser, server: LiveServer, **options: Any) -> Iterator[Page]:
    context = browser.new_context(base_url=server.url, viewport={"width": 1280, "height": 800}, **options)
    page = context.new_page()
    page.set_default_timeout(30_000)
    yield page
    context.close()


@pytest.fixture
def page(browser: Browser, live_server: LiveServer, owner: User) -> Iterator[Page]:
    """The owner's browser, logged in."""
    with window(browser, live_server) as page:
        log_in(page, owner)
        yield page


@pytest.fixture
def admin_page(browser: Browser, live_server: LiveServer, db: None) -> Iterator[Page]:
    """An administrator's browser, logged in."""
    admin = UserFactory(email="a.long.name.of.an.administrator@example.org", is_staff=True)
    with window(browser, live_server) as page:
        log_in(page, admin)
        yield page


def judge(page: Page, what: str) -> None:
    """On a telephone it does not scroll sideways, and axe finds nothing. Of the page one row of each kind is left."""
    narrow(page, what)
    page.evaluate(ONE_OF_EACH)
    for scheme, rules in RULES.items():
        # Without motion: a colour half way between two schemes is nobody's.
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
        found = Axe().run(page, options=rules).response["violations"]
        told = [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in found]
        assert told == [], f"{what}, {scheme}"


def narrow(page: Page, what: str) -> None:
    page.wait_for_load_state()  # a click waits until the next page begins to arrive only
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360, what
    page.set_viewport_size({"width": 1280, "height": 800})
