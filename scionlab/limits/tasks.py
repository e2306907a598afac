"""Celery tasks of limits."""

from __future__ import annotations

import logging

from celery import shared_task

from scionlab.limits.defaults import fan_out
from scionlab.limits.exceptions import exceptions_notify
from scionlab.limits.retirement import log_retired
from scionlab.limits.timed_limit import timed_limits_retire

logger = logging.getLogger(__name__)


@shared_task(name="scionlab.tasks.fan_out_defaults")
def fan_out_defaults() -> None:
    """Apply changed defaults (`links.defaults.fan_out`)."""
    host_ids = fan_out()
    if host_ids:
        logger.info("fan_out.done hosts=%s", host_ids)


@shared_task(name="scionlab.tasks.notify_exceptions")
def notify_exceptions() -> None:
    """Create mails about ending exceptions (`links.exceptions`)."""
    exceptions_notify()


@shared_task(name="scionlab.tasks.retire_timed_limits")
def retire_timed_limits() -> None:
    """Remove ended timed limits from the configurations; no kernel changes."""
    log_retired("timed limits", timed_limits_retire())
