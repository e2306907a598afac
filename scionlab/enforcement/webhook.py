"""Notices for administrators as signed JSON to one URL.

    SCIONLab-Delivery   the key of the event, the same at every attempt
    SCIONLab-Signature  t=<seconds since 1970>,v1=<hex HMAC-SHA256 of "<t>.<body>" with the secret>

A row is created in the transaction of the event, and sending is retried for three days. Then it is given up, which the
cockpit shows.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
import time
from datetime import timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from bandwidth_config import RuleError
from scionlab.models import User, Webhook, WebhookDelivery
from scionlab.people import audit
from scionlab.people.outbox import claim, retry_later
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.outgoing import NotDeliveredError, checked_url, post
from scionlab.platform.queue import SEND_WEBHOOK, queue_after_commit
from scionlab.trust.secrets_box import check_secret, opened, sealed

logger = logging.getLogger(__name__)

GIVEN_UP_AFTER: Final = timedelta(days=3)


@transaction.atomic
@sensitive_variables("secret")
def webhook_set(*, url: str, actor: User, is_renewed: bool = False) -> str:
    """Set the URL; "" removes the webhook and its pending notices. Return the new secret, which is not shown again: for
    the first URL, and if `is_renewed`. Raises `FieldRuleError` (`url_invalid`), `RuleError` (`secret_unreadable`)."""
    url, known = url.strip(), Webhook.objects.filter(pk=1).first()
    if not url:
        WebhookDelivery.objects.filter(sent_at=None).delete()
        if known is not None:
            known.delete()
            _note("removed", actor)
        return ""
    try:
        parts = checked_url(url, is_http_allowed=settings.WEBHOOK_HTTP)
    except RuleError as exc:
        raise FieldRuleError.of(exc, "url") from exc
    secret = "" if known is not None and not is_renewed else secrets.token_urlsafe(32)
    if secret:
        check_secret()
    encrypted = sealed(secret.encode()) if secret or known is None else known.secret_encrypted
    Webhook.objects.update_or_create(pk=1, defaults={"url": url, "secret_encrypted": encrypted})
    _note(f"set to {parts.hostname}{', with a new secret' if secret else ''}", actor)
    return secret


def webhook_enqueue(event: str, *, key: str, **facts: object) -> bool:
    """Store a notice in the transaction of the event. Return False without a webhook, or if `key` is already stored."""
    if not Webhook.objects.exists():
        return False
    defaults = {"event": event, "body": _body(event, key, **facts)}
    row, is_new = WebhookDelivery.objects.get_or_create(key=key, defaults=defaults)
    if is_new:
        queue_after_commit(SEND_WEBHOOK, row.pk)
    return is_new


def webhook_send(delivery_id: int) -> bool:
    """Send one notice. Return False if it was sent, is being sent, must wait, or fails."""
    if not claim(WebhookDelivery, delivery_id):
        return False
    row, hook = WebhookDelivery.objects.get(pk=delivery_id), Webhook.objects.filter(pk=1).first()
    if hook is None:  # just removed
        WebhookDelivery.objects.filter(pk=row.pk).delete()
        return False
    try:
        _post(hook, row.key, row.body)
    except (NotDeliveredError, RuleError) as exc:
        if timezone.now() - row.created_at < GIVEN_UP_AFTER:
            retry_later(row, str(exc))
        else:
            WebhookDelivery.objects.filter(pk=row.pk).update(not_before=None, last_error=str(exc)[:200])
            logger.error("webhook.given_up id=%s event=%s attempts=%s error=%s", row.pk, row.event, row.attempts, exc)
        return False
    WebhookDelivery.objects.filter(pk=row.pk).update(sent_at=timezone.now(), last_error="")
    logger.info("webhook.sent id=%s event=%s attempts=%s", row.pk, row.event, row.attempts)
    return True


def webhook_test() -> int:
    """Send the event `test` immediately; return the status of the response. Raises `RuleError` (`webhook_failed`,
    `webhook_none`)."""
    hook, key = Webhook.objects.filter(pk=1).first(), f"test:{secrets.token_hex(8)}"
    if hook is None:
        raise RuleError("webhook_none", "There is no webhook. Save a URL first.")
    try:
        return _post(hook, key, _body("test", key, text="A test of the webhook.", page=settings.SITE_URL))
    except NotDeliveredError as exc:
        raise RuleError("webhook_failed", f"The test did not arrive. {exc}") from exc


def webhook_retry() -> int:
    """Retry notices that were given up; return their number."""
    rows = given_up()
    ids = list(rows.values_list("pk", flat=True))
    rows.update(not_before=timezone.now())
    for delivery_id in ids:
        queue_after_commit(SEND_WEBHOOK, delivery_id)
    return len(ids)


def given_up() -> QuerySet[WebhookDelivery]:
    return WebhookDelivery.objects.filter(sent_at=None, not_before=None)


@sensitive_variables("secret")
def _post(hook: Webhook, key: str, body: str) -> int:
    """Raises `NotDeliveredError`, `RuleError` (`secret_unreadable`, `url_invalid`)."""
    secret, sent_at = opened(hook.secret_encrypted, "The secret of the webhook"), int(time.time())
    content = body.encode()
    signature = hmac.new(secret, f"{sent_at}.".encode() + content, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "SCIONLab-Bandwidth-Service",
        "SCIONLab-Delivery": key,
        "SCIONLab-Signature": f"t={sent_at},v1={signature}",
    }
    inside = settings.WEBHOOK_PRIVATE_ADDRESSES
    return post(hook.url, content, headers, is_http_allowed=settings.WEBHOOK_HTTP, is_inside_allowed=inside)


def _body(event: str, key: str, **facts: object) -> str:
    at = timezone.now().isoformat(timespec="seconds")
    return json.dumps({"event": event, "id": key, "at": at, "site": settings.SITE_URL, **facts}, sort_keys=True)


def _note(detail: str, actor: User) -> None:
    audit.note_webhook(actor=actor, detail=detail)
    logger.info("webhook.changed actor=%s %s", actor.pk, detail)
