"""Joint tests that are reserved at once, and beside tests of single Links: all Links or none, whoever comes first."""

from __future__ import annotations

from scionlab.accounts.models import User
from scionlab.linktests.joint_test import joint_test_create
from scionlab.linktests.link_test import SlotTakenError, link_test_create
from scionlab.linktests.models import JointTest, LinkTest
from scionlab.platform.retry import retried
from scionlab.testbed.models import AttachmentPoint
from tests.concurrency.conftest import AtOnce, failures
from tests.factories import AttachmentPointFactory, spec
from tests.joint_world import enforced, links_of


def test_of_two_joint_tests_at_once_one_has_all_links_and_one_none(
    owner: User, ap: AttachmentPoint, at_once: AtOnce
) -> None:
    far = AttachmentPointFactory()
    user_as = enforced(owner, spec(ap), spec(far, public_ip="198.51.100.8"))
    create = retried(lambda: joint_test_create(user_as_id=user_as.pk, actor=owner))
    found = at_once(create, create)
    (made,) = [one for one in found if isinstance(one, JointTest)]
    (refused,) = failures(found)
    assert isinstance(refused, SlotTakenError), repr(refused)
    assert refused.next_free_at == made.ends_at
    assert LinkTest.objects.filter(joint=made).count() == LinkTest.objects.count() == 4


def test_beside_a_test_of_one_of_its_links_only_one_of_the_two_is_reserved(
    owner: User, ap: AttachmentPoint, at_once: AtOnce
) -> None:
    far = AttachmentPointFactory()
    user_as = enforced(owner, spec(ap), spec(far, public_ip="198.51.100.8"))
    second = links_of(user_as)[1]
    create = retried(lambda: joint_test_create(user_as_id=user_as.pk, actor=owner))
    alone = retried(lambda: link_test_create(link_id=second.pk, duration_s=60, begins_at=None, actor=owner))
    found = at_once(create, alone)
    assert [type(one) for one in failures(found)] == [SlotTakenError]
    joints = JointTest.objects.count()
    assert LinkTest.objects.count() == (4 if joints else 1)
    assert LinkTest.objects.exclude(joint=None).count() == 4 * joints
