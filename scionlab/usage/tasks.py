"""Celery tasks of usage."""

from __future__ import annotations

import logging
from datetime import timedelta

from celery import shared_task

from scionlab.platform.clock import database_now
from scionlab.usage.months import compute_due as usage_months_compute
from scionlab.usage.rollup import prune as usage_prune
from scionlab.usage.rollup import roll_up as usage_roll_up

logger = logging.getLogger(__name__)

USAGE_ROLL_UP = timedelta(seconds=100)  # below CELERY_TASK_TIME_LIMIT


USAGE_TIME_LIMIT_S = 3000  # once an hour


@shared_task(name="scionlab.tasks.roll_up_usage")
def roll_up_usage() -> None:
    """Add the newest samples to the sums of 5 minutes and days. The next run continues a long backlog."""
    usage_roll_up(until=database_now() + USAGE_ROLL_UP)


@shared_task(name="scionlab.tasks.prune_usage", time_limit=USAGE_TIME_LIMIT_S)
def prune_usage() -> None:
    """Delete samples and sums after their retention."""
    gone = usage_prune(now=database_now())
    if any(gone.values()):
        logger.info("usage.pruned batches=%(batches)s days=%(days)s counters=%(counters)s", gone)


@shared_task(name="scionlab.tasks.compute_usage_months", time_limit=USAGE_TIME_LIMIT_S)
def compute_usage_months() -> None:
    """Update the month's percentiles."""
    usage_months_compute(now=database_now())
