"""Celery tasks of the testbed."""

from __future__ import annotations

import logging

from celery import shared_task

from scionlab.testbed.versions.restarts import restarts_deliver

logger = logging.getLogger(__name__)


@shared_task(name="scionlab.tasks.deliver_restarts")
def deliver_restarts() -> None:
    """Raise H of attachment points whose collected changes are due (`versions.restarts`)."""
    host_ids = restarts_deliver()
    if host_ids:
        logger.info("restart.delivered hosts=%s", host_ids)
