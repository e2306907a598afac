"""Tests of Links that are reserved at once: whoever comes first has the time, a joint test for all of its Links."""

from __future__ import annotations

from functools import partial

from scionlab.accounts.models import User
from scionlab.linktests.joint_test import joint_test_create
from scionlab.linktests.link_test import SlotTakenError, link_test_create
from scionlab.linktests.models import JointTest, LinkTest
from scionlab.platform.retry import retried
from scionlab.testbed.models import AttachmentPoint, Host
from scionlab.testbed.selectors import links_of
from tests.concurrency.conftest import AtOnce, failures
from tests.factories import AttachmentPointFactory, attach, spec
from tests.joint_world import enforced


def test_of_four_who_start_a_watch_at_once_three_learn_the_next_free_time(
    owner: User, teammate: User, ap: AttachmentPoint, at_once: AtOnce
) -> None:
    link = links_of(attach(owner, spec(ap)))[0]
    before = Host.objects.get(pk=ap.host_id).limits_version
    create = partial(link_test_create, link_id=link.pk, duration_s=60, begins_at=None)
    found = at_once(*(partial(create, actor=actor) for actor in (owner, teammate, owner, teammate)))
    (made,) = [one for one in found if isinstance(one, LinkTest)]
    refused = [one for one in failures(found) if isinstance(one, SlotTakenError)]
    assert [one.next_free_at for one in refused] == [made.ends_at] * 3
    assert Host.objects.get(pk=ap.host_id).limits_version == before + 1


def test_of_two_joint_tests_at_once_one_has_all_links_and_one_none(
    owner: User, ap: AttachmentPoint, at_once: AtOnce
) -> None:
    user_as = enforced(owner, spec(ap), spec(AttachmentPointFactory(), public_ip="198.51.100.8"))
    create = retried(lambda: joint_test_create(user_as_id=user_as.pk, actor=owner))
    found = at_once(create, create)
    (made,) = [one for one in found if isinstance(one, JointTest)]
    (refused,) = failures(found)
    assert isinstance(refused, SlotTakenError), repr(refused)
    assert refused.next_free_at == made.ends_at
    assert LinkTest.objects.filter(joint=made).count() == LinkTest.objects.count() == 4
