"""Bandwidths and defaults when several people save at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from scionlab.limits import update
from scionlab.limits.defaults import ap_default_set, fan_out, site_default_set
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Link
from tests.concurrency.conftest import AtOnce, failures, versions


def save(one: Link, kbit: int) -> Callable[[], Link]:
    return partial(link_set_bandwidth, link_id=one.pk, bandwidth_kbit=kbit, actor=None)


# --- counters -----------------------------------------------------------------------------------------------------


def test_two_bandwidths_saved_at_once_are_both_counted(links: list[Link], ap: AttachmentPoint, at_once: AtOnce) -> None:
    config, limits = versions(ap)
    assert failures(at_once(save(links[0], 300), save(links[1], 400))) == []
    assert versions(ap) == (config, limits + 2)
    wanted = sorted(Link.objects.values_list("wanted_limits_version", flat=True))
    assert wanted == [limits + 1, limits + 2], "each waits for a version that has its own number"


def test_the_audit_has_an_unbroken_chain(links: list[Link], at_once: AtOnce) -> None:
    """Who saves second has the first one's number as the old one."""
    assert failures(at_once(*(save(links[0], kbit) for kbit in (100, 200, 300, 400)))) == []
    rows = BandwidthChange.objects.filter(link=links[0]).order_by("pk").values_list("old_kbit", "new_kbit")
    chain = [None, *(new for _, new in rows)]
    assert [old for old, _ in rows] == chain[:-1]
    assert sorted(chain[2:]) == [100, 200, 300, 400]


# --- a default that is lowered while somebody saves ------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["site", "attachment point"])
def test_a_number_is_checked_against_a_default_that_cannot_change_meanwhile(
    whose: str, links: list[Link], ap: AttachmentPoint, at_once: AtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, go_on, original = threading.Event(), threading.Event(), update._check

    def check_and_stop(*args: Any) -> None:
        original(*args)
        checked.set()
        go_on.wait(timeout=5)

    monkeypatch.setattr(update, "_check", check_and_stop)
    lower = {
        "site": partial(site_default_set, default_bandwidth_kbit=100, actor=None),
        "attachment point": partial(ap_default_set, attachment_point_id=ap.pk, default_bandwidth_kbit=100, actor=None),
    }[whose]

    def lower_meanwhile() -> bool:
        assert checked.wait(timeout=30)
        threading.Timer(0.5, go_on.set).start()  # the save goes on although the default is still being lowered
        lower()
        return go_on.is_set()

    saved, was_held_up = at_once(save(links[0], 900), lower_meanwhile)
    assert failures([saved, was_held_up]) == []
    assert was_held_up is True, "the default waits until the save is done"
    assert fan_out() == [ap.host.pk]
    links[0].refresh_from_db()
    assert (links[0].bandwidth_kbit, links[0].enforced_kbit) == (900, 100), "the choice is kept, and clamped"
    assert links[0].wanted_limits_version == versions(ap)[1]
