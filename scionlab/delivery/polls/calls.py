"""Calls of a host that waits: its poll ends, and the answer names links. Messages go through
Redis, or the cache `live`."""

from __future__ import annotations

import json
from typing import Final

from django.conf import settings
from django.core.cache import caches

from scionlab.platform import redis_client
from scionlab.platform.clock import database_now

CALLS: Final = "scionlab.looks"


CALL_EACH_S: Final = 2  # a silent agent is called no more often


_CALLS: Final = "calls"  # without Redis: host -> (time of the call, links)


def call(uid: str, links: list[int]) -> None:
    """End the waiting poll of this host, in whichever process it waits."""
    if settings.REDIS_URL:
        redis_client.client().publish(CALLS, json.dumps([uid, links]))
        return
    cache, now = caches["live"], database_now().timestamp()
    calls = {one: said for one, said in cache.get(_CALLS, {}).items() if now - said[0] < CALL_EACH_S}
    cache.set(_CALLS, {**calls, uid: (now, links)}, timeout=CALL_EACH_S)


def called_since(at: float) -> tuple[float, dict[str, list[int]]]:
    """Without Redis: the hosts that were called after `at`, and the argument of the next call."""
    calls = caches["live"].get(_CALLS, {})
    return max([at, *(said[0] for said in calls.values())]), {
        uid: said[1] for uid, said in calls.items() if said[0] > at
    }


def called_by(message: bytes) -> tuple[str, list[int]] | None:
    """The host and the links in a message on `CALLS`."""
    try:
        uid, links = json.loads(message)
    except (ValueError, TypeError):
        return None
    return (uid, links) if isinstance(uid, str) and isinstance(links, list) else None
