"""Temporary limits that two people make at once: the second one is refused, and told of the first one."""

from __future__ import annotations

from functools import partial

from bandwidth_config import Limits
from scionlab.limits import profiles, timed_limit
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Link, TimedLimit
from tests.concurrency.conftest import AtOnce, MeetIn, failures, versions


def test_of_two_that_overlap_one_is_refused_with_the_other_named(
    links: list[Link], ap: AttachmentPoint, at_once: AtOnce, meet_in: MeetIn
) -> None:
    _, before = versions(ap)
    profile = profiles.constant(Limits(200, 100), 3600)
    create = partial(timed_limit_create, link_id=links[0].pk, profile=profile, begins_at=None, actor=None)
    meeting = meet_in(timed_limit, "_check_room")
    results = at_once(create, create)
    assert not meeting.met, "one waits for the other before it looks"
    refused = failures(results)
    assert [getattr(one, "code", None) for one in refused] == ["timed_overlap"]
    assert TimedLimit.objects.get().describe() in str(refused[0])
    assert versions(ap)[1] == before + 1
    assert BandwidthChange.objects.filter(kind="timed_limit").count() == 1
