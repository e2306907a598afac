"""Every page of a user in each state of a link: as axe judges it (WCAG 2.1 A, AA), with keys alone, and on a phone."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from django.utils import timezone
from playwright.sync_api import Locator, Page, expect

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.profiles import constant
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_update
from scionlab.testbed.models import AttachmentPoint, Link, TimedLimit, UserAS
from scionlab.usage import live
from tests.factories import AttachmentPointFactory, attach, spec
from tests.limits.test_pages_link import busy
from tests.limits.test_pages_status import confirm
from tests.support.browser import IN_A_BROWSER, judge, narrow

pytestmark = IN_A_BROWSER


def test_every_page_is_accessible_and_fits_a_phone(page: Page, owner: User, ap: AttachmentPoint) -> None:
    link = busy(owner, ap)
    side = live.Side(500, 70_000, 4000)
    rates = live.Rates(time.time() + 600, 1000, True, side, side)  # as if it were of now, all the time
    live.store(link.interface_a.host.uid, {link.interface_a.interface_id: rates})
    own = f"/ases/{link.interface_b.AS_id}/"
    at = f"{own}links/{link.pk}/"
    kinds = [f"{at}timed/?kind={kind}" for kind in ("constant", "stair", "square", "outage")]
    for url in [
        "/ases/",
        "/ases/new/",
        own,
        f"{own}edit/",
        f"{own}delete/",
        at,
        f"{at}?span=hour",
        f"{at}history/",
        f"{at}why/?direction=to_user&rate=413&size=200",
        *kinds,
        "/nowhere/",
    ]:
        page.goto(url)
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        judge(page, url)
    page.goto("/ases/new/")
    page.get_by_role("button", name="Create AS").click()
    expect(page.get_by_role("alert")).to_be_visible()
    judge(page, "a form with its errors")


def waiting(link: Link, ap: AttachmentPoint) -> None:
    """As it was made."""


def enforced(link: Link, ap: AttachmentPoint) -> None:
    confirm(link)


def failed(link: Link, ap: AttachmentPoint) -> None:
    confirm(link, state="error", problem="eth1 has a root qdisc that is not ours.", from_user_rate_kbit=None)


def silent(link: Link, ap: AttachmentPoint) -> None:
    confirm(link)
    HostReceipt.objects.filter(host=ap.host).update(received_at=timezone.now() - timedelta(hours=1))


def inactive(link: Link, ap: AttachmentPoint) -> None:
    Link.objects.filter(pk=link.pk).update(active=False)


def observed(link: Link, ap: AttachmentPoint) -> None:
    link_update(link_id=link.pk, observe_only=True, actor=None)
    confirm(link, state="observed", to_user_drops=12, to_user_refused=10, to_user_dropped=2)


def obstructed_under_a_total(link: Link, ap: AttachmentPoint) -> None:
    AttachmentPoint.objects.filter(pk=ap.pk).update(total_kbit=5000)
    confirm(link)
    problems = [{"code": "hook_obstructed", "subject": "eth0", "message": "A tcx program stands in front of ours."}]
    HostReceipt.objects.filter(host=ap.host).update(problems=problems, devices=["eth0"])


def timed(link: Link, ap: AttachmentPoint) -> None:
    timed_limit_create(link_id=link.pk, profile=constant(Limits(56, 48), 7200), begins_at=None, actor=None)


STATES: dict[str, tuple[Callable[[Link, AttachmentPoint], None], str]] = {
    "waiting": (waiting, "Waiting"),
    "enforced": (enforced, "Enforced"),
    "failed": (failed, "Failed"),
    "silent": (silent, "No report"),
    "inactive": (inactive, "Inactive"),
    "observed": (observed, "Observed"),
    "obstructed, under a total that is not in force": (obstructed_under_a_total, "Enforced"),
    "timed": (timed, "Waiting"),
}

# The others have a badge and a sentence as one of these; the list of all of them has every badge.
JUDGED = {"waiting", "enforced", "failed", "observed", "obstructed, under a total that is not in force", "timed"}


def test_every_state_of_a_link_is_accessible_and_fits_a_phone(page: Page, owner: User) -> None:
    User.objects.filter(pk=owner.pk).update(as_quota=len(STATES))
    for number, (state, (make, words)) in enumerate(STATES.items()):
        ap = AttachmentPointFactory(host__public_ipv4=f"192.0.2.{10 + number}")
        made = attach(owner, spec(ap, public_port=50_000 + number))
        link = Link.objects.get(interface_b__AS=made)
        make(link, ap)
        page.goto(f"/ases/{made.pk}/links/{link.pk}/")
        expect(page.locator("#stage")).to_have_text(words)
        if state in JUDGED:
            judge(page, state)
        else:
            narrow(page, state)
    page.goto("/ases/")
    judge(page, "all states in the list")


def tab_to(page: Page, wanted: Locator) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if wanted.evaluate_all("found => found.some(one => one === document.activeElement)"):
            return
    raise AssertionError(f"no way to {wanted} with the keyboard")


def press(page: Page, name: str, role: str = "button") -> None:
    tab_to(page, page.get_by_role(role, name=name, exact=True))  # type: ignore[arg-type]  # one of Playwright's words
    page.keyboard.press("Enter")


def write(page: Page, label: str, text: str) -> None:
    tab_to(page, page.get_by_label(label, exact=True))
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type(text)


def test_a_keyboard_is_enough_to_limit_a_link_for_good_and_for_a_time(
    page: Page, user_as: UserAS, link: Link, receipt: HostReceipt
) -> None:
    page.goto(f"/ases/{user_as.pk}/links/{link.pk}/")
    write(page, "Bandwidth of this link [kbit/s]", "0.5M")
    expect(page.locator("#preview")).to_contain_text(
        "To the user AS 500\u00a0kbit/s, from it 500\u00a0kbit/s; takes effect"
    )
    press(page, "Save")
    expect(page.get_by_text("Saved.")).to_be_visible()
    link.refresh_from_db()
    assert link.requested == Limits(500, 500)

    press(page, "Set a temporary limit…", "link")
    expect(page.get_by_role("heading", name="Temporary limit")).to_be_visible()
    write(page, "To your AS [kbit/s]", "56")
    expect(page.locator("#preview svg")).to_be_visible()
    press(page, "Start")
    expect(page.get_by_text("Started:")).to_be_visible()
    made = TimedLimit.objects.get()
    assert [tuple(step.limits) for step in made.limits.steps] == [(56, 56)]
    page.locator(f"#cancel-{made.pk}").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Cancelled. The regular limits")).to_be_visible()
    made.refresh_from_db()
    assert made.cancelled_at is not None


def test_a_countdown_runs_and_a_hidden_page_asks_nothing(page: Page, user_as: UserAS, link: Link) -> None:
    timed_limit_create(link_id=link.pk, profile=constant(Limits(56, 48), 50), begins_at=None, actor=None)
    asked: list[str] = []
    page.goto(f"/ases/{user_as.pk}/links/{link.pk}/")
    left = page.locator("[data-until]")
    first = left.inner_text()
    expect(left).not_to_have_text(first)
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.on("request", lambda request: asked.append(request.url))  # not of what it asked for just before
    page.wait_for_timeout(2_500)  # more than once around while something is under way
    assert asked == []
    page.evaluate("Object.defineProperty(document, 'hidden', {value: false, configurable: true})")
    with page.expect_request(lambda request: "/links/" in request.url):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_well_known_link_fills_the_numbers_in_at_once(page: Page, user_as: UserAS, link: Link) -> None:
    page.goto(f"/ases/{user_as.pk}/links/{link.pk}/")
    page.get_by_text("Use a preset").click()
    page.get_by_role("button", name="EDGE").click()
    assert page.get_by_label("Bandwidth of this link [kbit/s]").input_value() == "236"
    expect(page.get_by_label("Bandwidth from your AS [kbit/s]")).to_have_value("59")
    expect(page.locator("#preview")).to_contain_text("from it 59")
    assert page.url.endswith(f"/links/{link.pk}/")
    assert Link.objects.get(pk=link.pk).bandwidth_kbit == 1000
