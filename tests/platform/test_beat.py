"""Which beat works: the owner of a lock in Redis."""

from __future__ import annotations

import pytest
from django.conf import settings
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.lock import Lock

from scionlab.celery import app
from scionlab.platform import redis_client
from scionlab.platform.beat import KEY, Scheduler

pytestmark = pytest.mark.skipif(not settings.REDIS_URL, reason="no Redis (REDIS_URL)")


def test_a_lock_whose_reply_was_lost_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    redis_client.client().delete(KEY)
    beat = Scheduler(app=app)
    assert beat._may_work()
    beat._store = {}  # it works

    def reply_lost(lock: Lock, token: str) -> bool:
        lock.redis.set(KEY, token, nx=True, px=15_000)
        raise RedisTimeoutError

    redis_client.client().delete(KEY)  # Redis was started anew, and hangs
    with monkeypatch.context() as patch:
        patch.setattr(Lock, "do_acquire", reply_lost)
        assert beat._may_work()
    assert beat._may_work()
    assert not Scheduler(app=app)._may_work(), "another one waits"
    redis_client.client().delete(KEY)
