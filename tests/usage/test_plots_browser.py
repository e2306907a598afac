"""The value and the time under the pointer, in the zone of the page."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from playwright.sync_api import Page, expect

from scionlab.accounts.models import User
from scionlab.testbed.models import AttachmentPoint
from tests.limits.test_pages_link import busy
from tests.support.browser import IN_A_BROWSER

pytestmark = IN_A_BROWSER


def test_the_pointer_reads_the_value_and_the_time_of_one_plot(page: Page, owner: User, ap: AttachmentPoint) -> None:
    User.objects.filter(pk=owner.pk).update(time_zone="Asia/Kolkata")
    link = busy(owner, ap)
    page.goto(f"/ases/{link.interface_b.AS_id}/links/{link.pk}/?span=day")
    expect(page.locator("svg .read")).to_have_count(0)
    for number in (0, 1):
        plot = page.locator("svg[data-values]").nth(number)
        values = (plot.get_attribute("data-values") or "").split(",")
        box = plot.bounding_box()
        assert box is not None
        plot.hover(position={"x": box["width"] * 100.5 / len(values), "y": 30})
        expect(page.locator("svg .read")).to_have_count(1)
        read = plot.locator(".read").text_content() or ""
        assert read.endswith(f": {values[100]}\N{NO-BREAK SPACE}kbit/s")
        begins_ms = page.evaluate("Date.parse(document.querySelector('svg[data-values]').dataset.begins)")
        at = datetime.fromtimestamp(begins_ms / 1000 + 100 * 600, tz=ZoneInfo("Asia/Kolkata"))
        assert read.startswith(f"{at:%-d %b %Y, %H:%M:%S}: ")
        plot.evaluate("plot => { plot.dataset.values = '9999,12345,150000,' }")
        for column, said in enumerate(("9\N{NO-BREAK SPACE}999 kbit/s", "12.3 Mbit/s", "150 Mbit/s", "no data")):
            plot.hover(position={"x": box["width"] * (column + 0.5) / 4, "y": 30})
            expect(plot.locator(".read")).to_contain_text(f": {said}")
    page.mouse.move(1, 1)
    expect(page.locator("svg .read")).to_have_count(0)
