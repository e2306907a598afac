"""Hands work to the Celery workers, after the commit and without ever failing the save that wanted it.

Tasks are named, not imported: `scionlab.tasks` stands above the services. What does not get through is found again
in the database by `scionlab.tasks.sweep`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from celery import current_app
from django.db import transaction
from kombu.exceptions import ChannelError, OperationalError

logger = logging.getLogger(__name__)

RENDER_HOST: Final = "scionlab.tasks.render_host"
FAN_OUT_DEFAULTS: Final = "scionlab.tasks.fan_out_defaults"
SEND_MAIL: Final = "scionlab.tasks.send_mail"

# One more try at once, for a pooled connection that the broker closed; then the sweep is soon enough.
_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


def queue_after_commit(task: str, *args: int) -> None:
    """Queue `task(*args)` once the transaction is committed; at once where there is none."""
    transaction.on_commit(partial(queue_now, task, *args))


def queue_now(task: str, *args: int) -> bool:
    """False when the broker did not take it: that is logged, and the sweep will do the work."""
    try:
        current_app.send_task(task, args=args, retry=True, retry_policy=_RETRY_POLICY)
    except (OperationalError, ChannelError, OSError) as exc:  # OSError: the file broker's folder is gone or full
        logger.warning("queue.failed task=%s args=%s error=%r", task, args, exc)
        return False
    return True
