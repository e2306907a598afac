"""A default that changes again while a worker carries the former one out: the last one counts."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from scionlab.accounts.models import User
from scionlab.limits.defaults import fan_out, site_default_set
from scionlab.testbed import selectors
from scionlab.testbed.models import AttachmentPoint, BandwidthPolicy, Host
from tests.concurrency.conftest import AtOnce, failures
from tests.factories import AttachmentPointFactory, attach, spec


class Pause:
    """Stops the first thread that reads the default to carry it out, until somebody has set another one or cannot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read, self.go_on = threading.Event(), threading.Event()
        original = selectors.policy
        first = threading.Lock()

        def paused() -> BandwidthPolicy:
            found = original()
            if connection.in_atomic_block and first.acquire(blocking=False):
                self.read.set()
                self.go_on.wait(timeout=1.0)
            return found

        monkeypatch.setattr(selectors, "policy", paused)


def test_a_default_changed_again_during_the_fan_out_is_the_one_that_counts(
    owner: User, at_once: AtOnce, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    aps = [AttachmentPointFactory() for _ in range(4)]
    attach(owner, *(spec(ap, public_port=50_000 + number) for number, ap in enumerate(aps)))
    AttachmentPoint.objects.update(maximum_kbit=1000)
    BandwidthPolicy.objects.update(default_bandwidth_kbit=1000)
    Host.objects.update(limits_version=1)
    site_default_set(default_bandwidth_kbit=300, actor=owner)
    pause = Pause(monkeypatch)
    caplog.clear()

    def change_again() -> bool:
        """True when it had to wait for the worker."""
        assert pause.read.wait(timeout=30)
        threading.Timer(0.4, pause.go_on.set).start()
        site_default_set(default_bandwidth_kbit=200, actor=owner)
        had_to_wait = pause.go_on.is_set()
        fan_out()
        pause.go_on.set()
        return had_to_wait

    worker, had_to_wait = at_once(fan_out, change_again)
    assert failures([worker, had_to_wait]) == []
    assert had_to_wait is True, "the attachment point at hand is finished first"
    assert not AttachmentPoint.objects.exclude(maximum_kbit=200).exists()
    # How many were at the former default already depends on who was quicker; the first one was, for it is what waited.
    rises = [
        version - 1
        for version in Host.objects.filter(attachment_point__in=aps).values_list("limits_version", flat=True)
    ]
    assert set(rises) <= {1, 2}
    assert 2 in rises
    carried_out = sum("policy.carried_out" in message for message in caplog.messages)
    assert sum(rises) == carried_out, "a rise per change that was carried out"
