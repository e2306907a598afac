"""What Celery's workers do. Tasks take ids, may run any number of times, and find their work in the database.

They are queued by name after a commit (`scionlab.platform.queue`); `sweep` finds what a dead worker or a broker that
was down left undone.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from celery import shared_task
from django.core.management import call_command
from django.db import DatabaseError
from django.utils import timezone
from redis.exceptions import RedisError

from bandwidth_config import RuleError
from scionlab.configuration.complete import hosts_complete_share
from scionlab.configuration.render import render_ahead
from scionlab.enforcement import last_contact
from scionlab.enforcement.notices import notices_find
from scionlab.enforcement.webhook import webhook_send
from scionlab.links.defaults import fan_out, unsettled_attachment_points
from scionlab.links.exceptions import exceptions_tell
from scionlab.links.link_test import link_tests_retire
from scionlab.links.test_mails import link_tests_tell
from scionlab.links.timed_limit import timed_limits_retire
from scionlab.models import Host, Mail, WebhookDelivery
from scionlab.operations.retention import old_rows_forget
from scionlab.people.account import account_request_answer, account_requests_due
from scionlab.people.mail import mail_send
from scionlab.people.outbox import due_ids
from scionlab.platform.queue import (
    ANSWER_ACCOUNT_REQUEST,
    FAN_OUT_DEFAULTS,
    RENDER_HOST,
    SEND_MAIL,
    SEND_WEBHOOK,
    queue_now,
)
from scionlab.trust.renewal import keys_renew
from scionlab.trust.signing import signing_key_rotate_if_due
from scionlab.usage.months import compute_due as usage_months_compute
from scionlab.usage.rollup import prune as usage_prune
from scionlab.usage.rollup import roll_up as usage_roll_up
from scionlab.versions.counters import hosts_to_render

logger = logging.getLogger(__name__)

USAGE_ROLL_UP = timedelta(seconds=100)  # below CELERY_TASK_TIME_LIMIT
USAGE_TIME_LIMIT_S = 3000  # once an hour; of a month of thousands of links there are millions of rows
MAILS_PER_SWEEP = 500
PIECES_EXPIRE_S = 120  # what no worker has begun by then was queued again by later sweeps


@shared_task
def render_host(host_id: int) -> None:
    """Have the host's configuration ready before it polls. Nothing for a host that is gone, or has no AS."""
    host = Host.objects.filter(pk=host_id).first()
    if host is None:
        return
    try:
        if render_ahead(host):
            logger.info("render.done host=%s version=%s limits=%s", host_id, host.config_version, host.limits_version)
    except RuleError as exc:  # an administrator must correct it; the next hosts are not to wait for that
        logger.error("render.refused host=%s code=%s %s", host_id, exc.code, exc.message)


@shared_task
def fan_out_defaults() -> None:
    """Carry changed defaults out (`links.defaults.fan_out`)."""
    host_ids = fan_out()
    if host_ids:
        logger.info("fan_out.done hosts=%s", host_ids)


@shared_task
def send_mail(mail_id: int) -> None:
    """Send one mail of the outbox; nothing where it was sent, or another worker is at it."""
    mail_send(mail_id)


@shared_task
def send_webhook(delivery_id: int) -> None:
    """Send one notice to the webhook; nothing where it was sent, or another worker is at it."""
    webhook_send(delivery_id)


@shared_task
def answer_account_request(request_id: int) -> None:
    """Write the mail that answers who asked for an account, another address or a new password."""
    account_request_answer(request_id=request_id)


@shared_task
def find_notices() -> None:
    """Tell people what needs them (`enforcement.notices`), what tests found (`links.test_mails`), and which exceptions
    from a maximum end (`links.exceptions`)."""
    notices_find()
    link_tests_tell()
    exceptions_tell()


@shared_task
def forget_old_rows() -> None:
    """Delete sent mails and used-up rows that have their age (`operations.retention`)."""
    gone = old_rows_forget(now=timezone.now())
    if any(gone.values()):
        logger.info("retention.done %s", " ".join(f"{name}={count}" for name, count in gone.items()))


@shared_task
def forget_sessions() -> None:
    """Delete sessions that are over, which Django only stops believing."""
    call_command("clearsessions")


@shared_task
def flush_seen() -> None:
    """Write down when hosts were last heard, and tokens used. While Redis or the database is away it waits there, for
    the next run."""
    try:
        for ledger in (last_contact.HOSTS, last_contact.TOKENS):
            last_contact.flush(ledger)
    except (RedisError, DatabaseError) as exc:
        logger.warning("seen.not_flushed error=%r", exc)


@shared_task
def rotate_signing_keys() -> None:
    """Make a successor in time, and warn where nobody does (`SIGNING_KEY_ROTATE_DAYS`)."""
    signing_key_rotate_if_due()


@shared_task
def complete_configurations() -> None:
    """Give a day's share of hosts their complete configuration, while administrators ask for it for all."""
    host_ids = hosts_complete_share(now=timezone.now())
    if host_ids:
        logger.info("complete.done hosts=%s", host_ids)


@shared_task
def renew_keys() -> None:
    """Make the keys and certificates of the testbed that are missing or due (`trust.renewal`)."""
    keys_renew()


@shared_task
def roll_up_usage() -> None:
    """Add the newest samples of traffic to the sums of 5 minutes and days. A long backlog goes on in the next run."""
    usage_roll_up(until=timezone.now() + USAGE_ROLL_UP)


@shared_task(time_limit=USAGE_TIME_LIMIT_S)
def prune_usage() -> None:
    """Delete samples and sums that were kept long enough."""
    gone = usage_prune(now=timezone.now())
    if any(gone.values()):
        logger.info("usage.pruned batches=%(batches)s slots=%(slots)s counters=%(counters)s", gone)


@shared_task(time_limit=USAGE_TIME_LIMIT_S)
def compute_usage_months() -> None:
    """Bring the month's percentiles up to date."""
    usage_months_compute(now=timezone.now())


@shared_task
def retire_timed_limits() -> None:
    """Take timed limits and tests that have ended out of the configurations; nothing changes in a kernel by that."""
    host_ids = [*timed_limits_retire(), *link_tests_retire()]
    if host_ids:
        logger.info("retire.done hosts=%s", host_ids)


@shared_task
def sweep() -> None:
    """Find what was left undone, and queue each piece as a task of its own: mails first, which people wait for.

    As many statements for thousands of hosts as for one, and what fails or hangs keeps nothing else from being done.
    """
    now = timezone.now()
    found = [(SEND_MAIL, mail_id) for mail_id in due_ids(Mail, now=now, limit=MAILS_PER_SWEEP)]
    found += [(SEND_WEBHOOK, one) for one in due_ids(WebhookDelivery, now=now, limit=MAILS_PER_SWEEP)]
    found += [(ANSWER_ACCOUNT_REQUEST, request_id) for request_id in account_requests_due(limit=MAILS_PER_SWEEP)]
    for task, one in found:
        queue_now(task, one, expires_s=PIECES_EXPIRE_S)
    if unsettled_attachment_points():
        queue_now(FAN_OUT_DEFAULTS, expires_s=PIECES_EXPIRE_S)
    for host_id in hosts_to_render(now=now):
        queue_now(RENDER_HOST, host_id, expires_s=PIECES_EXPIRE_S)
