"""Every page in a real browser under the content security policy: nothing of ours is blocked, and nothing complains.

Administrators' pages too: Django's own scripts run under the same policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.apps import apps
from django.db.models import Model
from playwright.sync_api import Browser, ConsoleMessage, Page, expect
from pytest_django.live_server_helper import LiveServer

from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.testbed.models import AttachmentPoint, Link, UserAS
from tests.site.test_access_matrix import MAY
from tests.support.browser import IN_A_BROWSER, log_in, window

pytestmark = IN_A_BROWSER


class Witness:
    """A page, and what its console said: a blocked style or script is an error there, and an exception of ours too."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.said: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.said.append(f"{page.url}: {error}"))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.said.append(f"{self.page.url}: {message.type}: {message.text}")

    def visit(self, *paths: str) -> None:
        for path in paths:
            answer = self.page.goto(path)
            assert answer is not None
            assert "default-src 'none'" in answer.headers["content-security-policy"], path
            assert answer.status < 400, (path, answer.status)


def list_of(model: str) -> str:
    (app,) = (one._meta.app_label for one in apps.get_models() if one._meta.model_name == model)
    return f"/admin/{app}/{model}/"


@pytest.fixture
def witness(browser: Browser, live_server: LiveServer) -> Iterator[Witness]:
    with window(browser, live_server) as page:
        found = Witness(page)
        yield found
    assert found.said == []


def test_no_page_of_a_user_breaks_the_policy(witness: Witness, owner: User, user_as: UserAS, link: Link) -> None:
    log_in(witness.page, owner)
    own = f"/ases/{user_as.pk}/"
    witness.visit("/password/", "/ases/", "/ases/new/", own, f"{own}edit/", f"{own}delete/")
    witness.page.goto(own)
    witness.page.wait_for_timeout(2200)  # the page fetches itself anew, under connect-src


def test_no_page_of_an_administrator_breaks_the_policy(
    witness: Witness,
    staff: User,
    user_as: UserAS,
    link: Link,
    ap_b: AttachmentPoint,
    receipt: HostReceipt,
) -> None:
    log_in(witness.page, staff)
    lists = [list_of(model) for model in MAY]
    witness.visit("/cockpit/setup/", "/admin/", "/admin/testbed/", "/admin/password_change/", *lists)
    witness.visit(*(f"{list_of(model)}add/" for model, may in MAY.items() if "add" in may))
    things: list[Model] = [link, receipt.host, ap_b.AS, ap_b, ap_b.host.vpn, staff, user_as]
    witness.visit(*(f"{list_of(str(thing._meta.model_name))}{thing.pk}/change/" for thing in things))
    witness.visit(f"/admin/testbed/host/{receipt.host_id}/agent/", f"/admin/testbed/link/{link.pk}/delete/")
    witness.visit(f"/admin/testbed/link/{link.pk}/history/", f"/admin/accounts/user/{staff.pk}/password/")


def test_the_scripts_of_the_administrators_pages_run_under_it(witness: Witness, staff: User, link: Link) -> None:
    log_in(witness.page, staff)
    witness.visit("/admin/testbed/useras/")
    witness.page.locator("#action-toggle").check()
    expect(witness.page.locator(".action-counter")).to_have_text("1 of 1 selected")
    witness.page.locator("#toggle-nav-sidebar").click()
    expect(witness.page.locator("#main")).not_to_have_class(re.compile("shifted"))


def test_what_somebody_writes_into_a_name_does_not_run(witness: Witness, owner: User, user_as: UserAS) -> None:
    """Escaping keeps it text; were that forgotten, the policy would still not run it."""
    log_in(witness.page, owner)
    UserAS.objects.filter(pk=user_as.pk).update(label="<img src=x onerror=\"document.title='taken'\">")
    witness.visit("/ases/", f"/ases/{user_as.pk}/")
    assert "taken" not in witness.page.title()
    witness.page.evaluate("""() => {
        const image = document.createElement("div");
        image.innerHTML = "<img src=data:image/png, onerror=\\"document.title='taken'\\">";
        document.body.append(image);
    }""")
    witness.page.wait_for_timeout(200)
    assert "taken" not in witness.page.title()
    assert any("Content Security Policy" in one for one in witness.said)
    witness.said.clear()
