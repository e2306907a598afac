"""The pages about another service's SCION files in a browser: with axe, and on a telephone."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from scionlab.delivery.installed import Manifest, manifest_note
from scionlab.testbed.models import Host, UserAS
from tests.contract.stock_client import OTHER_FILES, OTHER_HOST_ID, OTHER_UNITS, OTHER_URL
from tests.support.browser import IN_A_BROWSER, judge

pytestmark = IN_A_BROWSER


def test_a_host_is_taken_over_on_its_page(admin_page: Page, user_as: UserAS) -> None:
    host = Host.objects.get(AS=user_as.pk)
    manifest = Manifest(OTHER_HOST_ID, OTHER_URL, "1.37", tuple(OTHER_FILES), tuple(OTHER_UNITS))
    manifest_note(host_id=host.pk, manifest=manifest)
    admin_page.goto("/cockpit/")
    judge(admin_page, "cockpit-notice")
    admin_page.get_by_role("alert").get_by_role("link", name="Owner's AS").click()
    expect(admin_page.get_by_text("/etc/scion/crypto/as/cp-as.key")).to_be_visible()
    admin_page.get_by_role("button", name="Take over").click()
    expect(admin_page.get_by_role("button", name="Undo takeover")).to_be_visible()
    admin_page.get_by_role("button", name="Undo takeover").click()
    expect(admin_page.get_by_role("button", name="Take over")).to_be_visible()
    admin_page.goto(f"/ases/{user_as.pk}/")
    expect(admin_page.get_by_text("ask an administrator to take over the host")).to_be_visible()
    judge(admin_page, "as-other")
