"""The page Paths, with every kind of link and with an error: as axe judges it, and on a phone."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from scionlab.accounts.models import User
from scionlab.testbed.models import AttachmentPoint, Link
from tests.factories import attach, spec
from tests.limits.test_pages_status import confirm
from tests.support.browser import IN_A_BROWSER, judge

pytestmark = IN_A_BROWSER


def test_the_page_is_accessible_and_fits_a_phone(page: Page, link: Link, ap: AttachmentPoint, teammate: User) -> None:
    confirm(link)
    made = attach(teammate, spec(ap, public_ip="198.51.100.8"))
    other = Link.objects.get(interface_b__AS=made.pk)
    one, two, three = link.interface_b.interface_id, link.interface_a.interface_id, other.interface_a.interface_id
    text = f"17-ffaa:1:1#0,{one} 17-ffaa:0:1107#{two},{three} 17-ffaa:1:2#1,65535 17-ffaa:0:1107#4094,1 64-559#1,0"
    page.goto("/paths/")
    page.get_by_label("Paths").fill(text)
    page.get_by_label("Traceroute").fill(f"0 17-ffaa:1:1,192.0.2.11 IfID={one} 0.4ms * 1000.25ms")
    page.get_by_role("button", name="Show limits").click()
    expect(page.get_by_text("Narrowest", exact=True)).to_be_visible()
    expect(page.get_by_role("cell", name="0.40")).to_be_visible()
    judge(page, "paths")
    page.goto("/paths/")
    judge(page, "the empty form")
    page.goto("/paths/")
    page.get_by_label("Paths").fill("17-ffaa:1:1 1>2")
    page.get_by_role("button", name="Show limits").click()
    expect(page.get_by_role("alert")).to_be_focused()
    judge(page, "an error")
    page.goto(f"/ases/{link.interface_b.AS_id}/paths/")
    expect(page.get_by_role("cell", name="1 000 kbit/s")).to_be_visible()
    judge(page, "what the links of an AS carry together")
