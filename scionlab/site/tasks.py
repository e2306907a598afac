"""Celery tasks. They take ids, are idempotent, and find their work in the database.

They are queued by name after a commit (`scionlab.platform.queue`); `sweep` finds what was lost.
"""

from __future__ import annotations

import logging

from celery import shared_task
from django.core.management import call_command
from django.db import DatabaseError
from django.db.models.functions import Now
from redis.exceptions import RedisError

from bandwidth_config import RuleError
from scionlab.accounts.account import account_request_answer, account_requests_due
from scionlab.accounts.last_use import TOKENS
from scionlab.accounts.mail import mail_send
from scionlab.accounts.models import Mail
from scionlab.delivery.last_contact import HOSTS
from scionlab.delivery.render import render_ahead
from scionlab.delivery.rendering import hosts_to_render
from scionlab.delivery.signing import signing_key_rotate_if_due
from scionlab.enforcement.notices import notices_find
from scionlab.limits.defaults import fan_out, pending_attachment_points
from scionlab.limits.exceptions import exceptions_notify
from scionlab.limits.retirement import log_retired
from scionlab.limits.timed_limit import timed_limits_retire
from scionlab.platform.clock import database_now
from scionlab.platform.last_contact import Ledger, flush
from scionlab.platform.outbox import due_ids
from scionlab.platform.queue import (
    ANSWER_ACCOUNT_REQUEST,
    DELIVER_RESTARTS,
    FAN_OUT_DEFAULTS,
    RENDER_HOST,
    SEND_MAIL,
    queue_now,
)
from scionlab.site.retention import old_rows_forget
from scionlab.testbed.models import Host
from scionlab.testbed.versions.restarts import restarts_deliver

logger = logging.getLogger(__name__)

MAILS_PER_SWEEP = 500
RENDERS_PER_SWEEP = 500  # the next run would queue the same again
PIECES_EXPIRE_S = 120  # not started by then: later sweeps queued it again


@shared_task(name="scionlab.tasks.render_host")
def render_host(host_id: int) -> None:
    """Render the host's configuration before it polls. Does nothing for a deleted host, or one without an AS."""
    host = Host.objects.filter(pk=host_id).first()
    if host is None:
        return
    try:
        if render_ahead(host):
            logger.info("render.done host=%s trace=%s", host_id, host.trace)
    except RuleError as exc:  # an administrator must correct it; other hosts go on
        logger.error("render.refused host=%s code=%s %s", host_id, exc.code, exc.message)


@shared_task(name="scionlab.tasks.fan_out_defaults")
def fan_out_defaults() -> None:
    """Apply changed defaults (`limits.defaults.fan_out`)."""
    host_ids = fan_out()
    if host_ids:
        logger.info("fan_out.done hosts=%s", host_ids)


@shared_task(name="scionlab.tasks.send_mail")
def send_mail(mail_id: int) -> None:
    """Send one mail of the outbox; does nothing if it was sent, or another worker is sending it."""
    mail_send(mail_id)


@shared_task(name="scionlab.tasks.answer_account_request")
def answer_account_request(request_id: int) -> None:
    """Create the mail that answers a request for an account, another address or a new password."""
    account_request_answer(request_id=request_id)


@shared_task(name="scionlab.tasks.find_notices")
def find_notices() -> None:
    """Create mails about states (`enforcement.notices`)."""
    notices_find()


@shared_task(name="scionlab.tasks.notify_exceptions")
def notify_exceptions() -> None:
    """Create mails about ending exceptions (`limits.exceptions`)."""
    exceptions_notify()


@shared_task(name="scionlab.tasks.forget_old_rows")
def forget_old_rows() -> None:
    """Delete expired rows (`site.retention`)."""
    gone = old_rows_forget(now=database_now())
    if any(gone.values()):
        logger.info("retention.done %s", " ".join(f"{name}={count}" for name, count in gone.items()))


@shared_task(name="scionlab.tasks.forget_sessions")
def forget_sessions() -> None:
    """Delete expired sessions, which Django only ignores."""
    call_command("clearsessions")


@shared_task(name="scionlab.tasks.flush_seen")
def flush_seen() -> None:
    """Write the last contact of hosts to the database."""
    _flush(HOSTS)


@shared_task(name="scionlab.tasks.flush_tokens_used")
def flush_tokens_used() -> None:
    """Write the last use of API tokens to the database."""
    _flush(TOKENS)


def _flush(ledger: Ledger) -> None:
    """On failure it is kept for the next run."""
    try:
        flush(ledger)
    except (RedisError, DatabaseError) as exc:
        logger.warning("seen.not_flushed ledger=%s error=%r", ledger.key, exc)


@shared_task(name="scionlab.tasks.rotate_signing_keys")
def rotate_signing_keys() -> None:
    """Create the next key in time, and warn if that is off (`SIGNING_KEY_ROTATE_DAYS`)."""
    signing_key_rotate_if_due()


@shared_task(name="scionlab.tasks.retire_timed_limits")
def retire_timed_limits() -> None:
    """Remove ended timed limits from the configurations; no kernel changes."""
    log_retired("timed limits", timed_limits_retire())


@shared_task(name="scionlab.tasks.deliver_restarts")
def deliver_restarts() -> None:
    """Raise H of attachment points whose collected changes are due (`testbed.versions.restarts`)."""
    host_ids = restarts_deliver()
    if host_ids:
        logger.info("restart.delivered hosts=%s", host_ids)


@shared_task(name="scionlab.tasks.sweep")
def sweep() -> None:
    """Queue unfinished work as separate tasks: mails first, which people wait for. A constant number of statements, and
    a failure in one part does not affect others."""
    now = database_now()
    found = [(SEND_MAIL, mail_id) for mail_id in due_ids(Mail, now=now, limit=MAILS_PER_SWEEP)]
    found += [(ANSWER_ACCOUNT_REQUEST, request_id) for request_id in account_requests_due(limit=MAILS_PER_SWEEP)]
    for task, one in found:
        queue_now(task, one, expires_s=PIECES_EXPIRE_S)
    if Host.objects.filter(restart_due_at__lte=Now()).exists():
        queue_now(DELIVER_RESTARTS, expires_s=PIECES_EXPIRE_S)
    if pending_attachment_points():
        queue_now(FAN_OUT_DEFAULTS, expires_s=PIECES_EXPIRE_S)
    for host_id in hosts_to_render(now=now, limit=RENDERS_PER_SWEEP):
        queue_now(RENDER_HOST, host_id, expires_s=PIECES_EXPIRE_S)
