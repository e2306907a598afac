"""What a receipt costs follows what it changes, and not how many Links there are (docs/performance.md).

Counted are the rows that are written, by PostgreSQL, and statements.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from bandwidth_config import Limits
from scionlab.accounts.models import Mail, User
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.receipt import Stored, receipt_store
from scionlab.enforcement.receipt_format import parse_receipt
from scionlab.enforcement.status import link_status
from scionlab.limits.profiles import constant
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import AttachmentPoint, Host, Link
from tests.cases import table
from tests.enforcement.test_receipt import document, error_entry, link_entry
from tests.factories import attach, spec

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL counts the rows"),
]

T0 = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LINKS = 6
RUN = "a" * 32


@contextmanager
def rows_written() -> Iterator[dict[str, int]]:
    """By table, filled in at the end."""
    found: dict[str, int] = {}
    before = _written()
    yield found
    for name, count in _written().items():
        if count != before.get(name, 0):
            found[name.partition("_")[2]] = count - before.get(name, 0)


def _written() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_xact_user_tables")
        return dict(cursor.fetchall())


def entries(**changed: Any) -> dict[str, Any]:
    return {str(n): link_entry(1000) for n in range(1, LINKS + 1)} | changed


def send(host: Host, links: dict[str, Any], at: datetime, **values: Any) -> Stored:
    """As the view does it."""
    content = json.dumps(document(host, links, **{"observed_at": at.isoformat(), **values})).encode()
    return receipt_store(host_id=host.pk, receipt=parse_receipt(content), now=at)


@pytest.fixture
def busy(host: Host, ap: AttachmentPoint, link: Link, teammate: User) -> Host:
    """The host of an attachment point with `LINKS` Links, all reported as enforced at T0."""
    attach(teammate, *[spec(ap, public_ip="198.51.100.8", public_port=50_000 + n) for n in range(LINKS - 1)])
    assert send(host, entries(), T0).stored
    assert LinkEnforcement.objects.count() == LINKS
    return host


def counted(number: int) -> dict[str, Any]:
    """The entry of a link through which packets went."""
    found = link_entry(1000)
    found["to_user"] |= {"bytes": 1200 + number, "packets": 9 + number}
    return found


ONE: dict[str, int] = {"hostreceipt": 1}
COSTS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "nothing": ({}, ONE),
    "one counter": ({"2": counted(1)}, {**ONE, "linkenforcement": 1}),
    "one state": ({"2": error_entry(1000, "The IFB is gone.")}, {**ONE, "linkenforcement": 1}),
    "all counters": ({str(n): counted(n) for n in range(1, LINKS + 1)}, {**ONE, "linkenforcement": LINKS}),
}


@table("what", COSTS)
def test_receipt_writes_the_rows_that_it_changes(what: str, busy: Host) -> None:
    changed, costs = COSTS[what]
    with rows_written() as written:
        assert send(busy, entries(**changed), T0 + MINUTE).stored
    assert written == costs
    row = LinkEnforcement.objects.get(link__interface_a__interface_id=2)
    expected = changed.get("2", link_entry(1000))
    said = (row.state, row.problem, row.to_user_bytes, row.to_user_packets)
    assert said == (expected["state"], expected["problem"] or "", *map(expected["to_user"].get, ("bytes", "packets")))
    assert row.since == (T0 + MINUTE if what == "one state" else T0)


def test_saved_limit_writes_the_row_of_its_link_alone(busy: Host, link: Link, owner: User) -> None:
    """L rises, and with it the versions of which the receipt is: all other Links are as they were."""
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    with rows_written() as written:
        send(busy, entries(**{"1": link_entry(500)}), T0 + MINUTE)
    assert written == {**ONE, "linkenforcement": 1, "mail": 1}
    other = Link.objects.exclude(pk=link.pk).filter(interface_a__host=busy)[0]
    assert [link_status(one, now=T0 + 2 * MINUTE).since for one in (fresh(link), other)] == [T0 + MINUTE, T0]
    with rows_written() as written:
        send(busy, entries(**{"1": link_entry(500)}), T0 + 2 * MINUTE)
    assert written == ONE


def fresh(link: Link) -> Link:
    return Link.objects.get(pk=link.pk)


def test_unchanged_receipt_reads_no_link(busy: Host) -> None:
    with CaptureQueriesContext(connection) as asked:
        send(busy, entries(), T0 + MINUTE)
    # the mark of the last one; savepoint, receipt locked, generation, Links with timed limits, receipt, savepoint
    said = [one["sql"] for one in asked if "SAVEPOINT" not in one["sql"]]
    assert len([one for one in said if one.startswith("SELECT") and '"testbed_host"."uid"' not in one]) <= 4, said
    assert not [one for one in said if 'FROM "enforcement_linkenforcement"' in one]


def test_unchanged_receipts_are_the_last_report(busy: Host, link: Link) -> None:
    for minute in range(1, 6):
        send(busy, entries(), T0 + minute * MINUTE)
    status = link_status(fresh(link), now=T0 + 5 * MINUTE)
    assert (status.stage, status.since, status.read_at) == ("enforced", T0, T0 + 5 * MINUTE)
    assert link_status(fresh(link), now=T0 + 9 * MINUTE).stage == "silent"


SILENT = [{"code": "limiter_silent", "subject": "limiter", "message": "since 06:00"}]


@table(
    ("values", "written"),
    [({}, {"hostreceipt": 1, "mail": 1}), ({"problems": SILENT}, {"hostreceipt": 1})],
    ids=["answers", "silent"],
)
def test_mail_that_becomes_due_while_the_kernel_stays_is_sent(
    values: dict[str, Any], written: dict[str, int], busy: Host, link: Link, owner: User
) -> None:
    """The attachment point's clock is ahead: its kernel has the timed limit before, by our clock, it begins. A limiter
    that is silent confirms nothing, and what was read before it was is confirmed when it answers."""
    begins_at = timezone.now().replace(microsecond=0) + timedelta(hours=1)
    timed_limit_create(link_id=link.pk, profile=constant(Limits.both(300), 3600), begins_at=begins_at, actor=owner)
    Mail.objects.all().delete()
    early, read_at = entries(**{"1": link_entry(300)}), begins_at - timedelta(seconds=30)
    send(busy, early, read_at, run=RUN, number=1)
    assert not Mail.objects.exists()
    with rows_written() as found:
        send(busy, early, read_at + MINUTE, run=RUN, number=2, observed_at=read_at.isoformat(), **values)
    assert found == written
    send(busy, early, read_at + 2 * MINUTE, run=RUN, number=3)
    assert Mail.objects.count() == 1


Step = Callable[[Host, Link, User, datetime], object]
HISTORY: list[Step] = [
    lambda host, _link, _owner, at: send(host, entries(), at),
    lambda host, _link, _owner, at: send(host, entries(**{"2": counted(1)}), at),
    lambda _host, link, owner, _at: link_set_bandwidth(link_id=link.pk, bandwidth_kbit=700, actor=owner),
    lambda host, _link, _owner, at: send(host, entries(**{"2": counted(1)}), at),
    lambda host, _link, _owner, at: send(host, entries(**{"1": link_entry(700)}), at),
    lambda host, _link, _owner, at: send(host, entries(**{"1": link_entry(700), "77": link_entry(5)}), at),
    lambda host, _link, _owner, at: send(host, entries(**{"1": link_entry(700), "77": link_entry(5)}), at),
    lambda host, _link, _owner, at: send(host, {}, at, version=None, limits_version=None),
    lambda host, _link, _owner, at: send(host, entries(**{"1": link_entry(700)}), at),
    lambda host, _link, _owner, at: send(host, entries(**{"1": link_entry(700)}), at, problems=SILENT),
    lambda host, _link, _owner, at: send(host, entries(**{"1": link_entry(9)}), at, problems=SILENT),
    lambda host, _link, _owner, at: send(host, entries(**{"1": link_entry(9)}), at),
    lambda host, _link, _owner, at: send(host, entries(**{"1": link_entry(700)}), at),
]


def test_what_is_known_does_not_depend_on_the_digest(busy: Host, link: Link, owner: User) -> None:
    """The same history, told with all marks in place and without any, leaves the same at each step."""
    known: dict[bool, list[object]] = {}
    start = T0
    for with_marks in (True, False):
        LinkEnforcement.objects.all().delete()
        HostReceipt.objects.all().delete()
        link_set_bandwidth(link_id=link.pk, bandwidth_kbit=1000, actor=owner)
        Mail.objects.all().delete()
        known[with_marks] = []
        for number, step in enumerate(HISTORY):
            if not with_marks:
                HostReceipt.objects.update(links_digest="")
            at = start + number * MINUTE
            step(busy, link, owner, at)
            known[with_marks].append(told(at, start))
        start += timedelta(days=1)
    assert known[True] == known[False]
    assert len({str(one) for one in known[True]}) > 6, "the history has too little in it"


def told(at: datetime, start: datetime) -> object:
    def ago(moment: datetime | None) -> object:
        """From the beginning of the history; what was saved was saved just now."""
        return None if moment is None else moment - start if abs(moment - start) < timedelta(hours=1) else "saved"

    status = [link_status(one, now=at) for one in Link.objects.order_by("pk") if one.is_limited]
    return [(one.stage, one.enforced, one.counters, ago(one.since), ago(one.read_at)) for one in status], list(
        Mail.objects.order_by("pk").values_list("subject", flat=True)
    )


def test_each_direction_is_kept_as_it_was_said(busy: Host) -> None:
    different = link_entry(64) | {"to_user_kbit": 1000, "from_user_kbit": 64}
    assert send(busy, entries(**{"3": different}), T0 + MINUTE).stored
    row = LinkEnforcement.objects.get(link__interface_a__interface_id=3)
    assert (row.kbit, row.to_user_kbit, row.from_user_kbit) == (64, 1000, 64)
