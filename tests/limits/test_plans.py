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

from scionlab.accounts.account import link_mail_ask
from scionlab.accounts.models import Mail
from scionlab.limits.pages.presenters import history_of, policy_and_dates
from scionlab.platform.outbox import due_ids
from scionlab.testbed.last_changes import last_bandwidth_change
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Link
from tests.cases import case

pytestmark = pytest.mark.django_db
ROWS = 20_000
AUDIT, MAILS = "testbed_bandwidthchange", "accounts_mail"


@pytest.fixture
def years(link: Link, ap: AttachmentPoint, ap_b: AttachmentPoint) -> None:
    """What there is after some years: nearly all of it is about other Links, or was sent long ago."""
    if connection.vendor != "postgresql":
        pytest.skip("needs PostgreSQL: python -m tests.servers -- python -m pytest FILES")
    now, kinds = timezone.now(), BandwidthChange.Kind
    others = [BandwidthChange(kind=kinds.LINK, subject="another link", new_kbit=n) for n in range(ROWS)]
    others += [BandwidthChange(kind=kinds.AP_DEFAULT, subject="d", attachment_point=ap_b) for _ in range(500)]
    BandwidthChange.objects.bulk_create(others, batch_size=5000)
    mails = [Mail(key=f"{n}", recipient="o@example.org", subject="s", body="b", sent_at=now) for n in range(ROWS)]
    Mail.objects.bulk_create(mails, batch_size=5000)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {AUDIT}, {MAILS}")  # no other table: tests/servers.py has why


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


def test_an_index_answers(link: Link, ap: AttachmentPoint, years: None, subtests: pytest.Subtests) -> None:
    link, kinds = Link.objects.get(pk=link.pk), BandwidthChange.Kind
    of_link, of_default = ("Index Scan", "change_newest_of_link"), ("Index Scan", "change_newest_of_default")
    old = Mail.objects.filter(sent_at__lt=timezone.now() - timedelta(days=90)).order_by("sent_at")
    questions: list[tuple[str, Callable[[], object], str, set[tuple[str, str]]]] = [
        ("changes of a link", lambda: list(history_of(link)[:10]), AUDIT, {of_link}),
        ("page of a link", lambda: policy_and_dates(link), AUDIT, {of_link, of_default}),
        ("site's default", lambda: last_bandwidth_change(kind=kinds.SITE_DEFAULT), AUDIT, {of_default}),
        (
            "attachment point's default",
            lambda: last_bandwidth_change(kind=kinds.AP_DEFAULT, attachment_point=ap.pk),
            AUDIT,
            {of_default},
        ),
        ("newest changes", lambda: list(BandwidthChange.objects.all()[:100]), AUDIT, {("Index Scan", "change_newest")}),
        ("due mails", lambda: due_ids(Mail, now=timezone.now(), limit=500), MAILS, {("Index Scan", "mail_unsent")}),
        ("old mails", lambda: list(old.values_list("pk")[:5000]), MAILS, {("Index Scan", "mail_sent")}),
        (
            "what was asked for lately",
            lambda: link_mail_ask(purpose=Mail.Purpose.PASSWORD, email="o@example.org", network=None),
            MAILS,
            {("Index Scan", "mail_asked")},
        ),
    ]
    for name, ask, where, wanted in questions:
        with case(subtests, name):
            assert read_by(ask, where) == wanted
    with case(subtests, "without its index the page of a link reads the whole record"):
        with connection.cursor() as cursor:
            cursor.execute("DROP INDEX change_newest_of_default")
        assert read_by(lambda: policy_and_dates(link), AUDIT) & {("Seq Scan", ""), ("Index Scan", "change_newest")}
