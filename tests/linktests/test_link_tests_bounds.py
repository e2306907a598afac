"""What nobody is to bring about with tests of Links: thousands of reservations, and a night in which clocks are put."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.test import Client

from bandwidth_config import RuleError, generate_link_info
from contract.link_info import check_link_info
from scionlab.accounts.models import User
from scionlab.linktests.link_test import MAX_TESTS_PER_HOST, link_test_create
from scionlab.linktests.models import LinkTest
from scionlab.testbed.models import AttachmentPoint, Host, Link
from tests.factories import attach, spec
from tests.support.standing_clock import Now, at, now

__all__ = ["now"]  # the fixture
pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)


def code_of(link: Link, actor: User, begins_s: float, duration_s: int = 5) -> str:
    """Of the refusal; empty where it was taken."""
    try:
        with transaction.atomic():
            link_test_create(link_id=link.pk, duration_s=duration_s, begins_at=at(begins_s), actor=actor)
    except RuleError as exc:
        return exc.code
    return ""


def test_an_attachment_point_has_a_thousand_reservations_at_most(link: Link, owner: User, ap: AttachmentPoint) -> None:
    """Of another link, past the service, which takes eight of a link."""
    other = Link.objects.get(interface_b__AS=attach(owner, spec(ap, public_ip="198.51.100.9")).pk)
    begins = [at(3600 + 5 * number) for number in range(10_000)]
    rows = [LinkTest(link=other, tool="watch", begins_at=one, ends_at=one + 5 * SECOND) for one in begins]
    LinkTest.objects.bulk_create(rows[: MAX_TESTS_PER_HOST - 1])
    assert code_of(link, owner, 60) == ""
    assert code_of(link, owner, 70) == "test_host_full"
    LinkTest.objects.bulk_create(rows[MAX_TESTS_PER_HOST:])
    before = Host.objects.get(pk=ap.host_id).limits_version
    assert code_of(link, owner, 70) == "test_host_full"
    assert Host.objects.get(pk=ap.host_id).limits_version == before


def test_a_test_lasts_as_long_over_a_change_of_clocks(link: Link, host: Host, owner: User, now: Now) -> None:
    """In Zurich clocks are set back from 03:00 to 02:00 at 01:00 UTC, an hour after T0."""
    User.objects.filter(pk=owner.pk).update(time_zone="Europe/Zurich")
    browser = Client()
    browser.force_login(User.objects.get(pk=owner.pk))
    page = f"/ases/{link.interface_b.AS_id}/links/{link.pk}/"
    typed = {"watch-duration_s": "600", "watch-begins_at": "2026-10-25 02:55"}
    twice = browser.post(f"{page}watch/", typed).content.decode()
    assert "2026-10-25 02:55 occurs twice in Europe/Zurich" in twice
    assert not LinkTest.objects.exists()
    made = browser.post(f"{page}watch/", {**typed, "watch-begins_at": "2026-10-25 02:55+02:00"})
    assert made.status_code == 302
    test = LinkTest.objects.get()
    assert (test.begins_at, test.ends_at) == (at(3300), at(3900))
    (found,) = check_link_info(generate_link_info(host))[link.interface_a.interface_id].tests
    assert (found.begins_at, found.duration_s) == (at(3300), 600)
    now.moment = at(3700)  # 02:01 again, in the middle of it
    shown = browser.get(made["Location"]).content.decode()
    assert "(600 s)" in shown
    assert shown.count("02:55") == 1
    assert shown.count("02:05") == 1, shown
    assert code_of(link, owner, 3890) == "test_slot_taken"
    assert code_of(link, owner, 3900) == ""
