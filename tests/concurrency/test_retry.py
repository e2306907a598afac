"""The database ends a save for another one's sake: by whichever door it came, it is done again, once in effect."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from scionlab.accounts.models import User
from scionlab.limits.tasks import fan_out_defaults
from scionlab.platform import outage, retry
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, BandwidthPolicy, Host, Link
from scionlab.testbed.selectors import links_of
from tests.concurrency.conftest import AtOnce, browser_of, versions
from tests.factories import UserFactory, attach, spec
from tests.support.waiting import until

DEADLINE_S = 20.0


@pytest.fixture
def link(owner: User, ap: AttachmentPoint) -> Link:
    return links_of(attach(owner, spec(ap)))[0]


@pytest.fixture
def administrator(transactional_db: None) -> User:
    return UserFactory(email="boss@example.org", is_staff=True)


def somebody_waits() -> bool:
    with connection.cursor() as cursor:
        # Of this database: the server has those of other tests too.
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])


def rival(first: Any, then: Any, holding: threading.Event) -> None:
    """Locks two rows against the order, and has more patience than the other side, whose transaction is so ended."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL deadlock_timeout = '30s'")
        list(first.select_for_update(no_key=True))
        holding.set()
        until(somebody_waits)
        list(then.select_for_update(no_key=True))


def meets_a_rival(at_once: AtOnce, work: Callable[[], Any], first: Any, then: Any) -> Any:
    """What `work` answers, which holds `then` before it wants `first`."""
    holding = threading.Event()

    def works() -> Any:
        assert holding.wait(DEADLINE_S)
        return work()

    answer, other = at_once(works, lambda: rival(first, then, holding))
    assert other is None
    return answer


@pytest.fixture
def attempts(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    return lambda: sum(record.getMessage().startswith("retry.conflict") for record in caplog.records)


def at_the_page(link: Link, owner: User, _administrator: User) -> Callable[[], Any]:
    path = f"/ases/{link.interface_b.AS_id}/links/{link.pk}/bandwidth/"
    return partial(browser_of(owner).post, path, {f"link-{link.pk}-bandwidth_kbit": "300", "save": "1"})


def by_the_api(link: Link, owner: User, _administrator: User) -> Callable[[], Any]:
    path, sent = f"/api/v1/links/{link.pk}/", {"bandwidth_kbit": 300}
    return partial(browser_of(owner).patch, path, sent, content_type="application/json")


def by_an_administrator(link: Link, _owner: User, administrator: User) -> Callable[[], Any]:
    sent = {"bandwidth_kbit": "300", "active": "on"}
    return partial(browser_of(administrator).post, f"/admin/testbed/link/{link.pk}/change/", sent)


@pytest.mark.parametrize("door", [at_the_page, by_the_api, by_an_administrator])
def test_a_save_that_the_database_ended_is_done_again(
    link: Link,
    owner: User,
    administrator: User,
    ap: AttachmentPoint,
    at_once: AtOnce,
    attempts: Callable[[], int],
    door: Callable[[Link, User, User], Callable[[], Any]],
) -> None:
    config, limits = versions(ap)
    work = door(link, owner, administrator)
    hosts, aps = Host.objects.filter(pk=ap.host_id), AttachmentPoint.objects.filter(pk=ap.pk)
    answer = meets_a_rival(at_once, work, hosts, aps)
    assert answer.status_code in {200, 302}
    link.refresh_from_db()
    assert link.bandwidth_kbit == 300
    assert versions(ap) == (config, limits + 1), "once"
    assert BandwidthChange.objects.filter(new_kbit=300).count() == 1
    assert attempts() == 1


def test_a_task_that_the_database_ended_is_done_again(
    link: Link, ap: AttachmentPoint, at_once: AtOnce, attempts: Callable[[], int]
) -> None:
    _config, limits = versions(ap)
    BandwidthPolicy.objects.update(default_bandwidth_kbit=200)
    hosts, aps = Host.objects.filter(pk=ap.host_id), AttachmentPoint.objects.filter(pk=ap.pk)
    assert meets_a_rival(at_once, fan_out_defaults, hosts, aps) is None
    assert (versions(ap)[1], attempts()) == (limits + 1, 1)


def test_after_three_times_it_is_told_that_nothing_was_saved(
    link: Link, owner: User, administrator: User, ap: AttachmentPoint, at_once: AtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "ATTEMPTS", 1)
    before = versions(ap)
    hosts, aps = Host.objects.filter(pk=ap.host_id), AttachmentPoint.objects.filter(pk=ap.pk)
    answer = meets_a_rival(at_once, by_the_api(link, owner, administrator), hosts, aps)
    assert (answer.status_code, answer.has_header("Retry-After")) == (503, True)
    assert answer.json() == {"code": "conflict", "message": outage.CONFLICT, "fields": {}}
    assert versions(ap) == before
    answer = meets_a_rival(at_once, at_the_page(link, owner, administrator), hosts, aps)
    assert (answer.status_code, outage.CONFLICT in answer.content.decode()) == (503, True)
    assert "cannot reach its database" not in answer.content.decode()
