"""Wakes waiting polls (scionlab.delivery.polls) with a message after the commit.

The message goes through Redis and may be lost: every web process also checks the rows of its waiting hosts. Without
Redis (embedded) there is only that check, and nothing is sent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Final

from django.conf import settings
from django.db import transaction
from redis.exceptions import RedisError

from scionlab.platform import redis_client
from scionlab.platform.redis_client import REST

logger = logging.getLogger(__name__)

CHANNEL: Final = "scionlab.wake"
EVERYBODY: Final = "*"


def wake_after_commit(host_ids: Iterable[int]) -> None:
    """Compare the waiting polls of these hosts again after the commit."""
    ids = sorted(host_ids)
    if ids and settings.REDIS_URL:
        _after_commit(json.dumps(ids))


def wake_everybody_after_commit() -> None:
    """The same for all hosts, after a change of the generation."""
    if settings.REDIS_URL:
        _after_commit(EVERYBODY)


def _after_commit(message: str) -> None:
    """`robust`: the save is done, whatever happens here. No `partial`: Django logs `__qualname__`."""
    transaction.on_commit(lambda: _publish(message), robust=True)


def woken_by(message: bytes) -> frozenset[int] | None:
    """The hosts in a message; None for all, also if it is unreadable."""
    try:
        ids = json.loads(message)
    except ValueError:
        return None
    return frozenset(ids) if isinstance(ids, list) and all(isinstance(one, int) for one in ids) else None


def _publish(message: str) -> None:
    if not REST.is_over:
        return
    try:
        redis_client.client().publish(CHANNEL, message)
    except RedisError as exc:
        REST.begin()
        logger.warning("wake.not_sent error=%r", exc)
