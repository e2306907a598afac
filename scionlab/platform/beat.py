"""Celery's beat with its own heartbeat file (checked by docker-compose.yml) and a lock: several may run, one works.

The lock is a key in the broker's Redis, renewed by its owner: without access to that Redis nothing can be queued
anyway. Two at once do no harm, because tasks find their work in the database.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from celery.beat import PersistentScheduler
from django.conf import settings
from redis.exceptions import LockNotOwnedError, RedisError

from scionlab.platform import redis_client

logger = logging.getLogger(__name__)

KEY: Final = "scionlab.beat"
LEASE_S: Final = 15  # how long nobody works after a crash
RENEW_S: Final = 3.0
LOOK_S: Final = 1.0


class Scheduler(PersistentScheduler):
    """Works while it owns the lock, otherwise polls for it; exits when it lost it, and its supervisor restarts it. Only
    the owner opens the schedule file, so several may share a SCIONLAB_VAR. Touches `BEAT_HEARTBEAT` after each turn of
    the loop, at least every `RENEW_S` seconds (without Redis: `CELERY_BEAT_MAX_LOOP_INTERVAL`)."""

    _store: Any  # the schedule file; None before it is opened

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Without Redis everything runs on one machine, with one beat.
        self._lock = (
            redis_client.client().lock(KEY, timeout=LEASE_S, thread_local=False) if settings.REDIS_URL else None
        )
        self._token = uuid4().hex  # always the same: a lock whose reply was lost is known as its own
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Postponed until it owns the lock (`tick`)."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        wait_s = self._work(*args, **kwargs) if self._may_work() else LOOK_S
        with suppress(OSError):  # a full disk must not stop it: what it queues is for elsewhere
            Path(settings.BEAT_HEARTBEAT).touch()
        return wait_s

    def close(self) -> None:
        super().close()
        with suppress(RedisError):  # not ours, or expires by itself
            if self._lock is not None:
                self._lock.release()

    def _work(self, *args: Any, **kwargs: Any) -> float:
        if self._store is None:
            logger.info("beat.works")
            super().setup_schedule()
        wait_s: float = super().tick(*args, **kwargs)
        return wait_s if self._lock is None else min(wait_s, RENEW_S)

    def _may_work(self) -> bool:
        """Raises `SystemExit` if another process took over."""
        if self._lock is None:
            return True
        works = self._store is not None
        try:
            if works:
                self._lock.reacquire()
                return True
        except LockNotOwnedError:  # it was suspended for too long, or Redis lost the key
            pass
        except RedisError:
            return True  # queueing waits for Redis as well
        try:
            owns = bool(self._lock.acquire(blocking=False, token=self._token))
        except RedisError:
            owns = works
        if works and not owns:
            logger.warning("beat.lost another process holds the lock; exiting")
            raise SystemExit(0)
        return owns
