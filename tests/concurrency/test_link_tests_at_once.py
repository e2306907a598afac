"""Tests of Links that many people reserve at once: the service lets one through, and so does the database by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from django.db import IntegrityError, OperationalError, connections, transaction

from scionlab.accounts.models import User
from scionlab.linktests.link_test import SlotTakenError, link_test_create
from scionlab.linktests.models import LinkTest
from scionlab.testbed.models import AttachmentPoint, Host, Link
from scionlab.testbed.selectors import links_of
from tests.concurrency.conftest import DEADLINE_S
from tests.factories import attach, spec

T0 = datetime(2027, 11, 21, 6, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def insert(link_id: int, begins_at: datetime) -> bool:
    """Past the service, without a lock; whether the database took it."""
    try:
        with transaction.atomic():
            LinkTest.objects.create(link_id=link_id, tool="watch", begins_at=begins_at, ends_at=begins_at + MINUTE)
    except IntegrityError:
        return False
    finally:
        connections.close_all()
    return True


def test_of_fifty_inserts_at_once_the_database_takes_one_for_each_time(owner: User, ap: AttachmentPoint) -> None:
    """Beside each other they fit: 50 want one of five minutes of a Link, ten each."""
    link = links_of(attach(owner, spec(ap)))[0]
    with ThreadPoolExecutor(max_workers=25) as pool:
        futures = [pool.submit(insert, link.pk, T0 + MINUTE * (number % 5)) for number in range(50)]
        taken = [future.result(timeout=DEADLINE_S) for future in futures]
    assert sum(taken) == LinkTest.objects.count() == 5


def test_of_four_who_start_a_watch_at_once_three_learn_the_next_free_time(
    owner: User, teammate: User, ap: AttachmentPoint
) -> None:
    link: Link = links_of(attach(owner, spec(ap)))[0]
    before = Host.objects.get(pk=ap.host_id).limits_version

    def create(actor: User) -> object:
        try:
            return link_test_create(link_id=link.pk, duration_s=60, begins_at=None, actor=actor)
        except SlotTakenError as exc:
            return exc
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=4) as pool:
        found = list(pool.map(create, [owner, teammate, owner, teammate]))
    made = [one for one in found if isinstance(one, LinkTest)]
    assert len(made) == 1
    assert [one.next_free_at for one in found if isinstance(one, SlotTakenError)] == [made[0].ends_at] * 3
    assert Host.objects.get(pk=ap.host_id).limits_version == before + 1


def test_of_fifty_tests_that_send_at_once_the_database_takes_one_for_each_lane(
    owner: User, ap: AttachmentPoint
) -> None:
    """Five links want the same minute, each in any of the four lanes. Past the service nobody holds the attachment
    point's lock, so two that wait for each other may both have to go: whoever is left fills the lanes."""
    links = [links_of(attach(owner, spec(ap, public_ip=f"198.51.100.{number}")))[0] for number in range(1, 6)]

    def insert_in_lane(number: int) -> bool:
        link, lane = links[number % 5], number % 4
        row = {"link_id": link.pk, "tool": "quick", "ap_id": ap.pk, "lane": lane}
        try:
            with transaction.atomic():
                LinkTest.objects.create(**row, begins_at=T0, ends_at=T0 + MINUTE)
        except (IntegrityError, OperationalError):  # taken, or a deadlock
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(max_workers=25) as pool:
        futures = [pool.submit(insert_in_lane, number) for number in range(50)]
        taken = [future.result(timeout=DEADLINE_S) for future in futures]
    taken += [insert_in_lane(number) for number in range(20)]
    rows = list(LinkTest.objects.values_list("lane", "link"))
    assert sum(taken) == len(rows) == 4
    assert {lane for lane, _ in rows} == {0, 1, 2, 3}
    assert len({link_id for _, link_id in rows}) == 4
