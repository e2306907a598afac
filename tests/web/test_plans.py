"""PostgreSQL finds by an index what pages and workers ask for all the time, however long the tables are by then."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from scionlab.models import AccountRequest, AttachmentPoint, BandwidthChange, Link, Mail
from scionlab.pages.presenters import history_of, policy_and_dates
from scionlab.people.account import account_requests_due
from scionlab.people.mail import due_mail_ids
from scionlab.people.stale_pages import last_bandwidth_change

pytestmark = pytest.mark.django_db
ROWS = 20_000
AUDIT, MAILS, REQUESTS = "scionlab_bandwidthchange", "scionlab_mail", "scionlab_accountrequest"


@pytest.fixture
def years(link: Link, ap: AttachmentPoint, ap_b: AttachmentPoint) -> None:
    """What there is after some years: nearly all of it is about other Links, or was sent long ago."""
    if connection.vendor != "postgresql":
        pytest.skip("needs PostgreSQL: python -m tests.servers -- python -m pytest tests/web")
    now, kinds = timezone.now(), BandwidthChange.Kind
    others = [BandwidthChange(kind=kinds.LINK, subject="another link", new_kbit=n) for n in range(ROWS)]
    others += [BandwidthChange(kind=kinds.AP_DEFAULT, subject="d", attachment_point=ap_b) for _ in range(500)]
    BandwidthChange.objects.bulk_create(others, batch_size=5000)
    mails = [Mail(key=f"{n}", recipient="o@example.org", subject="s", body="b", sent_at=now) for n in range(ROWS)]
    Mail.objects.bulk_create(mails, batch_size=5000)
    asked = {"purpose": "register", "email": "o@example.org", "expires_at": now + timedelta(hours=1)}
    AccountRequest.objects.bulk_create(AccountRequest(**asked, answered_at=now) for _ in range(ROWS))
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {AUDIT}, {MAILS}, {REQUESTS}")  # no other table: tests/servers.py has why


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


def read_by(ask: Callable[[], object], table: str) -> set[tuple[str, str]]:
    """How the statements of `ask` read `table`: kind of scan, and index."""
    with CaptureQueriesContext(connection) as statements:
        ask()
    found = set()
    for one in statements:
        if not one["sql"].startswith("SELECT"):
            continue
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {one['sql']}")
            answer = cursor.fetchone()[0]
        plan = answer if isinstance(answer, list) else json.loads(answer)
        for node in nodes(plan[0]["Plan"]):
            if node.get("Relation Name") == table:
                found.add((node["Node Type"].replace("Index Only", "Index"), node.get("Index Name", "")))
    return found


def test_the_page_of_a_link_reads_the_changes_of_that_link_alone(link: Link, years: None) -> None:
    assert read_by(lambda: list(history_of(link)[:10]), AUDIT) == {("Index Scan", "change_newest_of_link")}
    link = Link.objects.get(pk=link.pk)
    assert read_by(lambda: policy_and_dates(link), AUDIT) == {
        ("Index Scan", "change_newest_of_link"),
        ("Index Scan", "change_newest_of_default"),
    }


def test_what_a_page_of_a_default_is_compared_with_is_found_by_an_index(ap: AttachmentPoint, years: None) -> None:
    kinds = BandwidthChange.Kind
    for which in ({"kind": kinds.SITE_DEFAULT}, {"kind": kinds.AP_DEFAULT, "attachment_point": ap.pk}):
        found = read_by(lambda which=which: last_bandwidth_change(**which), AUDIT)
        assert found == {("Index Scan", "change_newest_of_default")}


def test_the_newest_changes_are_listed_without_sorting_all(years: None) -> None:
    assert read_by(lambda: list(BandwidthChange.objects.all()[:100]), AUDIT) == {("Index Scan", "change_newest")}


def test_due_mails_are_found_among_those_that_were_not_sent(years: None) -> None:
    assert read_by(lambda: due_mail_ids(now=timezone.now(), limit=500), MAILS) == {("Index Scan", "mail_unsent")}


def test_what_was_asked_for_is_found_among_what_nobody_answered(years: None) -> None:
    found = read_by(lambda: account_requests_due(limit=500), REQUESTS)
    assert found == {("Index Scan", "account_request_unanswered")}


def test_sent_mails_that_have_their_age_are_found_by_an_index(years: None) -> None:
    old = Mail.objects.filter(sent_at__lt=timezone.now() - timedelta(days=90)).order_by("sent_at")
    assert read_by(lambda: list(old.values_list("pk")[:5000]), MAILS) == {("Index Scan", "mail_sent")}


def test_without_its_index_the_page_of_a_link_reads_the_whole_record(link: Link, years: None) -> None:
    """What the index is for."""
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX change_newest_of_default")
    link = Link.objects.get(pk=link.pk)
    assert read_by(lambda: policy_and_dates(link), AUDIT) & {("Seq Scan", ""), ("Index Scan", "change_newest")}
