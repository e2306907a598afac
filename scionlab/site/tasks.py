"""Celery tasks that need every app; each app has its own in its module `tasks`.

They take ids, are idempotent, and find their work in the database. They are queued by name after a commit
(`scionlab.platform.queue`); `sweep` finds what was lost.
"""

from __future__ import annotations

import logging

from celery import shared_task
from django.core.management import call_command
from django.db.models.functions import Now

from scionlab.accounts.models import Mail
from scionlab.delivery.render import hosts_to_render
from scionlab.limits.defaults import pending_attachment_points
from scionlab.platform.clock import database_now
from scionlab.platform.outbox import due_ids
from scionlab.platform.queue import (
    DELIVER_RESTARTS,
    FAN_OUT_DEFAULTS,
    RENDER_HOST,
    SEND_MAIL,
    queue_now,
)
from scionlab.site.retention import old_rows_forget
from scionlab.testbed.models import Host

logger = logging.getLogger(__name__)

MAILS_PER_SWEEP = 500
RENDERS_PER_SWEEP = 500  # the next run would queue the same again
PIECES_EXPIRE_S = 120  # not started by then: later sweeps queued it again


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


@shared_task(name="scionlab.tasks.sweep")
def sweep() -> None:
    """Queue unfinished work as separate tasks: mails first, which people wait for. A constant number of statements, and
    a failure in one part does not affect others."""
    now = database_now()
    for mail_id in due_ids(Mail, now=now, limit=MAILS_PER_SWEEP):
        queue_now(SEND_MAIL, mail_id, expires_s=PIECES_EXPIRE_S)
    if Host.objects.filter(restart_due_at__lte=Now()).exists():
        queue_now(DELIVER_RESTARTS, expires_s=PIECES_EXPIRE_S)
    if pending_attachment_points():
        queue_now(FAN_OUT_DEFAULTS, expires_s=PIECES_EXPIRE_S)
    for host_id in hosts_to_render(now=now, limit=RENDERS_PER_SWEEP):
        queue_now(RENDER_HOST, host_id, expires_s=PIECES_EXPIRE_S)
