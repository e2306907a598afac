"""Celery tasks of what hosts fetch."""

from __future__ import annotations

import logging

from celery import shared_task

from bandwidth_config import RuleError
from scionlab.delivery.last_contact import HOSTS
from scionlab.delivery.render import render_ahead
from scionlab.delivery.signing import signing_key_rotate_if_due
from scionlab.platform.last_contact import flush_or_log
from scionlab.testbed.models import Host

logger = logging.getLogger(__name__)


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


@shared_task(name="scionlab.tasks.flush_seen")
def flush_seen() -> None:
    """Write the last contact of hosts to the database."""
    flush_or_log(HOSTS)


@shared_task(name="scionlab.tasks.rotate_signing_keys")
def rotate_signing_keys() -> None:
    """Create the next key in time, and warn if that is off (`SIGNING_KEY_ROTATE_DAYS`)."""
    signing_key_rotate_if_due()
