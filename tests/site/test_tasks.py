"""What the workers do: render ahead, fan out, send mails once, and find what a dead worker left undone."""

from __future__ import annotations

import smtplib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.conf import settings
from django.core import mail as outbox
from django.core.cache import cache
from django.core.mail.backends.locmem import EmailBackend
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from kombu.exceptions import ChannelError, OperationalError
from pytest_django import DjangoCaptureOnCommitCallbacks
from redis.exceptions import ConnectionError as RedisConnectionError

from scionlab.accounts.mail import mail_send, mails_create
from scionlab.accounts.models import Mail, User
from scionlab.accounts.tasks import send_mail
from scionlab.delivery import render
from scionlab.delivery.models import IssuedLimits
from scionlab.delivery.tasks import render_host
from scionlab.limits import defaults
from scionlab.limits.tasks import fan_out_defaults
from scionlab.limits.update import link_set_bandwidth
from scionlab.platform.outbox import LEASE, due_ids
from scionlab.platform.queue import FAN_OUT_DEFAULTS, RENDER_HOST, SEND_MAIL, queue_now
from scionlab.platform.redis_client import REST
from scionlab.site import tasks
from scionlab.testbed import selectors
from scionlab.testbed.models import AttachmentPoint, BandwidthPolicy, Host, Link
from scionlab.testbed.versions.changes import Changes
from tests.delivery.test_host_api import manifest_of, poll
from tests.factories import ASFactory, AttachmentPointFactory, HostFactory, LinkFactory

pytestmark = pytest.mark.django_db

Sent = list[tuple[str, tuple[int, ...]]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What was handed to the broker."""
    found: Sent = []
    monkeypatch.setattr(current_app, "send_task", lambda name, args, **_: found.append((name, args)))
    return found


@pytest.fixture(params=[OperationalError("connection refused"), ChannelError("disk full"), NotADirectoryError("queue")])
def broker_down(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise request.param

    monkeypatch.setattr(current_app, "send_task", refuse)


def a_mail(key: str = "link:1:18.7") -> Mail:
    return Mail.objects.create(key=key, recipient="owner@example.org", subject="Link limited", body="Hello")


# --- the queue ----------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_save_survives_a_broker_that_is_down(link: Link, owner: User, broker_down: None) -> None:
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    link.refresh_from_db()
    assert link.bandwidth_kbit == 500


@pytest.mark.django_db(transaction=True)
def test_an_accepted_save_is_not_told_to_have_failed(
    link: Link, owner: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After the commit, even a mistake of ours is for the log alone."""

    def broken(*_: object, **__: object) -> None:
        raise TypeError("not a broker's error")

    monkeypatch.setattr(current_app, "send_task", broken)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
    assert "not a broker's error" in caplog.text


def test_a_broker_that_refused_is_left_alone_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try may take a second, and a save may queue six tasks."""
    tried = []

    def refuse(name: str, **_: object) -> None:
        tried.append(name)
        raise OperationalError("timed out")

    monkeypatch.setattr(current_app, "send_task", refuse)
    assert [queue_now(RENDER_HOST, number) for number in range(6)] == [False] * 6
    assert len(tried) == 1
    monkeypatch.setattr(REST, "_until", time.monotonic() - 0.001)  # the moment is over
    assert (queue_now(RENDER_HOST, 1), len(tried)) == (False, 2)


# --- rendering ----------------------------------------------------------------------------------------------


@pytest.fixture
def renders(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The hosts that were really rendered, not found in the cache."""
    found: list[int] = []
    original: Callable[[int], Any] = render._render

    def spy(host_id: int) -> Any:
        found.append(host_id)
        return original(host_id)

    monkeypatch.setattr(render, "_render", spy)
    cache.clear()
    return found


def test_poll_after_the_task_renders_nothing(link: Link, renders: list[int]) -> None:
    host = link.interface_a.host
    render_host(host.pk)
    assert renders == [host.pk]
    host.refresh_from_db()
    assert poll(host).status_code == 200
    assert renders == [host.pk]


def test_host_that_is_gone_or_has_no_as_is_no_error(renders: list[int]) -> None:
    render_host(999_999)
    render_host(HostFactory(AS=None).pk)
    assert renders == []


def test_host_that_cannot_be_rendered_does_not_stop_the_others(
    link: Link, renders: list[int], sent: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    """A second host of the AS has a router of the same number: topology.json cannot name both."""
    broken, good = link.interface_a.host, link.interface_b.host
    twin = HostFactory(AS=broken.AS, public_ipv4="192.0.2.99")
    LinkFactory(interface_a__host=twin, interface_a__interface_id=77)
    Host.objects.filter(pk__in=[broken.pk, good.pk]).update(last_seen_at=timezone.now(), limits_only=False)
    tasks.sweep()
    assert sent == [(RENDER_HOST, (broken.pk,)), (RENDER_HOST, (good.pk,))], "a task of its own for each"
    for _name, (host_id,) in sent:
        render_host(host_id)
    assert renders == [broken.pk, good.pk]
    assert "border_router_twice" in caplog.text


def polling(count: int) -> list[Host]:
    """Hosts that polled and lack their newest configuration."""
    as_, now = ASFactory(), timezone.now()
    ips = [f"10.0.{n // 200}.{1 + n % 200}" for n in range(count)]
    return Host.objects.bulk_create([Host(AS=as_, internal_ip=ip, last_seen_at=now) for ip in ips])


@pytest.mark.parametrize("count", [10, 1000])
def test_the_sweep_takes_as_many_statements_for_a_thousand_hosts_as_for_ten(count: int, sent: Sent) -> None:
    hosts = polling(count)
    AttachmentPointFactory.create_batch(10, maximum_kbit=1)
    a_mail()
    selectors.policy()
    selectors.generation()
    with CaptureQueriesContext(connection) as statements:
        tasks.sweep()
    assert len(statements) == 7, [one["sql"] for one in statements]
    queued = [args for name, args in sent if name == RENDER_HOST]
    assert len(queued) == min(count, tasks.RENDERS_PER_SWEEP) == len(set(queued))
    assert set(queued) <= {(host.pk,) for host in hosts}
    assert [name for name, _args in sent[:2]] == [SEND_MAIL, FAN_OUT_DEFAULTS], "people wait for mails"


def test_attachment_points_are_rendered_first(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RENDERS_PER_SWEEP", 2)
    polling(20)
    hosts = [one.host for one in AttachmentPointFactory.create_batch(2, host__last_seen_at=timezone.now())]
    tasks.sweep()
    assert {args for name, args in sent if name == RENDER_HOST} == {(host.pk,) for host in hosts}


def test_what_was_rendered_or_delivered_or_nobody_waits_for_is_not_rendered_again(sent: Sent) -> None:
    rendered, delivered, away, waiting = polling(4)
    versions = {"config_version": rendered.config_version, "limits_version": rendered.limits_version}
    IssuedLimits.objects.create(host=rendered, generation=1, digest="0" * 64, **versions)
    IssuedLimits.objects.create(host=waiting, generation=1, digest="0" * 64, **versions | {"limits_version": 0})
    IssuedLimits.objects.create(host=waiting, generation=2, digest="0" * 64, **versions)
    at = Host.objects.filter(pk=delivered.pk)
    at.update(delivered_config_version=F("config_version"), delivered_limits_version=F("limits_version"))
    Host.objects.filter(pk=away.pk).update(last_seen_at=timezone.now() - timedelta(minutes=11))
    tasks.sweep()
    assert sent == [(RENDER_HOST, (waiting.pk,))]


def test_an_attachment_point_that_fails_keeps_no_other_from_its_default(
    ap: AttachmentPoint, ap_b: AttachmentPoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = defaults.apply_default

    def fails_at_the_first(ap_id: int, changes: Changes) -> None:
        if ap_id == ap.pk:
            raise RuntimeError("the one that fails")
        original(ap_id, changes)

    monkeypatch.setattr(defaults, "apply_default", fails_at_the_first)
    BandwidthPolicy.objects.update_or_create(pk=1, defaults={"default_bandwidth_kbit": 300})
    with pytest.raises(RuntimeError):  # so that the task counts as failed
        fan_out_defaults()
    assert dict(AttachmentPoint.objects.values_list("pk", "maximum_kbit")) == {ap.pk: 1000, ap_b.pk: 300}
    assert f"each.failed work=carry_out_default id={ap.pk}" in caplog.text


def test_every_periodic_task_exists_and_is_dropped_when_the_next_one_is_due() -> None:
    current_app.loader.import_default_modules()
    for name, entry in settings.CELERY_BEAT_SCHEDULE.items():
        assert entry["task"] in current_app.tasks, name
        assert 0 < entry["options"]["expires"] <= entry["schedule"], name


def test_cache_that_is_down_makes_no_poll_fail(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RedisConnectionError("connection refused")

    for name in ("get", "set", "has_key"):
        monkeypatch.setattr(render.cache, name, refuse)
    host = link.interface_a.host
    host.refresh_from_db()
    assert manifest_of(poll(host))["limits_version"] == host.limits_version
    render_host(host.pk)


# --- defaults -----------------------------------------------------------------------------------------------


def test_default_that_nobody_carried_out_is_found_by_the_sweep(link: Link, ap: AttachmentPoint, sent: Sent) -> None:
    BandwidthPolicy.objects.update_or_create(pk=1, defaults={"default_bandwidth_kbit": 300})
    before = Host.objects.get(pk=ap.host_id)
    tasks.sweep()
    assert sent == [(FAN_OUT_DEFAULTS, ())]
    fan_out_defaults()
    ap.refresh_from_db()
    assert ap.maximum_kbit == 300
    after = Host.objects.get(pk=ap.host_id)
    assert (after.config_version, after.limits_version) == (before.config_version, before.limits_version + 1)
    sent.clear()
    tasks.sweep()
    assert sent == []
    fan_out_defaults()
    assert Host.objects.get(pk=ap.host_id).limits_version == after.limits_version


# --- mails --------------------------------------------------------------------------------------------------


def test_mail_is_sent_once(sent: Sent) -> None:
    pk = a_mail().pk
    send_mail(pk)
    send_mail(pk)
    assert [(one.to, one.subject, one.body) for one in outbox.outbox] == [
        (["owner@example.org"], "Link limited", "Hello")
    ]
    mail = Mail.objects.get()
    assert (mail.attempts, mail.last_error) == (1, "")
    assert mail.sent_at is not None


@pytest.fixture
def smtp_down(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def refuse(*_: object) -> int:
        raise smtplib.SMTPServerDisconnected("please run connect() first")

    monkeypatch.setattr(EmailBackend, "send_messages", refuse)
    return monkeypatch


def test_mail_server_that_is_down_loses_no_mail(smtp_down: pytest.MonkeyPatch, sent: Sent) -> None:
    pk = a_mail().pk
    send_mail(pk)
    mail = Mail.objects.get()
    assert (mail.sent_at, mail.attempts) == (None, 1)
    assert mail.last_error.startswith("SMTPServerDisconnected")
    tasks.sweep()
    assert sent == []  # not at once again
    assert due_ids(Mail, now=timezone.now() + timedelta(seconds=31), limit=10) == [pk]
    smtp_down.undo()
    Mail.objects.update(not_before=timezone.now())
    send_mail(pk)
    assert len(outbox.outbox) == 1
    assert Mail.objects.get().attempts == 2


def test_waiting_grows_and_has_an_end(smtp_down: pytest.MonkeyPatch) -> None:
    pk, waits = a_mail().pk, []
    for _ in range(10):
        Mail.objects.update(not_before=timezone.now())
        mail_send(pk)
        waits.append(round((Mail.objects.get().not_before - timezone.now()).total_seconds()))
    assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_mail_of_a_worker_that_was_killed_is_sent_after_its_lease(monkeypatch: pytest.MonkeyPatch, sent: Sent) -> None:
    def die(*_: object) -> int:
        raise SystemExit  # as SIGTERM ends a worker in the middle

    pk = a_mail().pk
    with monkeypatch.context() as patched:
        patched.setattr(EmailBackend, "send_messages", die)
        with pytest.raises(SystemExit):
            mail_send(pk)
    tasks.sweep()
    assert sent == []  # as far as anybody knows the worker is still at it
    Mail.objects.update(not_before=timezone.now() - LEASE)
    tasks.sweep()
    assert sent == [(SEND_MAIL, (pk,))]
    assert mail_send(pk)
    assert len(outbox.outbox) == 1


@pytest.mark.django_db(transaction=True)
def test_two_workers_at_once_send_one_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both reach for it; one is held inside of the mail server's answer while the other one asks."""
    pk = a_mail().pk
    in_smtp, go_on, count = threading.Event(), threading.Event(), []

    def slow(_: object, messages: list[Any]) -> int:
        count.append(len(messages))
        in_smtp.set()
        assert go_on.wait(10)
        return len(messages)

    monkeypatch.setattr(EmailBackend, "send_messages", slow)

    def worker() -> None:
        try:
            mail_send(pk)
        finally:
            connection.close()

    first = threading.Thread(target=worker)
    first.start()
    try:
        assert in_smtp.wait(10)
        assert mail_send(pk) is False
    finally:
        go_on.set()
        first.join(10)
    assert count == [1]
    assert Mail.objects.get().sent_at is not None


def test_mail_is_kept_once_per_event_and_queued_after_the_commit(
    sent: Sent, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    new = Mail(key="link:1:18.7", recipient="owner@example.org", subject="s", body="b")
    again = Mail(key="link:1:18.7", recipient="owner@example.org", subject="s", body="b")
    with django_capture_on_commit_callbacks(execute=True):
        assert mails_create([new]) == 1
        assert mails_create([again]) == 0
    assert sent == [(SEND_MAIL, (Mail.objects.get().pk,))]


def test_many_mails_at_once_are_all_kept_and_not_all_queued(
    sent: Sent, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    """A new attachment point with hundreds of links: its agent waits for the answer to its first receipt."""
    new = [Mail(key=f"link:{n}:1.1", recipient="owner@example.org", subject="s", body="b") for n in range(60)]
    with django_capture_on_commit_callbacks(execute=True):
        assert mails_create(new) == 60
    assert len(sent) == 50
    tasks.sweep()
    assert {args for name, args in sent if name == SEND_MAIL} == {
        (pk,) for pk in Mail.objects.values_list("pk", flat=True)
    }
