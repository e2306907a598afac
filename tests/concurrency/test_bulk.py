"""A change of many limits, confirmed while somebody saves one of them, and twice at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from scionlab.links import bulk_limits, update
from scionlab.links.bulk import BulkChangedError, bulk_apply, bulk_preview
from scionlab.links.bulk_plan import Operation
from scionlab.links.update import link_set_bandwidth
from scionlab.models import AttachmentPoint, BandwidthChange, BulkChange, Host, Link, Mail, User, locks
from tests.concurrency.conftest import Meeting, Patience
from tests.factories import attach, spec

AtOnce = Callable[..., list[Any]]
WithoutLock = Callable[[Any, str], None]


@pytest.fixture
def links(owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint) -> list[Link]:
    """Two user ASes, each at both attachment points, with 1000 kbit/s."""
    for port in (50_000, 50_010):
        attach(owner, spec(ap, public_port=port), spec(ap_b, public_port=port + 1))
    return list(Link.objects.order_by("pk"))


def capped(links: list[Link], teammate: User) -> BulkChange:
    ids = [one.pk for one in links]
    return bulk_preview(about="links", keys=ids, operation=Operation("cap", 500), chosen="x", actor=teammate)


def confirm(change: BulkChange, actor: User) -> Callable[[], BulkChange]:
    return partial(bulk_apply, bulk_id=change.pk, actor=actor, reason="x")


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch, patience: Patience) -> Callable[[], Meeting]:
    """The bulk change, once it knows what it will do, and the save of one link, once it has read it."""

    def patch() -> Meeting:
        met = Meeting(2, patience.seconds)
        for module, name in ((bulk_limits, "plan"), (update, "locked_link")):
            monkeypatch.setattr(module, name, _then_wait(getattr(module, name), met))
        return met

    return patch


def _then_wait(original: Callable[..., Any], met: Meeting) -> Callable[..., Any]:
    def waiting(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        met.wait()
        return answer

    return waiting


def test_without_locks_both_decide_on_the_same_old_limit(
    links: list[Link], teammate: User, owner: User, at_once: AtOnce, without_lock: WithoutLock, meeting: Any
) -> None:
    """So one of them would undo what the other one never saw."""
    change = capped(links[:1], teammate)
    for lock in ("lock_attachment_points", "lock_links"):
        without_lock(locks, lock)
    met = meeting()
    save = partial(link_set_bandwidth, link_id=links[0].pk, bandwidth_kbit=700, actor=owner)
    results = at_once(confirm(change, teammate), save)
    assert [one for one in results if isinstance(one, Exception)] == []
    assert met.met
    olds = BandwidthChange.objects.filter(link=links[0], old_kbit=1000)
    assert olds.count() == 2, "both say that they changed 1000"


def test_a_limit_that_is_saved_meanwhile_is_never_overwritten_unseen(
    links: list[Link], teammate: User, owner: User, at_once: AtOnce, meeting: Any
) -> None:
    change = capped(links[:1], teammate)
    met = meeting()
    save = partial(link_set_bandwidth, link_id=links[0].pk, bandwidth_kbit=700, actor=owner)
    confirmed, saved = at_once(confirm(change, teammate), save)
    assert not met.met
    assert isinstance(confirmed, BulkChange | BulkChangedError), confirmed
    assert isinstance(saved, Link), saved
    assert Link.objects.get(pk=links[0].pk).bandwidth_kbit == 700, "the owner was first, or saw what was done"


def test_a_second_click_at_the_same_moment_does_nothing(
    links: list[Link], teammate: User, ap: AttachmentPoint, at_once: AtOnce
) -> None:
    change, before = capped(links, teammate), Host.objects.get(pk=ap.host_id).limits_version
    audit = BandwidthChange.objects.count()
    results = at_once(*[confirm(change, teammate)] * 3)
    assert [one for one in results if isinstance(one, Exception)] == []
    assert BandwidthChange.objects.count() == audit + 4
    assert Host.objects.get(pk=ap.host_id).limits_version == before + 1
    assert Mail.objects.filter(key__startswith="bulk:").count() == 1


def test_changes_that_meet_at_the_same_ases_do_not_wait_for_each_other_in_a_circle(
    links: list[Link], teammate: User, ap: AttachmentPoint, at_once: AtOnce
) -> None:
    here = [one for one in links if one.interface_a.host_id == ap.host_id]
    there = [one for one in links if one not in here]
    results = at_once(confirm(capped(here, teammate), teammate), confirm(capped(there[::-1], teammate), teammate))
    assert [one for one in results if isinstance(one, Exception)] == []
    assert set(Link.objects.values_list("bandwidth_kbit", flat=True)) == {500}
