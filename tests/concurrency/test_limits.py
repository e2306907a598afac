"""Bandwidths, defaults and counters when several people save at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from scionlab.limits import update
from scionlab.limits.defaults import ap_default_set, fan_out, site_default_set
from scionlab.limits.update import link_set_bandwidth
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link
from scionlab.testbed.versions import counters
from scionlab.testbed.versions.counters import hosts_bump
from tests.concurrency.conftest import AtOnce, failures


def versions(ap: AttachmentPoint) -> tuple[int, int]:
    found = Host.objects.get(pk=ap.host.pk)
    return found.config_version, found.limits_version


def save(one: Link, kbit: int) -> Callable[[], Link]:
    return partial(link_set_bandwidth, link_id=one.pk, bandwidth_kbit=kbit, actor=None)


# --- counters -----------------------------------------------------------------------------------------------------


def test_two_bandwidths_saved_at_once_are_both_counted(links: list[Link], ap: AttachmentPoint, at_once: AtOnce) -> None:
    config, limits = versions(ap)
    assert failures(at_once(save(links[0], 300), save(links[1], 400))) == []
    assert versions(ap) == (config, limits + 2)
    wanted = sorted(Link.objects.values_list("wanted_limits_version", flat=True))
    assert wanted == [limits + 1, limits + 2], "each waits for a version that has its own number"


def test_a_hundred_bumps_by_eight_threads_in_any_order_of_hosts(
    links: list[Link], ap: AttachmentPoint, ap_b: AttachmentPoint, at_once: AtOnce
) -> None:
    """Rows are locked in the order of their keys, however they are named: nobody waits for ever."""
    before = versions(ap), versions(ap_b)

    def many(ids: list[int]) -> None:
        for _ in range(13):
            hosts_bump(config_ids=ids, limits_ids=ids)

    there, back = [ap.host.pk, ap_b.host.pk], [ap_b.host.pk, ap.host.pk]
    assert failures(at_once(*(partial(many, ids) for ids in [there, back] * 4))) == []
    for point, (config, limits) in zip((ap, ap_b), before, strict=True):
        assert versions(point) == (config + 104, limits + 104)


def test_the_audit_has_an_unbroken_chain(links: list[Link], at_once: AtOnce) -> None:
    """Who saves second has the first one's number as the old one."""
    one = links[0]
    assert failures(at_once(*(save(one, kbit) for kbit in (100, 200, 300, 400)))) == []
    rows = BandwidthChange.objects.filter(link=one).order_by("pk").values_list("old_kbit", "new_kbit")
    chain = [None, *(new for _, new in rows)]
    assert [old for old, _ in rows] == chain[:-1]
    assert sorted(chain[2:]) == [100, 200, 300, 400]


# --- a default that is lowered while somebody saves ------------------------------------------------------------------


def _lower(point: AttachmentPoint | None, kbit: int) -> Callable[[], None]:
    if point is None:
        return partial(site_default_set, default_bandwidth_kbit=kbit, actor=None)
    return partial(ap_default_set, attachment_point_id=point.pk, default_bandwidth_kbit=kbit, actor=None)


def _checked_then(monkeypatch: pytest.MonkeyPatch, checked: threading.Event, go_on: threading.Event) -> None:
    """A save stops right after its number was found allowed."""
    original = update._check

    def check(*args: Any) -> None:
        original(*args)
        checked.set()
        go_on.wait(timeout=5)

    monkeypatch.setattr(update, "_check", check)


@pytest.mark.parametrize("whose", ["site", "attachment point"])
def test_a_number_is_checked_against_a_default_that_cannot_change_meanwhile(
    whose: str, links: list[Link], ap: AttachmentPoint, at_once: AtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, go_on = threading.Event(), threading.Event()
    _checked_then(monkeypatch, checked, go_on)
    lower = _lower(None if whose == "site" else ap, 100)

    def lower_meanwhile() -> bool:
        assert checked.wait(timeout=30)
        watcher = threading.Timer(0.5, go_on.set)  # the save goes on although the default is still being lowered
        watcher.start()
        lower()
        return go_on.is_set()

    saved, was_held_up = at_once(save(links[0], 900), lower_meanwhile)
    assert failures([saved, was_held_up]) == []
    assert was_held_up is True, "the default waits until the save is done"
    assert fan_out() == [ap.host.pk]
    links[0].refresh_from_db()
    assert (links[0].bandwidth_kbit, links[0].enforced_kbit) == (900, 100), "the choice is kept, and clamped"
    assert links[0].wanted_limits_version == versions(ap)[1]


def test_a_number_that_comes_after_the_lower_default_is_refused(
    links: list[Link], ap: AttachmentPoint, at_once: AtOnce
) -> None:
    """The administrator is in the middle of the save: the user waits, and is then judged by the new default."""
    locked = threading.Event()

    def lower() -> None:
        with transaction.atomic():
            ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=100, actor=None)
            locked.set()
            threading.Event().wait(0.4)  # the user's save arrives meanwhile

    def save_late() -> Link:
        assert locked.wait(timeout=30)
        return link_set_bandwidth(link_id=links[0].pk, bandwidth_kbit=900, actor=None)

    _, refused = at_once(lower, save_late)
    assert isinstance(refused, FieldRuleError)
    assert refused.code == "bandwidth_too_high"
    assert "maximum of 100" in refused.message


def test_the_clamp_is_carried_out_once_however_many_workers_try(
    links: list[Link], ap: AttachmentPoint, at_once: AtOnce
) -> None:
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=100, actor=None)
    _, limits = versions(ap)
    results = at_once(fan_out, fan_out, fan_out, fan_out)
    assert sorted(map(len, results)) == [0, 0, 0, 1]
    assert versions(ap)[1] == limits + 1


# --- what hosts report ------------------------------------------------------------------------------------------------


def test_two_answers_leave_the_newest_delivered_versions(
    links: list[Link], ap: AttachmentPoint, at_once: AtOnce
) -> None:
    note = partial(counters.host_note_delivered, host_id=ap.host.pk)
    for _ in range(5):
        Host.objects.filter(pk=ap.host.pk).update(delivered_config_version=0, delivered_limits_version=0)
        at_once(partial(note, config_version=3, limits_version=9), partial(note, config_version=4, limits_version=8))
        found = Host.objects.get(pk=ap.host.pk)
        assert (found.delivered_config_version, found.delivered_limits_version) == (4, 9)
