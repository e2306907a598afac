"""Joint tests that are reserved at once, and beside tests of single Links: all Links or none, whoever comes first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from django.db import connections

from scionlab.accounts.models import User
from scionlab.linktests.joint_test import joint_test_create
from scionlab.linktests.link_test import SlotTakenError, link_test_create
from scionlab.linktests.models import JointTest, LinkTest
from scionlab.platform.retry import retried
from scionlab.testbed.models import AttachmentPoint
from tests.concurrency.conftest import DEADLINE_S
from tests.factories import AttachmentPointFactory, spec
from tests.joint_world import enforced, links_of


def at_once(*works: Callable[[], object]) -> list[object]:
    """What each returned, or raised of what may be raised."""
    start = Barrier(len(works))

    def run(work: Callable[[], object]) -> object:
        start.wait(DEADLINE_S)
        try:
            return work()
        except SlotTakenError as exc:
            return exc
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=len(works)) as pool:
        futures = [pool.submit(run, work) for work in works]
        return [one.result(timeout=DEADLINE_S) for one in futures]


def test_of_two_joint_tests_at_once_one_has_all_links_and_one_none(owner: User, ap: AttachmentPoint) -> None:
    far = AttachmentPointFactory()
    user_as = enforced(owner, spec(ap), spec(far, public_ip="198.51.100.8"))
    create = retried(lambda: joint_test_create(user_as_id=user_as.pk, actor=owner))
    found = at_once(create, create)
    (made,) = [one for one in found if isinstance(one, JointTest)]
    (refused,) = [one for one in found if isinstance(one, SlotTakenError)]
    assert refused.next_free_at == made.ends_at
    assert LinkTest.objects.filter(joint=made).count() == LinkTest.objects.count() == 4


def test_beside_a_test_of_one_of_its_links_only_one_of_the_two_is_reserved(owner: User, ap: AttachmentPoint) -> None:
    far = AttachmentPointFactory()
    user_as = enforced(owner, spec(ap), spec(far, public_ip="198.51.100.8"))
    second = links_of(user_as)[1]
    create = retried(lambda: joint_test_create(user_as_id=user_as.pk, actor=owner))
    alone = retried(lambda: link_test_create(link_id=second.pk, duration_s=60, begins_at=None, actor=owner))
    found = at_once(create, alone)
    assert sum(isinstance(one, SlotTakenError) for one in found) == 1
    joints = JointTest.objects.count()
    assert LinkTest.objects.count() == (4 if joints else 1)
    assert LinkTest.objects.exclude(joint=None).count() == 4 * joints
