"""The pages of watches, tests and joint tests: as axe judges them, and on a phone. Drawings have figures beside."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone
from playwright.sync_api import Page

from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.linktests.joint_test import joint_test_create
from scionlab.linktests.link_test import link_test_cancel, link_test_create
from scionlab.linktests.models import LinkTest
from scionlab.linktests.test_results import Upload, result_store, user_report_store
from scionlab.testbed.models import AttachmentPoint, Host, Link
from station.tools import TOOLS
from tests import joint_world
from tests.factories import spec
from tests.limits.test_pages_status import confirm
from tests.linktests.test_sending_tests import half, report
from tests.support.browser import IN_A_BROWSER, judge

pytestmark = IN_A_BROWSER


def over(test: LinkTest, minutes: int) -> LinkTest:
    """The same, so long ago."""
    begins_at = timezone.now().replace(microsecond=0) - timedelta(minutes=minutes)
    length = test.ends_at - test.begins_at
    LinkTest.objects.filter(pk=test.pk).update(begins_at=begins_at, ends_at=begins_at + length, armed_at=begins_at)
    return LinkTest.objects.get(pk=test.pk)


def reserved(link: Link, owner: User, tool: str) -> LinkTest:
    """In an hour, over a link that is enforced as it is now."""
    confirm(Link.objects.get(pk=link.pk))
    HostReceipt.objects.update(says_tests=True, sending_tests="on")
    later = timezone.now() + timedelta(hours=1)
    return link_test_create(link_id=link.pk, tool=tool, begins_at=later, actor=owner)


def both_report(test: LinkTest, host: Host) -> None:
    """Half of 1000 kbit/s passed and as much was dropped in each second but two; of a test that sends both reported."""
    began_ms = round(test.begins_at.timestamp() * 1000)
    samples = []
    for second in range(test.duration_s):
        both = ("0" * 16, 1000, 62_500 * second, 42 * second, 62_500 * second, 42 * second, 0)
        if second not in {3, 4}:
            samples.append((began_ms + 1000 * second, 1000 * second, True, both, both))
    made = report("ap", phases=half(test, "ap")) if test.sends else None
    result_store(host_id=host.pk, upload=Upload(test.test_id, True, samples, made))
    if test.sends:
        user_report_store(test_id=test.pk, report=report("user", phases=half(test, "user")))


def test_every_page_of_tests_is_accessible_and_fits_a_phone(
    page: Page, link: Link, host: Host, owner: User, receipt: HostReceipt
) -> None:
    HostReceipt.objects.update(says_tests=True, sending_tests="on")
    at = f"/ases/{link.interface_b.AS_id}/links/{link.pk}/"

    def look(url: str, words: str) -> None:
        page.goto(url)
        assert words in page.inner_text("main").replace("\N{NO-BREAK SPACE}", " "), url
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        judge(page, url)

    for tool in TOOLS.values():
        look(f"{at}test/{tool.name}/", tool.question)
    watch = link_test_create(link_id=link.pk, duration_s=20, begins_at=None, actor=owner)
    look(f"{at}tests/{watch.pk}/", "Scheduled for")
    both_report(over(watch, 5), host)
    look(f"{at}tests/{watch.pk}/", "Yes: for ")
    test = reserved(link, owner, "sizes")
    look(f"{at}tests/{test.pk}/", f"scionlab-bw test {link.pk} --id {test.pk}")
    both_report(over(test, 7), host)
    look(f"{at}tests/{test.pk}/", "To your AS:")
    missed = over(reserved(link, owner, "reach"), 9)
    LinkTest.objects.filter(pk=missed.pk).update(armed_at=None)
    look(f"{at}tests/{missed.pk}/", "Not carried out")
    cancelled = reserved(link, owner, "quick")
    link_test_cancel(link_test_id=cancelled.pk, actor=owner)
    look(f"{at}tests/{cancelled.pk}/", "Cancelled.")
    look(f"{at}watch/", "Cancelled")  # the list of all of them
    page.get_by_label("Duration [s]").fill("4")
    page.get_by_role("button", name="Watch").click()
    page.get_by_text("shorter than the 5 s").first.wait_for()
    judge(page, "the form with its error")


def test_pages_of_joint_tests_are_accessible_and_fit_a_phone(
    page: Page, owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    five = [spec(one, public_port=50_000 + number) for number, one in enumerate([ap, ap, ap, ap_b, ap_b])]
    user_as = joint_world.enforced(owner, *five)
    made = joint_test_create(user_as_id=user_as.pk, actor=owner)
    joint_world.measured(made)
    joint_world.confirm()
    waiting = joint_test_create(user_as_id=user_as.pk, begins_at=made.ends_at + timedelta(hours=1), actor=owner)
    for url in (
        f"/ases/{user_as.pk}/paths/",
        f"/ases/{user_as.pk}/joint-tests/{made.pk}/",
        f"/ases/{user_as.pk}/joint-tests/{waiting.pk}/",
    ):
        page.goto(url)
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        judge(page, url)
    page.goto(f"/ases/{user_as.pk}/joint-test/")
    page.get_by_label("Time for each direction").fill("21")
    page.get_by_role("button", name="Schedule").click()
    page.get_by_text("Choose another time").first.wait_for()
    judge(page, "a form with its errors")
