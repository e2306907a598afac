"""Celery's beat, with a sign of life that it writes itself (docker-compose.yml looks how old it is), and with a lock:
several may run, and one of them works.

The lock is a key in the broker's Redis that its owner renews: whoever cannot reach that Redis cannot queue anything
either (docs/adr/0037).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from celery.beat import PersistentScheduler
from django.conf import settings
from redis.exceptions import LockNotOwnedError, RedisError

from scionlab.platform import redis_client

logger = logging.getLogger(__name__)

KEY: Final = "scionlab.beat"
LEASE_S: Final = 15  # so long after a death nobody works
RENEW_S: Final = 3.0
LOOK_S: Final = 1.0


class Scheduler(PersistentScheduler):
    """Works while it owns the lock, looks for it otherwise, and ends when it lost it: its supervisor starts it anew.

    Only who works opens the file of the last runs, so several may share a SCIONLAB_VAR. Touches `BEAT_HEARTBEAT` after
    each turn of the loop, at least every `RENEW_S` seconds (without Redis: `CELERY_BEAT_MAX_LOOP_INTERVAL`).
    """

    _store: Any  # the file of the last runs; None before it is opened

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Without Redis everything is on one machine, and one beat is all there is.
        self._lock = (
            redis_client.client().lock(KEY, timeout=LEASE_S, thread_local=False) if settings.REDIS_URL else None
        )
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Not at the start: when it begins to work (`tick`)."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        wait_s = self._work(*args, **kwargs) if self._may_work() else LOOK_S
        with suppress(OSError):  # a full disk must not end it: what it queues is for elsewhere
            Path(settings.BEAT_HEARTBEAT).touch()
        return wait_s

    def close(self) -> None:
        super().close()
        with suppress(RedisError):  # it was not ours, or ends by itself
            if self._lock is not None:
                self._lock.release()

    def _work(self, *args: Any, **kwargs: Any) -> float:
        if self._store is None:
            logger.info("beat.works")
            super().setup_schedule()
        wait_s: float = super().tick(*args, **kwargs)
        return wait_s if self._lock is None else min(wait_s, RENEW_S)

    def _may_work(self) -> bool:
        """Raises `SystemExit` when another one works instead."""
        if self._lock is None:
            return True
        works = self._store is not None
        try:
            if works:
                self._lock.reacquire()
                return True
        except LockNotOwnedError:  # it was asleep for too long, or Redis lost the key
            pass
        except RedisError:
            return True  # what it tries to queue waits for Redis as well
        try:
            owns = bool(self._lock.acquire(blocking=False))
        except RedisError:
            owns = works
        if works and not owns:
            logger.warning("beat.lost another process holds the lock; exiting")
            raise SystemExit(0)
        return owns
