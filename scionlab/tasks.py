"""What Celery's workers do. Tasks take ids, may run any number of times, and find their work in the database.

They are queued by name after a commit (`scionlab.services.queue`); `sweep` finds what a dead worker or a broker that
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
from scionlab.models import Host
from scionlab.services import seen
from scionlab.services.account import account_request_answer, account_requests_due, account_requests_forget
from scionlab.services.idempotency import forget_requests
from scionlab.services.mail import due_mail_ids, mail_send
from scionlab.services.notices import notices_find
from scionlab.services.policy import fan_out
from scionlab.services.queue import SEND_MAIL, queue_now
from scionlab.services.render import render_ahead
from scionlab.services.signing import signing_key_rotate_if_due
from scionlab.services.timed_limit import timed_limits_retire
from scionlab.usage.months import compute_due as usage_months_compute
from scionlab.usage.rollup import prune as usage_prune
from scionlab.usage.rollup import roll_up as usage_roll_up

logger = logging.getLogger(__name__)

POLLING_WITHIN = timedelta(minutes=10)  # nobody waits for the configuration of a host that was away longer
USAGE_ROLL_UP = timedelta(seconds=100)  # below CELERY_TASK_TIME_LIMIT
USAGE_TIME_LIMIT_S = 3000  # once an hour; of a month of thousands of links there are millions of rows
MAILS_PER_SWEEP = 500


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
    """Carry changed defaults out (`services.policy.fan_out`)."""
    host_ids = fan_out()
    if host_ids:
        logger.info("fan_out.done hosts=%s", host_ids)


@shared_task
def send_mail(mail_id: int) -> None:
    """Send one mail of the outbox; nothing where it was sent, or another worker is at it."""
    mail_send(mail_id)


@shared_task
def answer_account_request(request_id: int) -> None:
    """Write the mail that answers who asked for an account, another address or a new password."""
    account_request_answer(request_id=request_id)


@shared_task
def find_notices() -> None:
    """Tell people what needs them (`services.notices`)."""
    notices_find()


@shared_task
def forget_api_requests() -> None:
    """Free the Idempotency-Keys that are older than a day."""
    forget_requests()


@shared_task
def forget_sessions() -> None:
    """Delete sessions that are over, which Django only stops believing, and what was asked for long ago."""
    call_command("clearsessions")
    account_requests_forget()


@shared_task
def flush_seen() -> None:
    """Write down when hosts were last heard, and tokens used. While Redis or the database is away it waits there, for
    the next run."""
    try:
        for ledger in (seen.HOSTS, seen.TOKENS):
            seen.flush(ledger)
    except (RedisError, DatabaseError) as exc:
        logger.warning("seen.not_flushed error=%r", exc)


@shared_task
def rotate_signing_keys() -> None:
    """Make a successor in time, and warn where nobody does (`SIGNING_KEY_ROTATE_DAYS`)."""
    signing_key_rotate_if_due()


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
    """Take timed limits that have ended out of the configurations; nothing changes in a kernel by that."""
    host_ids = timed_limits_retire()
    if host_ids:
        logger.info("retire.done hosts=%s", host_ids)


@shared_task
def sweep() -> None:
    """Do what was left undone: defaults not carried out, configurations not rendered, mails not written or sent."""
    now = timezone.now()
    fan_out_defaults()
    for host_id in Host.objects.filter(last_seen_at__gte=now - POLLING_WITHIN).values_list("pk", flat=True):
        render_host(host_id)
    for request_id in account_requests_due(limit=MAILS_PER_SWEEP):
        answer_account_request(request_id)
    for mail_id in due_mail_ids(now=now, limit=MAILS_PER_SWEEP):
        queue_now(SEND_MAIL, mail_id)  # one task each: a slow mail server holds nothing else up
