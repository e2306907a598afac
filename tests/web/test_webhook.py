"""Administrators' notices to a webhook: signed, tried again, given up, and what the page says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from scionlab.enforcement.notices import AWAY_AFTER, FAILED_AFTER
from scionlab.enforcement.webhook import GIVEN_UP_AFTER, webhook_enqueue, webhook_send, webhook_set
from scionlab.models import (
    BandwidthChange,
    Host,
    HostReceipt,
    Link,
    LinkEnforcement,
    Mail,
    User,
    Webhook,
    WebhookDelivery,
)
from scionlab.people.outbox import due_ids
from scionlab.trust.secrets_box import opened, rewrap
from tests.receiver import Receiver, receiving
from tests.web.html import Page
from tests.web.test_exceptions import ask
from tests.web.test_notices import MINUTE, T0, heard, look, reporting, watched

__all__ = ["reporting", "watched"]  # the fixtures
pytestmark = pytest.mark.django_db
PAGE = "/cockpit/webhook/"


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    settings.WEBHOOK_HTTP = settings.WEBHOOK_PRIVATE_ADDRESSES = True
    with receiving() as server:
        yield server


@pytest.fixture
def secret(receiver: Receiver, staff: User) -> str:
    return webhook_set(url=receiver.url(), actor=staff)


def documented() -> Callable[[str, str, bytes], bool]:
    """The verification that docs/operations.md shows."""
    text = (Path(__file__).parents[2] / "docs/operations.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import hashlib.*?)```", text, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102  our own text
    found: Callable[[str, str, bytes], bool] = names["is_genuine"]
    return found


def told() -> list[dict[str, Any]]:
    return [json.loads(row.body) for row in WebhookDelivery.objects.order_by("pk")]


# --- the page -----------------------------------------------------------------------------------------------------


def test_the_secret_is_shown_once_and_a_test_shows_what_the_receiver_answered(
    door: Client, receiver: Receiver, staff: User
) -> None:
    assert "Send a test" not in Page(door.get(PAGE)).text
    shown = Page(door.post(PAGE, {"url": receiver.url()}))
    secret = shown.root.one("pre").text
    hook = Webhook.objects.get()
    assert opened(hook.secret_encrypted, "x").decode() == secret
    assert secret not in hook.secret_encrypted
    assert rewrap() > 0  # with the other secrets, when SIGNING_SECRET changes
    assert secret not in door.get(PAGE).content.decode()
    assert "it answered 204" in Page(door.post(f"{PAGE}test/", follow=True)).text
    ((_, headers, body),) = receiver.got
    assert json.loads(body)["event"] == "test"
    is_genuine = documented()
    signature = headers["SCIONLab-Signature"]
    assert is_genuine(secret, signature, body)
    assert not is_genuine(secret, signature, body + b" ")
    assert not is_genuine("another", signature, body)
    assert not is_genuine(secret, re.sub(r"t=\d+", "t=1700000000", signature), body)
    receiver.status = 503
    assert "The receiver answered 503." in Page(door.post(f"{PAGE}test/", follow=True)).text
    renewed = Page(door.post(PAGE, {"url": receiver.url(), "is_renewed": "on"})).root.one("pre").text
    assert opened(Webhook.objects.get().secret_encrypted, "x").decode() == renewed != secret
    assert door.post(PAGE, {"url": ""}).status_code == 302
    assert not Webhook.objects.exists()
    details = list(BandwidthChange.objects.filter(kind="webhook").order_by("pk").values_list("detail", flat=True))
    assert details == ["set to localhost, with a new secret"] * 2 + ["removed"]


def test_urls_inside_are_refused_and_without_tls_not_stored(
    door: Client, receiver: Receiver, secret: str, settings: Settings
) -> None:
    settings.WEBHOOK_HTTP = False
    assert "begins with https://" in Page(door.post(PAGE, {"url": receiver.url()})).beside("URL")
    settings.WEBHOOK_HTTP, settings.WEBHOOK_PRIVATE_ADDRESSES = True, False
    assert "which is not public" in Page(door.post(f"{PAGE}test/", follow=True)).text
    assert receiver.got == []


# --- what it is told ------------------------------------------------------------------------------------------------


def test_an_attachment_point_that_is_away_is_told_once_and_that_it_is_back(
    secret: str, reporting: HostReceipt, host_a: Host, owner: User
) -> None:
    User.objects.filter(pk=owner.pk).update(mail_opt_outs=["away"])
    assert look(T0 + AWAY_AFTER + MINUTE) == [], "nobody wants a mail"
    (away,) = told()
    assert (away["event"], away["attachment_point"], away["links"]) == ("away", "17-ffaa:0:1107", 1)
    assert away["text"] == "No report from 17-ffaa:0:1107 since 2026-11-21 06:00 UTC: 1 link."
    heard(host_a, T0 + timedelta(hours=2))
    look(T0 + timedelta(hours=2, minutes=1))
    assert [one["event"] for one in told()] == ["away", "away_over"]


def test_failed_limits_and_requests_are_told_and_nothing_without_a_webhook(
    secret: str, reporting: HostReceipt, host_a: Host, link: Link, owner: User
) -> None:
    heard_at = T0 + FAILED_AFTER
    heard(host_a, heard_at)
    LinkEnforcement.objects.update(state="error", problem="eth0 is gone.", since=T0)
    look(heard_at)
    heard(host_a, heard_at)
    mails = Mail.objects.filter(kind="failed").count()
    look(heard_at + MINUTE)
    assert Mail.objects.filter(kind="failed").count() == mails == 1
    ask(link, owner)
    assert [one["event"] for one in told()] == ["failed", "failed_over", "exception_asked"]
    Webhook.objects.all().delete()
    look(T0 + timedelta(hours=5))
    assert len(told()) == 3


# --- how it gets there ------------------------------------------------------------------------------------------------


def test_a_notice_is_of_the_transaction_of_its_event_and_sent_once(secret: str, receiver: Receiver) -> None:
    with transaction.atomic():
        webhook_enqueue("away", key="x", text="undone")
        transaction.set_rollback(True)
    assert told() == []
    assert [webhook_enqueue("away", key="x", text=text) for text in ("first", "again")] == [True, False]
    (row,) = WebhookDelivery.objects.all()
    assert [webhook_send(row.pk), webhook_send(row.pk)] == [True, False]
    ((_, headers, body),) = receiver.got
    assert (headers["SCIONLab-Delivery"], json.loads(body)["text"]) == ("x", "first")


def test_it_is_tried_again_more_and_more_slowly_then_given_up_and_the_cockpit_says_so(
    secret: str, receiver: Receiver, door: Client
) -> None:
    receiver.status = 500
    webhook_enqueue("away", key="x", text="t")
    (row,) = WebhookDelivery.objects.all()
    assert not webhook_send(row.pk)
    row.refresh_from_db()
    assert row.not_before is not None
    assert timedelta(seconds=20) < row.not_before - timezone.now() < timedelta(seconds=31)
    now = timezone.now()
    assert [due_ids(WebhookDelivery, now=now + timedelta(seconds=s), limit=9) for s in (0, 31)] == [[], [row.pk]]
    assert "answered 500" in Page(door.get(PAGE)).text
    assert "Notices could not be delivered" not in Page(door.get("/cockpit/")).text
    WebhookDelivery.objects.update(not_before=now, created_at=now - GIVEN_UP_AFTER)
    assert not webhook_send(row.pk)
    assert due_ids(WebhookDelivery, now=now + timedelta(days=300), limit=9) == []
    assert "Notices could not be delivered" in Page(door.get("/cockpit/")).text
    receiver.status = 200
    assert "1 notice will be retried" in Page(door.post(f"{PAGE}retry/", follow=True)).text
    assert webhook_send(row.pk)
    assert "Notices could not be delivered" not in Page(door.get("/cockpit/")).text
