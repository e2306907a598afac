"""The pages of joint tests, as axe judges them and on a phone: the form with errors, one that waits, and a report."""

from __future__ import annotations

from datetime import timedelta

from playwright.sync_api import Page

from scionlab.accounts.models import User
from scionlab.linktests.joint_test import joint_test_create
from scionlab.testbed.models import AttachmentPoint
from tests.factories import spec
from tests.joint_world import confirm, enforced, measured
from tests.support.browser import IN_A_BROWSER, judge

pytestmark = IN_A_BROWSER


def test_pages_of_joint_tests_are_accessible_and_fit_a_phone(
    page: Page, owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    five = [spec(one, public_port=50_000 + number) for number, one in enumerate([ap, ap, ap, ap_b, ap_b])]
    user_as = enforced(owner, *five)
    report = joint_test_create(user_as_id=user_as.pk, actor=owner)
    measured(report)
    confirm()
    waiting = joint_test_create(user_as_id=user_as.pk, begins_at=report.ends_at + timedelta(hours=1), actor=owner)
    for url in (
        f"/ases/{user_as.pk}/paths/",
        f"/ases/{user_as.pk}/joint-tests/{report.pk}/",
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
