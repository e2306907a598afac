"""Defaults that reach a thousand Links by several workers at once: every counter rises once per change."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import connection

from scionlab.accounts.models import User
from scionlab.limits.defaults import fan_out, site_default_set
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.testbed import selectors
from scionlab.testbed.models import AS, AttachmentPoint, BandwidthPolicy, BorderRouter, Host, Interface, Link, UserAS
from tests.concurrency.conftest import AtOnce, failures
from tests.factories import ISDFactory

DEFAULT = 1000  # kbit/s, what all of them start with


def network(owner: User, *, points: int, links_each: int) -> list[AttachmentPoint]:
    """Attachment points with Links of 1000 kbit/s each, written as rows: making them is not what is tested."""
    isd = ISDFactory(isd_id=17)
    ases = [AS.objects.create(isd=isd, as_id=parse_as_id("ffaa:0:2001") + n) for n in range(points)]
    hosts = Host.objects.bulk_create(Host(AS=one, public_ipv4=f"192.0.2.{n + 1}") for n, one in enumerate(ases))
    routers = BorderRouter.objects.bulk_create(BorderRouter(host=host, number=1) for host in hosts)
    aps = AttachmentPoint.objects.bulk_create(
        AttachmentPoint(AS=as_, host=host, maximum_kbit=DEFAULT) for as_, host in zip(ases, hosts, strict=True)
    )
    customer = UserAS.objects.create(isd=isd, as_id=parse_as_id("ffaa:1:1"), owner=owner)
    home = Host.objects.create(AS=customer)
    router = BorderRouter.objects.create(host=home, number=1)
    places = [(point, number) for point in range(points) for number in range(links_each)]
    near = Interface.objects.bulk_create(
        Interface(
            AS=ases[point], host=hosts[point], border_router=routers[point], interface_id=number + 1,
            public_ip=f"192.0.2.{point + 1}", public_port=50_000 + number,
        )
        for point, number in places
    )  # fmt: skip
    far = Interface.objects.bulk_create(
        Interface(
            AS=customer, host=home, border_router=router, interface_id=index + 1, public_ip="198.51.100.7",
            public_port=10_000 + index,
        )
        for index in range(len(places))
    )  # fmt: skip
    Link.objects.bulk_create(
        Link(interface_a=a, interface_b=b, type=Link.Type.PROVIDER, bandwidth_kbit=DEFAULT)
        for a, b in zip(near, far, strict=True)
    )
    return aps


def risen(aps: list[AttachmentPoint]) -> list[tuple[int, int]]:
    """By how much H and L of each attachment point's host rose, from 1."""
    rows = Host.objects.filter(pk__in=[ap.host_id for ap in aps]).order_by("pk")
    return [(h - 1, limits - 1) for h, limits in rows.values_list("config_version", "limits_version")]


# --- a default that changes again while it is carried out -----------------------------------------------------------


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


def _twice(pause: Pause, owner: User) -> Callable[[], bool]:
    def change_again() -> bool:
        """True when it had to wait for the worker."""
        assert pause.read.wait(timeout=30)
        threading.Timer(0.4, pause.go_on.set).start()
        site_default_set(default_bandwidth_kbit=200, actor=owner)
        had_to_wait = pause.go_on.is_set()
        fan_out()
        pause.go_on.set()
        return had_to_wait

    return change_again


def test_a_default_changed_again_during_the_fan_out_is_the_one_that_counts(
    owner: User, at_once: AtOnce, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    aps = network(owner, points=4, links_each=3)
    site_default_set(default_bandwidth_kbit=300, actor=owner)
    pause = Pause(monkeypatch)
    caplog.clear()
    worker, had_to_wait = at_once(fan_out, _twice(pause, owner))
    assert failures([worker, had_to_wait]) == []
    assert had_to_wait is True, "the attachment point at hand is finished first"
    assert not AttachmentPoint.objects.exclude(maximum_kbit=200).exists()
    # How many were at the former default already depends on who was quicker; the first one was, for it is what waited.
    rises = [limits for _, limits in risen(aps)]
    assert set(rises) <= {1, 2}
    assert 2 in rises
    carried_out = sum("policy.carried_out" in message for message in caplog.messages)
    assert sum(rises) == carried_out, "a rise per change that was carried out"
