"""Joint tests: reserve a time at all active Links of a user AS, or at none; cancel all of it.

Its parts are normal tests of Links (`linktests.link_test`): each is limited, measured and judged separately. Everything
happens in one transaction under the locks of all attachment points concerned.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from django.db import transaction

from contract.link_tests import TEST_LANES
from scionlab.accounts.locks import lock_user
from scionlab.accounts.models import User
from scionlab.limits.locked import locked_links
from scionlab.limits.retirement import retire_at
from scionlab.linktests.joint_plan import TOOL, Part, read_seconds, stages_of
from scionlab.linktests.link_test import (
    ARMED_AHEAD,
    RETIRED_AFTER,
    attachment_point_of,
    beginning_of,
    check_allowance,
    check_room,
    end_of,
    free_times,
    link_tests_cancel,
    reserve,
    sent_bytes,
)
from scionlab.linktests.models import JointTest, LinkTest
from scionlab.linktests.sending import Plan, check_load, check_plan, check_ready, plan_of
from scionlab.linktests.test_policy import allowance_of
from scionlab.platform.clock import database_now
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.retry import retried
from scionlab.testbed.models import AttachmentPoint, Link, TimedLimit, UserAS
from scionlab.testbed.versions.changes import Changes

logger = logging.getLogger(__name__)

MIN_LINKS: Final = 2
PARTS_PER_LINK: Final = 2  # alone, and together
_SECOND: Final = timedelta(seconds=1)

ApOf = Mapping[int, AttachmentPoint]  # by Link


@transaction.atomic
def joint_test_create(
    *,
    user_as_id: int,
    actor: User,
    begins_at: datetime | None = None,
    seconds: int | None = None,
) -> JointTest:
    """Reserve tests of all active Links from `begins_at` (aware; None: as soon as possible), or of none.

    `seconds`: for each direction of a part. Permissions are checked for each Link; each part counts as a test of the
    day, all together as one pending test. L of each attachment point's host rises once. Raises `FieldRuleError`
    (`joint_seconds`, `joint_few`, `joint_lanes`, `timed_overlap`, those of `link_test_create`), `SlotTakenError` with
    the next time at which all Links are free, `UserAS.DoesNotExist`.
    """
    seconds = read_seconds(seconds)
    user_as = UserAS.objects.get(pk=user_as_id)
    lock_user(actor.pk)  # the person whose tests are counted
    changes = Changes()
    links = _active_links(user_as, changes)
    ap_of = {link.pk: attachment_point_of(link) for link in links}
    now = database_now()
    mine = LinkTest.objects.filter(created_by=actor, tool=TOOL)
    allowance = allowance_of(actor, TOOL)
    begins_at = beginning_of(begins_at, now, allowance, TOOL)
    plans: dict[int, Plan] = {}
    sent = sent_bytes(mine, now)
    for link in links:
        check_ready(link, TOOL, actor, now)
        plan = plan_of(TOOL, {"seconds": seconds}, link.limits_at(begins_at))
        check_plan(plan, allowance, sent + (PARTS_PER_LINK - 1) * plan.offered_bytes)
        plans[link.pk] = plan
        sent += PARTS_PER_LINK * plan.offered_bytes
    check_allowance(mine, allowance, now, more=PARTS_PER_LINK * len(links))
    for ap in _distinct(ap_of):
        if begins_at <= now + ARMED_AHEAD:
            check_load(ap, allowance, now)
        retire_at(ap, LinkTest, until=now - RETIRED_AFTER, now=now, changes=changes)
    for link in links:
        check_room(link, ap_of[link.pk], now, more=PARTS_PER_LINK)
    stages = stages_of([Part(pk, ap_of[pk].pk, plan.duration_s * _SECOND) for pk, plan in plans.items()])
    times = free_times(stages, _distinct(ap_of), begins_at, now=now, hours=allowance.hours)
    made = JointTest.objects.create(user_as=user_as, begins_at=begins_at, ends_at=end_of(times), created_by=actor)
    reserve(times, plans, tool=TOOL, actor=actor, joint=made)
    _refuse_temporary_limits(links, made)
    changes.note_documents(ap.host_id for ap in ap_of.values())
    changes.carry_out()
    logger.info("joint_test.created id=%s %s links=%s actor=%s", made.pk, made, sorted(ap_of), actor.pk)
    return made


@transaction.atomic
def joint_test_cancel(*, joint_test_id: int, actor: User | None) -> JointTest:
    """Cancel all parts that have not ended; the attachment points stop as soon as they know. Does
    nothing if it ended or was cancelled. Raises `JointTest.DoesNotExist`."""
    joint = JointTest.objects.get(pk=joint_test_id)
    link_tests_cancel(LinkTest.objects.filter(joint=joint), joint.pk, actor=actor)
    logger.info("joint_test.cancelled id=%s actor=%s", joint_test_id, actor and actor.pk)
    return JointTest.objects.get(pk=joint_test_id)


def joint_tests_end(links: Iterable[Link]) -> None:
    """Cancel joint tests that lost a part; for services that only lock these Links, so the other parts are cancelled
    after their commit."""
    parts = LinkTest.objects.filter(link__in=[one.pk for one in links], cancelled_at=None, ends_at__gt=database_now())
    for joint_id in parts.exclude(joint=None).values_list("joint", flat=True).distinct().order_by("joint"):
        transaction.on_commit(partial(_cancel_if_there, joint_id), robust=True)  # the saved change stays


def _cancel_if_there(joint_id: int) -> None:
    if JointTest.objects.filter(pk=joint_id).exists():  # deleted with its AS
        retried(joint_test_cancel)(joint_test_id=joint_id, actor=None)


# --- rules ----------------------------------------------------------------------------------------------------------


def _active_links(user_as: UserAS, changes: Changes) -> list[Link]:
    found = Link.objects.filter(type=Link.Type.PROVIDER, interface_b__AS=user_as.pk, active=True)
    links = [link for link in locked_links(set(found.values_list("pk", flat=True)), changes) if link.active]
    if len(links) < MIN_LINKS:
        text = (
            f"{user_as.isd_as} has {len(links)} active links; a joint test needs {MIN_LINKS} at least. Attach to "
            "another attachment point, or activate a link."
        )
        raise FieldRuleError("joint_few", text, "link_id")
    for where, count in Counter(link.interface_a.AS.isd_as for link in links).items():
        if count > TEST_LANES:
            text = (
                f"{count} active links are to {where}, where at most {TEST_LANES} tests send at once. Deactivate one."
            )
            raise FieldRuleError("joint_lanes", text, "link_id")
    return links


def _refuse_temporary_limits(links: list[Link], joint: JointTest) -> None:
    """Reject other timed limits: the limits during a joint test must follow from it alone."""
    present = TimedLimit.objects.filter(link__in=[one.pk for one in links], cancelled_at=None, retired_at=None)
    other = present.filter(begins_at__lt=joint.ends_at, ends_at__gt=joint.begins_at).order_by("begins_at").first()
    if other is not None:
        where = next(one for one in links if one.pk == other.link_id).interface_a.AS.isd_as
        text = (
            f"The link to {where} has a temporary limit at that time: {other.describe()}. Cancel that one, or choose "
            "another time."
        )
        raise FieldRuleError("timed_overlap", text, "begins_at")


def _distinct(ap_of: ApOf) -> list[AttachmentPoint]:
    return [ap for _, ap in sorted({ap.pk: ap for ap in ap_of.values()}.items())]
