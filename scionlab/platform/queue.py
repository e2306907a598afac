"""Queues work for the Celery workers after the commit, without ever failing the save.

Tasks are named, not imported: `scionlab.tasks` is above the services. `scionlab.tasks.sweep` finds work that was not
queued.
"""

from __future__ import annotations

import logging
from typing import Final

from celery import current_app
from django.conf import settings
from django.db import transaction
from kombu.exceptions import ChannelError, OperationalError
from redis.exceptions import RedisError

from scionlab.platform import redis_client
from scionlab.platform.redis_client import REST, REST_S

logger = logging.getLogger(__name__)

RENDER_HOST: Final = "scionlab.tasks.render_host"
FAN_OUT_DEFAULTS: Final = "scionlab.tasks.fan_out_defaults"
DELIVER_RESTARTS: Final = "scionlab.tasks.deliver_restarts"
SEND_MAIL: Final = "scionlab.tasks.send_mail"
RENEW_KEYS: Final = "scionlab.tasks.renew_keys"

# One retry, for a pooled connection that the broker closed; then the sweep is soon enough.
_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


def queue_after_commit(task: str, *args: int) -> None:
    """Queue `task(*args)` after the commit; immediately without a transaction. `robust`: the save is done, so no error
    may be reported or stop the next task."""
    transaction.on_commit(lambda: queue_now(task, *args), robust=True)  # no `partial`: Django logs `__qualname__`


def queue_now(task: str, *args: int, expires_s: float | None = None) -> bool:
    """Return False if the broker does not accept it: logged, and left to the sweep. `expires_s`: for work that is
    queued again if not started by then."""
    if not REST.is_over:
        return False
    try:
        current_app.send_task(task, args=args, expires=expires_s, retry=True, retry_policy=_RETRY_POLICY)
    except (OperationalError, ChannelError, RedisError, OSError) as exc:  # OSError: the folder is missing, or full
        logger.warning("queue.failed task=%s args=%s error=%r; nothing is queued for %g s", task, args, exc, REST_S)
        REST.begin()
        return False
    return True


def queue_length() -> int | None:
    """Number of tasks that no worker has taken; None without Redis, or if it does not respond."""
    if not settings.REDIS_URL:
        return None
    try:
        return int(redis_client.client().llen(settings.CELERY_TASK_DEFAULT_QUEUE))
    except RedisError:
        return None


def redis_problems() -> list[str]:
    """For the health check: a line for each server that does not respond."""
    lost = {
        settings.CACHE_URL: "cache: {}; configurations are rendered for each poll, and API requests are not "
        "rate-limited"
    }
    lost[settings.REDIS_URL] = "redis: {}; saves are accepted; the sweep processes them once Redis is back"
    return [line.format(problem) for url, line in lost.items() if (problem := redis_problem(url))]


def redis_problem(url: str) -> str:
    """Why the server at this address does not respond; "" if it does, or there is none."""
    try:
        if url:
            redis_client.client_of(url).ping()
    except RedisError as exc:
        return type(exc).__name__
    return ""
