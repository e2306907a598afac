"""Timed limits that several people make, cancel and retire at once: the race first, then what holds it back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from django.utils import timezone

from bandwidth_config import Limits
from scionlab.limits import profiles, timed_limit
from scionlab.limits.defaults import ap_default_set, fan_out
from scionlab.limits.timed_limit import timed_limit_cancel, timed_limit_create
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link, TimedLimit
from tests.concurrency.conftest import AtOnce, MeetIn, failures

SLOW = profiles.constant(Limits(200, 100), 3600)


def create(link: Link, profile: profiles.Profile = SLOW) -> Callable[[], TimedLimit]:
    return partial(timed_limit_create, link_id=link.pk, profile=profile, begins_at=None, actor=None)


def limits_version(ap: AttachmentPoint) -> int:
    return Host.objects.get(pk=ap.host.pk).limits_version


def test_of_two_that_overlap_one_is_refused_with_the_other_named(
    links: list[Link], ap: AttachmentPoint, at_once: AtOnce, meet_in: MeetIn
) -> None:
    before = limits_version(ap)
    meeting = meet_in(timed_limit, "_check_room")
    results = at_once(create(links[0]), create(links[0]))
    assert not meeting.met, "one waits for the other before it looks"
    refused = failures(results)
    assert [getattr(one, "code", None) for one in refused] == ["timed_overlap"]
    assert TimedLimit.objects.get().describe() in str(refused[0])
    assert limits_version(ap) == before + 1
    assert BandwidthChange.objects.filter(kind="timed_limit").count() == 1


def test_two_links_of_one_host_share_its_room_for_steps(
    links: list[Link], at_once: AtOnce, meet_in: MeetIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed_limit, "MAX_STEPS_PER_HOST", 1)
    meet_in(timed_limit, "_check_room")
    results = at_once(create(links[0]), create(links[1]))
    assert [getattr(one, "code", None) for one in failures(results)] == ["timed_host_full"]


def test_cancelled_twice_at_once_is_written_down_once(links: list[Link], ap: AttachmentPoint, at_once: AtOnce) -> None:
    made = create(links[0])()
    before = limits_version(ap)
    cancel = partial(timed_limit_cancel, timed_limit_id=made.pk, actor=None)
    assert failures(at_once(cancel, cancel, cancel)) == []
    assert limits_version(ap) == before + 1
    assert BandwidthChange.objects.filter(detail__startswith="cancelled").count() == 1


def test_maximum_that_is_lowered_meanwhile_is_waited_for_by_every_timed_limit(
    links: list[Link], ap: AttachmentPoint, at_once: AtOnce
) -> None:
    """Whoever comes first: the link waits for a version that has it clamped, or is told that it is too much."""
    high = profiles.constant(Limits(900, 900), 3600)

    def lower() -> None:
        ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=300, actor=None)
        fan_out()

    made, lowered = at_once(create(links[0], high), lower)
    assert failures([lowered]) == []
    link = Link.objects.get(pk=links[0].pk)
    if isinstance(made, Exception):
        assert getattr(made, "code", None) == "bandwidth_too_high"
    else:
        assert link.limits_at(timezone.now()) == Limits(300, 300)
        assert link.wanted_limits_version == limits_version(ap)
